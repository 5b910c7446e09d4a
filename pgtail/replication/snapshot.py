"""Copies published tables as they are at a slot's consistent point, with several sessions side by side.

The session that created the slot exports its snapshot and stays idle, so that sessions can be opened until the end.
"""

from __future__ import annotations

import select
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Final, Protocol

from msgspec import Struct

from pgtail.errors import COMMAND, ServerError
from pgtail.files.stopping import Wakeup
from pgtail.native import keep_memory
from pgtail.pgoutput.transaction import Begin, Commit
from pgtail.pgoutput.walsender import Keepalive, XLogData
from pgtail.postgres import slots
from pgtail.postgres.errors import STANDBY_CONFLICT, RecoveryConflict, Unreachable
from pgtail.postgres.snapshot import SnapshotSession, wait_for_commits
from pgtail.postgres.snapshot_plan import Part, PublishedTable, snapshot_plan
from pgtail.postgres.table_copy import CopyForm, CopyStopped, TableChanged, copy_part
from pgtail.postgres.walsender import Session
from pgtail.replication.identity import Identity, identify
from pgtail.replication.plan import Plan, Publisher
from pgtail.terminal.escape import escape, sql_identifier

_TICK: Final = 0.25
"""Seconds between two reports of the progress."""
_CONNECT_TIMEOUT: Final = 10
"""Seconds for opening a session: a request to stop waits for it."""
_NO_XID: Final = 0
"""InvalidTransactionId, src/include/access/transam.h: no walsender sends it, so it marks a snapshot."""


class ConsistentPoint(Struct, frozen=True):
    """The place of a snapshot's rows: after every transaction with commit_lsn < `lsn`, before all others.

    `clock` is the server's, in microseconds since 2000-01-01 UTC.
    """

    lsn: int
    clock: int

    @property
    def header(self) -> XLogData:
        """The header of each frame. No commit record starts at the LSN before the point."""
        return XLogData(self.lsn - 1, self.lsn, self.clock)

    @property
    def begin(self) -> bytes:
        """The frame that begins a table."""
        return self.header.encode(Begin(self.lsn - 1, self.clock, _NO_XID).encode())

    @property
    def commit(self) -> bytes:
        """The frame that ends a table."""
        return self.header.encode(Commit(0, self.lsn - 1, self.lsn, self.clock).encode())

    @property
    def end(self) -> bytes:
        """The frame after the last table: a server that has nothing more up to the point sends it."""
        return Keepalive(self.lsn, self.clock, 0).encode()

    def descriptions(self, table: PublishedTable, encoding: str) -> list[bytes]:
        """The frames with a table's Type and Relation messages."""
        return [self.header.encode(message) for message in table.descriptions(encoding)]


def published_tables(session: SnapshotSession, plan: Plan) -> list[PublishedTable]:
    """The tables of the plan's publications, at least one. Raises ServerError."""
    names = plan.options.publications
    published = snapshot_plan(session, names)
    if not published:
        raise ServerError(
            f"there is no table to copy: none is published by {' and '.join(map(escape, names))}.",
            cure=f"Add one:{COMMAND}ALTER PUBLICATION {sql_identifier(names[0])} ADD TABLE some_table;",
        )
    return published


class Exported:
    """A new slot's snapshot, as long as `exporting`, the session that created the slot, runs no other command."""

    def __init__(self, publisher: Publisher, exporting: Session, created: slots.NewSlot, identity: Identity) -> None:
        assert created.snapshot is not None
        self.lsn = created.consistent_point
        self.identity = identity
        self._exporting = exporting
        self._connector = publisher.connector.without_asking()
        self._open = partial(
            SnapshotSession.open,
            self._connector,
            created.snapshot,
            encoding=publisher.plan.encoding,
            connect_timeout=_CONNECT_TIMEOUT,
        )
        self._waited = False

    def session(self) -> SnapshotSession:
        """Another session that reads under the snapshot. Raises ServerError.

        The first call waits until the snapshot may be read: no other may be made at the same time.
        """
        try:
            session = self._open()
        except ServerError as error:
            raise self.lost() or error from None
        if not self._waited:
            try:
                wait_for_commits(session, self._connector)
            except BaseException:
                session.close()
                raise
            self._waited = True
        return session

    def lost(self) -> ServerError | None:
        """Why the exporting session was lost, if it was; the sessions that are open keep the snapshot."""
        try:
            self._exporting.check_idle()
        except ServerError as error:
            if self.identity.in_recovery:  # before 17 a standby may end it without a message
                return RecoveryConflict(error.reason, cure=STANDBY_CONFLICT)
            return error
        return None


@contextmanager
def identified(publisher: Publisher, known: tuple[Identity, int] | None) -> Iterator[tuple[Session, Identity]]:
    """A walsender session, closed at the end, and its server; `known` and errors as in exported()."""
    session = Session.open(publisher.connector, publisher.interrupt, publisher.plan.encoding)
    try:
        yield session, identify(session.query, known)
    finally:
        session.close()


@contextmanager
def exported(publisher: Publisher, known: tuple[Identity, int] | None) -> Iterator[Exported]:
    """Create the plan's slot, or a temporary one if it exists, and export its snapshot until the context ends.

    `known` is the server read before, and the last position. Raises ServerError, KeyboardInterrupt.
    """
    plan = publisher.plan
    with identified(publisher, known) as (session, identity):
        is_new = plan.slot is None
        creation = slots.Creation(
            publisher.connector,
            plan.slot_name if is_new else slots.temporary_name(),
            temporary=plan.temporary or not is_new,
            two_phase=plan.two_phase and is_new,
            export=True,
        )
        created = creation.create_in(session, plan.server)
        yield Exported(publisher, session, created, identity)


class Progress(Struct):
    """The progress of a copy. Bytes are those of the tables' files; a part in progress counts its bytes sent so far."""

    all_tables: int = 0
    all_bytes: int = 0
    tables: int = 0
    bytes: int = 0
    rows: int = 0


class PartTarget(Protocol):
    """Takes the rows of one part, in one thread. Methods raise OutputError."""

    def add(self, frames: bytes, rows: int, /) -> None: ...
    def finish(self) -> None: ...
    def abandon(self) -> None: ...


class SnapshotTarget(Protocol):
    """The target of the tables. Called by several threads. Methods raise OutputError, and CopyStopped if it is closed.

    stop() ends the waiting of the other methods, in whatever thread.
    """

    def part(self, table: PublishedTable, part: Part, /) -> PartTarget: ...
    def complete(self, table: PublishedTable, /) -> None: ...
    def stop(self) -> None: ...


class Copying:
    """Copies tables with several sessions. `again` are those that must be copied at a later position, with the reason.

    `attempts` is how often a part is read if the connection breaks. A lost session is replaced if possible; otherwise
    the others continue without it. With one attempt the first error ends the copy, for a target that cannot undo a
    partial copy.
    """

    def __init__(
        self,
        open_session: Callable[[], SnapshotSession],
        target: SnapshotTarget,
        form: CopyForm,
        interrupt: Wakeup,
        *,
        attempts: int,
    ) -> None:
        self._attempts = attempts
        self._open = open_session
        self._target = target
        self._form = form
        self._interrupt = interrupt
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._left: deque[tuple[PublishedTable, Part]] = deque()
        self._unfinished: dict[int, int] = {}
        """Parts of each table that are not copied yet, by OID."""
        self._error: BaseException | None = None
        self._working = 0
        """Threads that have not ended their work: one that has may be alive for a moment."""
        self.tables: Sequence[PublishedTable] = ()
        self.again: dict[int, ServerError] = {}
        self.progress = Progress()

    def run(
        self,
        tables: Sequence[PublishedTable],
        sessions: Sequence[SnapshotSession],
        report: Callable[[Progress], None],
    ) -> None:
        """Copy these tables with these sessions, which are closed at the end.

        Raises ServerError, errors of the target, and KeyboardInterrupt: complete tables then stay.
        """
        keep_memory()
        interrupt = self._interrupt
        self.tables = tables
        self._left.extend([(table, part) for table in tables for part in table.parts])
        self._unfinished = {table.oid: len(table.parts) for table in tables}
        self.progress.all_tables = len(tables)
        self.progress.all_bytes = sum(table.size for table in tables)
        self._working = len(sessions)
        threads = [threading.Thread(target=self._work, args=[session], name="copy") for session in sessions]
        for thread in threads:
            thread.start()
        poll = select.poll()
        poll.register(interrupt.fileno(), select.POLLIN)
        try:
            while self._working and not interrupt.count:
                poll.poll(_TICK * 1000)
                interrupt.clear()
                report(self.progress)
        finally:
            if self._working:
                self._end()
            for thread in threads:
                thread.join()
        if interrupt.count:
            raise KeyboardInterrupt
        if self._error is not None:
            raise self._error
        if not self._stop.is_set():
            for table, _ in self._left:  # every session was lost
                lost = Unreachable(f"table {table.schema}.{table.name} cannot be copied: every session was lost")
                self.again.setdefault(table.oid, lost)

    def _end(self) -> None:
        """Let the threads end soon, whatever they do."""
        self._stop.set()
        self._target.stop()

    def _work(self, session: SnapshotSession) -> None:
        try:
            with ExitStack() as opened:
                current: SnapshotSession | None = opened.enter_context(session)
                while current is not None and (item := self._next()) is not None:
                    current = self._copy(current, *item, opened)
        except CopyStopped:
            self._end()
        except BaseException as error:  # noqa: BLE001 -- run() raises it
            self._error = self._error or error
            self._end()
        finally:
            with self._lock:
                self._working -= 1
            self._interrupt.wake()

    def _next(self) -> tuple[PublishedTable, Part] | None:
        with self._lock:
            while self._left and not self._stop.is_set():
                table, part = self._left.popleft()
                if table.oid not in self.again:
                    return table, part
        return None

    def _copy(
        self, session: SnapshotSession, table: PublishedTable, part: Part, opened: ExitStack
    ) -> SnapshotSession | None:
        """Copy a part; returns the session to continue with, or None. Closing `opened` closes it."""
        current: SnapshotSession | None = session
        for attempt in range(1, self._attempts + 1):
            assert current is not None
            try:
                self._read(current, table, part)
            except TableChanged as error:
                self._give_up(table, error)
            except (RecoveryConflict, Unreachable) as error:
                current.close()  # with either it has lost the snapshot
                current = self._replaced(opened)
                if isinstance(error, Unreachable) and attempt < self._attempts and current is not None:
                    continue
                self._give_up(table, error)
            else:
                self._finish(table)
            break
        return current

    def _give_up(self, table: PublishedTable, error: ServerError) -> None:
        if self._attempts == 1:
            raise error
        self.again[table.oid] = error

    def _replaced(self, opened: ExitStack) -> SnapshotSession | None:
        """Another session, if the snapshot is still exported."""
        try:
            return opened.enter_context(self._open())
        except ServerError:
            return None

    def _read(self, session: SnapshotSession, table: PublishedTable, part: Part) -> None:
        target, rows, size = self._target.part(table, part), 0, 0
        try:
            for batch in copy_part(session, table, part, self._form, stop=self._stop):
                target.add(batch.frames, batch.rows)
                sent = min(size + len(batch.frames), part.size)
                self._count(batch.rows, sent - size)
                rows, size = rows + batch.rows, sent
                del batch  # while the next one is read, it may be large
            target.finish()
        except BaseException:
            target.abandon()
            self._count(-rows, -size)
            raise
        self._count(0, part.size - size)

    def _count(self, rows: int, size: int) -> None:
        with self._lock:
            self.progress.rows += rows
            self.progress.bytes += size

    def _finish(self, table: PublishedTable) -> None:
        """Finish a part of a table; the last part completes the table."""
        with self._lock:
            self._unfinished[table.oid] -= 1
            if self._unfinished[table.oid] or table.oid in self.again:
                return
        self._target.complete(table)
        with self._lock:
            self.progress.tables += 1
