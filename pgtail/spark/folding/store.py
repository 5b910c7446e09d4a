"""The state on disk: copy-on-write buckets of rows, and the manifest that says which files count.

A batch writes files of its own, then replaces the manifest in one step. A batch that is given twice changes nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- as everybody writes it
from pyspark.sql.types import StructType

from pgtail.errors import InputError, OutputError
from pgtail.spark.folding.filesystem import files_of, now
from pgtail.spark.folding.manifest import NAME, Manifest
from pgtail.spark.segments.listing import literal

ROWS: Final = (
    "relid long, hash long, values map<string,string>, unknown array<string>, undecoded array<string>, "
    "position long, seq long, time timestamp, until_position long, until_seq long, until_time timestamp"
)
"""A row as it is stored: everything as PostgreSQL's text; `hash` is of what identifies it."""

CLOSED: Final = -1
"""Stands for a bucket where rows are kept that are no more."""

_DATA: Final = "data"


class Store:
    """The state in a folder. Raises OptionError where the file system does not allow one, InputError for damage."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self.root = root
        self._spark = spark
        self._files = files_of(spark, root)
        self.manifest = self._read() or Manifest()

    @property
    def exists(self) -> bool:
        """Whether anything was ever applied."""
        return self.manifest.number > 0

    def _read(self) -> Manifest | None:
        data = self._files.read(NAME)
        return None if data is None else Manifest.decode(data, self._files.url(NAME))

    def rows(self, paths: Sequence[str], schema: str | StructType = ROWS) -> DataFrame:
        """The rows in these files."""
        if not paths:
            return self._spark.createDataFrame([], schema)
        return self._spark.read.schema(schema).parquet(*[literal(self._files.url(path)) for path in paths])

    def write(self, rows: DataFrame) -> dict[int, dict[int, list[tuple[str, int]]]]:
        """Write rows that have a `bucket`; returns paths and sizes by relid and bucket."""
        folder = f"{_DATA}/{uuid.uuid4().hex}"
        placed = rows.withColumn("_relid", F.col("relid")).withColumnRenamed("bucket", "_bucket")
        placed.write.partitionBy("_relid", "_bucket").parquet(self._files.url(folder))
        found: dict[int, dict[int, list[tuple[str, int]]]] = {}
        for file in sorted(self._files.walk(folder)):
            parts = dict(part.split("=", 1) for part in file.path.split("/") if "=" in part)
            if file.path.endswith(".parquet"):
                table = found.setdefault(int(parts["_relid"]), {})
                table.setdefault(int(parts["_bucket"]), []).append((file.path, file.size))
        return found

    def write_plain(self, rows: DataFrame) -> list[str]:
        """Write rows as they are; returns the paths."""
        folder = f"{_DATA}/{uuid.uuid4().hex}"
        rows.write.parquet(self._files.url(folder))
        return [file.path for file in sorted(self._files.walk(folder)) if file.path.endswith(".parquet")]

    def commit(self, manifest: Manifest, retain: float) -> None:
        """Make `manifest` the one that counts, and remove files that none has named for `retain` seconds.

        Raises OutputError where another process was faster.
        """
        there = self._read()
        if (there.number if there is not None else 0) != self.manifest.number:
            raise OutputError(f"{self.root}: another process keeps this state too; one of them has to end")
        named, moment = manifest.named(), now()
        manifest.number = self.manifest.number + 1
        since = {**self.manifest.retired, **dict.fromkeys(self.manifest.named() - named, moment)}
        unnamed = {f.path: since.get(f.path, f.written) for f in self._files.walk(_DATA) if f.path not in named}
        doomed = [path for path, retired in unnamed.items() if moment - retired >= retain]
        manifest.retired = {path: since[path] for path in unnamed if path in since and path not in doomed}
        self._files.replace(NAME, manifest.encode())
        self.manifest = manifest
        for path in doomed:
            self._files.remove(path)

    def relid(self, name: str) -> int:
        """The table that has this name (schema.table) now. Raises InputError, which says what there is."""
        found = [
            (table.named, relid)
            for relid, table in self.manifest.tables.items()
            if f"{table.current.schema}.{table.current.table}" == name
        ]
        if not found:
            there = sorted({f"{t.current.schema}.{t.current.table}" for t in self.manifest.tables.values()})
            raise InputError(f"no table {name} in it; there are {', '.join(there) or 'none'}", source=self.root)
        return max(found)[1]


def paths_of(files: Mapping[int, Sequence[str]], buckets: Iterable[int] | None = None) -> list[str]:
    """The files of some buckets, or of all."""
    wanted = files.keys() if buckets is None else buckets
    return [path for bucket in wanted for path in files.get(bucket, ())]
