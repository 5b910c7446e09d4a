"""The statements that make the tables of OUT known by names in another catalog: Spark's, Unity's, Trino's, DuckDB's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from pgtail.errors import InputError
from pgtail.spark.lake.catalog import entries
from pgtail.spark.lake.delta import LakeTable
from pgtail.storage import Location

_OTHER: Final = re.compile(r"[^a-z0-9_]")
_WHOLE: Final = ("changes", "transactions", "relations", "snapshots", "ddl")
_DELTA: Final = (
    "CREATE SCHEMA IF NOT EXISTS `{schema}`;",
    "CREATE TABLE IF NOT EXISTS `{schema}`.`{name}` USING DELTA LOCATION '{uri}';",
)
_FORMS: Final = {
    "spark": _DELTA,
    "unity": _DELTA,
    "duckdb": (
        'CREATE SCHEMA IF NOT EXISTS "{schema}";',
        """CREATE OR REPLACE VIEW "{schema}"."{name}" AS SELECT * FROM delta_scan('{uri}');""",
    ),
    "trino": (
        'CREATE SCHEMA IF NOT EXISTS "{schema}";',
        "CALL system.register_table(schema_name => '{schema}', table_name => '{name}', table_location => '{uri}');",
    ),
}


def statements(out: Location, engine: str) -> Iterator[str]:
    """The statements for every table of OUT, in the order of their names. Raises InputError if OUT has none."""
    form_of_schema, form_of_table = _FORMS[engine]
    tables = _names(out)
    if not tables:
        raise InputError("there are no tables", source=str(out))
    for schema in sorted({schema for schema, _ in tables}):
        yield form_of_schema.format(schema=schema)
    for (schema, name), folder in sorted(tables.items()):
        place = (out / folder).absolute()
        # Spark and Trino take a path without a scheme for one in their own storage.
        uri = str(place) if place.path is None or engine == "duckdb" else place.path.as_uri()
        yield form_of_table.format(schema=schema, name=name, uri=uri.replace("'", "''"))


def _names(out: Location) -> dict[tuple[str, str], str]:
    """The schema and name of each table, and its folder: pgtail.changes, state_public.orders.

    A name that more than one table has, or has had, is that of the one that took it last; the others get their OID.
    """
    tables = {("pgtail", name): name for name in _WHOLE if LakeTable(out / name).schema is not None}
    for entry in sorted(entries(out), key=lambda entry: (entry.since, entry.relid or 0), reverse=True):
        schema, name = (_OTHER.sub("_", text.lower()) for text in (f"{entry.kind}_{entry.schema}", entry.table))
        while (schema, name) in tables:
            name = f"{name}_{entry.relid}"
        tables[schema, name] = entry.folder
    return tables
