"""Floor 7, `tables`: the changes of each table as typed rows, in a folder for each, by the batches of `changes`.

OUT/tables/public.orders/batch=000003/part-....parquet
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pgtail.errors import InputError, OptionError, OutputError
from pgtail.spark.datasets.manifest import Manifest, Output
from pgtail.spark.datasets.update import OF_FORMAT, read_batches, stored
from pgtail.spark.errors import translate_spark_errors
from pgtail.spark.folding.versions import Version

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


import hashlib
import re

META: Final = (
    "op",
    "xid",
    "seq",
    "position",
    "commit_lsn",
    "commit_ts",
    "prepare_lsn",
    "prepare_ts",
    "lsn",
    "origin",
    "gid",
    "state",
    "unchanged",
)
"""What a typed row has of its change, each with an underscore before its name."""

_NOTES: Final = "_pgtail.json"
"""In each table's folder: what is in it. Spark passes over names that begin so."""


def table(
    spark: SparkSession,
    source: str | DataFrame,
    name: str,
    relations: DataFrame | None = None,
    *,
    variant: bool = False,
) -> DataFrame:
    """The changes of one table (schema.table, as it was called at the time), typed.

    `source` is a folder that `pgtail spark changes` wrote, or its `changes`; then `relations` are needed too. The
    table's columns hold the new row, of a delete what was sent of the old one; `_old` what was sent of the old row.
    A column that is not in a row's version of the table, or was not sent (`_unchanged`), is NULL. `_rescued` and
    `_old_rescued` have the text of values that have no place in their type. Raises InputError where there is no such
    table.
    """
    if isinstance(source, str):
        return table(spark, stored(spark, source, "changes"), name, stored(spark, source, "relations"), variant=variant)
    if relations is None:
        raise InputError("relations are needed to tell the columns' types")
    versions = [version for version in _versions(relations) if f"{version.schema}.{version.table}" == name]
    if not versions:
        raise InputError(f"no table {name} among the changes")
    # "a.b".c and a."b.c" look alike: the one that was seen last.
    last = versions[-1]
    own = [version for version in versions if (version.schema, version.table) == (last.schema, last.table)]
    return _typed(source, own, variant=variant)


def _versions(relations: DataFrame) -> list[Version]:
    """All versions of all tables, in the order of their appearance."""
    with translate_spark_errors():
        rows = relations.orderBy("position", "ordinal").collect()
    return [Version.of(row.asDict(recursive=True)) for row in rows]


def _level(columns: Sequence[str]) -> str:
    """What the level of folders is called: Spark takes its name for a column's, in the place of one that has it."""
    taken, found = {name.lower() for name in columns}, "batch"
    while found in taken:
        found = f"_{found}"
    return found


def _wanted(version: Version, globs: Sequence[str]) -> bool:
    """Whether `changes` has the table, with --table."""
    names = (version.table, f"{version.schema}.{version.table}")
    return not globs or any(fnmatchcase(names["." in glob], glob) for glob in globs)


def _check_names(versions: Sequence[Version]) -> None:
    """Raises OptionError where ORC would cut a column's name, and lose its values: it ends a name at a backtick."""
    for version in versions:
        for column in version.columns:
            if "`" in column.name:
                raise OptionError(
                    f"{version.schema}.{version.table} has a column {column.name}, and ORC keeps no name with a"
                    " backtick: name another folder, with --format parquet or json, or with --table the other tables"
                )


def _typed(changes: DataFrame, versions: Sequence[Version], *, variant: bool, stored_as: str = "parquet") -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 -- as everybody calls it

    from pgtail.spark.typed.dataframes import as_variant, columns_of, typed_frame

    one = versions[0]
    rows = changes.where((F.col("schema") == one.schema) & (F.col("table") == one.table))
    rows = rows.where(F.col("op").isin("insert", "update", "delete", "truncate"))
    rows = rows.withColumn("values", F.when(F.col("op") == "delete", F.col("old")).otherwise(F.col("new")))
    columns = [column._replace(orc=stored_as == "orc") for column in columns_of(versions)]
    typed = typed_frame(rows, columns, META, old=True)
    return as_variant(typed, versions) if variant else typed


class TypedTables:
    """The folder OUT/tables, brought up to what OUT/changes has.

    Where a table got another version, all of its rows are written anew: a folder has one type for each column.
    """

    def __init__(
        self, spark: SparkSession, out: str, *, variant: bool = False, tell: Callable[[str], None] = lambda text: None
    ) -> None:
        self._spark = spark
        self._output = Output(out)
        self._folder = self._output.folder / "tables"
        self._variant = variant
        self._tell = tell

    def update(self) -> int:
        """Write what is new; returns of how many tables. Raises InputError, OptionError, OutputError."""
        manifest = self._output.read()
        if manifest is None:
            raise InputError("holds no changes yet", source=str(self._output.folder))
        if self._variant and manifest.stored_as != "parquet":
            raise OptionError(
                f"--variant needs --format parquet; {self._output.folder} is kept as {manifest.stored_as}"
            )
        with self._output.writing(manifest.stored_as, manifest.tables) as manifest:
            numbers = manifest.batches["changes"]
            versions: dict[tuple[str, str], list[Version]] = {}
            for version in _versions(stored(self._spark, str(self._output.folder), "relations")):
                if _wanted(version, manifest.tables):
                    versions.setdefault((version.schema, version.table), []).append(version)
            if manifest.stored_as == "orc":
                _check_names([version for own in versions.values() for version in own])
            return sum(self._table(manifest, one, numbers) for one in versions.values())

    def _table(self, manifest: Manifest, versions: Sequence[Version], numbers: Sequence[int]) -> bool:
        one = versions[0]
        folder = self._folder / folder_name(one.schema, one.table)
        notes = self._read(folder)
        described = [version.to_json() for version in versions]
        same = notes.get("versions") == described and notes.get("variant") == self._variant
        done: list[int] = notes.get("numbers", []) if same else []
        if same and set(done) <= set(numbers):
            new = [number for number in numbers if number not in done]
        else:
            new, done = list(numbers), []
        if not new:
            return False
        self._tell(f"typing {one.schema}.{one.table}")
        changes = read_batches(self._spark, self._output, manifest, "changes", new)
        staged = Path(self._output.staged("tables"))
        with translate_spark_errors():
            stored_as = manifest.stored_as
            typed = _typed(changes, versions, variant=self._variant, stored_as=stored_as)
            writer = typed.write.format(stored_as).options(**OF_FORMAT[stored_as])
            writer.mode("overwrite").option("ignoreNullFields", "false").save(str(staged))
        try:
            self._swap(folder, staged, f"{_level(typed.columns)}={new[-1]:06d}", keep=bool(done))
            (folder / _NOTES).write_text(
                json.dumps({"versions": described, "variant": self._variant, "numbers": [*done, *new]})
            )
        except OSError as error:
            raise OutputError(f"cannot write to {folder}: {error.strerror}") from error
        return True

    @staticmethod
    def _read(folder: Path) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((folder / _NOTES).read_bytes())
        except (FileNotFoundError, ValueError):
            return {}
        return found

    @staticmethod
    def _swap(folder: Path, staged: Path, name: str, *, keep: bool) -> None:
        """Put a batch where it belongs; without `keep` in the place of all others."""
        (folder / _NOTES).unlink(missing_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / name
        for other in folder.glob("*batch=*"):
            if not keep or other == target:
                shutil.rmtree(other)
        staged.rename(target)


MOST: Final = 200
"""Characters of a folder's name; file systems end at 255 bytes."""

_PLAIN: Final = re.compile(r"[a-z0-9_-]")


def folder_name(schema: str, table: str) -> str:
    """schema.table, with %XX for all bytes but a-z, 0-9, _ and -, and for a first underscore.

    Capitals are written so as well: a file system may not tell them from small letters, PostgreSQL does. Spark passes
    over what begins with an underscore. What would be too long is cut off, and ends with a part of its SHA-256.
    """
    full = f"{_encoded(schema)}.{_encoded(table)}"
    if len(full) <= MOST:
        return full
    return f"{full[: MOST - 21]}~{hashlib.sha256(full.encode()).hexdigest()[:20]}"


def _encoded(name: str) -> str:
    parts = [chr(byte) if _PLAIN.match(chr(byte)) else f"%{byte:02X}" for byte in name.encode()]
    if parts and parts[0] == "_":
        parts[0] = "%5F"
    return "".join(parts)
