"""Reading a standby (16 and later), also during its promotion."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pgtail.demo.server import EmbeddedServer
from pgtail.errors import ServerError
from pgtail.files.stopping import Interrupt
from pgtail.pgoutput.scalars import parse_lsn
from pgtail.postgres.connection import Connector, parameters
from pgtail.postgres.walsender import Session
from pgtail.replication.identity import Identity, check_same
from tests.conftest import StartServer
from tests.support.servers import Database, installations, some_versions
from tests.support.standbys import insert, standby_of
from tests.support.tail import stream, tailing, wait_for


def created(primary: Database, standby: Database) -> bool:
    """Whether slot s exists. The primary logs a snapshot, which counts only if the standby already waits for it."""
    primary.query("SELECT pg_log_standby_snapshot()")
    return bool(standby.query("SELECT 1 FROM pg_replication_slots WHERE confirmed_flush_lsn IS NOT NULL AND active"))


@pytest.mark.parametrize("version", some_versions())
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
        with primary.connect() as session, tailing(standby, "-S", "s", "--create-slot") as running:
            # While a transaction is open, the slot cannot exist before pgtail reports what it waits for.
            session.execute("BEGIN; SELECT pg_current_xact_id()")
            running.wait_for_words("SELECT pg_log_standby_snapshot();")
            session.execute("COMMIT")
            wait_for("slot", lambda: created(primary, standby))
            insert(primary, standby, 2)
            assert running.changes_of(1)[0]["new"] == {"id": "2"}
            standby.query("SELECT pg_promote()")
            standby.execute("INSERT INTO t VALUES (3)")
            running.wait_for_lines(2)
            standby.query("SELECT pg_terminate_backend(pid) FROM pg_stat_replication WHERE application_name = 'pgtail'")
            running.wait_for_words("connected again")
            standby.execute("INSERT INTO t VALUES (4)")
            running.wait_for_lines(3)
            running.stop()
        assert [line["new"]["id"] for line in running.changes] == ["2", "3", "4"]


def test_a_primary_has_to_write_what_a_standby_decodes(start_server: StartServer) -> None:
    """Since PostgreSQL 19 a logical slot of the primary is enough for that."""
    server = start_server(wal_level="replica")
    primary = Database(server, "postgres")
    if primary.version < 19:
        pytest.skip("wal_level has to be logical before PostgreSQL 19")
    primary.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
    with standby_of(server) as other:
        standby = Database(other, "postgres")
        insert(primary, standby, 1)
        _, words = stream(standby, status=3)
        assert "its primary's effective_wal_level is replica" in words
        assert "Create a slot on the primary, and keep it:" in words
        primary.query("SELECT pg_create_logical_replication_slot('kept', 'pgoutput')")
        wait_for("level", lambda: standby.value("SHOW effective_wal_level") == "logical")
        with tailing(standby, "-S", "s", "--create-slot") as running:
            wait_for("slot", lambda: created(primary, standby))
            insert(primary, standby, 2)
            running.wait_for_lines(1)
            primary.query("SELECT pg_drop_replication_slot('kept')")
            words = running.end(status=3)
        assert "since PostgreSQL 19: the end of the primary's last logical slot" in words


def test_another_history_is_refused(start_server: StartServer) -> None:
    """A standby that had not received everything takes over the address of the primary."""
    server = start_server()
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
            other.stop()  # from here on it receives nothing
            primary.execute("INSERT INTO t VALUES (2)")
            running.wait_for_lines(1)
            server.stop()
            running.wait_for_words("connecting again")
            other.start()
            standby.query("SELECT pg_promote()")
            assert "slot s is gone" in running.end(status=3)
        check_histories(other)


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
