"""The commits of `tables/*`: one schema for each table, whatever versions its files are of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec import Struct

from pgtail.arrow.typed.casts import TableColumn
from pgtail.arrow.typed.columns import META, TRUE_NAME, columns_of, own_columns, schema_of
from pgtail.arrow.typed.rows import as_stored, as_version
from pgtail.arrow.typed.versions import Version
from pgtail.spark.jobs import collected
from pgtail.spark.lake.catalog import Entry
from pgtail.spark.lake.decoding import Names, TableFile, Versions, folder_name
from pgtail.spark.lake.delta import Commit, LakeTable, holds
from pgtail.spark.lake.parquet import DataFile, TableFolder, row_groups, write_groups
from pgtail.storage import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Rewriting(Struct, frozen=True):
    """A file of a table to be rewritten with other types, or names."""

    folder: TableFolder
    path: str
    size: int
    version: Version
    before: Sequence[TableColumn]
    """Its columns now; `columns` are the new ones."""
    columns: Sequence[TableColumn]

    def rewrite(self) -> DataFile:
        groups = row_groups(self.folder.place / self.path)
        rows = (as_stored(as_version(one, self.version, self.before), self.version, self.columns) for one in groups)
        return write_groups(self.folder.named_like(self.path), rows)


def rewritten(spark: SparkSession, files: Sequence[Rewriting]) -> list[DataFile]:
    """Rewrite files."""
    return collected(spark, Rewriting.rewrite, files, sum(one.size for one in files))


def columns_in(schema: pa.Schema) -> list[TableColumn]:
    """The columns of a table with this schema, without pgtail's own."""
    return [TableColumn(f.metadata[TRUE_NAME.encode()].decode(), f.name, f.type) for f in schema if f.metadata]


def table_commits(
    spark: SparkSession, out: Location, codec: str, files: Sequence[TableFile], known: Versions, versions: Versions
) -> tuple[list[Commit], list[Entry]]:
    """The commits for files that tasks wrote, knowing the versions `known`; `versions` are all of them.

    Files whose types are not those of the table are written again, also those that are in the table already.
    """
    by_names: dict[Names, list[TableFile]] = {}
    for new in files:
        by_names.setdefault((new.version.schema, new.version.table), []).append(new)
    commits, entries = [], []
    for names, own in by_names.items():
        name = f"tables/{folder_name(*names)}"
        table, folder = LakeTable(out / name), TableFolder(out / name, codec)
        columns = columns_of(versions[names])
        schema = schema_of(columns, META, old=True)
        by_relation = {version.relation: version for version in versions[names]}
        adds, again = [], []
        overwrite = table.schema is not None and not holds(schema, table.schema)
        for file in table.files() if overwrite else ():
            version = by_relation[file.bounds("_relation").least]
            again.append(Rewriting(folder, file.path, file.size, version, columns_in(table.schema), columns))
        for version, _, added in own:
            written = own_columns(version, columns_of([*known.get(names, ()), version]))
            if written == own_columns(version, columns):
                adds.append(added)
            else:
                again.append(Rewriting(folder, added.path, added.size, version, written, columns))
        adds += rewritten(spark, again)
        commits.append(Commit(name, schema, adds, overwrite=overwrite))
        entries.append(Entry("tables", *names, max(new.relid for new in own), name, 0))
    return commits, entries
