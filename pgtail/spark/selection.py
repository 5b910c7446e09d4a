"""What the data source reads: its options, and what Spark's filters leave of it."""

from __future__ import annotations

import datetime
import glob
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from pgtail.arrow.schemas import CHANGES, WITH_CONTEXT
from pgtail.arrow.segments.limits import BEYOND, EVERYTHING, Bounds, Limits
from pgtail.changes.filters import OPS
from pgtail.errors import OptionError
from pgtail.humanize import did_you_mean
from pgtail.pgoutput.scalars import UNIX_EPOCH_OFFSET, parse_lsn
from pgtail.spark.segments.listing import Listing, listing
from pgtail.storage import NO_OPTIONS, StorageOptions

_STORAGE: Final = "storage."
"""The beginning of the names of options for the storage."""
_OPTIONS: Final = (
    *("table", "shape", "prefix", "tables", "ops", "columns", "context"),
    *("startingPosition", "maxSegmentsPerTrigger"),
)
_OF_SPARK: Final = (
    *("path", "paths", "comment", "collation", "location", "provider", "owner", "external", "is_managed_location"),
    "table_type",
)
"""Other options that Spark passes: load()'s argument, and the properties of a table of its catalog (CREATE TABLE)."""
_OF_TABLE: Final = "option."
"""The beginning of the names of such a table's options, which Spark passes under both names."""
CDF: Final = "cdf"
_FEED: Final = {"_commit_version": "position", "_commit_timestamp": "commit_ts"}
_DAY: Final = 86_400_000_000
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class Selection(Struct, frozen=True):
    """What to read: captures (directories, segments, or patterns of them), and which rows and columns of them.

    `tables` are globs, as --table takes them; all tables, operations and columns if these are empty. `table` is the
    name of the only table, whose rows are typed then, in this `shape`; `prefix` begins the names of pgtail's columns.
    """

    captures: tuple[str, ...]
    tables: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    storage: StorageOptions = NO_OPTIONS
    table: str = ""
    shape: str = ""
    prefix: str = ""
    start: str = ""
    """The option startingPosition."""
    context: str | None = None
    """The prefix of the logical messages that give the rows a context."""
    limits: Limits = EVERYTHING
    """The operations that are wanted, and what Spark's filters say."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Selection:
        """From the options of a DataFrameReader. Raises OptionError, for unknown ones too."""
        known = {*map(str.lower, _OPTIONS), *_OF_SPARK}
        for name in map(str.lower, options):
            if name not in known and not name.startswith((_STORAGE, _OF_TABLE)):
                cure = did_you_mean(name, _OPTIONS) or f"; there are {', '.join(_OPTIONS)} and {_STORAGE}NAME"
                raise OptionError(f"there is no option {name}{cure}")
        paths = json.loads(options["paths"]) if "paths" in options else [options["path"]] if "path" in options else []
        if not paths:
            raise OptionError(
                'name a capture: spark.read.format("pgtail").load("captures/shop"), in SQL CREATE TEMPORARY VIEW name'
                " USING pgtail OPTIONS (path 'captures/shop'); for a table of its catalog Spark passes no options"
            )
        storage = {name.removeprefix(_STORAGE): options[name] for name in options if name.startswith(_STORAGE)}
        table, shape, prefix = (options.get(name, "") for name in ("table", "shape", "prefix"))
        context = options.get("context")
        known_columns = () if table else CHANGES.names if context is None else WITH_CONTEXT.names
        tables, columns = _list(options, "tables"), _list(options, "columns", known_columns)
        if not table and (shape or prefix):
            raise OptionError("options shape and prefix are for the typed rows of a table: name it with option table")
        if table and tables:
            raise OptionError("options table and tables: name one table, or all that are wanted")
        if shape not in ("", CDF):
            raise OptionError(f"option shape: {shape} is not {CDF}")
        if shape and context is not None:
            raise OptionError(f"option context: the shape {CDF} has no column for it")
        return cls(
            tuple(paths),
            (glob.escape(table),) if table else tables,
            columns,
            StorageOptions.of(storage),
            table,
            shape,
            prefix,
            options.get("startingPosition", ""),
            context,
            Limits(_list(options, "ops", [op for op in OPS if op != "ddl"])),  # a ddl is the message that it comes in
        )

    def listing(self) -> Listing:
        """The segments and snapshots of the captures. Raises InputError."""
        return listing(self.captures, self.storage)

    def narrowed(self, filters: Iterable[Filter]) -> Selection:
        """The same without rows that these filters would remove, as far as their form shows it."""
        limits, names = self.limits, dict[str, Sequence[str]]()
        for filter_ in filters:
            own, values, greater, smaller = _compared(filter_)
            column = self._column(own)
            if not values or None in values:
                continue
            if column in ("op", "schema", "table", "commit_lsn") and (greater or smaller):
                continue  # as texts are ordered
            if column in ("op", "schema", "table"):
                names.setdefault(column, values)
            elif column in _NUMBERS:
                bound, number, width = _NUMBERS[column]
                numbers = [number(value) for value in values]
                most = BEYOND if greater else max(numbers) + width
                bounds = getattr(limits, bound).within(Bounds(-BEYOND if smaller else min(numbers), most))
                limits = replace(limits, **{bound: bounds})
        limits = replace(limits, ops=limits.ops or tuple(names.get("op", ())))
        tables = self.tables
        if not tables and names.keys() & {"schema", "table"}:
            pairs = itertools.product(names.get("schema", ("*",)), names.get("table", ("*",)))
            tables = tuple([f"{_literally(schema)}.{_literally(table)}" for schema, table in pairs])
        return replace(self, tables=tables, limits=limits)

    def _column(self, name: str) -> str:
        """The column of `changes` that a column of the rows is; '' for one of the table itself."""
        if not self.table:
            return name
        own = name.removeprefix(self.prefix)
        if not name.startswith(self.prefix) or not own.startswith("_"):
            return ""
        return _FEED.get(own, "") if self.shape == CDF else own[1:]


def _list(options: Mapping[str, str], name: str, known: Sequence[str] = ()) -> tuple[str, ...]:
    """The items of an option, which must be among the known ones, if any. Raises OptionError."""
    items = tuple([item.strip() for item in options.get(name, "").split(",") if item.strip()])
    for item in items:
        if known and item not in known:
            raise OptionError(f"option {name}: {item} is none of {', '.join(known)}")
    return items


def _literally(name: str) -> str:
    """A glob that matches this name alone."""
    return name if name == "*" else glob.escape(name)


def _compared(filter_: Filter) -> tuple[str, Sequence[Any], bool, bool]:
    """The column that a filter compares, with which values, and whether greater and smaller ones pass, too."""
    match filter_:
        case EqualTo((name,), value):
            return name, [value], False, False
        case In((name,), values):
            return name, [*values], False, False
        case GreaterThan((name,), value) | GreaterThanOrEqual((name,), value):
            return name, [value], True, False
        case LessThan((name,), value) | LessThanOrEqual((name,), value):
            return name, [value], False, True
    return "", (), False, False


def _lsn(text: str) -> int:
    """A log position; one that no commit has, for any other text."""
    try:
        return parse_lsn(text)
    except ValueError:
        return 0


def _micros(value: datetime.datetime) -> int:
    """A time as contents have it: microseconds since 2000-01-01 UTC."""
    return (value - _EPOCH) // datetime.timedelta(microseconds=1) - UNIX_EPOCH_OFFSET


def _midnight(day: datetime.date) -> int:
    return _micros(datetime.datetime(day.year, day.month, day.day, tzinfo=datetime.UTC))


_NUMBERS: Final[dict[str, tuple[str, Callable[[Any], int], int]]] = {
    "position": ("position", int, 0),
    "xid": ("xid", int, 0),
    "commit_lsn": ("position", _lsn, 0),
    "commit_ts": ("time", _micros, 0),
    "commit_date": ("time", _midnight, _DAY),
}
"""Column of `changes` -> the bound that it is about, its least number for a value, and how many more belong to it."""
