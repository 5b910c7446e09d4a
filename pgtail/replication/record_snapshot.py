"""Copies published tables into a capture, before the stream is recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from pgtail.capture.format import SnapshotPart
from pgtail.capture.recorder import Rotation
from pgtail.capture.snapshot_writer import SnapshotWriter
from pgtail.capture.snapshots import remove_unlisted
from pgtail.capture.state import SnapshotFile, StateFile, TableSnapshot
from pgtail.capture.upload import Uploader
from pgtail.changes.filters import any_matches, name_matches
from pgtail.errors import OptionError, ServerError
from pgtail.files.signals import Interrupt
from pgtail.humanize import did_you_mean
from pgtail.pgoutput.frames import COPY_DATA
from pgtail.postgres import catalog
from pgtail.postgres.connection import Connector
from pgtail.postgres.snapshot import SnapshotSession
from pgtail.postgres.snapshot_plan import Part, PublishedTable, snapshot_plan
from pgtail.postgres.table_copy import CopyForm
from pgtail.records import Record, replace
from pgtail.replication.loop import Reporter
from pgtail.replication.plan import Plan
from pgtail.replication.record_plan import RecordedCapture, head_of
from pgtail.replication.snapshot import ConsistentPoint, Copying, Exported, exported, published_tables
from pgtail.replication.snapshot_report import SnapshotReport
from pgtail.storage.local import LocalLocation

_ATTEMPTS: Final = 3
"""How often a part is read if a standby cancels the query, or the connection breaks."""
_ROUNDS: Final = 10
"""How often tables are copied again that change while they are copied."""


class CaptureFiles(Record):
    """The capture that the tables are copied into, and how its segments are written."""

    directory: Path
    state: StateFile
    rotation: Rotation
    compress: bool
    uploader: Uploader | None


class SnapshotRecording:
    """Copies the tables that match one of `globs`; without globs those that the capture has no copy of."""

    def __init__(
        self,
        connector: Connector,
        interrupt: Interrupt,
        reporter: Reporter,
        plan: Plan,
        known: RecordedCapture,
        files: CaptureFiles,
        *,
        globs: tuple[str, ...],
        jobs: int,
    ) -> None:
        self._connector = connector
        self._interrupt = interrupt
        self._reporter = reporter
        self._plan = plan
        self._known = known
        self._identity = known.identity
        self._files = files
        self._globs = globs
        self._jobs = jobs

    def run(self) -> None:
        """Copy the tables, and create the plan's slot if it does not exist.

        Raises OptionError, ServerError, OutputError, and KeyboardInterrupt; the tables that are complete then stay.
        """
        with self._interrupt.raising():
            wanted = self._check()
        if not wanted:
            self._reporter.tell("note: the capture has a copy of every published table; none is copied")
            return
        again: dict[int, ServerError] = {}
        try:
            again = self._copy(self._is_wanted, wanted)
            for _ in range(_ROUNDS):
                for error in again.values():
                    self._reporter.tell(f"note: {error.reason.removesuffix('.')}; it is copied again")
                if not again:
                    return
                again = self._copy_again({oid: wanted.get(oid, str(oid)) for oid in again})
        finally:
            remove_unlisted(LocalLocation(self._files.directory), self._files.state.snapshots)
        for error in again.values():
            raise error

    def _check(self) -> dict[int, str]:
        """The tables to copy, as the catalog is now: names by OID. Raises OptionError, ServerError."""
        with self._connector.ordinary() as connection:
            raw = self._plan.server.encoding == "SQL_ASCII"  # a server of another encoding sends UTF8 here
            encoding = (self._plan.encoding if raw else None) or "utf-8"
            published = published_tables(SnapshotSession(connection, encoding), self._plan)
        for glob in self._globs:
            if not any(name_matches(table.schema, table.name, glob) for table in published):
                names = [f"{table.schema}.{table.name}" if "." in glob else table.name for table in published]
                raise OptionError(f"--snapshot-table {glob} matches no published table{did_you_mean(glob, names)}")
        return {table.oid: f"{table.schema}.{table.name}" for table in published if self._is_wanted(table)}

    def _is_wanted(self, table: PublishedTable) -> bool:
        if self._globs:
            return any_matches(table.schema, table.name, self._globs)
        return all(table.oid != one.relid for one in self._files.state.snapshots)

    def _copy_again(self, changed: Mapping[int, str]) -> dict[int, ServerError]:
        return self._copy(lambda table: table.oid in changed, changed)

    def _copy(self, wanted: Callable[[PublishedTable], bool], names: Mapping[int, str]) -> dict[int, ServerError]:
        """Copy tables at one position; returns those that must be copied again, and why.

        Those in `names` that are not published there were dropped, or taken out of the publication.
        """
        known = None if self._identity is None else (self._identity, self._known.position)
        with exported(self._connector, self._interrupt, self._plan, self._reporter.tell, known) as source:
            plan, self._identity = self._plan, source.identity
            if plan.slot is None:
                self._note_slot()
            report = SnapshotReport(self._reporter, self._connector, plan.slot_name)
            copying = copy_tables(source, plan, wanted, self._files, report, self._interrupt, jobs=self._jobs)
        for oid in names.keys() - {table.oid for table in copying.tables}:
            self._reporter.tell(f"note: table {names[oid]} is not published any more; it is not copied")
        return copying.again

    def _note_slot(self) -> None:
        """The slot was created: later copies have temporary slots."""
        name = self._plan.slot_name
        self._reporter.tell(f"slot {name} was created. It retains WAL until it is dropped: pgtail slot drop {name}")
        with self._interrupt.raising(), self._connector.ordinary() as connection:
            self._plan = replace(self._plan, slot=catalog.slot(connection, name))


def copy_tables(
    source: Exported,
    plan: Plan,
    wanted: Callable[[PublishedTable], bool],
    files: CaptureFiles,
    report: SnapshotReport,
    interrupt: Interrupt,
    *,
    jobs: int,
) -> Copying:
    """Copy the published tables that are `wanted` into a capture, with up to `jobs` sessions.

    Raises ServerError, OutputError, KeyboardInterrupt.
    """
    with ExitStack() as stack:
        with interrupt.raising():
            sessions = [stack.enter_context(source.session())]
            point = ConsistentPoint(source.lsn, sessions[0].clock())
            tables = [table for table in snapshot_plan(sessions[0], plan.options.publications) if wanted(table)]
            while len(sessions) < min(jobs, sum(len(table.parts) for table in tables)):
                sessions.append(stack.enter_context(source.session()))
        head = head_of(plan, source.identity)
        target = _Target(files, head, point, source.identity.timeline, plan.encoding)
        form = CopyForm(bool(plan.options.binary), point.header, COPY_DATA)
        copying = Copying(source.session, target, form, interrupt.wake, attempts=_ATTEMPTS)
        if tables:
            report.begin(tables, point.lsn)
            copying.run(tables, sessions, interrupt, report.progress)
            report.end(copying.progress)
        return copying


class _Target:
    """Writes tables into segments, and lists those that are complete in the capture's state."""

    def __init__(
        self, files: CaptureFiles, head: Mapping[str, str], point: ConsistentPoint, timeline: int, encoding: str | None
    ) -> None:
        self._files = files
        self._head = head
        self._point = point
        self._timeline = timeline
        self._encoding = encoding or "utf-8"
        self._copied: dict[int, dict[int, tuple[tuple[SnapshotFile, ...], int]]] = {}
        """The segments and the number of rows of each part, by table and part number."""

    def part(self, table: PublishedTable, part: Part) -> _PartWriter:
        files, point = self._files, self._point
        writer = SnapshotWriter(
            files.directory,
            self._head,
            SnapshotPart(point.lsn, table.oid, part.number),
            [*point.descriptions(table, self._encoding), point.begin],
            first=part.before + 1,
            rotation=files.rotation,
            compress=files.compress,
            uploader=files.uploader,
        )
        copied = self._copied.setdefault(table.oid, {})

        def finished(segments: tuple[SnapshotFile, ...]) -> None:
            copied[part.number] = segments, writer.rows

        return _PartWriter(writer, point.commit if part is table.parts[-1] else None, finished)

    def complete(self, table: PublishedTable) -> None:
        parts = [found for _, found in sorted(self._copied.pop(table.oid).items())]
        copy = TableSnapshot(
            self._point.lsn,
            self._timeline,
            table.oid,
            table.schema,
            table.name,
            sum(rows for _, rows in parts),
            tuple(segment for segments, _ in parts for segment in segments),
        )
        self._files.state.list_snapshot(copy, self._head)
        if self._files.uploader is not None:
            self._files.uploader.list_snapshots()

    def stop(self) -> None:
        if self._files.uploader is not None:
            self._files.uploader.stop()


class _PartWriter:
    """Writes one part; `commit` is the frame that ends the table, after its last part."""

    def __init__(
        self, writer: SnapshotWriter, commit: bytes | None, finished: Callable[[tuple[SnapshotFile, ...]], None]
    ) -> None:
        self._writer = writer
        self._commit = commit
        self._finished = finished

    def add(self, frames: bytes, rows: int) -> None:
        self._writer.add([frames], rows)

    def finish(self) -> None:
        self._finished(self._writer.finish(self._commit))

    def abandon(self) -> None:
        self._writer.abandon()
