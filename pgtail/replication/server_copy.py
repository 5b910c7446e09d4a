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
from pgtail.capture.state import NO_STATE, StateFile
from pgtail.capture.upload import Uploader, Work
from pgtail.errors import OptionError, ServerError
from pgtail.pgoutput.scalars import lsn_text
from pgtail.postgres import slots
from pgtail.postgres.snapshot_plan import PublishedTable
from pgtail.replication.plan import Publisher
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


def copy_server(
    publisher: Publisher,
    known: RecordedCapture,
    wanted: Callable[[PublishedTable], bool],
    place: Location,
    spool: Path,
    *,
    sample: int | None,
) -> ServerCopy:
    """Copy the `wanted` tables of the plan's publications into a capture in the folder `place`.

    Of tables with a key the rows in a sample: `sample` is that of CopyForm. `known` is the recorded state of the
    server: the copy must come from the same server, at a later position. `spool` is a local folder, used if `place` is
    not local. Raises OptionError if there is no such table, ServerError, OutputError, KeyboardInterrupt.
    """
    numbers, copies = itertools.count(), list[ServerCopy]()
    if publisher.plan.server.encoding == "SQL_ASCII":
        sample = None  # the server does not know its texts in UTF8

    def copy(_: Collection[int]) -> Copying:
        target = place / f"capture-{next(numbers)}"
        with open_directory(target.path or spool / target.name) as directory:
            uploader = Uploader(directory, target, compress=True) if target.path is None else None
            lsn, copying = _copy(publisher, known, wanted, sample, directory, uploader)
        copies[:] = [ServerCopy(lsn, target)]
        if copying.again:
            target.delete_all()
        return copying

    copy_until_complete(copy, "all tables are copied again")
    return copies[0]


def _copy(
    publisher: Publisher,
    known: RecordedCapture,
    wanted: Callable[[PublishedTable], bool],
    sample: int | None,
    directory: Path,
    uploader: Uploader | None,
) -> tuple[int, Copying]:
    """Copy them at one position, which is returned."""
    publisher = replace(publisher, plan=replace(publisher.plan, slot_name=slots.temporary_name()))
    state = StateFile(directory)
    files = CaptureFiles(directory, state, Rotation(), compress=True, uploader=uploader)
    with exported(publisher, known.server) as source:
        if source.lsn < known.position:
            raise ServerError(
                f"the server is at {lsn_text(source.lsn)}, and {known.directory} goes up to"
                f" {lsn_text(known.position)}.",
                cure="If this is a standby, it may only lag: try again. Otherwise connect to the server that was"
                " recorded.",
            )
        report = SnapshotReport(publisher, None)
        copying = copy_tables(source, publisher, wanted, files, report, jobs=_JOBS, sample=sample)
    if not copying.progress.all_tables:
        names = ", ".join(publisher.plan.options.publications)
        raise OptionError(
            f"no table to compare: of what {names} publishes, --table (here, or of the state) selects nothing"
        )
    if state.now is not NO_STATE:
        # From here on the copies count.
        state.write(state.now._replace(position=source.lsn))
        if uploader is not None:
            uploader.publish(Work({}, source.lsn))
    return source.lsn, copying
