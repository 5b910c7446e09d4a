"""Work spread over Spark's tasks: each item is done by one task, wherever that runs, and results come back as bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

T = TypeVar("T")
Result = tuple[str, bytes]
"""What is done, and its data."""

RESULT: Final = "kind string, data binary"
_MOST_BYTES: Final = 16 << 20
_OPENING: Final = 256 << 10
"""What it costs to open a segment, in bytes."""
_USUAL_CORES: Final = 8


def frame(
    spark: SparkSession, work: Callable[[T], Iterator[pa.RecordBatch]], items: Sequence[T], schema: str | StructType
) -> DataFrame:
    """The record batches that `work` makes of each item."""
    if not items:
        return spark.createDataFrame([], schema)
    return spark.range(0, len(items), 1, len(items)).mapInArrow(_Job(work, tuple(items)), schema)


def collected(spark: SparkSession, work: Callable[[T], Iterator[Result]], items: Sequence[T]) -> list[Result]:
    """The results of all items. Raises what Spark raises if a task fails."""
    if not items:
        return []
    rows = frame(spark, _Results(work), items, RESULT).toArrow()
    return list(zip(rows["kind"].to_pylist(), rows["data"].to_pylist(), strict=True))


@dataclass(frozen=True, slots=True)
class _Job(Generic[T]):
    work: Callable[[T], Iterator[pa.RecordBatch]]
    items: tuple[T, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self.work(self.items[number])


@dataclass(frozen=True, slots=True)
class _Results(Generic[T]):
    work: Callable[[T], Iterator[Result]]

    def __call__(self, item: T) -> Iterator[pa.RecordBatch]:
        for kind, data in self.work(item):
            yield pa.RecordBatch.from_pydict({"kind": [kind], "data": pa.array([data], pa.binary())})


def groups(spark: SparkSession, files: Iterable[tuple[T, int]]) -> list[list[T]]:
    """Files (with their bytes) in groups for one task each, in order: few that are large, many that are small."""
    sized = [(file, size + _OPENING) for file, size in files]
    most = min(_MOST_BYTES, max(sum(size for _, size in sized) // cores(spark) + 1, _OPENING))
    found: list[list[T]] = []
    room = 0
    for file, size in sized:
        if not found or size > room:
            found.append([])
            room = most
        found[-1].append(file)
        room -= size
    return found


def cores(spark: SparkSession) -> int:
    """How many tasks run at a time, as far as that is known."""
    try:
        return max(int(spark.sparkContext.defaultParallelism), 1)
    except Exception:  # noqa: BLE001 -- Spark Connect has no SparkContext, and says so in several ways
        return _USUAL_CORES
