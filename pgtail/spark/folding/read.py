"""Reading a stored state or history: the manifest first, then the files that it names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pgtail.errors import InputError
from pgtail.spark.folding.manifest import TableFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_AS_OF: Final = {"position": "position", "seq": "seq", "time": "commit_ts"}
_FROM_TO: Final = {
    "position": "valid_from_position",
    "time": "valid_from",
    "until_position": "valid_to_position",
    "until_time": "valid_to",
}


def state(spark: SparkSession, directory: str, table: str | None = None, *, variant: bool = False) -> DataFrame:
    """The rows of a table (schema.table), typed; without one those of all tables, as text.

    `directory` is where the state is, or the folder that has it as its `state`.
    `_unknown` names the columns whose value was never sent: it is from before the capture, or ALTER TABLE made it.
    `_rescued` has the text of values that have no place in their type. `_position`, `_seq` and `_commit_ts` say which
    change made the row what it is. Raises InputError where there is no state, or no such table.
    """
    return _read(spark, directory, table, history=False, variant=variant)


def history(spark: SparkSession, directory: str, table: str | None = None, *, variant: bool = False) -> DataFrame:
    """Every version of every row of a table (SCD 2): valid from `_valid_from` until before `_valid_to`, NULL for now.

    The same as LSNs are `_valid_from_position` and `_valid_to_position`. Raises InputError as state() does, and where
    only the state was kept.
    """
    return _read(spark, directory, table, history=True, variant=variant)


def _read(spark: SparkSession, directory: str, name: str | None, *, history: bool, variant: bool) -> DataFrame:
    from pgtail.spark.folding.store import Store, paths_of
    from pgtail.spark.typed.dataframes import as_variant, columns_of, typed_frame

    store = Store(spark, directory)
    if not store.exists:
        store = Store(spark, f"{directory.rstrip('/')}/{'history' if history else 'state'}")
    if not store.exists:
        raise InputError("there is no state in it yet", source=directory)
    if history and not store.manifest.history:
        raise InputError("it holds the state alone, without its history", source=directory)

    def files(table: TableFiles) -> list[str]:
        return paths_of(table.files) + (table.closed if history else [])

    shown = _FROM_TO if history else _AS_OF
    tables = store.manifest.tables
    if name is None:
        every = store.rows([path for table in tables.values() for path in files(table)])
        named = [(relid, table.current.schema, table.current.table) for relid, table in tables.items()]
        names = spark.createDataFrame(named, "relid long, schema string, table string")
        columns = ["relid", "schema", "table", "values", "unknown", "undecoded", *shown]
        return every.join(names, "relid").select(*columns).withColumnsRenamed(shown)
    table = tables[store.relid(name)]
    rows = store.rows(files(table)).withColumnsRenamed(shown)
    versions = table.versions if history else [table.current]
    typed = typed_frame(rows, columns_of(versions), [*shown.values(), "unknown"])
    return as_variant(typed, versions) if variant else typed
