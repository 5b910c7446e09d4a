"""The options of `pgtail capture`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from pgtail.capture.format import SegmentName
from pgtail.commands.options.common import (
    ReportOptions,
    Verbosity,
    dry_run_option,
    input_option,
    output_option,
    point_option,
    range_option,
    storage_option,
    utc_option,
)
from pgtail.options import family, option, positive_duration
from pgtail.replication.request import encoding_name

if TYPE_CHECKING:
    from pgtail.pgoutput.scalars import Point
    from pgtail.storage.options import StorageOptions


def segment_name(text: str) -> SegmentName:
    """The name of a segment, or the path of its file. Raises ValueError."""
    found = SegmentName.parse(text.rpartition("/")[2].partition(".")[0])
    if found is None:
        raise ValueError(f"{text} is not the name of a segment")
    return found


class CaptureListOptions(Struct, frozen=True):
    """Options of `pgtail capture list`."""

    report: ReportOptions = family(
        ReportOptions,
        output={"help": "A table for people, or JSON for programs: a line for each segment and snapshot."},
        file=None,
    )
    encoding: str = input_option(
        "--encoding", default="utf-8", convert=encoding_name, help="The encoding of names in the capture."
    )
    storage: StorageOptions = storage_option()
    utc: bool = utc_option()
    verbosity: Verbosity = family(Verbosity)


class CaptureVerifyOptions(Struct, frozen=True):
    """Options of `pgtail capture verify`."""

    first: SegmentName | None = option(
        "--from", convert=segment_name, metavar="SEGMENT", help="Begin with this segment, as an earlier run said."
    )
    storage: StorageOptions = storage_option()
    verbosity: Verbosity = family(Verbosity)


class PruneOptions(Struct, frozen=True):
    """Options of `pgtail capture prune`. `keep` is in seconds."""

    before: Point | None = point_option(
        "--before",
        help="Remove what was committed before this time or log position: 30d (ago), yesterday, 2026-11-22T10:00 (local"
        " time without a zone), 0/1949A30.",
    )
    keep: float | None = range_option(
        "--keep",
        convert=positive_duration,
        metavar="TIME",
        help="Keep what was committed in this time up to now, such as 30d, and remove what was before.",
    )
    applied: tuple[str, ...] = range_option(
        "--applied",
        default=(),
        kind="folder",
        metavar="OUT",
        help="Remove only what pgtail spark has applied to OUT, a directory or URI. Repeatable.",
    )
    delete: bool = option("--delete", default=False, help="Remove the files; without this they are only counted.")
    dry_run: bool = dry_run_option()
    yes: bool = option(
        "--yes",
        default=False,
        help="Remove a table's last snapshot, too, where what follows it is removed; without this both are kept.",
    )
    output: str = output_option(
        "-o",
        "--output",
        default="text",
        kind=("text", "json"),
        help="A sentence for people, or JSON for programs: a line for each segment and snapshot, and one for all.",
    )
    storage: StorageOptions = storage_option()
    utc: bool = utc_option()
    verbosity: Verbosity = family(Verbosity)
