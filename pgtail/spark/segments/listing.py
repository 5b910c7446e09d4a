"""The segments of captures as Spark sees them: which there are, and which part of each is to be read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from pgtail.capture.format import CLOSED, SegmentName
from pgtail.errors import InputError, OptionError
from pgtail.spark.errors import translate_spark_errors
from pgtail.spark.schemas import RELATIONS, spark_schema
from pgtail.spark.segments.ranges import EVERYWHERE, NOWHERE, Part, Parts, Place, left_of
from pgtail.spark.segments.survey import Survey, survey

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_GLOB: Final = str.maketrans({sign: f"\\{sign}" for sign in "\\*?[]{}"})

SURVEYS: Final = pa.schema(
    [
        ("path", pa.string()),
        ("first_position", pa.int64()),
        ("first_ordinal", pa.int64()),
        ("last_position", pa.int64()),
        ("last_ordinal", pa.int64()),
        ("stream", pa.string()),
        ("server", pa.string()),
        ("predecessor", pa.string()),
        ("open", pa.bool_()),
        ("relations", pa.list_(pa.struct(list(RELATIONS)))),
    ]
)


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


def literal(path: str) -> str:
    """A path as Spark's readers take it, which look for patterns in it."""
    return path.translate(_GLOB)


def where(capture: str) -> str:
    """A capture as Spark's readers take it: a local path as it is, any other one may be a pattern."""
    return literal("file://" + os.path.abspath(capture)) if os.path.exists(capture) else capture


def files(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Closed segments as rows of Spark's binaryFile."""
    return spark.read.format("binaryFile").option("pathGlobFilter", f"*{CLOSED}").load(list(paths))


def segments(spark: SparkSession, captures: Sequence[str]) -> list[str]:
    """The paths of the closed segments in these directories (or files), each once, in the order of their names.

    Raises InputError where there is no such place; none may be there yet.
    """
    with translate_spark_errors():
        found = {row.path for row in files(spark, [where(capture) for capture in captures]).select("path").collect()}
    return in_order(found)


def in_order(paths: Iterable[str]) -> list[str]:
    """Those of the paths that are segments', in the order of their names."""
    return sorted(
        (path for path in set(paths) if SegmentName.parse(name_of(path))), key=lambda path: (name_of(path), path)
    )


def name_of(path: str) -> str:
    """The name of the segment that lies there."""
    return path.rpartition("/")[2].removesuffix(CLOSED)


def directories(paths: Iterable[str]) -> set[str]:
    """The directories that they lie in: each is one capture."""
    return {path.rpartition("/")[0] for path in paths}


def surveys(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """A row for each segment: where it starts and ends, its stream and its tables. Reads all of it."""
    found = files(spark, [literal(path) for path in paths]).select("path", "content")
    return found.mapInArrow(_survey, spark_schema(SURVEYS))


def _survey(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for path, content in contents(batch):
            yield pa.RecordBatch.from_pylist([survey_row(path, survey(content, path))], schema=SURVEYS)


def survey_row(path: str, found: Survey) -> dict[str, Any]:
    """A segment's row of SURVEYS."""
    first, last = found.first or (None, None), found.last or (None, None)
    row = (path, *first, *last, found.stream, found.server, found.predecessor, found.open, found.relations)
    return dict(zip(SURVEYS.names, row, strict=True))


def contents(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.BufferReader]]:
    """Path and content of each file, which is not copied."""
    paths, column = batch.column("path"), batch.column("content")
    for index in range(batch.num_rows):
        yield paths[index].as_py(), pa.BufferReader(column[index].as_buffer())


def collected(found: DataFrame) -> list[Surveyed]:
    """Surveys on the driver, without the tables. Raises InputError where a segment is damaged or not closed."""
    with translate_spark_errors():
        return surveyed(found.drop("relations").toArrow())


def surveyed(found: pa.Table) -> list[Surveyed]:
    """The same from rows of SURVEYS; others have no path."""
    return [
        Surveyed(
            row["path"],
            None
            if row["first_position"] is None
            else Part(
                Place(row["first_position"], row["first_ordinal"]), Place(row["last_position"], row["last_ordinal"])
            ),
            *(row[name] for name in ("stream", "server", "predecessor", "open")),
        )
        for row in found.select(SURVEYS.names[:-1]).to_pylist()
        if row["path"] is not None
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
    segments_of = {(segment.path.rpartition("/")[0], segment.name): segment for segment in found}
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


def plan(spark: SparkSession, paths: Sequence[str]) -> Mapping[str, Parts]:
    """The parts to read of each segment, so that no change comes twice.

    Nothing is looked at where all are of one capture: its segments do not overlap.
    """
    if len(directories(paths)) < 2:
        return dict.fromkeys(paths)
    found = collected(surveys(spark, paths))
    check_one_server(found)
    return collapse_whole_segments(parts_of(found), found)
