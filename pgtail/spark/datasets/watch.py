"""Growing captures followed by Structured Streaming: each of its batches is an update of the datasets."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final

from pgtail.capture.format import CLOSED
from pgtail.spark.datasets.update import Datasets, Update
from pgtail.spark.errors import translate_spark_errors
from pgtail.spark.segments.listing import in_order, where

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BINARY_FILE: Final = "path string, modificationTime timestamp, length bigint, content binary"
_MOST_SEGMENTS: Final = 256


def watch(
    spark: SparkSession,
    captures: Sequence[str],
    datasets: Datasets,
    *,
    every: str = "1 minute",
    once: bool = False,
    done: Callable[[Update], None] = lambda update: None,
) -> None:
    """Keep the datasets up to date with the captures until interrupted, `every` so often.

    What is in them tells what is new, so that a batch that is applied again changes nothing; Structured
    Streaming's checkpoint only spares looking at segments again. `once` ends when everything that is there was applied.
    Raises what Datasets.apply raises.
    """
    found = reduce(lambda one, other: one.union(other), [_paths(spark, capture) for capture in captures])

    def apply(batch: DataFrame, number: int) -> None:
        update = datasets.apply(in_order(row.path for row in batch.collect()))
        if update.batches:
            done(update)

    name = hashlib.sha256("\\0".join(map(where, captures)).encode()).hexdigest()[:16]
    writer = found.writeStream.foreachBatch(apply).option("checkpointLocation", datasets.checkpoint(name))
    trigger = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=every)
    with translate_spark_errors():
        query = trigger.start()
        try:
            query.awaitTermination()
        except BaseException:
            with contextlib.suppress(Exception):  # Ctrl-C may have cost the connection over which it would be told
                query.stop()
            raise


def _paths(spark: SparkSession, capture: str) -> DataFrame:
    """The paths of a capture's closed segments as they come, without their content."""
    reader = spark.readStream.format("binaryFile").schema(_BINARY_FILE).option("pathGlobFilter", f"*{CLOSED}")
    # Without the age, what is older than the newest by a week is passed over in silence.
    reader = reader.option("maxFileAge", "36500d").option("maxFilesPerTrigger", str(_MOST_SEGMENTS))
    return reader.load(where(capture)).select("path")
