"""Floor 7, `pgtail spark tables`: the changes of each table as typed rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from pgtail.cli.spark_follow import Step, changes_options, run
from pgtail.cli.spark_options import spark_options, watch_options


def variant_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Whether json is VARIANT: `variant`."""
    return click.option("--variant", is_flag=True, help="json and jsonb as VARIANT instead of text.")(function)


@click.command("tables")
@click.argument("places", nargs=-1, required=True, metavar="CAPTURE... OUT")
@changes_options
@variant_option
@watch_options
@spark_options
def command(places: tuple[str, ...], **options: Any) -> None:
    """Write the changes of each table with its columns and their types: OUT/tables/SCHEMA.TABLE.

    numeric is decimal, timestamptz timestamp, bytea binary, arrays are arrays. What has no place in its type (NaN in
    a decimal, infinity in a date, years BC) is NULL, and stands as text in the map _rescued. Makes OUT/changes first.

    \b
    pgtail spark tables captures/shop warehouse
    spark-sql -e "SELECT * FROM parquet.\\`warehouse/tables/public.orders\\`"
    """
    run(places, options, [step(options)])


def step(options: dict[str, Any]) -> Step:
    """Brings the typed tables up to date."""

    def tables(spark: Any, out: str, tell: Callable[[str], None]) -> str:
        from pgtail.spark.typedtables import TypedTables

        count = TypedTables(spark, out, variant=options["variant"], tell=tell).update()
        return f"tables: new rows of {count} tables"

    return tables
