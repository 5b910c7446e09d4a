"""The data source "pgtail": the changes of captures, for spark.read and spark.readStream.

spark.dataSource.register(pgtail.spark.DataSource)
spark.read.format("pgtail").option("tables", "orders").load("captures/shop")
"""

from __future__ import annotations

import glob
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace
from pyspark.sql import datasource
from pyspark.sql.datasource import EqualTo, Filter, In, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles
from pyspark.sql.types import StructType

from pgtail.arrow.decoding.decode import changes_of
from pgtail.arrow.schemas import CHANGES
from pgtail.arrow.segments.ranges import EVERYWHERE
from pgtail.arrow.segments.survey import name_of
from pgtail.changes.filters import OPS
from pgtail.errors import InputError, OptionError
from pgtail.humanize import did_you_mean
from pgtail.spark.schemas import spark_schema
from pgtail.spark.segments.listing import Listing, check_names, directories, listing, plan, survey_each
from pgtail.storage import NO_OPTIONS, StorageOptions, locate

_STORAGE: Final = "storage."
"""The beginning of the names of options for the storage."""
_OPTIONS: Final = ("tables", "ops", "columns", "maxSegmentsPerTrigger")
_OF_SPARK: Final = (
    *("path", "paths", "comment", "collation", "location", "provider", "owner", "external", "is_managed_location"),
    "table_type",
)
"""Other options that Spark passes: load()'s argument, and the properties of a table of its catalog (CREATE TABLE)."""
_OF_TABLE: Final = "option."
"""The beginning of the names of such a table's options, which Spark passes under both names."""
_PUSHDOWN_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"
"""The program in which Spark offers filters; a reader may accept them nowhere else."""


class Selection(Struct, frozen=True):
    """What to read: captures (directories, segments, or patterns of them), and which rows and columns of them.

    `tables` are globs, as --table takes them; all tables, operations and columns if these are empty.
    """

    captures: tuple[str, ...]
    tables: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    storage: StorageOptions = NO_OPTIONS

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
        known_ops = [op for op in OPS if op != "ddl"]  # schema changes are the messages that they come in
        ops, columns = _list(options, "ops", known_ops), _list(options, "columns", CHANGES.names)
        return cls(tuple(paths), _list(options, "tables"), ops, columns, StorageOptions.of(storage))

    @property
    def schema(self) -> pa.Schema:
        """The columns to read, in the order in which they were named."""
        return pa.schema([CHANGES.field(name) for name in self.columns or CHANGES.names])

    def listing(self) -> Listing:
        """The segments and snapshots of the captures. Raises InputError."""
        return listing(self.captures, self.storage)

    def narrowed(self, filters: Iterable[Filter]) -> Selection:
        """The same without rows that these filters would remove, as far as their form shows it."""
        selection = self
        for filter_ in filters:
            column, values = _compared(filter_)
            if column == "op" and not selection.ops:
                selection = replace(selection, ops=values)
            elif column == "table" and not selection.tables:
                selection = replace(selection, tables=tuple(map(_glob, values)))
        return selection


def _list(options: Mapping[str, str], name: str, known: Sequence[str] = ()) -> tuple[str, ...]:
    """The items of an option, which must be among the known ones, if any. Raises OptionError."""
    items = tuple([item.strip() for item in options.get(name, "").split(",") if item.strip()])
    for item in items:
        if known and item not in known:
            raise OptionError(f"option {name}: {item} is none of {', '.join(known)}")
    return items


def _compared(filter_: Filter) -> tuple[str, tuple[str, ...]]:
    """The column and the texts that a filter compares it with; ("", ()) for filters of another form."""
    match filter_:
        case EqualTo((column,), str(text)):
            return column, (text,)
        case In((column,), texts) if texts and all(isinstance(text, str) for text in texts):
            return column, tuple(texts)
    return "", ()


def _glob(table: str) -> str:
    """A glob that matches the tables of this name, in any schema."""
    pattern = glob.escape(table)
    return f"*.{pattern}" if "." in table else pattern


class DataSource(datasource.DataSource):
    """Captures as one row for each change, with the columns of `changes` (man page pgtail-spark(1)).

    Options: `tables`, `ops` and `columns`, each a list with commas; `storage.NAME` for an option of the storage; for
    streams also `maxSegmentsPerTrigger`.
    """

    @classmethod
    def name(cls) -> str:
        return "pgtail"

    def schema(self) -> StructType:
        return spark_schema(Selection.of(self.options).schema)

    def reader(self, schema: StructType) -> BatchReader:
        made = FilteringReader if _PUSHDOWN_WORKER in sys.modules else BatchReader
        return made(Selection.of(self.options))

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 -- Spark's name
        return StreamReader(Selection.of(self.options), self.options.get("maxSegmentsPerTrigger"))


class SegmentReader:
    """The base of the readers: a partition is the path of a segment, and the parts of it to read."""

    def __init__(self, selection: Selection) -> None:
        self.selection = selection
        self._named = selection.tables

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        (path, parts), selection = partition.value, self.selection
        for batch in changes_of(locate(path, selection.storage), path, parts=parts, tables=selection.tables):
            rows = batch.filter(pc.is_in(batch["op"], pa.array(selection.ops))) if selection.ops else batch
            yield rows.select(selection.schema.names)


class BatchReader(SegmentReader, datasource.DataSourceReader):
    """All closed segments and snapshots; a change that several of them have comes once."""

    def partitions(self) -> list[InputPartition]:
        surveys, listed = partial(survey_each, storage=self.selection.storage), self.selection.listing()
        check_names(listed, self._named, self.selection.storage)
        parts = {**plan(surveys, listed.segments), **dict.fromkeys(listed.snapshot_segments(self.selection.tables))}
        return [InputPartition(part) for part in parts.items()]


class FilteringReader(BatchReader):
    """As BatchReader; skips rows that Spark's filters would remove."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 -- Spark's name
        """Use the filters, and return all of them: Spark applies them to the rows that are left."""
        self.selection = self.selection.narrowed(filters)
        return filters


class StreamReader(SegmentReader, datasource.DataSourceStreamReader):
    """The segments of one capture in the order of their names, as they are closed, without snapshots of tables: one may
    be listed after later segments. Offsets are names of segments."""

    def __init__(self, selection: Selection, limit: str | None) -> None:
        """Raises OptionError."""
        if limit is not None and (not limit.isdecimal() or not int(limit)):
            raise OptionError(f"option maxSegmentsPerTrigger: expected a number of segments, not {limit}")
        super().__init__(selection)
        self._limit = limit

    def initialOffset(self) -> dict[str, str]:  # noqa: N802 -- Spark's name
        check_names(self.selection.listing(), self._named, self.selection.storage)
        return {"segment": ""}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 -- Spark's name
        return ReadAllAvailable() if self._limit is None else ReadMaxFiles(int(self._limit))

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:  # noqa: N802 -- Spark's name
        new = [name for name in self._names(start) if name > start["segment"]]
        if isinstance(limit, ReadMaxFiles):
            new = new[: limit.max_files]
        return {"segment": new[-1]} if new else start

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> list[InputPartition]:
        paths = self._names(start).items()
        return [InputPartition((path, EVERYWHERE)) for name, path in paths if start["segment"] < name <= end["segment"]]

    def _names(self, start: dict[str, str]) -> dict[str, str]:
        """The names of the segments and their paths, in order. Raises InputError, also if some were pruned unread."""
        listed = self.selection.listing()
        paths, begin = listed.segments, max((pruned.segment for pruned in listed.pruned.values()), default="")
        if len(directories(paths)) > 1:
            raise InputError("a stream reads one capture: several may have the same changes")
        if "" < start["segment"] < begin:
            raise InputError(f"segments after {start['segment']} were pruned before the stream read them")
        return {name_of(path): path for path in paths}
