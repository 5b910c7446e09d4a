"""`pgtail spark`: its command lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from pgtail.cli import Commands
from pgtail.cli.options import takes
from pgtail.cli.settings import refuse_masks
from pgtail.commands.options.spark import CatalogOptions, SparkOptions, VacuumOptions, VerifyOptions

if TYPE_CHECKING:
    from pgtail.commands.spark.command import Dataset

_OF_STATE = ("until", "allow_gap", "ddl", "retain")


@click.group("spark", cls=Commands)
def command() -> None:
    """Turn captures into tables, on Spark.

    Captures are what pgtail record writes: directories of segments. The tables are Delta Lake tables, which Spark,
    DuckDB, Polars, pandas and many others read. The extra `spark` and Java 17 or later are required; if they are
    missing, pgtail says how to install them.
    """


def _add(name: str, *makes: Dataset) -> Callable[[Callable[[], None]], click.Command]:
    """Add a command that brings OUT/changes up to date, then the datasets `makes`; its help is the docstring."""

    def add(described: Callable[[], None]) -> click.Command:
        def run(places: tuple[str, ...], options: SparkOptions) -> bool:
            from pgtail.commands.spark import command as spark

            refuse_masks("pgtail spark")
            captures, out = spark.captures_and_out(places)
            return spark.run(replace(options, captures=captures, out=out), makes)

        left_out = () if "state" in makes or "history" in makes else _OF_STATE
        argument = click.argument("places", nargs=-1, required=True, metavar="CAPTURE... OUT")
        decorated = argument(takes(SparkOptions, **dict.fromkeys(left_out))(run))
        return command.command(name, help=described.__doc__)(decorated)

    return add


@_add("changes")
def _changes() -> None:
    """Write every change in captures as rows: OUT/changes, OUT/transactions, OUT/relations and OUT/snapshots.

    Each change is one row, however often it was recorded: in several segments, in captures of several slots; and so is
    each row of a table's snapshot. Run again, the command adds what is new. Damaged or incomplete segments are named,
    and nothing of them is written.

    \b
    pgtail spark changes captures/shop warehouse
    pgtail spark changes --watch --every 1m captures/shop warehouse
    """


@_add("tables", "tables")
def _tables() -> None:
    """Write the changes of each table with its columns and their types: OUT/tables/SCHEMA.TABLE.

    numeric becomes decimal, timestamptz timestamp, bytea binary, and arrays are arrays. A value that its type cannot
    hold (NaN in a decimal, infinity in a date, years BC) is NULL, and is kept as text in the map _rescued. OUT/changes
    is brought up to date too.

    \b
    pgtail spark tables captures/shop warehouse
    pgtail spark tables -t 'sales.*' captures/shop warehouse
    """


@_add("state", "state")
def _state() -> None:
    """Keep the rows of every table as they are after the last commit: OUT/state/SCHEMA.TABLE.

    Run again, or with --watch, the command applies what is new. A snapshot that pgtail record took of a table replaces
    all of its rows. Prepared transactions count once they are committed. A value that was never sent (from before the
    capture, or made by ALTER TABLE) is named in _unknown, and never guessed. OUT/changes and OUT/tables are brought up
    to date first.

    \b
    pgtail spark state captures/shop warehouse
    pgtail spark state --until 2026-11-20T22:05:00Z captures/shop as-of-then
    """


@_add("history", "history")
def _history() -> None:
    """Keep every version of every row, with the commits that made and ended it (SCD 2): OUT/history/SCHEMA.TABLE.

    Versions that only their own transaction saw are left out. OUT/changes and OUT/tables are brought up to date first.

    \b
    pgtail spark history captures/shop warehouse
    """


@_add("all", "tables", "state", "history")
def _all() -> None:
    """Make everything: what pgtail spark changes makes, OUT/tables, OUT/state and OUT/history.

    \b
    pgtail spark all --watch captures/shop warehouse
    """


@command.command("verify")
@click.argument("places", nargs=-1, required=True, metavar="CAPTURE... OUT DSN")
@takes(VerifyOptions)
def _verify(places: tuple[str, ...], options: VerifyOptions) -> bool:
    """Compare OUT/state with the tables on the server, row by row, at one position.

    A temporary slot gives the position, and the tables as they are there; nothing is written on the server, and nothing
    into the tables of OUT. pgtail waits until the captures are complete up to it, so let pgtail record run beside. The
    exit status is 0 if all rows are equal as far as the state knows them, and 1 if not.

    \b
    pgtail spark verify captures/shop warehouse shop
    pgtail spark verify -t orders --sample 10 captures/shop warehouse shop
    """
    from pgtail.commands.spark.verify import run

    refuse_masks("pgtail spark verify")
    return run(places, options)


@command.command("vacuum")
@click.argument("out", metavar="OUT")
@takes(VacuumOptions)
def _vacuum(out: str, options: VacuumOptions) -> None:
    """List the files of OUT that no reader needs any more; with --delete remove them.

    These are files that were replaced, and what a killed run left behind. Files that are younger than the --retain of
    their table (see pgtail spark state) are kept. Needs no Java.

    \b
    pgtail spark vacuum warehouse
    pgtail spark vacuum --delete warehouse
    """
    from pgtail.commands.spark import command as spark

    spark.vacuum(out, options)


@command.command("catalog")
@click.argument("out", metavar="OUT")
@takes(CatalogOptions)
def _catalog(out: str, options: CatalogOptions) -> None:
    """Print the statements that register the tables of OUT in another program, under names such as state_public.orders.

    Nothing is copied or changed: each name stands for the Delta table in OUT. DuckDB gets views, which a database file
    keeps. Print and run the statements again when OUT has new tables. Needs no Java.

    \b
    pgtail spark catalog warehouse --for duckdb | duckdb shop.duckdb
    pgtail spark catalog s3://warehouse/shop --for trino
    """
    from pgtail.commands.spark import command as spark

    spark.print_statements(out, options)
