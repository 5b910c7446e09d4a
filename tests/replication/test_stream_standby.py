"""Reading a standby (16 and later); what comes with its promotion is in test_promotion."""

from __future__ import annotations

import pytest

from tests.conftest import StartServer
from tests.support.servers import Database
from tests.support.standbys import insert, standby_of
from tests.support.tail import stream, tailing, wait_for


def created(primary: Database, standby: Database) -> bool:
    """Whether slot s exists. The primary logs a snapshot, which counts only if the standby already waits for it."""
    primary.query("SELECT pg_log_standby_snapshot()")
    return bool(standby.query("SELECT 1 FROM pg_replication_slots WHERE confirmed_flush_lsn IS NOT NULL AND active"))


def test_a_slot_of_a_standby_waits_for_the_primary(start_server: StartServer) -> None:
    """While a transaction is open, the slot cannot exist before pgtail reports what it waits for."""
    primary = Database(start_server(), "postgres")
    if primary.version < 16:
        pytest.skip("standbys decode since PostgreSQL 16")
    primary.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
    with standby_of(primary.server) as other:
        standby = Database(other, "postgres")
        insert(primary, standby, 1)
        with primary.connect() as session, tailing(standby, "-S", "s", "--create-slot") as running:
            session.execute("BEGIN; SELECT pg_current_xact_id()")
            running.wait_for_words("SELECT pg_log_standby_snapshot();")
            session.execute("COMMIT")
            wait_for("slot", lambda: created(primary, standby))
            insert(primary, standby, 2)
            assert running.changes_of(1)[0]["new"] == {"id": "2"}
            running.stop()


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
