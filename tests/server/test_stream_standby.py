"""A standby is read as well (16 and later), also while it becomes the primary."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pgtail.errors import ServerError
from pgtail.server.connection import Connector, parameters
from pgtail.server.embedded import EmbeddedServer
from pgtail.server.identity import Identity, check_same
from pgtail.server.interrupt import Interrupt
from pgtail.server.session import Session
from pgtail.wire.scalars import parse_lsn
from tests.conftest import StartServer
from tests.server.tailing import stream, tailing, wait_for
from tests.servers import Database, installations

VERSIONS = list(installations())


@contextmanager
def standby_of(primary: EmbeddedServer) -> Iterator[EmbeddedServer]:
    """A streaming standby: a second server whose data directory is a base backup of the first."""
    with EmbeddedServer(primary.installation) as standby:
        port = standby.port
        standby.stop()
        owner = standby.data.stat()
        shutil.rmtree(standby.data)
        backup = [str(primary.installation.program("pg_basebackup")), f"--dbname={primary.conninfo()}"]
        backup += [f"--pgdata={standby.data}", "--write-recovery-conf", "--checkpoint=fast"]
        subprocess.run(backup, check=True, capture_output=True, timeout=60)
        for path in (standby.data, *standby.data.rglob("*")):
            shutil.chown(path, owner.st_uid, owner.st_gid)
        standby.configure(port=port, unix_socket_directories=str(standby.directory), hot_standby_feedback=True)
        standby.start()
        yield standby


def insert(primary: Database, standby: Database, number: int) -> None:
    primary.execute(f"INSERT INTO t VALUES ({number})")
    lsn = primary.value("SELECT pg_current_wal_lsn()::text")
    wait_for("replay", lambda: standby.value(f"SELECT pg_last_wal_replay_lsn() >= '{lsn}'"))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_standby_is_read_and_promoted(version: str, start_server: StartServer) -> None:
    server = start_server(installations()[version])
    primary = Database(server, "postgres")
    primary.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
    with standby_of(server) as other:
        standby = Database(other, "postgres")
        insert(primary, standby, 1)
        if standby.version < 16:
            _, words = stream(standby, status=3)
            assert "the server is a standby, and PostgreSQL" in words
            return
        with tailing(standby, "-S", "s", "--create-slot") as running:
            running.wait_for_words("SELECT pg_log_standby_snapshot();")
            primary.query("SELECT pg_log_standby_snapshot()")
            running.wait_for_slot(standby, "s")
            insert(primary, standby, 2)
            assert running.wait_for_lines(1)[0]["new"] == {"id": "2"}
            standby.query("SELECT pg_promote()")
            standby.execute("INSERT INTO t VALUES (3)")
            running.wait_for_lines(2)
            standby.query("SELECT pg_terminate_backend(pid) FROM pg_stat_replication WHERE application_name = 'pgtail'")
            running.wait_for_words("connected again")
            standby.execute("INSERT INTO t VALUES (4)")
            running.wait_for_lines(3)
            running.stop()
        assert [line["new"]["id"] for line in running.changes] == ["2", "3", "4"]


def test_another_history_is_refused(start_server: StartServer) -> None:
    """The primary goes, and a standby that had not seen all of it takes its address."""
    server = start_server(installations()[VERSIONS[-1]])
    primary = Database(server, "postgres")
    primary.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
    with standby_of(server) as other:
        standby = Database(other, "postgres")
        insert(primary, standby, 1)
        hosts = (
            f"host={server.directory},{other.directory} port={server.port},{other.port} user=postgres dbname=postgres"
        )
        primary.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
        with tailing(hosts, "-S", "s") as running:
            running.wait_for_slot(primary, "s")
            other.stop()  # from here on it sees nothing more
            primary.execute("INSERT INTO t VALUES (2)")
            running.wait_for_lines(1)
            server.stop()
            running.wait_for_words("connecting again")
            other.start()
            standby.query("SELECT pg_promote()")
            assert "slot s is gone" in running.end(status=3)
        check_histories(other)


def check_histories(promoted: EmbeddedServer) -> None:
    """What was read on timeline 1 is part of the promoted server's history up to where that left it."""
    connection = Connector(parameters(promoted.conninfo())).replication()
    with Interrupt() as interrupt:
        session = Session(connection, interrupt)
        now = Identity.of(session)
        assert now.timeline == 2
        [(_, history)] = session.query("TIMELINE_HISTORY 2")
        left = parse_lsn(history.split()[1])
        before = Identity(now.system, 1)
        assert check_same(now, session, left + 1_000_000, standby=False) == now
        assert check_same(before, session, left, standby=False) == now
        assert check_same(before, session, left + 1, standby=True) == now
        with pytest.raises(ServerError, match="it went from timeline 1 to 2 at"):
            check_same(before, session, left + 1, standby=False)
        with pytest.raises(ServerError, match="to 2 somewhere"):
            check_same(Identity(now.system, 7), session, 0, standby=True)
        with pytest.raises(ServerError, match="this is another server: its system identifier is"):
            check_same(Identity("1", 2), session, 0, standby=False)
        session.close()
