"""Sessions with the exported snapshot of a slot: what they see, and their settings."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from typing import Any

import psycopg
import pytest

from pgtail.errors import ServerError
from pgtail.files.stopping import Interrupt
from pgtail.postgres.connection import PINNED
from pgtail.postgres.slots import Creation
from pgtail.postgres.snapshot import SnapshotSession, wait_for_commits
from tests.conftest import StartServer
from tests.support.copied_tables import connector_to, snapshot_of, wait_for_walsender
from tests.support.messages import messages_to
from tests.support.servers import Database
from tests.support.standbys import set_synchronous_standbys, wait_for_synchronous_commit
from tests.support.tail import wait_for

TIMEOUTS = {
    "statement_timeout": 0,
    "lock_timeout": 0,
    "idle_in_transaction_session_timeout": 0,
    "idle_session_timeout": 14,
    "transaction_timeout": 17,
}


def settings_of(session: SnapshotSession, names: list[str]) -> dict[str, str]:
    return {name: session.connection.execute(f"SHOW {name}".encode()).fetchone()[0] for name in names}  # type: ignore[index]


def test_what_is_committed_before_and_after(database: Database) -> None:
    database.execute("CREATE TABLE t (id int)", "INSERT INTO t VALUES (1)")
    with snapshot_of(database) as (session, point):
        database.execute("INSERT INTO t VALUES (2)")
        assert session.connection.execute("SELECT id FROM public.t").fetchall() == [(1,)]
        [(name,)] = session.connection.execute("SELECT pg_export_snapshot()").fetchall()
        with SnapshotSession.open(connector_to(database), name) as other:
            database.execute("DELETE FROM t")
            assert other.connection.execute("SELECT id FROM public.t").fetchall() == [(1,)]
        assert abs(session.clock() / 1e6 + 946_684_800 - time.time()) < 60
    assert 0 < point <= int(database.value("SELECT (pg_current_wal_insert_lsn() - '0/0')::text"))
    own = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
    wait_for("end of the slot", lambda: not database.query(own))


def test_a_permanent_slot(database: Database) -> None:
    """It stays, at its consistent point, and the snapshot is exported until the session's next command."""
    creation = Creation(connector_to(database), "stays", export=True)
    with Interrupt() as interrupt:
        session, created = creation.create(interrupt, creation.prepare())
        with closing(session):
            assert created.snapshot is not None
            SnapshotSession.open(connector_to(database), created.snapshot).close()
            session.query("the server's identity", "IDENTIFY_SYSTEM")
            with pytest.raises(ServerError, match="snapshot"):
                SnapshotSession.open(connector_to(database), created.snapshot)
    query = "SELECT (confirmed_flush_lsn - '0/0')::text FROM pg_replication_slots WHERE slot_name = 'stays'"
    assert int(database.value(query)) == created.consistent_point


def test_settings_of_the_transaction(database: Database) -> None:
    """They are the stream's, no timeout of the role ends the work, and they end with the transaction."""
    timeouts = [name for name, major in TIMEOUTS.items() if database.version >= major]
    for name in timeouts:
        database.execute(f"ALTER DATABASE {database.name} SET {name} = '{99}min'")
    database.execute(f"ALTER DATABASE {database.name} SET DateStyle = 'German'")
    with snapshot_of(database) as (session, _):
        assert set(settings_of(session, timeouts).values()) == {"0"}
        found = settings_of(session, [*PINNED, "client_encoding", "row_security", "transaction_read_only"])
        assert found.pop("search_path") in ("", '""')
        assert found.pop("DateStyle").startswith("ISO")
        assert found == {
            **{name: value for name, value in PINNED.items() if name not in ("search_path", "DateStyle")},
            "client_encoding": "UTF8",
            "row_security": "off",
            "transaction_read_only": "on",
        }
        session.connection.execute("ROLLBACK")
        after = settings_of(session, [*timeouts, "DateStyle", "row_security"])
        assert "0" not in after.values()
        assert after["DateStyle"].startswith("German")
        assert after["row_security"] == "on"


def test_a_transaction_that_has_not_finished_its_commit(start_server: StartServer) -> None:
    """The snapshot has it, but what it wrote must not be read yet. Here it waits for a standby that does not exist.

    Later servers wait for it themselves, while they create the slot.
    """
    database = Database(start_server(), "postgres")
    database.execute("CREATE TABLE t (id int)")
    first, second, third = sessions = [database.connect() for _ in range(3)]
    for session in (first, second):
        session.execute("SET synchronous_commit = 'local'")
        session.execute("BEGIN")
    first.execute("SELECT txid_current()")
    committing = threading.Thread(target=lambda: third.execute("INSERT INTO t VALUES (1)"))

    def write() -> None:
        """The creation of a slot waits for what runs twice, and not for what begins at the second time."""
        wait_for_walsender(database, first)
        second.execute("SELECT txid_current()")
        first.execute("COMMIT")
        wait_for_walsender(database, second)
        committing.start()
        wait_for_synchronous_commit(database)
        second.execute("COMMIT")

    said: list[str] = []

    def react(text: str) -> None:
        said.append(text)
        if "INSERT" in text or "COMMIT" in text:
            set_synchronous_standbys(database, "")

    set_synchronous_standbys(database, "nobody")
    writer = threading.Thread(target=write)
    writer.start()
    with messages_to(react), snapshot_of(database) as (session_, _):
        writer.join()
        wait_for_commits(session_, connector_to(database))
        assert session_.connection.execute("SELECT id FROM public.t").fetchall() == [(1,)]
    committing.join()
    assert "the copy waits for 1 transaction to finish COMMIT" in said[-1] or "INSERT" in said[-1]
    for session in sessions:
        session.close()


def test_a_transaction_that_rolls_back_while_the_slot_is_created(database: Database) -> None:
    """The snapshot then has an xmin above its xmax, in a text that the server itself does not read."""
    first, second, third, fourth = sessions = [database.connect() for _ in range(4)]

    def begin(session: psycopg.Connection[Any]) -> None:
        session.execute("BEGIN")
        session.execute("SELECT txid_current()")

    def write() -> None:
        """The creation of the slot waits for the first one and then for the second one."""
        wait_for_walsender(database, first)
        begin(second)
        first.execute("COMMIT")
        wait_for_walsender(database, second)
        begin(third)
        third.execute("ROLLBACK")
        begin(fourth)
        second.execute("COMMIT")

    begin(first)
    writer = threading.Thread(target=write)
    writer.start()
    with snapshot_of(database) as (session_, _):
        writer.join()
        with messages_to(pytest.fail):
            wait_for_commits(session_, connector_to(database))
    for session in sessions:
        session.close()


def test_the_exporting_session_has_no_timeout(database: Database) -> None:
    """Its open transaction keeps the snapshot."""
    database.execute(f"ALTER DATABASE {database.name} SET idle_in_transaction_session_timeout = 200")
    creation = Creation(connector_to(database), "stays", temporary=True, export=True)
    with Interrupt() as interrupt:
        session, created = creation.create(interrupt, creation.prepare())
        with closing(session):
            time.sleep(0.6)
            assert created.snapshot is not None
            SnapshotSession.open(connector_to(database), created.snapshot).close()
