"""Writes rows to Parquet files, with the statistics that Delta keeps of a file; uses no Spark."""

from __future__ import annotations

import contextlib
import datetime
import io
import uuid
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pgtail._orjson import orjson
from pgtail.errors import OptionError
from pgtail.storage import Location, Reader

_CODECS: Final = ("none", "snappy", "gzip", "brotli", "zstd", "lz4")
_OTHER_NAMES: Final = {"uncompressed": "none", "lz4_raw": "lz4"}
"""Spark's names of codecs that Arrow calls otherwise: Spark's lz4_raw is Arrow's lz4."""

_OF_CHANGES: Final = ("xid", "seq", "position", "commit_ts", "prepare_ts", "lsn_number", "ordinal")
_RISING: Final = frozenset([*_OF_CHANGES, *(f"_{name}" for name in _OF_CHANGES)])
"""Columns of numbers that are close to the previous one: as differences they take a tenth of the space."""
_DISTINCT: Final = _RISING | {"commit_lsn", "prepare_lsn", "lsn", "content", "_commit_lsn", "_prepare_lsn", "_lsn"}
"""Mostly unique columns: no dictionary encoding."""
_LONGEST: Final = 64
"""Characters of a bound, at most."""
_GREATEST: Final = "\U0010ffff"
_FIRST_DAY: Final = datetime.date(1, 1, 1).toordinal() - datetime.date(1970, 1, 1).toordinal()
_LAST_DAY: Final = datetime.date(9999, 12, 31).toordinal() - datetime.date(1970, 1, 1).toordinal()
_DAY: Final = 86_400_000_000
_EPOCH: Final = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 -- the zone is written where there is one


class DataFile(NamedTuple):
    """A file of a table: its path below the table's folder, its bytes, and Delta's statistics as JSON."""

    path: str
    size: int
    stats: str


class TableFolder(NamedTuple):
    """Where the files of a table are, and how new ones are written."""

    place: Location
    codec: str
    """As Arrow names it."""
    prefix: str = "part-"
    """The beginning of the names of new files."""

    def named_like(self, path: str) -> TableFolder:
        """The same for new files with the prefix of this file."""
        return self._replace(prefix=path[: path.index("-") + 1])


class _Bounds:
    """The least and the greatest value of a column, and the number of its NULLs."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self.nulls = 0
        self.finite = True
        """Whether no value is NaN or infinite, for which JSON has no number."""
        self._least: Any = None
        self._most: Any = None

    def add_values(self, column: pa.ChunkedArray) -> None:
        self.nulls += column.null_count
        if pa.types.is_binary(self._kind):
            return
        if pa.types.is_temporal(self._kind):
            column = column.cast(pa.int32() if pa.types.is_date(self._kind) else pa.int64())
        least, most = pc.min_max(column).as_py().values()
        if pa.types.is_floating(self._kind) and least is not None:
            self.finite = self.finite and pc.all(pc.is_finite(column)).as_py()
            # Some readers compare the bits: of the two zeros -0.0 is the lesser one.
            least, most = least or -0.0, most or 0.0
        self._least = min((one for one in (self._least, least) if one is not None), default=None)
        self._most = max((one for one in (self._most, most) if one is not None), default=None)

    @property
    def known(self) -> bool:
        """Whether there is a value with bounds."""
        return self._least is not None

    def json(self) -> tuple[object, object] | None:
        """Both for JSON; None if one of them has no exact form."""
        kind, least, most = self._kind, self._least, self._most
        if pa.types.is_string(kind):
            if len(most) > _LONGEST:
                # The greatest character replaces the rest.
                return None if most[_LONGEST] == _GREATEST else (least[:_LONGEST], most[:_LONGEST] + _GREATEST)
            return least[:_LONGEST], most
        if pa.types.is_temporal(kind):
            days = [value if pa.types.is_date(kind) else value // _DAY for value in (least, most)]
            if days[0] < _FIRST_DAY or days[1] > _LAST_DAY:
                return None
        return (_json(kind, least), _json(kind, most)) if self.finite else None


def codec_of(name: str) -> str:
    """Arrow's name of a codec that Spark's setting spark.sql.parquet.compression.codec names. Raises OptionError."""
    codec = _OTHER_NAMES.get(name.lower(), name.lower())
    if codec not in _CODECS or not (codec == "none" or pa.Codec.is_available(codec)):
        raise OptionError(
            f"spark.sql.parquet.compression.codec is {name}: changes can be written with one of {', '.join(_CODECS)}"
        )
    return codec


class FileWriter:
    """A new file in a table's folder; each write() makes a row group. Raises OutputError."""

    def __init__(self, folder: TableFolder, schema: pa.Schema) -> None:
        self._name = f"{folder.prefix}{uuid.uuid4()}.parquet"
        self._rows = 0
        self._bounds = {field.name: _Bounds(field.type) for field in schema if not pa.types.is_nested(field.type)}
        self._file = (folder.place / self._name).writer()
        repeated = [field for field in schema if field.name not in _DISTINCT]
        # Arrow's own schema is of no use to other programs; nulls of lists and maps need no statistics.
        self._writer = pq.ParquetWriter(
            self._file,
            schema,
            compression=folder.codec,
            use_dictionary=[leaf for field in repeated for leaf, _ in _leaves(field.name, field.type)],
            write_statistics=[
                leaf
                for field in schema
                for leaf, kind in _leaves(field.name, field.type)
                if not pa.types.is_floating(kind)
            ],
            column_encoding={name: "DELTA_BINARY_PACKED" for name in schema.names if name in _RISING},
            write_page_index=True,
            store_schema=False,
        )

    def write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows, row_group_size=max(rows.num_rows, 1))
        self._rows += rows.num_rows
        for name, bounds in self._bounds.items():
            bounds.add_values(rows[name])

    def close(self) -> DataFile:
        self._writer.close()
        size = self._file.tell()
        self._file.finish()
        return DataFile(self._name, size, _statistics(self._rows, self._bounds))

    def abandon(self) -> None:
        with contextlib.suppress(Exception):  # it may be for a full disk
            self._writer.close()
        self._file.abandon()


def write_file(folder: TableFolder, rows: pa.Table) -> DataFile:
    """Write rows to a new file."""
    return write_groups(folder, iter([rows]))


def write_groups(folder: TableFolder, groups: Iterator[pa.Table]) -> DataFile:
    """Write tables of the same columns, at least one, to a new file, each as a row group."""
    first = next(groups)
    file = FileWriter(folder, first.schema)
    try:
        file.write(first)
        for rows in groups:
            file.write(rows)
        return file.close()
    except BaseException:
        file.abandon()
        raise


def _leaves(name: str, kind: pa.DataType) -> list[tuple[str, pa.DataType]]:
    """Parquet's names of a column, or of its parts, and their types."""
    if pa.types.is_list(kind):
        return _leaves(f"{name}.list.element", kind.value_type)
    if pa.types.is_map(kind):
        return [(f"{name}.key_value.key", kind.key_type), (f"{name}.key_value.value", kind.item_type)]
    if pa.types.is_struct(kind):
        return [leaf for field in kind for leaf in _leaves(f"{name}.{field.name}", field.type)]
    return [(name, kind)]


def _statistics(rows: int, columns: Mapping[str, _Bounds]) -> str:
    """Delta's statistics of a file.

    All columns that can have bounds have them, or none: deltalake's dataset for pyarrow leaves out the rows of a file
    in which the queried column has no bounds, but another one has.
    """
    bounds = {name: column.json() for name, column in columns.items() if column.known}
    pairs = [(name, *pair) for name, pair in bounds.items() if pair is not None]
    all_bounds = {
        "minValues": {name: one for name, one, _ in pairs},
        "maxValues": {name: one for name, _, one in pairs},
    }
    known = all_bounds if len(pairs) == len(bounds) else {}
    nulls = {name: column.nulls for name, column in columns.items()}
    return orjson.dumps({"numRecords": rows, **known, "nullCount": nulls}).decode()


def _json(kind: pa.DataType, value: Any) -> object:
    if pa.types.is_date(kind):
        return datetime.date(1970, 1, 1) + datetime.timedelta(days=value)
    if pa.types.is_timestamp(kind):
        moment = _EPOCH + datetime.timedelta(microseconds=value)
        return f"{moment.isoformat(timespec='microseconds')}{'' if kind.tz is None else 'Z'}"
    return orjson.Fragment(f"{value:f}") if isinstance(value, Decimal) else value


class _RandomAccessFile:
    """An open file for pyarrow, which reads at any offset."""

    closed = False

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._position = 0

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._reader.size}
        self._position = start[whence] + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        data = self._reader.pread(self._reader.size - self._position if size < 0 else size, self._position)
        self._position += len(data)
        return data


@contextlib.contextmanager
def opened(place: Location) -> Iterator[pq.ParquetFile]:
    """A Parquet file to read. Raises InputError."""
    # Few large requests in place of many small ones.
    with place.open() as reader, pq.ParquetFile(_RandomAccessFile(reader), pre_buffer=place.path is None) as parquet:
        yield parquet


def rows_in(place: Location, columns: Sequence[str] | None = None) -> pa.Table:
    """All rows of a Parquet file. Raises InputError."""
    with opened(place) as parquet:
        return parquet.read(columns)


def row_groups(place: Location) -> Iterator[pa.Table]:
    """The rows of a Parquet file, row group by row group. Raises InputError."""
    with opened(place) as parquet:
        for number in range(parquet.num_row_groups):
            yield parquet.read_row_group(number)


def bounds_in(place: Location, column: str) -> tuple[Any, Any, int]:
    """The least and the greatest value of a column of numbers or texts, and its NULLs, by the file's own statistics.

    Raises InputError.
    """
    with opened(place) as parquet:
        groups = [parquet.metadata.row_group(number) for number in range(parquet.num_row_groups)]
    chunks = [chunk for group in groups for chunk in map(group.column, range(group.num_columns))]
    known = [chunk.statistics for chunk in chunks if chunk.path_in_schema == column]
    there = [one for one in known if one.num_values]
    least, most = min((one.min for one in there), default=None), max((one.max for one in there), default=None)
    return least, most, sum(one.null_count for one in known)
