"""Streaming standbys of a test server, with synchronized slots since PostgreSQL 17."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pgtail.demo.server import EmbeddedServer
from tests.support.limits import within
from tests.support.servers import Database, client_program, embedded_server
from tests.support.tail import wait_for

_SYNCED = "SELECT 1 FROM pg_replication_slots WHERE slot_name = '{}' AND synced AND NOT temporary"


@contextmanager
def standby_of(primary: EmbeddedServer, *, physical_slot: str | None = None) -> Iterator[EmbeddedServer]:
    """A streaming standby: a second server whose data directory is a base backup of the first.

    With a `physical_slot`, which must exist on the primary, it can synchronize failover slots.
    """
    if primary.installation.major < 12:
        pytest.skip("its standbys are set up in another file, recovery.conf")
    with embedded_server(primary.installation) as standby:
        port, standby.password = standby.port, primary.password
        standby.stop()
        owner = standby.data.stat()
        shutil.rmtree(standby.data)
        backup = [str(client_program(primary.installation, "pg_basebackup")), f"--dbname={primary.conninfo()}"]
        backup += [f"--pgdata={standby.data}", "--checkpoint=fast", "--no-sync"]
        if physical_slot is not None:
            backup.append(f"--slot={physical_slot}")
        subprocess.run(backup, check=True, capture_output=True, timeout=within(60))
        # Not --write-recovery-conf: the program may be newer, and write options that the server's libpq does not know.
        (standby.data / "standby.signal").touch()
        standby.configure(primary_conninfo=primary.conninfo(), primary_slot_name=physical_slot or "")
        for path in (standby.data, *standby.data.rglob("*")):
            shutil.chown(path, owner.st_uid, owner.st_gid)
        standby.configure(port=port, unix_socket_directories=str(standby.directory), hot_standby_feedback=True)
        standby.start()
        yield standby


@contextmanager
def failover_pair(primary: EmbeddedServer) -> Iterator[tuple[Database, Database]]:
    """A primary with table t and publication p, and a standby that can synchronize its failover slots."""
    first = Database(primary, "postgres")
    first.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
    first.query("SELECT pg_create_physical_replication_slot('physical', true)")
    with standby_of(primary, physical_slot="physical") as other:
        yield first, Database(other, "postgres")


def synchronize(primary: Database, standby: Database, *slots: str) -> None:
    """Advance the primary's failover slots and wait until the standby has synchronized them."""

    def synced() -> bool:
        primary.query("SELECT pg_log_standby_snapshot()")
        for slot in slots:
            primary.query(f"SELECT pg_replication_slot_advance('{slot}', pg_current_wal_flush_lsn())")
        catch_up(primary, standby)
        standby.query("SELECT pg_sync_replication_slots()")
        return all(standby.query(_SYNCED.format(slot)) for slot in slots)

    wait_for("synchronized slots", synced)


def catch_up(primary: Database, standby: Database) -> None:
    """Wait until the standby has replayed what the primary has written."""
    lsn = primary.value("SELECT pg_current_wal_lsn()")
    wait_for("replay", lambda: standby.value(f"SELECT pg_last_wal_replay_lsn() >= '{lsn}'"))


def insert(primary: Database, standby: Database, number: int) -> None:
    """Insert a row, and wait until the standby has it."""
    primary.execute(f"INSERT INTO t VALUES ({number})")
    catch_up(primary, standby)


def set_synchronous_standbys(database: Database, names: str) -> None:
    """Set synchronous_standby_names: with the name of a standby that is not there, commits wait."""
    database.server.configure(synchronous_standby_names=names)
    database.server.reload()
    wait_for("setting", lambda: database.value("SHOW synchronous_standby_names") == names)


def wait_for_synchronous_commit(database: Database) -> None:
    """Wait until a commit waits for a synchronous standby."""
    wait_for("commit", lambda: database.query("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"))
