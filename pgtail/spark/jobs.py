"""Spreads work over Spark's tasks, one task for each item.

The same functions do a small batch in the driver: a job, with its Python workers, costs more than the work.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa

from pgtail.errors import InputError, OptionError, OutputError
from pgtail.spark.session import DRIVER_BYTES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

T = TypeVar("T")
R = TypeVar("R")

_RESULT: Final = "data binary"
_MOST_ROWS: Final = 64 * 1024
_TURNS: Final = 4
"""Tasks for each core: a task has one of its buckets in memory at a time."""
_MOST_BYTES: Final = 16 << 20
_OPENING: Final = 256 << 10
"""The cost of opening a segment, in bytes."""
_USUAL_CORES: Final = 8
_MOST_IN_DRIVER: Final = 16 << 20
_OURS: Final = re.compile(r"^pgtail(?:\.storage)?\.errors\.(\w+): (.+)$", re.MULTILINE)
_ERRORS: Final = {"OptionError": OptionError, "OutputError": OutputError, "UnavailableOutput": OutputError}
_FULL: Final = re.compile(r"No space left on device|Disk quota exceeded|Permission denied|Read-only file system")


def frame(
    spark: SparkSession, work: Callable[[T], Iterator[pa.RecordBatch]], items: Sequence[T], schema: str | StructType
) -> DataFrame:
    """The record batches that `work` makes of each item."""
    if not items:
        return spark.createDataFrame([], schema)

    def job(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from work(items[number])

    return spark.range(0, len(items), 1, len(items)).mapInArrow(job, schema)


def collected(spark: SparkSession, work: Callable[[T], R], items: Sequence[T], size: int) -> list[R]:
    """The result of `work` for each item; `size` are the bytes of all files that it reads.

    Raises PgtailError if a task fails.
    """
    if is_small(spark, size):
        return [work(item) for item in items]
    if not items:
        return []
    with translate_spark_errors():
        return _results(frame(spark, lambda item: iter([_result(work(item))]), items, _RESULT))


def collected_by(
    spark: SparkSession, parts: DataFrame, keys: Sequence[str], most: int, work: Callable[[pa.Table], R]
) -> list[R]:
    """The result of `work` for the rows of each value of the keys, in at most `most` tasks."""
    spread = parts.repartition(min(most, turns(spark)), *keys).groupBy(*keys)
    return _results(spread.applyInArrow(lambda rows: pa.Table.from_batches([_result(work(rows))]), _RESULT))


def is_small(spark: SparkSession, size: int) -> bool:
    """Whether files of this many bytes are read in the driver. Raises OptionError if its setting is no number."""
    most = str(spark.conf.get(DRIVER_BYTES, str(_MOST_IN_DRIVER)))
    if not (most.isascii() and most.isdecimal()):
        raise OptionError(f"{DRIVER_BYTES} is {most}: expected a number of bytes")
    return size <= int(most)


@contextlib.contextmanager
def translate_spark_errors() -> Iterator[None]:
    """Raise pgtail's errors within Spark again here, and other failures of Spark in one sentence."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        text = str(error)
        ours = _OURS.search(text)
        if ours is not None:
            raise _ERRORS.get(ours[1], InputError)(ours[2]) from None
        trouble = _FULL.search(text)
        if trouble is not None:
            raise OutputError(f"Spark could not write: {trouble[0]}") from error
        lines = [*filter(None, map(str.strip, text.splitlines())), type(error).__name__]
        raise InputError(f"Spark failed: {lines[0]}") from error


def _result(value: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"data": pa.array([pickle.dumps(value)], pa.binary())})


def _results(rows: DataFrame) -> list[Any]:
    return [pickle.loads(data) for data in rows.toArrow()["data"].to_pylist()]


def packed(rows: pa.Table) -> Iterator[bytes]:
    """A table in parts, as Arrow's IPC streams, compressed: Spark copies them several times from task to task."""
    for start in range(0, len(rows), _MOST_ROWS):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
            writer.write_table(rows.slice(start, _MOST_ROWS))
        yield sink.getvalue().to_pybytes()


def unpacked(parts: pa.ChunkedArray) -> list[pa.Table]:
    """The inverse: the parts of tables from Arrow's IPC streams."""
    return [pa.ipc.open_stream(data.as_buffer()).read_all() for data in parts]


def groups(spark: SparkSession, files: Iterable[tuple[T, int]]) -> list[list[T]]:
    """Files (with their bytes) in groups for one task each, in order: few that are large, many that are small."""
    sized = [(file, size + _OPENING) for file, size in files]
    return in_groups(sized, min(_MOST_BYTES, max(sum(size for _, size in sized) // cores(spark) + 1, _OPENING)))


def in_groups(sized: Iterable[tuple[T, int]], most: int) -> list[list[T]]:
    """Items (with their bytes) in groups of at most `most` bytes, in order; a larger item is alone."""
    filled: list[list[T]] = []
    room = 0
    for item, size in sized:
        if not filled or size > room:
            filled.append([])
            room = most
        filled[-1].append(item)
        room -= size
    return filled


def turns(spark: SparkSession) -> int:
    """The number of tasks over which the buckets of a table are spread, at most."""
    return _TURNS * cores(spark)


def cores(spark: SparkSession) -> int:
    """The number of tasks that run at a time; a usual one if it is unknown."""
    try:
        return max(int(spark.sparkContext.defaultParallelism), 1)
    except Exception:  # noqa: BLE001 -- Spark Connect has no SparkContext, and says so in several ways
        return _USUAL_CORES


def spark_schema(schema: pa.Schema) -> StructType:
    """An Arrow schema as Spark's: Delta Lake describes types in Spark's JSON."""
    from deltalake import Schema
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(Schema.from_arrow(schema).to_json()))
