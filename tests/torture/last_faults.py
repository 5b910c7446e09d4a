"""Faults after which a slot cannot be read on as it was: an error that says so, or a promoted server that goes on.

What was acknowledged is in the output, and nothing else than what is in the table.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from pgtail.demo.server import EmbeddedServer
from tests.support.servers import Database, embedded_server, fresh_database
from tests.support.standbys import catch_up, standby_of
from tests.support.tail import wait_for, wait_for_reader
from tests.torture.bench import Writer
from tests.torture.fault_round import NETWORK, SLOT, Round, insert_rows, prepare, small_disk

KINDS: Final = ("file", "record")
_REPORTED: Final = {
    "slot dropped": "slot s is gone",
    "slot consumed": "another client has consumed slot s",
    "slot held": "slot .s. is active for PID",
    "slot invalidated": "lost|invalid",
    "slot idle": "invalid",
    "publication dropped": "publication .p. does not exist|skipped loading publication .p.",
}
"""What the message must have."""
LEAST: Final = {"slot invalidated": 13, "slot idle": 18, "standby promoted": 16, "failover slot": 17}
"""The major versions since which they can happen."""
FAULTS: Final = (*_REPORTED, "standby promoted", "failover slot")


def run(server: EmbeddedServer, fault: str, kind: str, choose: random.Random) -> Round:
    """Cause the fault; the Round has what is wrong."""
    if fault in _REPORTED:
        return _ended(server, fault, kind, choose)
    with embedded_server(server.installation) as primary:
        return (_promoted if fault == "standby promoted" else _failed_over)(primary, kind, choose)


# -- faults that end it ------------------------------------------------------------------------------------------------


def _ended(server: EmbeddedServer, fault: str, kind: str, choose: random.Random) -> Round:
    with fresh_database(server) as database:
        prepare(database)
        database.query(SLOT)
        with _reading(database, kind, choose) as one, contextlib.ExitStack() as undo:
            with _writing(database, choose):
                time.sleep(choose.uniform(0.3, 1))
            _wait_for_acknowledgement(one)
            kept = {str(id_) for (id_,) in database.query("SELECT id FROM log")}
            writer = undo.enter_context(_writing(database, choose))
            time.sleep(choose.uniform(0.3, 1))
            one.proxy.refusing = True
            one.proxy.cut()
            one.wait_for_free_slot()
            _CAUSES[fault](database, undo)
            one.proxy.heal()
            with contextlib.suppress(AssertionError):
                wait_for("end", lambda: one.process.poll() is not None)
            one.end(None, statuses=(75,) if fault == "slot held" else (3,))
            if not re.search(_REPORTED[fault], one.said):
                one.wrong.append(f"the message does not say it: {one.said[-600:]}")
            writer.stop()
            one.compare(kept)
    return one


def _consume(database: Database, _: contextlib.ExitStack) -> None:
    """Another client reads changes, of which the reader that was cut off has not read the last."""
    rows = "SELECT count(*) FROM log"
    before = database.value(rows)
    wait_for("another row", lambda: database.value(rows) > before)
    options = "'proto_version', '1', 'publication_names', 'p'"
    database.query(f"SELECT count(*) FROM pg_logical_slot_get_binary_changes('s', NULL, NULL, {options})")


def _hold(database: Database, undo: contextlib.ExitStack) -> None:
    """Another reader takes it, and does not leave."""
    other = undo.enter_context(contextlib.closing(_Holder(database)))
    other.hold()


class _Holder:
    def __init__(self, database: Database) -> None:
        self._session = database.connect(replication="database")
        self._database = database

    def hold(self) -> None:
        options = "proto_version '1', publication_names 'p'"
        self._session.pgconn.send_query(f"START_REPLICATION SLOT s LOGICAL 0/0 ({options})".encode())
        wait_for_reader(self._database)

    def close(self) -> None:
        self._session.close()


def _invalidate(database: Database, undo: contextlib.ExitStack) -> None:
    _set(database, undo, "max_slot_wal_keep_size", "1MB")
    for _ in range(4):
        database.query("SELECT pg_logical_emit_message(false, 'fill', repeat('x', 1000000)), pg_switch_wal()")
    _checkpoint(database, "wal_status = 'lost'")


def _wait_idle(database: Database, undo: contextlib.ExitStack) -> None:
    _set(database, undo, "idle_replication_slot_timeout", "1s")
    _checkpoint(database, "invalidation_reason IS NOT NULL")


def _checkpoint(database: Database, state: str) -> None:
    def invalid() -> bool:
        database.execute("CHECKPOINT")
        return bool(database.query(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = 's' AND {state}"))

    wait_for(state, invalid)


def _set(database: Database, undo: contextlib.ExitStack, name: str, value: str) -> None:
    """Set it for all of the server, until the end."""
    undo.callback(database.execute, f"ALTER SYSTEM RESET {name}", "SELECT pg_reload_conf()")
    database.execute(f"ALTER SYSTEM SET {name} = '{value}'", "SELECT pg_reload_conf()")


_CAUSES: Final[dict[str, Callable[[Database, contextlib.ExitStack], None]]] = {
    "slot dropped": lambda database, _: database.execute("SELECT pg_drop_replication_slot('s')"),
    "slot consumed": _consume,
    "slot held": _hold,
    "slot invalidated": _invalidate,
    "slot idle": _wait_idle,
    "publication dropped": lambda database, _: database.execute("DROP PUBLICATION p"),
}


# -- promotions --------------------------------------------------------------------------------------------------------


def _promoted(primary: EmbeddedServer, kind: str, choose: random.Random) -> Round:
    """A slot of a standby is read, which is promoted."""
    first = Database(primary, "postgres")
    prepare(first)
    with standby_of(primary) as server:
        standby = Database(server, "postgres")
        creation = threading.Thread(target=standby.query, args=[SLOT], daemon=True)
        creation.start()
        while creation.is_alive():
            first.query("SELECT pg_log_standby_snapshot()")
            creation.join(0.2)
        with _reading(standby, kind, choose) as one:
            _disturbed(one, first)
            catch_up(first, standby)
            _promote(standby)
            _disturbed(one, standby)
            one.finish()
    return one


def _failed_over(primary: EmbeddedServer, kind: str, choose: random.Random) -> Round:
    """A slot is read on the primary, which crashes; its standby, which has a copy of the slot, takes its address."""
    first = Database(primary, "postgres")
    prepare(first)
    first.execute("SELECT pg_create_physical_replication_slot('physical', true)")
    first.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput', failover => true)")
    with standby_of(primary, physical_slot="physical") as server:
        standby = Database(server, "postgres")
        server.configure(sync_replication_slots=True)
        server.reload()
        with _reading(first, kind, choose) as one:
            synced = "SELECT 1 FROM pg_replication_slots WHERE slot_name = 's' AND synced AND NOT temporary"
            _disturbed(one, first)

            def copied() -> bool:
                one.keep_running()  # the last fault may have ended it before its stream began
                first.query("SELECT pg_log_standby_snapshot()")
                return bool(standby.query(synced))

            wait_for("copy of the slot", copied)
            catch_up(first, standby)
            primary.kill()
            _promote(standby)
            one.move_to(standby)
            _disturbed(one, standby)
            one.finish()
    return one


def _promote(standby: Database) -> None:
    standby.query("SELECT pg_promote()")
    wait_for("promotion", lambda: not standby.value("SELECT pg_is_in_recovery()"))


def _disturbed(one: Round, written: Database) -> None:
    """Write to this server, and disturb the network to the one that is read."""
    with _writing(written, one.choose):
        for _ in range(3):
            time.sleep(one.choose.uniform(0.1, 0.5))
            one.disturb(one.choose.choice(NETWORK))


# -- common ------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _reading(database: Database, kind: str, choose: random.Random) -> Iterator[Round]:
    """A Round that has started."""
    with tempfile.TemporaryDirectory() as folder, small_disk(Path(folder), in_file=False):
        os.chmod(folder, 0o755)
        one = Round(database, kind, Path(folder), choose)
        one.start()
        try:
            yield one
        finally:
            one.close()


def _writing(database: Database, choose: random.Random) -> Writer:
    return Writer(database, insert_rows(random.Random(choose.random())), 0.01)


def _wait_for_acknowledgement(one: Round) -> None:
    lsn = one.database.value("SELECT pg_current_wal_flush_lsn()")
    query = f"SELECT 1 FROM pg_replication_slots WHERE slot_name = 's' AND confirmed_flush_lsn >= '{lsn}'"
    wait_for("acknowledgement", lambda: one.database.query(query) or one.process.poll() is not None)
    assert one.process.poll() is None, one.said
