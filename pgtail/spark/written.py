"""Floor 7, changes written to Parquet by the tasks that decode them: Spark sees which files there are, and no row.

A task may run several times, and one given up may go on unseen. So each attempt writes in a folder of its own, and only
what the attempts that count tell of is taken from there.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from pgtail.spark.columns import changes_of
from pgtail.spark.counting import added_up, counted
from pgtail.spark.parquet import CHANGES_LAYOUT, TRANSACTIONS_LAYOUT, Writer, codec_of, own_folder
from pgtail.spark.place import Parts
from pgtail.spark.rowtypes import TRANSACTIONS, spark_schema
from pgtail.spark.segments import contents, files, literal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CODEC: Final = "spark.sql.parquet.compression.codec"
_LAYOUTS: Final = {"changes": CHANGES_LAYOUT, "transactions": TRANSACTIONS_LAYOUT}
_DONE: Final = pa.schema([("dataset", pa.string()), ("path", pa.string()), ("open", pa.struct(list(TRANSACTIONS)))])
"""What a task tells: a row for each file, and one for each transaction of which something may be left elsewhere."""


def written(
    spark: SparkSession, parts: Mapping[str, Parts], tables: Sequence[str], folder: str
) -> dict[str, list[str]]:
    """Write the changes in these parts of these segments, and their transactions, below `folder`.

    All workers must reach it. Returns for each dataset the paths of its files from there. Raises OptionError where the
    session's codec is none that Arrow has, OutputError; where a segment is damaged or a worker cannot write, Spark's
    job fails and says so.
    """
    codec = codec_of(str(spark.conf.get(_CODEC)))
    found = files(spark, [literal(path) for path in parts]).select("path", "content")
    # Where nothing is cut, what travels to the workers stays small.
    cut: dict[str, Parts] = {path: some for path, some in parts.items() if some is not None}
    done = found.mapInArrow(_Write(cut, tuple(tables), folder, codec), spark_schema(_DONE)).toArrow()
    opened = done.filter(pc.is_valid(done["open"]))["open"].combine_chunks().flatten()
    rest = _write(folder, codec, [(None, added_up(pa.table(opened, schema=TRANSACTIONS)))])
    named = done.filter(pc.is_valid(done["path"])).select(["dataset", "path"]).to_pylist()
    return {kind: [row["path"] for row in named if row["dataset"] == kind] + rest[kind] for kind in _LAYOUTS}


@dataclass(frozen=True, slots=True)
class _Write:
    """What a task does with its files."""

    parts: dict[str, Parts]
    tables: tuple[str, ...]
    folder: str
    codec: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        opened: list[pa.Table] = []
        paths = _write(self.folder, self.codec, self._counted(batches, opened))
        for dataset, some in paths.items():
            yield _told(len(some), dataset=pa.repeat(pa.scalar(dataset), len(some)), path=pa.array(some, pa.string()))
        for found in opened:
            yield _told(found.num_rows, open=found.to_struct_array().combine_chunks())

    def _counted(
        self, batches: Iterator[pa.RecordBatch], opened: list[pa.Table]
    ) -> Iterator[tuple[pa.RecordBatch, pa.Table]]:
        """Changes and what transactions they wholly hold; the others are added to `opened`."""
        for path, content in (file for batch in batches for file in contents(batch)):
            parts = self.parts.get(path)
            shared = {place.position for part in parts or () for place in part}
            for found in changes_of(content, path, parts=parts, tables=self.tables):
                transactions = counted(found)
                at = transactions["position"]
                ends = pa.chunked_array([*at[:1].chunks, *at[-1:].chunks, pa.array(shared, pa.int64())])
                open_ = pc.is_in(at, ends)
                opened.append(transactions.filter(open_))
                yield found, transactions.filter(pc.invert(open_))


def _write(folder: str, codec: str, found: Iterable[tuple[pa.RecordBatch | None, pa.Table]]) -> dict[str, list[str]]:
    """Write changes and transactions in a folder of its own below `folder`; the paths of the files, by dataset."""
    attempt = uuid.uuid4().hex
    with own_folder(Path(folder, attempt)) as own:
        changes, transactions = (Writer(own / kind, layout, codec) for kind, layout in _LAYOUTS.items())
        for rows, counted_ in found:
            if rows is not None:
                changes.add(rows)
            for batch in counted_.to_batches():
                transactions.add(batch)
        paths = {"changes": changes.close(), "transactions": transactions.close()}
    return {kind: [f"{attempt}/{kind}/{path}" for path in some] for kind, some in paths.items()}


def _told(rows: int, **columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [columns[field.name] if field.name in columns else pa.nulls(rows, field.type) for field in _DONE], schema=_DONE
    )
