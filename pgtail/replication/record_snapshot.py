"""Copies published tables into a capture, before the stream is recorded."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtail.capture.format import SnapshotPart
from pgtail.capture.recorder import CopiedTable, Rotation
from pgtail.capture.snapshot_writer import SnapshotWriter
from pgtail.capture.snapshots import remove_unlisted
from pgtail.capture.state import SnapshotFile, StateFile, TableSnapshot
from pgtail.capture.upload import Uploader
from pgtail.changes.complete_tables import CompleteTables
from pgtail.changes.filters import any_matches, name_matches
from pgtail.errors import OptionError, ServerError
from pgtail.humanize import did_you_mean
from pgtail.log import log_outcome, logger
from pgtail.pgoutput.frames import COPY_DATA
from pgtail.postgres import catalog, slots
from pgtail.postgres.errors import RecoveryConflict
from pgtail.postgres.snapshot import SnapshotSession
from pgtail.postgres.snapshot_plan import Part, PublishedTable, snapshot_plan
from pgtail.postgres.table_copy import BATCH, CopyForm
from pgtail.replication.plan import Publisher
from pgtail.replication.record_plan import RecordedCapture, head_of
from pgtail.replication.same_tables import SameTables
from pgtail.replication.snapshot import ConsistentPoint, Copying, Exported, exported, identified, published_tables
from pgtail.replication.snapshot_report import SnapshotReport
from pgtail.storage.local import LocalLocation

_ATTEMPTS: Final = 3
"""How often a part is read if the connection breaks, and how many copies a standby may end one after another."""
_AHEAD: Final = 2 * BATCH
"""Bytes of batches that may wait for being written; a larger one is written before the next row is read."""
_NICENESS: Final = 10
"""Added to that of the threads that compress and write, as nice(1) does."""
_ROUNDS: Final = 11
"""How often tables are copied that change while they are copied."""


class CaptureFiles(Struct, frozen=True):
    """The target capture of the tables, and how its segments are written."""

    directory: Path
    state: StateFile
    rotation: Rotation
    compress: bool
    uploader: Uploader | None


class SnapshotRecording:
    """Copies the tables that match one of `globs`; without globs those that the capture has no copy of.

    `complete` are the tables of which the stream has every change. `copied` are the copied tables; `same_tables` learns
    their versions.
    """

    def __init__(
        self,
        publisher: Publisher,
        known: RecordedCapture,
        files: CaptureFiles,
        same_tables: SameTables,
        *,
        complete: CompleteTables | None,
        globs: tuple[str, ...],
        jobs: int,
    ) -> None:
        self.copied: list[CopiedTable] = []
        self._same_tables = same_tables
        self._complete = complete
        self._publisher = publisher
        self._known = known
        self._server = known.server
        self._files = files
        self._globs = globs
        self._jobs = jobs

    def run(self) -> None:
        """Copy the tables, and create the plan's slot if it does not exist.

        Raises OptionError, ServerError, OutputError, and KeyboardInterrupt; the tables that are complete then stay.
        """
        wanted = self.wanted()
        if not wanted:
            logger.info("the capture has a copy of every published table; none is copied")
            return
        try:
            copy_until_complete(partial(self._copy, wanted), "it is copied again")
        finally:
            remove_unlisted(LocalLocation(self._files.directory), self._files.state.now.snapshots)

    def _drop_pending(self) -> list[TableSnapshot]:
        """Take copies off the list that the recorder would drop: those ahead of the capture, on another timeline."""
        state, position = self._files.state, self._known.position
        before = state.now.snapshots
        if all(snapshot.lsn <= position for snapshot in before):
            return []
        with identified(self._publisher, self._server) as (_, now):
            state.drop(
                f"the server is on timeline {now.timeline} now",
                lambda one: one.lsn > position and one.timeline != now.timeline,
            )
        return [snapshot for snapshot in before if snapshot not in state.now.snapshots]

    def wanted(self) -> dict[int, str]:
        """The tables to copy, as the catalog is now: names by OID. Raises OptionError, ServerError, OutputError."""
        self._drop_pending()
        plan = self._publisher.plan
        with self._publisher.interrupt.raising(), self._publisher.connector.ordinary() as connection:
            raw = plan.server.encoding == "SQL_ASCII"  # a server of another encoding sends UTF8 here
            encoding = (plan.encoding if raw else None) or "utf-8"
            published = published_tables(SnapshotSession(connection, encoding), plan)
        for glob in self._globs:
            if not any(name_matches(table.schema, table.name, glob) for table in published):
                names = [f"{table.schema}.{table.name}" if "." in glob else table.name for table in published]
                raise OptionError(f"--snapshot-table {glob} matches no published table{did_you_mean(glob, names)}")
        return {table.oid: f"{table.schema}.{table.name}" for table in published if self._is_wanted(table)}

    def _is_wanted(self, table: PublishedTable) -> bool:
        if self._globs:
            return any_matches(table.schema, table.name, self._globs)
        return all(table.oid != one.relid for one in self._files.state.now.snapshots)

    def _copy(self, names: Mapping[int, str], again: Collection[int]) -> Copying:
        """Copy the wanted tables at one position, or those in `again`; `names` are those that were wanted at first.

        A wanted table that is not published there was dropped, or removed from the publication.
        """
        wanted = (lambda table: table.oid in again) if again else self._is_wanted
        publisher = self._publisher
        with publisher.interrupt.raising():
            self._same_tables.before_slot()
        with exported(publisher, self._server) as source:
            self._server = source.identity, self._known.position
            if publisher.plan.slot is None:
                self._note_slot()
            report = SnapshotReport(publisher, publisher.plan.slot_name)
            copying = copy_tables(
                source, publisher, wanted, self._files, report, complete=self._complete, jobs=self._jobs
            )
        encoding = self._publisher.plan.encoding or "utf-8"
        copied = [table for table in copying.tables if table.oid not in copying.again]
        self.copied += [CopiedTable(one.oid, source.lsn, one.relation.encode(encoding)) for one in copied]
        self._same_tables.copied(source.lsn, {one.oid for one in copied})
        for oid in {*(again or names)} - {table.oid for table in copying.tables}:
            name = names.get(oid, str(oid))
            logger.info(f"table {name} is not published any more; it is not copied")
        if source.identity.in_recovery:
            for one in self._drop_pending():
                copying.again[one.relid] = ServerError(f"the server was promoted after {one}")
        return copying

    def _note_slot(self) -> None:
        """The slot was created: later copies have temporary slots."""
        publisher = self._publisher
        name = publisher.plan.slot_name
        log_outcome(f"slot {name} was created. {slots.retains(name)}")
        with publisher.interrupt.raising(), publisher.connector.ordinary() as connection:
            plan = replace(publisher.plan, slot=catalog.slot(connection, name))
        self._publisher = replace(publisher, plan=plan)


def copy_until_complete(copy: Callable[[Collection[int]], Copying], then: str) -> None:
    """Copy tables, each time at a later position, until none has changed while it was copied.

    `copy` receives the OIDs of those to copy again, none at first; `then` describes what happens with them. Raises
    ServerError also if a standby ends several copies one after another of which no table was complete.
    """
    again: dict[int, ServerError] = {}
    conflicts = 0
    for _ in range(_ROUNDS):
        complete = 0
        try:
            copying = copy(again.keys())
        except RecoveryConflict as conflict:
            errors: list[ServerError] = [conflict]
        else:
            again, complete = copying.again, copying.progress.tables
            errors = list(again.values())
        if not errors:
            return
        ended = [one for one in errors if isinstance(one, RecoveryConflict)]
        conflicts = conflicts + 1 if ended and not complete else 0
        if conflicts == _ATTEMPTS:
            raise ended[0]
        for error in errors:
            logger.info(f"{error.reason.removesuffix('.')}; {then}")
    raise errors[0]


def copy_tables(
    source: Exported,
    publisher: Publisher,
    wanted: Callable[[PublishedTable], bool],
    files: CaptureFiles,
    report: SnapshotReport,
    *,
    jobs: int,
    complete: CompleteTables | None = None,
    sample: int | None = None,
) -> Copying:
    """Copy the published tables that are `wanted` into a capture, with up to `jobs` sessions; `sample`: see CopyForm.

    `complete` are those of which the stream has every change, if known.

    Raises ServerError, OutputError, KeyboardInterrupt.
    """
    plan, interrupt = publisher.plan, publisher.interrupt
    with ExitStack() as stack:
        with interrupt.raising():
            sessions = [stack.enter_context(source.session())]
            point = ConsistentPoint(source.lsn, sessions[0].clock())
            published = snapshot_plan(sessions[0], plan.options.publications, sessions=jobs)
            tables = [table for table in published if wanted(table)]
            while len(sessions) < min(jobs, sum(len(table.parts) for table in tables)):
                sessions.append(stack.enter_context(source.session()))
        head = head_of(plan, source.identity, complete)
        target = SnapshotTarget(files, head, point, source.identity.timeline, plan.encoding or "utf-8")
        form = CopyForm(bool(plan.options.binary), point.header, COPY_DATA, sample)
        copying = Copying(source.session, target, form, interrupt, attempts=_ATTEMPTS)
        if tables:
            report.begin(tables, point.lsn)
            copying.run(tables, sessions, report.progress)
            report.end(copying.progress)
        return copying


class SnapshotTarget(Struct):
    """Writes tables into segments, and lists those that are complete in the capture's state."""

    files: CaptureFiles
    head: Mapping[str, str]
    point: ConsistentPoint
    timeline: int
    encoding: str
    parts: dict[int, dict[int, tuple[tuple[SnapshotFile, ...], int]]] = {}
    """The segments and the number of rows of finished parts, by table and part number."""

    def part(self, table: PublishedTable, part: Part) -> _PartWriter:
        files, point = self.files, self.point
        writer = SnapshotWriter(
            files.directory,
            self.head,
            SnapshotPart(point.lsn, table.oid, part.number),
            [*point.descriptions(table, self.encoding), point.begin],
            first=part.before + 1,
            rotation=files.rotation,
            compress=files.compress,
            uploader=files.uploader,
        )
        finished = self.parts.setdefault(table.oid, {})
        return _PartWriter(writer, point.commit if part is table.parts[-1] else None, part.number, finished)

    def complete(self, table: PublishedTable) -> None:
        parts = [part for _, part in sorted(self.parts.pop(table.oid).items())]
        copy = TableSnapshot(
            self.point.lsn,
            self.timeline,
            table.oid,
            table.schema,
            table.name,
            sum(rows for _, rows in parts),
            tuple(segment for segments, _ in parts for segment in segments),
        )
        self.files.state.list_snapshot(copy, self.head)
        if self.files.uploader is not None:
            self.files.uploader.list_snapshots()

    def stop(self) -> None:
        if self.files.uploader is not None:
            self.files.uploader.stop()


def _lower_priority() -> None:
    """Let the server and the thread that reads from it run before this one: a full socket stops the server."""
    if sys.platform == "linux":  # elsewhere a thread has no priority of its own
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + _NICENESS)


class _PartWriter:
    """Writes one part in a thread of its own, so that the next rows are read while earlier ones are compressed.

    `commit` is the frame that ends the table, after its last part. `finished` gets the segments and the number of rows.
    """

    def __init__(
        self,
        writer: SnapshotWriter,
        commit: bytes | None,
        number: int,
        finished: dict[int, tuple[tuple[SnapshotFile, ...], int]],
    ) -> None:
        self.writer = writer
        self._commit, self._number, self._finished = commit, number, finished
        self._thread = ThreadPoolExecutor(1, "write", _lower_priority)
        self._waiting: deque[tuple[int, Future[None]]] = deque()
        """The batches that are not known to be written, with their sizes."""

    def add(self, frames: bytes, rows: int) -> None:
        self._waiting.append((len(frames), self._thread.submit(self.writer.add_rows, [frames], rows)))
        self._wait(_AHEAD)

    def finish(self) -> None:
        self._wait(0)
        self._thread.shutdown()
        self._finished[self._number] = self.writer.finish(self._commit), self.writer.rows

    def abandon(self) -> None:
        self._thread.shutdown(cancel_futures=True)
        self.writer.abandon()

    def _wait(self, most: int) -> None:
        """Wait until at most so many bytes are not written. Raises the writer's errors."""
        while sum(size for size, _ in self._waiting) > most:
            _, written = self._waiting.popleft()
            written.result()
