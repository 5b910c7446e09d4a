"""Copies published tables, as they are at one position, into a temporary capture; nothing is written on the server."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from pgtail.capture.lock import open_directory
from pgtail.capture.recorder import Rotation
from pgtail.capture.state import StateFile
from pgtail.capture.upload import Uploader, Work
from pgtail.errors import OptionError, ServerError
from pgtail.files.signals import Interrupt
from pgtail.pgoutput.scalars import lsn_text
from pgtail.postgres import slots
from pgtail.postgres.connection import Connector
from pgtail.postgres.snapshot_plan import PublishedTable
from pgtail.records import Record, replace
from pgtail.replication.loop import Reporter
from pgtail.replication.plan import Plan
from pgtail.replication.record_plan import RecordedCapture
from pgtail.replication.record_snapshot import CaptureFiles, copy_tables, copy_until_complete
from pgtail.replication.snapshot import Copying, exported
from pgtail.replication.snapshot_report import SnapshotReport
from pgtail.storage import Location

_JOBS: Final = 2


class ServerCopy(Record):
    """The tables at the LSN `lsn`, in this capture."""

    lsn: int
    capture: Location


class ServerCopying:
    """Copies the tables of the plan's publications that are `wanted`.

    `known` is what was recorded of the server: the copy must be of the same one, at a later position. `place` is the
    folder for the capture, `spool` a local one for what is not yet there, if `place` is not local.
    """

    def __init__(
        self,
        connector: Connector,
        interrupt: Interrupt,
        reporter: Reporter,
        plan: Plan,
        known: RecordedCapture,
        wanted: Callable[[PublishedTable], bool],
    ) -> None:
        self._connector = connector
        self._interrupt = interrupt
        self._reporter = reporter
        self._plan = plan
        self._known = known
        self._wanted = wanted

    def run(self, place: Location, spool: Path) -> ServerCopy:
        """Copy them. Raises OptionError if there is none, ServerError, OutputError, KeyboardInterrupt."""
        numbers, found = itertools.count(), list[ServerCopy]()

        def copy(_: Collection[int]) -> Copying:
            target = place / f"capture-{next(numbers)}"
            with open_directory(target.path or spool / target.name) as directory:
                uploader = None
                if target.path is None:
                    uploader = Uploader(directory, target, self._reporter.tell, compress=True)
                lsn, copying = self._copy(directory, uploader)
            found[:] = [ServerCopy(lsn, target)]
            if copying.again:
                target.delete_all()
            return copying

        copy_until_complete(copy, self._reporter, "all tables are copied again")
        return found[0]

    def _copy(self, directory: Path, uploader: Uploader | None) -> tuple[int, Copying]:
        """Copy them at one position, which is returned."""
        plan = replace(self._plan, slot_name=slots.temporary_name())
        state = StateFile(directory, self._reporter.tell)
        files = CaptureFiles(directory, state, Rotation(), compress=True, uploader=uploader)
        identity = self._known.identity
        known = None if identity is None else (identity, self._known.position)
        with exported(self._connector, self._interrupt, plan, self._reporter.tell, known) as source:
            self._check_position(source.lsn)
            report = SnapshotReport(self._reporter, self._connector, None)
            copying = copy_tables(source, plan, self._wanted, files, report, self._interrupt, jobs=_JOBS)
        if not copying.progress.all_tables:
            raise OptionError(f"there is no table to compare: none of {', '.join(plan.options.publications)} is wanted")
        if state.now is not None:
            # From here on the copies count.
            state.write(state.now._replace(position=source.lsn))
            if uploader is not None:
                uploader.publish(Work([], source.lsn))
        return source.lsn, copying

    def _check_position(self, lsn: int) -> None:
        if lsn < self._known.position:
            raise ServerError(
                f"the server is at {lsn_text(lsn)}, and {self._known.directory} goes up to"
                f" {lsn_text(self._known.position)}.",
                cure="If this is a standby, it may only lag: try again. Otherwise connect to the server that was"
                " recorded.",
            )
