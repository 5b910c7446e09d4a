"""Floor 7, changes as Parquet files, written by those who decode them: record batches -> files by commit_date.

Knows no Spark. The files are laid out as Spark's writer does it, and hold the same types.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pgtail.errors import OptionError, OutputError
from pgtail.wire.scalars import UNIX_EPOCH_OFFSET, days_text

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
_ORDER: Final = ("position", "ordinal", "seq")
_RISING: Final = ("xid", "seq", "position", "commit_ts", "prepare_ts", "lsn_number", "ordinal")
"""Numbers of which each is near the one before: their differences are a tenth as long, and sooner written."""
_DISTINCT: Final = frozenset([*_RISING, "commit_lsn", "prepare_lsn", "lsn", "content"])
"""Of what hardly comes twice no dictionary is tried."""
_LEAVES: Final = {pa.types.is_list: ("list.element",), pa.types.is_map: ("key_value.key", "key_value.value")}
_DAY: Final = 86_400_000_000


class Written(NamedTuple):
    """A file: its path below the folder that it was written to, and its rows."""

    path: str
    rows: int


def codec_of(name: str) -> str:
    """Arrow's name of a codec that Spark's setting spark.sql.parquet.compression.codec names. Raises OptionError."""
    found = _CODECS.get(name.lower())
    if found is None or not (found == "none" or pa.Codec.is_available(found)):
        raise OptionError(
            f"spark.sql.parquet.compression.codec is {name}: changes can be written with one of {', '.join(_CODECS)}"
        )
    return found


def write(batches: Iterable[pa.RecordBatch], folder: Path, codec: str, *, piece: int = PIECE) -> list[Written]:
    """Write changes below a folder that is this call's own, and is removed again where it fails.

    Each row group is sorted by schema and table, then in the order of the stream. Raises OutputError, and what the
    batches raise.
    """
    files = _Files(folder, codec)
    try:
        for gathered in _pieces(batches, piece):
            for day, rows in _by_day(_sorted(gathered)):
                files.write(day, rows)
        return files.close()
    except BaseException as error:
        with contextlib.suppress(Exception):
            files.close()
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError):
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise OutputError(f"cannot write to {folder}: {reason}") from error
        raise


def folder_of(day: int | None) -> str:
    """The folder of a date (days since 1970-01-01), as Spark calls it."""
    if day is None:
        return f"{DATE}=__HIVE_DEFAULT_PARTITION__"
    text, before_christ = days_text(day - UNIX_EPOCH_OFFSET // _DAY)
    year, _, rest = text.partition("-")
    number = 1 - int(year) if before_christ else int(year)
    sign = "-" if number < 0 else "+" if number > 9999 else ""
    return f"{DATE}={sign}{abs(number):04d}-{rest}"


class _Files:
    """The files that are written, one for each date unless it comes again when the file was closed already."""

    def __init__(self, folder: Path, codec: str) -> None:
        self._folder = folder
        self._codec = codec
        self._open: OrderedDict[int | None, tuple[str, pq.ParquetWriter]] = OrderedDict()
        self._rows: dict[str, int] = {}

    def write(self, day: int | None, rows: pa.Table) -> None:
        """Add a row group to the date's file."""
        if day not in self._open:
            if len(self._open) >= MOST_OPEN:
                self._close(next(iter(self._open)))
            self._open[day] = self._new(day, rows.schema)
        self._open.move_to_end(day)
        path, writer = self._open[day]
        writer.write_table(rows, row_group_size=rows.num_rows)
        self._rows[path] = self._rows.get(path, 0) + rows.num_rows

    def close(self) -> list[Written]:
        """End them all."""
        for day in list(self._open):
            self._close(day)
        return [Written(*found) for found in self._rows.items()]

    def _new(self, day: int | None, schema: pa.Schema) -> tuple[str, pq.ParquetWriter]:
        path = f"{folder_of(day)}/part-{uuid.uuid4()}.parquet"
        target = self._folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        return path, pq.ParquetWriter(
            target,
            schema,
            compression=self._codec,
            use_dictionary=[leaf for field in schema if field.name not in _DISTINCT for leaf in _leaves(field)],
            column_encoding=dict.fromkeys(_RISING, "DELTA_BINARY_PACKED"),
            write_page_index=True,
            store_schema=False,
        )

    def _close(self, day: int | None) -> None:
        _, writer = self._open.pop(day)
        writer.close()


def _leaves(field: pa.Field) -> list[str]:
    """What Parquet calls a column, or its parts."""
    return [f"{field.name}.{part}" for is_, parts in _LEAVES.items() if is_(field.type) for part in parts] or [
        field.name
    ]


def _pieces(batches: Iterable[pa.RecordBatch], most: int) -> Iterator[list[pa.RecordBatch]]:
    gathered: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        gathered.append(batch)
        size += batch.nbytes
        if size >= most:
            yield gathered
            gathered, size = [], 0
    if gathered:
        yield gathered


def _sorted(batches: list[pa.RecordBatch]) -> pa.Table:
    """The rows by commit_date, schema and table, NULL first, then in the order of the stream."""
    table = pa.Table.from_batches(batches)
    keys = {"table": _ranks(table)}
    if not _follow(batches):
        # Spark hands over the large segments first.
        keys |= {name: table.column(name) for name in _ORDER}
    elif pc.all(pc.less_equal(keys["table"][:-1], keys["table"][1:])).as_py() is not False:
        return table
    order = pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in keys], null_placement="at_start")
    # Most of the rare columns are NULL in every row, in any order.
    columns = [column if column.null_count == len(column) else column.take(order) for column in table.columns]
    return pa.Table.from_arrays(columns, schema=table.schema)


def _follow(batches: list[pa.RecordBatch]) -> bool:
    """Whether each batch goes on behind the one before: within a batch the rows are in order."""
    places = [[_place(batch, row) for row in (0, batch.num_rows - 1)] for batch in batches if batch.num_rows]
    return all(before[1] <= after[0] for before, after in itertools.pairwise(places))


def _place(batch: pa.RecordBatch, row: int) -> tuple[int, ...]:
    return tuple(batch.column(name)[row].as_py() or 0 for name in _ORDER)


def _ranks(table: pa.Table) -> pa.Array:
    """For each row the rank of its commit_date, schema and table among those that there are."""
    names = (DATE, "schema", "table")
    encoded = [table.column(name).combine_chunks().dictionary_encode(null_encoding="encode") for name in names]
    dates, schemas, tables = (column.dictionary for column in encoded)
    number = encoded[0].indices.cast(pa.int64())
    for column in encoded[1:]:
        number = pc.add(pc.multiply(number, len(column.dictionary)), column.indices)

    def names_of(number: int) -> Any:
        rest, last = divmod(number, len(tables))
        found = (dates[rest // len(schemas)].value, schemas[rest % len(schemas)].as_py(), tables[last].as_py())
        return [(one is not None, one) for one in found]

    return pc.index_in(number, pa.array(sorted(pc.unique(number).to_pylist(), key=names_of), pa.int64()))


def _by_day(table: pa.Table) -> Iterator[tuple[int | None, pa.Table]]:
    """The rows of each date (days since 1970-01-01), which stand together."""
    rows = table.drop_columns([DATE])
    start = 0
    for count in pc.value_counts(table.column(DATE)):
        length = count["counts"].as_py()
        yield count["values"].value, rows.slice(start, length)
        start += length
