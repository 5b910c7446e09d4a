"""The segments of captures as Spark sees them: which there are, and which part of each is to be read."""

from __future__ import annotations

import glob
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pgtail.capture.format import CLOSED, SegmentName
from pgtail.errors import InputError, OptionError
from pgtail.spark.errors import translate_spark_errors
from pgtail.spark.jobs import collected, groups
from pgtail.spark.segments.ranges import EVERYWHERE, NOWHERE, Part, Parts, Place, left_of
from pgtail.spark.segments.survey import Survey, survey
from pgtail.storage import NO_OPTIONS, StorageOptions, locate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Surveyed(NamedTuple):
    """What a survey told of one segment; `whole` is None where it holds no change."""

    path: str
    whole: Part | None
    stream: str
    server: str
    predecessor: str
    """The name of the segment that should stand before it, or ''."""
    open: bool = False
    """Whether it ends inside a transaction."""

    @property
    def name(self) -> str:
        """What its successor calls it."""
        return name_of(self.path)


def segments(captures: Sequence[str], storage: StorageOptions = NO_OPTIONS) -> dict[str, int]:
    """The closed segments in these directories (or files, or patterns of local ones) and their bytes, in the order of
    their names. Raises InputError where there is no such place; none may be there yet.
    """
    sizes = {path: size for capture in captures for path, size in _closed(capture, storage)}
    return {path: sizes[path] for path in in_order(sizes)}


def _closed(capture: str, storage: StorageOptions) -> Iterator[tuple[str, int]]:
    """The files at a path or URI that have the name of a closed segment: paths or URIs, and bytes."""
    place = locate(capture, storage).absolute()
    places = [place]
    if place.path is not None and not place.path.exists():
        places = [locate(path) for path in sorted(glob.glob(str(place)))]
        if not places:
            raise InputError(f"there is no {place}")
    for one in places:
        if one.is_folder():
            yield from ((f"{one}/{name}", size) for name, size in one.list() if name.endswith(CLOSED))
        elif one.name.endswith(CLOSED) and (found := one.head()) is not None:
            yield str(one), found.size


def in_order(paths: Iterable[str]) -> list[str]:
    """Those of the paths that are segments', in the order of their names."""
    return sorted(
        (path for path in set(paths) if SegmentName.parse(name_of(path))), key=lambda path: (name_of(path), path)
    )


def name_of(path: str) -> str:
    """The name of the segment that lies there."""
    return path.rpartition("/")[2].removesuffix(CLOSED)


def folder_of(path: str) -> str:
    """The directory that a segment lies in: each is one capture."""
    return path.rpartition("/")[0]


def directories(paths: Iterable[str]) -> set[str]:
    """The directories that segments lie in."""
    return {folder_of(path) for path in paths}


def surveys(spark: SparkSession, paths: Mapping[str, int], storage: StorageOptions = NO_OPTIONS) -> list[Survey]:
    """A survey of each segment (with its bytes), which reads all of it.

    Raises InputError where a segment is damaged or not closed.
    """
    with translate_spark_errors():
        return [pickle.loads(data) for _, data in collected(spark, Surveys(storage), groups(spark, paths.items()))]


@dataclass(frozen=True, slots=True)
class Surveys:
    """What a task does to survey segments."""

    storage: StorageOptions

    def __call__(self, paths: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        for found in self.of(paths):
            yield "survey", pickle.dumps(found)

    def of(self, paths: Iterable[str]) -> Iterator[Survey]:
        """A survey of each of these segments. Raises InputError."""
        for path in paths:
            with locate(path, self.storage).open() as file:
                yield survey(file, path)


def surveyed(found: Iterable[Survey]) -> list[Surveyed]:
    """What is to be known of each segment to tell what to read of it."""
    return [
        Surveyed(
            one.name,
            None if one.first is None or one.last is None else Part(one.first, one.last),
            one.stream,
            one.server,
            one.predecessor,
            one.open,
        )
        for one in found
    ]


def parts_of(found: Iterable[Surveyed], covered: Sequence[tuple[Part, str]] = ()) -> dict[str, Parts]:
    """What of each segment is to be read: what no other one has, and is not `covered` (parts and their streams).

    Raises OptionError where segments that overlap do not number their changes alike.
    """
    taken = list(covered)
    wanted: dict[str, Parts] = {}
    for segment in sorted(_joined(found), key=lambda segment: (segment.whole or NOWHERE, segment.path)):
        if segment.whole is None:
            continue
        over = [other for other in taken if _overlap(other[0], segment.whole)]
        for _, stream in over:
            if stream != segment.stream:
                raise OptionError(
                    f"{segment.path} overlaps another capture, of another stream: which changes are the same cannot be"
                    f" told. Read them into two places.\nThis one: {segment.stream}\nThe other one: {stream}"
                )
        left = left_of(segment.whole, [part for part, _ in over])
        if left:
            wanted[segment.path] = left
            taken += [(part, segment.stream) for part in left]
    return wanted


def collapse_whole_segments(parts: Mapping[str, Parts], found: Iterable[Surveyed]) -> dict[str, Parts]:
    """The same parts, EVERYWHERE in place of one that holds all of its segment: that is read faster."""
    whole = {segment.path: segment.whole for segment in found}
    return {path: EVERYWHERE if _holds(some, whole.get(path)) else some for path, some in parts.items()}


def _holds(parts: Parts, whole: Part | None) -> bool:
    return whole is not None and any(part.first <= whole.first and whole.last <= part.last for part in parts or ())


def _joined(found: Iterable[Surveyed]) -> Iterator[Surveyed]:
    """Segments, each from behind the one before it on: between the two lies nothing."""
    segments_of = {(folder_of(segment.path), segment.name): segment for segment in found}
    for (directory, _), segment in segments_of.items():
        before = segments_of.get((directory, segment.predecessor))
        if segment.whole is not None and before is not None and before.whole is not None:
            position, ordinal = before.whole.last
            segment = segment._replace(whole=Part(Place(position, ordinal + 1), segment.whole.last))
        yield segment


def _overlap(one: Part, other: Part) -> bool:
    return one.first <= other.last and other.first <= one.last


def check_one_server(found: Iterable[Surveyed]) -> None:
    """Raises InputError where the captures are of different servers or databases.

    Log positions of different servers say nothing to each other, and tables of one name are not the same ones.
    """
    servers = {segment.server: segment.path for segment in found if segment.server}
    if len(servers) > 1:
        (_, one), (_, other), *_ = servers.items()
        raise InputError(f"{one} and {other} come from different servers or databases: read them into two places")


def plan(spark: SparkSession, paths: Mapping[str, int], storage: StorageOptions) -> Mapping[str, Parts]:
    """The parts to read of each segment, so that no change comes twice; Spark's tasks make the surveys."""
    return plan_with(lambda some: surveys(spark, {path: paths[path] for path in some}, storage), paths)


def plan_with(survey_all: Callable[[Iterable[str]], Iterable[Survey]], paths: Iterable[str]) -> Mapping[str, Parts]:
    """As plan(), with another way to survey segments.

    None is surveyed if all are of one capture: its segments do not overlap. Raises InputError, OptionError.
    """
    if len(directories(paths)) < 2:
        return dict.fromkeys(paths)
    found = surveyed(survey_all(paths))
    check_one_server(found)
    return collapse_whole_segments(parts_of(found), found)
