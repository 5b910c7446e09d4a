"""A standby is promoted: its readers continue, in the same run and in later ones; readers of another history do not."""

from __future__ import annotations

import json
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from pgtail.capture.state import FILE
from pgtail.demo.server import EmbeddedServer
from pgtail.errors import ServerError
from pgtail.files.stopping import Interrupt
from pgtail.pgoutput.scalars import parse_lsn
from pgtail.postgres.connection import Connector, parameters
from pgtail.postgres.walsender import Session
from pgtail.replication.identity import Identity, check_same
from pgtail.replication.probe import TimelineProbe
from tests.conftest import StartServer
from tests.support.captures import head, segments
from tests.support.run import Result, command
from tests.support.servers import Database, fresh_database, installations
from tests.support.services import service
from tests.support.standbys import catch_up, failover_pair, insert, standby_of, synchronize
from tests.support.tail import Tailing, tailing, wait_for

NEWEST = list(installations().values())[-1]
SLOT = "cap"
REFUSAL = "the server was promoted or restored: it switched from timeline 1 to 2 at"
pytestmark = pytest.mark.skipif(NEWEST.major < 17, reason="failover slots exist from PostgreSQL 17 on")


def make_slots(primary: Database, standby: Database, *names: str) -> None:
    """Create a slot on a standby, which waits for the primary, and copies of it."""
    first, *others = names
    create = f"SELECT pg_create_logical_replication_slot('{first}', 'pgoutput')"
    creation = threading.Thread(target=standby.query, args=[create], daemon=True)
    creation.start()
    while creation.is_alive():
        primary.query("SELECT pg_log_standby_snapshot()")
        creation.join(0.2)
    for name in others:
        standby.query(f"SELECT pg_copy_logical_replication_slot('{first}', '{name}')")


@contextmanager
def recording(database: Database | str, directory: Path, slot: str = SLOT) -> Iterator[Tailing]:
    arguments = ["-S", slot, "-D", str(directory), "--sync-interval", "0.05"]
    with tailing(database, *arguments, command="record") as running:
        yield running


def record(database: Database, directory: Path, slot: str = SLOT) -> Result:
    return command("record", database.conninfo(), "-S", slot, "-D", directory, "--until", "now")


def goes_on(database: Database, directory: Path, slot: str, *numbers: int) -> None:
    """The next run continues, and then the capture has the rows with these numbers."""
    result = record(database, directory, slot)
    assert result.status == 0, result.stderr
    assert ids(directory) == list(numbers)
    assert timelines(directory)[1] == "2"


def wait_for_capture(database: Database, slot: str = SLOT) -> None:
    """Wait until everything is acknowledged; record acknowledges what is synced to disk."""
    lsn = database.value(
        "SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END::text"
    )
    query = f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{slot}' AND confirmed_flush_lsn >= '{lsn}'"
    wait_for("acknowledgement", lambda: database.query(query))


def timelines(directory: Path) -> tuple[list[str], str]:
    """The timelines in the heads of the segments and in the stored position."""
    in_segments = [head(path)["pgtail.timeline"] for path in segments(directory)]
    return in_segments, json.loads((directory / FILE).read_text())["parameters"]["pgtail.timeline"]


def ids(directory: Path) -> list[int]:
    found = command("decode", "-o", "json", directory)
    assert (found.status, found.stderr) == (0, "")
    return [one["new"]["id"] for one in found.objects]


def promote(standby: Database, number: int) -> None:
    """Promote it and write on the new timeline."""
    standby.query("SELECT pg_promote()")
    standby.execute(f"INSERT INTO t VALUES ({number})")


def test_readers_continue_after_a_promotion(start_server: StartServer, tmp_path: Path) -> None:
    """Its reader continues: in the same run, in later ones, and after a restart."""
    noticed, killed, stopped = (tmp_path / name for name in ("noticed", "killed", "stopped"))
    with failover_pair(start_server()) as (primary, standby):
        make_slots(primary, standby, "n", "k", "s", "t")
        with (
            recording(standby, noticed, "n") as noticing,
            recording(standby, killed, "k") as killing,
            recording(standby, stopped, "s") as stopping,
            tailing(standby, "-S", "t", "--ack", "commit") as streaming,
        ):
            for running, slot in ((noticing, "n"), (killing, "k"), (stopping, "s"), (streaming, "t")):
                running.wait_for_slot(standby, slot)
            insert(primary, standby, 1)
            promote(standby, 2)
            # Killed, perhaps before it noticed: the next run finds the same server process.
            wait_for_capture(standby, "k")
            killing.kill()
            # Stopped normally: it asks again.
            wait_for_capture(standby, "s")
            stopping.stop()
            assert timelines(stopped)[1] == "2"
            streaming.wait_for_lines(2)
            standby.query("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = 't'")
            streaming.wait_for_words("connected again")
            noticing.wait_for_words("the server is on timeline 2 now")
            wait_for("note of it", lambda: timelines(noticed)[1] == "2")
            standby.execute("INSERT INTO t VALUES (3)")
            wait_for_capture(standby, "n")
            noticing.kill()
            assert timelines(noticed) == (["1"], "2")
            goes_on(standby, killed, "k", 1, 2, 3)
            streaming.wait_for_lines(3)
            standby.server.restart()
            standby.execute("INSERT INTO t VALUES (4)")
            goes_on(standby, noticed, "n", 1, 2, 3, 4)
            goes_on(standby, stopped, "s", 1, 2, 3, 4)
            goes_on(standby, killed, "k", 1, 2, 3, 4)
            streaming.wait_for_lines(4)
            streaming.stop()
        assert timelines(noticed)[0] == ["1", "2", "2"]
        assert [line["new"]["id"] for line in streaming.changes] == ["1", "2", "3", "4"]


def test_standby_that_received_less_is_refused(start_server: StartServer, tmp_path: Path) -> None:
    """The standby is replaced with one that was promoted at an earlier position than the one read."""
    with failover_pair(start_server()) as (primary, standby), standby_of(primary.server) as late_server:
        late = Database(late_server, "postgres")
        for one in (standby, late):
            make_slots(primary, one, SLOT, "tail")
        insert(primary, late, 1)
        catch_up(primary, standby)
        late_server.stop()  # from here on it receives nothing
        hosts = both(standby.server, late_server)
        with recording(hosts, tmp_path) as recorder, tailing(hosts, "-S", "tail", "--ack", "commit") as streamer:
            recorder.wait_for_slot(standby, SLOT)
            insert(primary, standby, 2)
            streamer.wait_for_lines(2)
            wait_for_capture(standby)
            primary.server.stop()
            standby.server.stop()
            diverge(late_server, tmp_path)
            for running in (recorder, streamer):
                assert REFUSAL in running.end(status=3)
        refused = record(late, tmp_path)
        assert (refused.status, REFUSAL in refused.stderr) == (3, True), refused.stderr
        check_histories(late_server)


def check_histories(promoted: EmbeddedServer) -> None:
    """Timeline 1 is part of the promoted server's history up to the switch."""
    connection = Connector(parameters(promoted.conninfo())).replication()
    with Interrupt() as interrupt:
        session = Session(connection, interrupt)
        now = Identity.of(session.query)
        assert (now.timeline, now.in_recovery) == (2, False)
        [history] = [row.text("content") for row in session.query("the history", "TIMELINE_HISTORY 2")]
        left = parse_lsn(history.split()[1])
        before = Identity(now.system, 1)

        def check(known: Identity, read: int) -> Identity:
            return check_same(known, session.query, read)

        assert check(replace(now, started=""), left + 1_000_000) == now
        assert check(before, left) == now
        assert check(replace(before, started=now.started, in_recovery=True), left + 1) == now
        for other in (before, replace(before, started="2026-01-01 00:00:00+00", in_recovery=True)):
            with pytest.raises(ServerError, match="it switched from timeline 1 to 2 at"):
                check(other, left + 1)
        with pytest.raises(ServerError, match="is on timeline 2, whose history does not include timeline 7"):
            check(Identity(now.system, 7), 0)
        with pytest.raises(ServerError, match="this is another server: its system identifier is"):
            check(Identity("1", 2, now.started), 0)
        session.close()


def both(first: EmbeddedServer, second: EmbeddedServer) -> str:
    """A connection string with both addresses."""
    return f"host={first.directory},{second.directory} port={first.port},{second.port} user=postgres dbname=postgres"


def diverge(server: EmbeddedServer, capture: Path) -> None:
    """Start a stopped standby; clients reach it only after its promotion, when it is ahead of the capture."""
    address = server.port
    with socket.create_server(("127.0.0.1", 0)) as free:
        server.port = free.getsockname()[1]
    server.configure(port=server.port)
    server.start()
    promoted = Database(server, "postgres")
    promoted.query("SELECT pg_promote()")
    promoted.execute("INSERT INTO t SELECT generate_series(1000, 1100)", "SELECT pg_switch_wal()")
    promoted.execute("INSERT INTO t VALUES (2000)", "CHECKPOINT")
    read = json.loads((capture / FILE).read_text())["position"]
    assert promoted.value(f"SELECT pg_current_wal_flush_lsn() > '{read}'")
    server.stop()
    server.configure(port=address)
    server.port = address
    server.start()


def test_a_failover_of_the_recorded_primary(start_server: StartServer, tmp_path: Path) -> None:
    """Its synchronized slot can be continued only if the new primary has everything that was recorded."""
    with failover_pair(start_server()) as (primary, standby):
        primary.query(f"SELECT pg_create_logical_replication_slot('{SLOT}', 'pgoutput', failover => true)")
        synchronize(primary, standby, SLOT)
        insert(primary, standby, 1)
        whole, more = tmp_path / "whole", tmp_path / "more"
        assert record(primary, whole).status == 0
        shutil.copytree(whole, more)
        standby.query("SELECT pg_sync_replication_slots()")
        catch_up(primary, standby)
        standby.server.stop()  # it receives nothing more
        primary.execute("INSERT INTO t VALUES (2)")
        assert record(primary, more).status == 0
        assert ids(more) == [1, 2]
        primary.server.stop()
        diverge(standby.server, more)
        refused = record(standby, more)
        assert (refused.status, REFUSAL in refused.stderr) == (3, True), refused.stderr
        assert (result := record(standby, whole)).status == 0, result.stderr
        assert ids(whole) == [1, *range(1000, 1101), 2000]


def test_a_failover_while_recording(start_server: StartServer, tmp_path: Path) -> None:
    """pgtail waits for the promotion of the standby."""
    with failover_pair(start_server()) as (primary, standby):
        primary.query(f"SELECT pg_create_logical_replication_slot('{SLOT}', 'pgoutput', failover => true)")
        synchronize(primary, standby, SLOT)
        with recording(both(primary.server, standby.server), tmp_path) as running:
            running.wait_for_slot(primary, SLOT)
            insert(primary, standby, 1)
            wait_for_capture(primary)
            primary.server.stop()
            running.wait_for_words("it cannot be used here; trying again")
            promote(standby, 2)
            running.wait_for_words("connected again")
            wait_for_capture(standby)
            running.stop()
        assert ids(tmp_path) == [1, 2]
        assert timelines(tmp_path) == (["1", "2"], "2")


def test_a_service_reports_a_promotion(start_server: StartServer, tmp_path: Path) -> None:
    with failover_pair(start_server()) as (primary, standby):
        make_slots(primary, standby, SLOT)
        with service("record", standby.conninfo(), "-S", SLOT, "-D", str(tmp_path / "capture")) as running:
            insert(primary, standby, 1)
            wait_for("a row", lambda: running.value("pgtail_read_rows_total") == 1)
            promote(standby, 2)
            assert running.event("promoted")["timeline"] == 2
            wait_for("timeline", lambda: running.value("pgtail_server_timeline") == 2)


@pytest.mark.parametrize("encoding", ["UTF8", "SQL_ASCII"])
def test_the_probe_and_the_session_see_the_same_server(newest_server: EmbeddedServer, encoding: str) -> None:
    with fresh_database(newest_server, encoding=encoding) as database, Interrupt() as interrupt:
        connector = Connector(parameters(database.conninfo()))
        session = Session(connector.replication(), interrupt)
        identity = Identity.of(session.query)
        session.close()
        probe = TimelineProbe(connector, interrupt.wake)
        probe.identity = replace(identity, timeline=0, in_recovery=True)
        assert probe.ask(20) == probe.identity == identity
        assert probe.ask(20) is None  # the timeline of a primary does not change
        probe.identity = replace(identity, timeline=0, in_recovery=True, started="2026-01-01 00:00:00+00")
        assert probe.ask(20) is None  # the answer of another server does not count
