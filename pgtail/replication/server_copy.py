"""Copies published tables, as they are at one position, into a temporary capture; nothing is written on the server."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtail.capture.lock import open_directory
from pgtail.capture.recorder import Rotation
from pgtail.capture.state import StateFile
from pgtail.capture.upload import Uploader, Work
from pgtail.errors import OptionError, ServerError
from pgtail.pgoutput.scalars import lsn_text
from pgtail.postgres import slots
from pgtail.postgres.snapshot_plan import PublishedTable
from pgtail.replication.publisher import Publisher
from pgtail.replication.record_plan import RecordedCapture
from pgtail.replication.record_snapshot import CaptureFiles, copy_tables, copy_until_complete
from pgtail.replication.snapshot import Copying, exported
from pgtail.replication.snapshot_report import SnapshotReport
from pgtail.storage import Location

_JOBS: Final = 2


class ServerCopy(Struct, frozen=True):
    """The tables at the LSN `lsn`, in this capture."""

    lsn: int
    capture: Location


class ServerCopying:
    """Copies the tables of the plan's publications that are `wanted`; of those with a key the rows in a sample.

    `sample` is that of CopyForm. `known` is the recorded state of the server: the copy must come from the same server,
    at a later position.
    """

    def __init__(
        self,
        publisher: Publisher,
        known: RecordedCapture,
        wanted: Callable[[PublishedTable], bool],
        *,
        sample: int | None,
    ) -> None:
        self._publisher = publisher
        self._known = known
        self._wanted = wanted
        raw = publisher.plan.server.encoding == "SQL_ASCII"  # the server does not know its texts in UTF8
        self._sample = None if raw else sample

    def run(self, place: Location, spool: Path) -> ServerCopy:
        """Copy them into a capture in the folder `place`; `spool` is a local one, used if `place` is not local.

        Raises OptionError if there is none, ServerError, OutputError, KeyboardInterrupt.
        """
        numbers, copies = itertools.count(), list[ServerCopy]()

        def copy(_: Collection[int]) -> Copying:
            target = place / f"capture-{next(numbers)}"
            with open_directory(target.path or spool / target.name) as directory:
                uploader = None
                if target.path is None:
                    uploader = Uploader(directory, target, compress=True)
                lsn, copying = self._copy(directory, uploader)
            copies[:] = [ServerCopy(lsn, target)]
            if copying.again:
                target.delete_all()
            return copying

        copy_until_complete(copy, "all tables are copied again")
        return copies[0]

    def _copy(self, directory: Path, uploader: Uploader | None) -> tuple[int, Copying]:
        """Copy them at one position, which is returned."""
        publisher = replace(self._publisher, plan=replace(self._publisher.plan, slot_name=slots.temporary_name()))
        state = StateFile(directory)
        files = CaptureFiles(directory, state, Rotation(), compress=True, uploader=uploader)
        with exported(publisher, self._known.server) as source:
            self._check_position(source.lsn)
            report = SnapshotReport(publisher, None)
            copying = copy_tables(source, publisher, self._wanted, files, report, jobs=_JOBS, sample=self._sample)
        if not copying.progress.all_tables:
            names = ", ".join(publisher.plan.options.publications)
            raise OptionError(
                f"no table to compare: of what {names} publishes, --table (here, or of the state) selects nothing"
            )
        if state.now is not None:
            # From here on the copies count.
            state.write(state.now._replace(position=source.lsn))
            if uploader is not None:
                uploader.publish(Work({}, source.lsn))
        return source.lsn, copying

    def _check_position(self, lsn: int) -> None:
        if lsn < self._known.position:
            raise ServerError(
                f"the server is at {lsn_text(lsn)}, and {self._known.directory} goes up to"
                f" {lsn_text(self._known.position)}.",
                cure="If this is a standby, it may only lag: try again. Otherwise connect to the server that was"
                " recorded.",
            )
