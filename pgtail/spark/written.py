"""Floor 7, changes written to Parquet by the tasks that decode them: Spark sees which files there are, and no row.

A task may run several times, and one given up may go on unseen. So each attempt writes in a folder of its own, and only
what the attempts that count tell of is taken from there.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from pgtail.spark.dataframes import Decode
from pgtail.spark.parquet import codec_of, write
from pgtail.spark.place import Parts
from pgtail.spark.rowtypes import spark_schema
from pgtail.spark.segments import files, literal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CODEC: Final = "spark.sql.parquet.compression.codec"
_FILES: Final = pa.schema([("path", pa.string())])


def written(spark: SparkSession, parts: Mapping[str, Parts], tables: Sequence[str], folder: str) -> list[str]:
    """Write the changes in these parts of these segments below `folder`, which all workers can reach.

    Returns the paths of the files from there. Raises OptionError where the session's codec is none that Arrow has;
    where a segment is damaged or a file cannot be written, Spark's job fails and says so.
    """
    codec = codec_of(str(spark.conf.get(_CODEC)))
    found = files(spark, [literal(path) for path in parts]).select("path", "content")
    done = found.mapInArrow(_Write(Decode.of(parts, tables), folder, codec), spark_schema(_FILES))
    return [row.path for row in done.collect()]


@dataclass(frozen=True, slots=True)
class _Write:
    """What a task does with its files."""

    decode: Decode
    folder: str
    codec: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        attempt = uuid.uuid4().hex
        found = write(self.decode(batches), Path(self.folder, attempt), self.codec)
        yield pa.RecordBatch.from_pylist([{"path": f"{attempt}/{file.path}"} for file in found], schema=_FILES)
