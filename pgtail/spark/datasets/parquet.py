"""Changes and transactions as Parquet files, written by those who decode: record batches -> files by date.

Knows no Spark. The files are laid out as Spark's writer does it, and hold the same types.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pgtail.errors import OptionError, OutputError
from pgtail.pgoutput.scalars import civil_from_days
from pgtail.spark.decoding.transactions import ranked

PIECE: Final = 64 << 20
"""Bytes of Arrow that are sorted and become a row group. A worker holds them twice for a moment."""
MOST_OPEN: Final = 16
"""Files that are written at a time: a dump may hold years of dates."""

_CODECS: Final = {
    "none": "none",
    "uncompressed": "none",
    "snappy": "snappy",
    "gzip": "gzip",
    "brotli": "brotli",
    "zstd": "zstd",
    "lz4": "lz4",
    "lz4_raw": "lz4",
}
"""Spark's names of what Arrow can, as Arrow names it: its lz4 is the one that Spark calls lz4_raw."""

DATE: Final = "commit_date"
_RISING: Final = frozenset(["xid", "seq", "position", "commit_ts", "prepare_ts", "lsn_number", "ordinal"])
"""Numbers of which each is near the one before: their differences are a tenth as long, and sooner written."""
_DISTINCT: Final = _RISING | {"commit_lsn", "prepare_lsn", "lsn", "content"}
"""Of what hardly comes twice no dictionary is tried."""
_LEAVES: Final = {pa.types.is_list: ("list.element",), pa.types.is_map: ("key_value.key", "key_value.value")}
_DAY: Final = 86_400_000_000


class Layout(NamedTuple):
    """How the rows of a dataset are sorted: by commit_date, by these columns, then in the order of the stream."""

    names: tuple[str, ...]
    order: tuple[str, ...]


CHANGES_LAYOUT: Final = Layout(("schema", "table"), ("position", "ordinal", "seq"))
TRANSACTIONS_LAYOUT: Final = Layout((), ("position",))


def codec_of(name: str) -> str:
    """Arrow's name of a codec that Spark's setting spark.sql.parquet.compression.codec names. Raises OptionError."""
    found = _CODECS.get(name.lower())
    if found is None or not (found == "none" or pa.Codec.is_available(found)):
        raise OptionError(
            f"spark.sql.parquet.compression.codec is {name}: changes can be written with one of {', '.join(_CODECS)}"
        )
    return found


@contextlib.contextmanager
def own_folder(folder: Path) -> Iterator[Path]:
    """A folder that the body alone writes to, and that is removed again where it fails. Raises OutputError."""
    try:
        yield folder
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError):
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise OutputError(f"cannot write to {folder}: {reason}") from error
        raise


def folder_of(day: int | None) -> str:
    """The folder of a date (days since 1970-01-01), as Spark calls it."""
    if day is None:
        return f"{DATE}=__HIVE_DEFAULT_PARTITION__"
    year, month, day_of_month = civil_from_days(day)
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{DATE}={sign}{abs(year):04d}-{month:02d}-{day_of_month:02d}"


class Writer:
    """A dataset that is written below a folder, each row group sorted by itself.

    There is one file for each date, unless a date comes again when its file was closed already.
    """

    def __init__(self, folder: Path, layout: Layout, codec: str, *, piece: int = PIECE) -> None:
        self._folder = folder
        self._layout = layout
        self._codec = codec
        self._piece = piece
        self._gathered: list[pa.RecordBatch] = []
        self._size = 0
        self._open: OrderedDict[int | None, pq.ParquetWriter] = OrderedDict()
        self._paths: list[str] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows, which are in order among themselves."""
        if batch.num_rows:
            self._gathered.append(batch)
            self._size += batch.nbytes
        if self._size >= self._piece:
            self._write()

    def close(self) -> list[str]:
        """Write what is left, and end the files; returns their paths below the folder."""
        if self._gathered:
            self._write()
        while self._open:
            self._end(next(iter(self._open)))
        return self._paths

    def _write(self) -> None:
        table = _sorted(self._gathered, self._layout)
        # Nothing of them is kept while the rest is written.
        self._gathered, self._size = [], 0
        for day, rows in _by_day(table):
            self._of(day, rows.schema).write_table(rows, row_group_size=rows.num_rows)

    def _of(self, day: int | None, schema: pa.Schema) -> pq.ParquetWriter:
        """The date's file."""
        if day not in self._open:
            if len(self._open) >= MOST_OPEN:
                self._end(next(iter(self._open)))
            self._open[day] = self._new(day, schema)
        self._open.move_to_end(day)
        return self._open[day]

    def _new(self, day: int | None, schema: pa.Schema) -> pq.ParquetWriter:
        path = f"{folder_of(day)}/part-{uuid.uuid4()}.parquet"
        target = self._folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        self._paths.append(path)
        return pq.ParquetWriter(
            target,
            schema,
            compression=self._codec,
            use_dictionary=[leaf for field in schema if field.name not in _DISTINCT for leaf in _leaves(field)],
            column_encoding={name: "DELTA_BINARY_PACKED" for name in schema.names if name in _RISING},
            write_page_index=True,
            store_schema=False,
        )

    def _end(self, day: int | None) -> None:
        self._open.pop(day).close()


def _leaves(field: pa.Field) -> list[str]:
    """What Parquet calls a column, or its parts."""
    return [f"{field.name}.{part}" for is_, parts in _LEAVES.items() if is_(field.type) for part in parts] or [
        field.name
    ]


def _sorted(batches: list[pa.RecordBatch], layout: Layout) -> pa.Table:
    """The rows as the layout says, NULL first."""
    table = pa.Table.from_batches(batches)
    ranks, _ = ranked([table.column(name).combine_chunks() for name in (DATE, *layout.names)])
    keys = {"rank": ranks}
    if not _follow(batches, layout.order):
        # Spark hands over the large segments first.
        keys |= {name: pc.fill_null(table.column(name), 0) for name in layout.order}
    elif pc.all(pc.less_equal(ranks[:-1], ranks[1:])).as_py() is not False:
        return table
    sort_keys = [(name, "ascending") for name in keys]
    order = pc.sort_indices(pa.table(keys), sort_keys=sort_keys)
    # Most of the rare columns are NULL in every row, in any order.
    columns = [column if column.null_count == len(column) else column.take(order) for column in table.columns]
    return pa.Table.from_arrays(columns, schema=table.schema)


def _follow(batches: list[pa.RecordBatch], order: tuple[str, ...]) -> bool:
    """Whether each batch goes on behind the one before: within a batch the rows are in order."""
    places = [[_place(batch, row, order) for row in (0, batch.num_rows - 1)] for batch in batches]
    return all(before[1] <= after[0] for before, after in itertools.pairwise(places))


def _place(batch: pa.RecordBatch, row: int, order: tuple[str, ...]) -> list[int]:
    return [batch.column(name)[row].as_py() or 0 for name in order]


def _by_day(table: pa.Table) -> Iterator[tuple[int | None, pa.Table]]:
    """The rows of each date (days since 1970-01-01), which stand together."""
    rows = table.drop_columns([DATE])
    start = 0
    for count in pc.value_counts(table.column(DATE)):
        length = count["counts"].as_py()
        yield count["values"].value, rows.slice(start, length)
        start += length
