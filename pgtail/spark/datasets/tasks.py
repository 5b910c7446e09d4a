"""Changes written to Parquet by the tasks that decode them: Spark sees which files there are, and no row.

A task may run several times, and one given up may go on unseen. So each attempt writes in a folder of its own, and only
what the attempts that count tell of is taken from there.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pgtail.spark.datasets.parquet import CHANGES_LAYOUT, TRANSACTIONS_LAYOUT, Writer, codec_of, own_folder
from pgtail.spark.decoding.decode import changes_of
from pgtail.spark.decoding.transactions import added_up, counted
from pgtail.spark.schemas import TRANSACTIONS, spark_schema
from pgtail.spark.segments.listing import SURVEYS, contents, files, literal, survey_row
from pgtail.spark.segments.ranges import Part, Parts, Place
from pgtail.spark.segments.survey import Surveyor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CODEC: Final = "spark.sql.parquet.compression.codec"
_LAYOUTS: Final = {"changes": CHANGES_LAYOUT, "transactions": TRANSACTIONS_LAYOUT}
_DONE: Final = pa.schema(
    [("dataset", pa.string()), ("file", pa.string()), ("transaction", pa.struct(list(TRANSACTIONS))), *SURVEYS]
)
"""What a task tells: a row for each file, for each transaction of which others may have a part, for each survey."""


class Workers:
    """Changes and their transactions written below `folder`, which all workers must reach under this path.

    Raises OptionError where the session's codec is none that Arrow has.
    """

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark = spark
        self._folder = folder
        self._codec = codec_of(str(spark.conf.get(_CODEC)))

    def tasks(self, parts: Mapping[str, Parts], tables: Sequence[str] = (), *, survey: bool = False) -> DataFrame:
        """Write the changes in these parts of these segments when it is collected, each time anew; with `survey` the
        segments, which are then to be taken wholly, have their rows of SURVEYS in it.

        Where a segment is damaged or a worker cannot write, Spark's job fails and says so.
        """
        found = files(self._spark, [literal(path) for path in parts]).select("path", "content")
        # Where nothing is cut, what travels to the workers stays small.
        cut: dict[str, Parts] = {path: some for path, some in parts.items() if some is not None}
        return found.mapInArrow(_Task(cut, tuple(tables), survey, self._folder, self._codec), spark_schema(_DONE))

    def written(self, done: pa.Table) -> dict[str, list[str]]:
        """For each dataset the paths below the folder of the files that the tasks told of.

        Transactions of which several had a part are added up and written here. Raises OutputError.
        """
        opened = done["transaction"].filter(pc.is_valid(done["transaction"])).combine_chunks().flatten()
        rest = _write(self._folder, self._codec, [(None, added_up(pa.table(opened, schema=TRANSACTIONS)))])
        named = done.select(["dataset", "file"]).filter(pc.is_valid(done["file"])).to_pylist()
        return {kind: [row["file"] for row in named if row["dataset"] == kind] + rest[kind] for kind in _LAYOUTS}


@dataclass(frozen=True, slots=True)
class _Task:
    """What a task does with its files."""

    parts: dict[str, Parts]
    tables: tuple[str, ...]
    survey: bool
    folder: str
    codec: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        told: list[dict[str, Any]] = []
        opened: list[pa.Table] = []
        paths = _write(self.folder, self.codec, self._counted(batches, told, opened))
        told += [{"dataset": dataset, "file": path} for dataset, some in paths.items() for path in some]
        yield pa.RecordBatch.from_pylist(told, schema=_DONE)
        for found in opened:
            one = found.to_struct_array().combine_chunks()
            nulls = {field.name: pa.nulls(len(one), field.type) for field in _DONE}
            yield pa.RecordBatch.from_pydict(nulls | {"transaction": one}, schema=_DONE)

    def _counted(
        self, batches: Iterator[pa.RecordBatch], told: list[dict[str, Any]], opened: list[pa.Table]
    ) -> Iterator[tuple[pa.RecordBatch, pa.Table]]:
        """Changes and the transactions that they are all of; the others are added to `opened`, surveys to `told`."""
        for path, content in (file for batch in batches for file in contents(batch)):
            parts = self.parts.get(path)
            shared = {place.position for part in parts or () for place in part}
            surveyor = Surveyor() if self.survey else None
            for found in changes_of(content, path, parts=parts, tables=self.tables, surveyor=surveyor):
                transactions, ends = counted(found)
                open_ = pc.is_in(transactions["position"], pa.array([*shared, *ends], pa.int64()))
                opened.append(transactions.filter(open_))
                if surveyor is not None:
                    surveyor.rows(*_span(found))
                yield found, transactions.filter(pc.invert(open_))
            if surveyor is not None:
                told.append(survey_row(path, surveyor.end()))


def _span(found: pa.RecordBatch) -> Part:
    """The places of the first and the last row."""
    rows = found.select(["position", "ordinal"])
    first, last = (Place(*(column[row].as_py() for column in rows.columns)) for row in (0, found.num_rows - 1))
    return Part(first, last)


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
