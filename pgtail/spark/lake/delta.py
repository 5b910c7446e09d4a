"""One Delta table: its files, and one commit of a batch to it; the only module that imports deltalake.

deltalake checks neither the schema of added files nor whether a batch was committed before: this module does. A commit
is never retried: if another process was faster, that is an error.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, Schema, TableFeatures
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import (
    AddAction,
    CommitProperties,
    PostCommitHookProperties,
    RemoveAction,
    Transaction,
    create_table_with_add_actions,
)
from msgspec import Struct, field

from pgtail.arrow.schemas import SNAPSHOT
from pgtail.errors import OptionError, OutputError
from pgtail.spark.lake.parquet import DataFile, TableFolder, bounds_in, rows_in, write_file
from pgtail.storage import Location, reading_failed, writing_failed

_APPLICATION: Final = "pgtail"
_CHECKPOINTS: Final = 20
"""Commits from one checkpoint to the next: the most JSON files that are read to open a table."""
_NO_HOOKS: Final = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
_RETENTION: Final = "delta.deletedFileRetentionDuration"
WEEK: Final = 7 * 86_400.0


class Bounds(NamedTuple):
    """Statistics of a column in one file; None if unknown."""

    least: Any
    most: Any
    nulls: int | None


class LakeFile(Struct, frozen=True):
    """A file of a table. `path` is below the table's folder."""

    path: str
    size: int
    rows: int
    _place: Location
    _stats: dict[str, Any]

    def bounds(self, column: str) -> Bounds:
        """The statistics of a column of numbers or texts; if Delta has none, those in the file itself."""
        least, most, nulls = ((self._stats.get(part) or {}).get(column) for part in ("min", "max", "null_count"))
        if least is None and nulls != self.rows:
            return Bounds(*bounds_in(self._place / self.path, column))
        return Bounds(least, most, nulls)

    def may_have(self, column: str, ranges: Iterable[range]) -> bool:
        """Whether a column may have a number in one of these ranges, or at the end of one, by its statistics."""
        bounds = self.bounds(column)
        return any(bounds.least <= one.stop and one.start <= bounds.most for one in ranges)

    def has(self, column: str) -> bool:
        """Whether the file has a column, by its statistics: it lacks those that were added later."""
        return (self._stats.get("null_count") or {}).get(column) is not None

    @property
    def of_snapshots(self) -> bool:
        """Whether a file of `tables/*` has rows of snapshots, and nothing else."""
        return bool(self.bounds("_op").least == SNAPSHOT)


class Commit(Struct, frozen=True):
    """The changes of a batch to one table."""

    table: str
    """The table's folder below OUT."""
    schema: pa.Schema
    adds: list[DataFile] = field(default_factory=list)
    removes: list[tuple[str, int]] = field(default_factory=list)
    """Paths and bytes of files that are replaced; all of them, with `overwrite`."""
    overwrite: bool = False
    """Whether the schema is replaced, with all files."""
    data_change: bool = True
    """False if rows only move from file to file."""
    retain: float = WEEK
    """Seconds that replaced files are kept."""


def schema_to_json(schema: pa.Schema) -> Any:
    """The schema of a Commit for the plan of a batch, as msgspec asks for it."""
    return json.loads(Schema.from_arrow(schema).to_json())


def schema_from_json(_: type, value: object) -> pa.Schema:
    """The inverse."""
    return pa.schema(Schema.from_json(json.dumps(value)))


class LakeTable:
    """A Delta table, as it is when it is opened; `schema` is None if it does not exist.

    Raises InputError, OptionError.
    """

    def __init__(self, place: Location, version: int | None = None) -> None:
        self.place = place
        self._table: DeltaTable | None
        try:
            self._table = self._opened(version)
        except TableNotFoundError:
            self._table = None
        except DeltaError as error:
            raise OptionError(f"{place}: {error}") from None
        except OSError as error:
            raise reading_failed(error, str(place), place.storage) from None
        self.schema: pa.Schema | None = None if self._table is None else pa.schema(self._table.schema())

    def _opened(self, version: int | None = None) -> DeltaTable:
        """The table as it is now, or was at a version."""
        return DeltaTable(str(self.place), version=version, storage_options=self.place.storage.as_dict())

    @property
    def delta(self) -> DeltaTable:
        """deltalake's table, which must exist."""
        assert self._table is not None
        return self._table

    @property
    def version(self) -> int:
        """The number of the last commit, -1 if there is no table."""
        return -1 if self._table is None else self._table.version()

    @property
    def batch(self) -> int:
        """The number of the last batch in it, or 0."""
        return 0 if self._table is None else self._table.transaction_version(_APPLICATION) or 0

    @property
    def retain(self) -> float:
        return float(self.delta.metadata().configuration[_RETENTION].split()[1])

    def files(self) -> list[LakeFile]:
        return [] if self._table is None else self._files(pa.table(self._table.get_add_actions(flatten=False)))

    def files_from(self, column: str, least: int) -> list[LakeFile]:
        """The files that may have a number of at least `least` in a column: a batch needs the last of many files, and
        making Python objects of all their statistics takes long."""
        if self._table is None:
            return []
        actions = pa.table(self._table.get_add_actions(flatten=False))
        if "max" in actions.column_names and actions.schema.field("max").type.get_field_index(column) >= 0:
            below = pc.less(pc.struct_field(actions["max"], column), least)
            actions = actions.filter(pc.invert(pc.fill_null(below, False)))
        return self._files(actions)

    def _files(self, actions: pa.Table) -> list[LakeFile]:
        rows = actions.to_pylist()
        return [LakeFile(row["path"], row["size_bytes"], row["num_records"], self.place, row) for row in rows]

    def rows(self) -> list[dict[str, Any]]:
        """All rows of a small table."""
        return [row for file in self.files() for row in rows_in(self.place / file.path).to_pylist()]

    def replacing(self, name: str, rows: pa.Table, codec: str, retain: float = WEEK) -> Commit:
        """The commit of rows that replace all others; writes their file."""
        removes = [(file.path, file.size) for file in self.files()]
        return Commit(name, rows.schema, [write_file(TableFolder(self.place, codec), rows)], removes, retain=retain)

    def commit(self, commit: Commit, batch: int) -> None:
        """Commit a batch's part, unless it is in the table. Raises OutputError if another process was faster."""
        if batch <= self.batch:
            return
        with self._writing():
            if self._table is None:
                self._create(commit, batch)
                version = 0
            else:
                version = self._change(self._table, commit, batch)
            if version // _CHECKPOINTS > max(self.version, 0) // _CHECKPOINTS:
                table = self._opened()
                table.create_checkpoint()
                table.cleanup_metadata()
        if commit.retain < WEEK and (commit.removes or commit.overwrite):
            self.expired(orphans=False, remove=True)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Raise OutputError for errors of deltalake."""
        try:
            yield
        except (CommitFailedError, DeltaError, OSError) as error:
            if isinstance(error, CommitFailedError) or "already exists" in str(error):
                raise OutputError(f"another process writes to {self.place}") from None
            raise writing_failed(error, str(self.place), self.place.storage) from error

    def _create(self, commit: Commit, batch: int) -> None:
        create_table_with_add_actions(
            str(self.place),
            Schema.from_arrow(commit.schema),
            _adds(commit),
            configuration=_configuration(commit),
            storage_options=self.place.storage.as_dict(),
            commit_properties=_properties(batch),
            post_commithook_properties=_NO_HOOKS,
        )

    def _change(self, table: DeltaTable, commit: Commit, batch: int) -> int:
        """Commit to a table that exists; returns the number of the commit."""
        schema = Schema.from_arrow(commit.schema)
        if '"timestamp_ntz"' in schema.to_json() and "timestampNtz" not in (table.protocol().writer_features or ()):
            table.alter.add_feature(TableFeatures.TimestampWithoutTimezone, allow_protocol_versions_increase=True)
            table = self._opened()
        if not commit.overwrite and not holds(self.schema, commit.schema):
            table.alter.add_columns(schema.fields, post_commithook_properties=_NO_HOOKS)
            table = self._opened()
        configuration = _configuration(commit)
        if {name: table.metadata().configuration.get(name) for name in configuration} != configuration:
            table.alter.set_table_properties(configuration)
            table = self._opened()
        table.create_write_transaction(
            [*_adds(commit), *([] if commit.overwrite else _removes(commit))],
            mode="overwrite" if commit.overwrite else "append",
            schema=schema if commit.overwrite else table.schema(),
            commit_properties=_properties(batch),
            post_commithook_properties=_NO_HOOKS,
        )
        return table.version() + 1

    def expired(self, *, orphans: bool, remove: bool) -> list[str]:
        """Files that were replaced longer ago than the table's property says; with `orphans` also those that no commit
        names and that are as old. With `remove` they are removed: deltalake would add two commits of its own."""
        with self._writing():
            paths: list[str] = self._opened().vacuum(dry_run=True, enforce_retention_duration=False, full=orphans)
        for path in paths if remove else ():
            (self.place / path).delete()
        return paths


def holds(known: pa.Schema, new: pa.Schema) -> bool:
    """Whether a table has all of these columns, with their types and their names in PostgreSQL."""
    return _holds(schema_to_json(known), schema_to_json(new))


def _holds(known: Any, new: Any) -> bool:
    """As holds(), for two types in Delta's JSON."""
    if not isinstance(known, dict) or not isinstance(new, dict) or "struct" not in (known["type"], new["type"]):
        return bool(known == new)
    fields = {column["name"]: column for column in known["fields"]}
    return all(
        column["name"] in fields
        and column["metadata"] == fields[column["name"]]["metadata"]
        and _holds(fields[column["name"]]["type"], column["type"])
        for column in new["fields"]
    )


def _adds(commit: Commit) -> list[AddAction]:
    moment = round(time.time() * 1000)
    return [AddAction(one.path, one.size, {}, moment, commit.data_change, one.stats) for one in commit.adds]


def _removes(commit: Commit) -> list[RemoveAction]:
    moment = round(time.time() * 1000)
    return [RemoveAction(path, commit.data_change, moment, size=size) for path, size in commit.removes]


def _properties(batch: int) -> CommitProperties:
    return CommitProperties(app_transactions=[Transaction(_APPLICATION, batch)], max_commit_retries=0)


def _configuration(commit: Commit) -> dict[str, str]:
    return {
        _RETENTION: f"interval {int(commit.retain)} seconds",
        "delta.logRetentionDuration": f"interval {int(max(commit.retain, 86_400))} seconds",
        "delta.checkpointInterval": str(_CHECKPOINTS),
    }
