"""Lists the segments of captures for Spark, and plans which part of each to read."""

from __future__ import annotations

import glob
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from pgtail.arrow.decoding.decode import survey, tables_in
from pgtail.arrow.segments.ranges import EVERYWHERE, Parts, Range
from pgtail.arrow.segments.survey import TWO_PHASE, Survey, folder_of, name_of
from pgtail.capture.format import CLOSED, SegmentName
from pgtail.capture.state import Pruned, read_state
from pgtail.changes.filters import name_matches
from pgtail.errors import InputError, OptionError
from pgtail.humanize import did_you_mean
from pgtail.spark.jobs import collected, groups
from pgtail.spark.segments.applied import SegmentRun
from pgtail.spark.segments.snapshots import ListedSnapshot, listed_in, new_snapshots
from pgtail.storage import NO_OPTIONS, Location, StorageOptions, locate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WILDCARDS: Final = frozenset("*?[")
_ONE_PHASE: Final = f"{TWO_PHASE} off"


class Covered(NamedTuple):
    """A part of a stream; `late` if it is a transaction that may have been sent late."""

    places: Range
    stream: str
    where: str
    """The path of the segment; of several that were applied, the name of the first."""
    late: bool = False


class Listing(NamedTuple):
    """The contents of captures: closed segments, with their bytes, in the order of their names, and snapshots.

    `pruned` says where each directory that was pruned begins.
    """

    segments: dict[str, int]
    snapshots: list[ListedSnapshot]
    pruned: Mapping[str, Pruned]

    def snapshot_segments(self, tables: Sequence[str] = ()) -> dict[str, int]:
        """The segments of all snapshots of tables that match the globs, with their bytes."""
        return {one.path: one.bytes for one in new_snapshots(self.snapshots, (), (), tables)}


def listing(
    captures: Sequence[str], storage: StorageOptions = NO_OPTIONS, after: Mapping[str, str] | None = None
) -> Listing:
    """The segments, as segments() has them, and the snapshots that count in these directories.

    Both are consistent while recorders write: the segments have all commits before a snapshot's position, and the
    snapshots before the segments' end are listed. Raises InputError.
    """
    known = _known(captures, storage)
    while True:
        before, paths = known, segments(captures, storage, after)
        known = _known(captures, storage)
        if known == before:
            return Listing(paths, *known)


def _known(captures: Sequence[str], storage: StorageOptions) -> tuple[list[ListedSnapshot], dict[str, Pruned]]:
    """The snapshots that count in these directories, and where those that were pruned begin. Raises InputError."""
    folders = [one for capture in captures for one in places_of(capture, storage) if one.is_folder()]
    states = {str(folder): read_state(folder) for folder in folders}
    snapshots = [one for folder, state in states.items() for one in listed_in(folder, state)]
    pruned = {folder: state.pruned for folder, state in states.items() if state.pruned is not None}
    return snapshots, pruned


def segments(
    captures: Sequence[str], storage: StorageOptions = NO_OPTIONS, after: Mapping[str, str] | None = None
) -> dict[str, int]:
    """The closed segments in these directories (or files, or patterns of local ones) and their bytes, in the order of
    their names. Raises InputError if there is no such place; it may have no segment yet.
    `after`: the directories of which only the segments after this name are listed. Segments that do not count are left
    out, also if their files are there.
    """
    sizes: dict[str, int] = {}
    for place in (place for capture in captures for place in places_of(capture, storage)):
        if place.is_folder():
            state = read_state(place)
            begin = max((after or {}).get(str(place), ""), state.pruned_segment)
            for name, size in place.list(f"{begin}{CLOSED}" if begin else ""):
                if name.endswith(CLOSED) and state.has(name.removesuffix(CLOSED)):
                    sizes[f"{place}/{name}"] = size
        elif place.name.endswith(CLOSED) and (entry := place.head()) is not None:
            sizes[str(place)] = entry.size
    named = [path for path in sizes if SegmentName.parse(name_of(path))]
    return {path: sizes[path] for path in sorted(named, key=lambda path: (name_of(path), path))}


def places_of(capture: str, storage: StorageOptions) -> list[Location]:
    """A path or URI, or the local ones that match a pattern. Raises InputError if there is none."""
    place = locate(capture, storage).absolute()
    if place.path is None or place.path.exists():
        return [place]
    places = [locate(path) for path in sorted(glob.glob(str(place)))]
    if not places:
        raise InputError(f"there is no {place}")
    return places


def check_names(listed: Listing, tables: Iterable[str], storage: StorageOptions) -> None:
    """Raise OptionError if a glob without wildcards names no table of the captures. Reads the newest segments first;
    checks nothing if a segment does not say which tables it has."""
    missing = [name for name in tables if not _WILDCARDS.intersection(name)]
    known: set[tuple[str, str]] = set()
    copied = {(one.table.schema, one.table.table) for one in listed.snapshots}
    for some in itertools.chain([copied], (tables_in(locate(path, storage)) for path in reversed(listed.segments))):
        if some is None:
            return
        missing = [name for name in missing if not any(name_matches(*one, name) for one in some)]
        if not missing:
            return
        known |= some
    for name in missing if known else ():
        meant = did_you_mean(name, [f"{schema}.{table}" if "." in name else table for schema, table in sorted(known)])
        raise OptionError(f"option tables: the captures have no table {name}{meant}")


def directories(paths: Iterable[str]) -> set[str]:
    """The directories of these segments."""
    return {folder_of(path) for path in paths}


def surveys(spark: SparkSession, paths: Mapping[str, int], storage: StorageOptions = NO_OPTIONS) -> list[Survey]:
    """A survey of each segment (with its bytes), which reads all of it.

    Raises InputError if a segment is damaged or not closed.
    """
    items, size = groups(spark, paths.items()), sum(paths.values())
    surveyed = collected(spark, partial(survey_each, storage=storage), items, size)
    return [survey for some in surveyed for survey in some]


def survey_each(paths: Iterable[str], storage: StorageOptions) -> list[Survey]:
    """A survey of each segment, made in this process. Raises InputError."""
    surveyed = []
    for path in paths:
        with locate(path, storage).open() as file:
            surveyed.append(survey(file, path))
    return surveyed


def parts_of(surveyed: Iterable[Survey], applied: Iterable[SegmentRun] = ()) -> dict[str, Parts]:
    """The parts to read of each segment: those that no other one has, and none of those that were applied.

    Raises OptionError if segments that overlap do not number their changes alike.
    """
    taken = [part for run in applied for part in covered_by(run)]
    wanted: dict[str, Parts] = {}
    for segment in sorted(_from_predecessors(surveyed), key=lambda segment: (segment.places or (), segment.path)):
        left: list[Range] = []
        own = covered_by(segment)
        for part in own:
            left += part.places.without([other.places for other in taken if _same_changes(part, other)])
        if left:
            wanted[segment.path] = tuple(left)
            taken += own
    return wanted


def covered_by(segment: Survey | SegmentRun) -> list[Covered]:
    """The parts of a stream that a segment, or several, have."""
    where = segment.path if isinstance(segment, Survey) else segment.start
    own = [] if segment.places is None else [Covered(segment.places, segment.stream, where)]
    return own + [Covered(late, segment.stream, where, late=True) for late in segment.late]


def _same_changes(part: Covered, other: Covered) -> bool:
    """Whether both have the same changes at the same places. Raises OptionError if that is unknown."""
    if not part.places.overlaps(other.places):
        return False
    if part.stream == other.stream:
        return True
    if (part.late or other.late) and (_ONE_PHASE in part.stream or _ONE_PHASE in other.stream):
        return False
    raise OptionError(
        f"{part.where} overlaps another capture, of another stream: which changes are the same is unknown."
        f" Use a separate output directory for each.\n{part.where}: {part.stream}\n{other.where}: {other.stream}"
    )


def collapse_whole_segments(parts: Mapping[str, Parts], surveyed: Iterable[Survey]) -> dict[str, Parts]:
    """The same parts, with EVERYWHERE for those that have all of their segment, which is read faster."""
    own = {segment.path: covered_by(segment) for segment in surveyed}

    def is_whole(path: str, some: Parts) -> bool:
        return all(any(part.covers(one.places) for part in some or ()) for one in own[path])

    return {path: EVERYWHERE if is_whole(path, some) else some for path, some in parts.items()}


def _from_predecessors(surveyed: Iterable[Survey]) -> Iterator[Survey]:
    """Segments, each from the end of the one before it: nothing is between the two."""
    segments_of = {(folder_of(segment.path), segment.name): segment for segment in surveyed}
    for (directory, _), segment in segments_of.items():
        before = segments_of.get((directory, segment.predecessor))
        if segment.places is not None and before is not None and before.places is not None:
            segment = replace(segment, places=Range(before.places.end, segment.places.end))
        yield segment


def server_of(surveyed: Iterable[Survey], server: str = "", read: Iterable[str] = ()) -> str:
    """The server and database of these captures, and of those in the directories `read`, which were read before.

    Raises InputError if they differ: LSNs of different servers cannot be compared, and tables of one name are not the
    same.
    """
    other = ", ".join(read)
    for segment in surveyed:
        if segment.server and server and segment.server != server:
            raise InputError(
                f"{segment.path} and {other} come from different servers or databases: use a separate output directory"
                " for each"
            )
        if segment.server and not server:
            server, other = segment.server, segment.path
    return server


def plan(survey_all: Callable[[Mapping[str, int]], Iterable[Survey]], paths: Mapping[str, int]) -> Mapping[str, Parts]:
    """The parts to read of each segment, so that no change comes twice; `survey_all` surveys them all.

    The segments of a single capture are not surveyed: they do not overlap. Raises InputError, OptionError.
    """
    if len(directories(paths)) < 2:
        return dict.fromkeys(paths)
    surveyed = list(survey_all(paths))
    server_of(surveyed)
    return collapse_whole_segments(parts_of(surveyed), surveyed)
