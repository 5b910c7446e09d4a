"""Floor 7, the options that commands share, each group as one decorator; imports nothing heavier than click."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from pgtail.outputs import OUTPUTS

F = TypeVar("F", bound=Callable[..., Any])


def in_order(options: Sequence[Callable[[F], F]]) -> Callable[[F], F]:
    """One decorator of several options, which the help shows in this order."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def count(ctx: click.Context, param: click.Parameter, value: str) -> int | None:
    """A number, or 0 for no limit (None)."""
    if not value.isdecimal():
        raise click.BadParameter(f"{value!r} is no number; 0 is for no limit", ctx, param)
    return int(value) or None


def output_options(function: F) -> F:
    """What is written and where: `output`, `file`, `color` and the limits of tables."""
    return in_order(
        [
            click.option(
                "-o",
                "--output",
                type=click.Choice(list(OUTPUTS)),
                help="Format; table on a terminal and json in a pipe unless told otherwise.",
            ),
            click.option(
                "-f",
                "--file",
                type=click.Path(),
                metavar="FILE",
                help="Write to FILE instead of standard output: decode anew, stream at its end. csv: DIR/ for a file"
                " per table.",
            ),
            click.option(
                "--wal2json",
                multiple=True,
                metavar="NAME[=on|off]",
                help="wal2json, wal2json-v1: an option of that plugin, such as include-xids. Repeatable.",
            ),
            click.option(
                "--source-name",
                metavar="NAME[/DATABASE]",
                help="debezium: what stands in source.name and source.db; stream knows the database.",
            ),
            click.option(
                "--schema/--no-schema", "kafka_schema", default=False, help="debezium: each event with its schema."
            ),
            click.option("--undo", is_flag=True, help="sql: the inverse, newest change first, written at the end."),
            click.option(
                "--numbers",
                type=click.Choice(["exact", "string"]),
                default="exact",
                show_default=True,
                help="JSON: int8 and numeric as numbers with all digits, or quoted for readers that keep 53 bits."
                " debezium: numeric and money as with decimal.handling.mode precise, or string.",
            ),
            click.option(
                "--fill-unchanged",
                is_flag=True,
                help="Take unchanged TOAST values from the old row, where it was sent.",
            ),
            click.option(
                "--transactions", is_flag=True, help="json, debezium: also a line where a transaction begins and ends."
            ),
            click.option(
                "--schema-changes", is_flag=True, help="Also say when a table is described for the first time or anew."
            ),
            click.option(
                "--max-width",
                metavar="N",
                callback=count,
                default="60",
                show_default=True,
                help="table: cells of a value before it is cut; 0 for no limit.",
            ),
            click.option(
                "--max-rows",
                metavar="N",
                callback=count,
                default="20",
                show_default=True,
                help="table: changes of a transaction before the rest is only counted; 0 for no limit.",
            ),
            click.option(
                "--color",
                type=click.Choice(["auto", "always", "never"]),
                default="auto",
                show_default=True,
                help="Colours; auto looks at the terminal and at NO_COLOR.",
            ),
        ]
    )(function)


def filter_options(function: F) -> F:
    """Which changes are shown: `table`, `exclude`, `op`, `xid` and `where`."""
    return in_order(
        [
            click.option(
                "-t",
                "--table",
                "tables",
                multiple=True,
                metavar="GLOB",
                help="Only these tables: a glob on schema.table, or without a dot on the name alone. Repeatable.",
            ),
            click.option(
                "--exclude", multiple=True, metavar="GLOB", help="Not these tables; wins over --table. Repeatable."
            ),
            click.option(
                "--op",
                "ops",
                multiple=True,
                metavar="OP",
                help="Only these: insert, update, delete, truncate, message, commit_prepared, rollback_prepared."
                " Repeatable, or with commas.",
            ),
            click.option("--xid", "xids", type=int, multiple=True, help="Only this transaction. Repeatable."),
            click.option(
                "--where",
                multiple=True,
                metavar="'COLUMN OP VALUE'",
                help="Only rows where it holds, with = != < <= > >= ~ !~, 'is null' or 'is not null'; tested on the new"
                " row, of a delete on the old one. Repeated: all must hold.",
            ),
        ]
    )(function)


def limit_option(function: F) -> F:
    """`limit`, a number of transactions."""
    return click.option("-n", "--limit", type=click.IntRange(min=1), help="Stop after so many transactions shown.")(
        function
    )


def dump_options(function: F) -> F:
    """How dumps are read: `input_format`, `encoding`, `assume` and `enums`."""
    return in_order(
        [
            click.option(
                "--input-format",
                type=click.Choice(
                    [
                        *("recvlogical", "raw", "copydata", "lengths", "pgcap"),
                        *("psql", "csv", "hex", "copytext", "pgcopy", "pcap"),
                    ]
                ),
                help="What the files are, where pgtail does not see it by itself.",
            ),
            click.option(
                "--encoding", default="utf-8", show_default=True, help="The encoding of names and text in the dump."
            ),
            click.option(
                "--assume",
                type=click.Choice(["streaming=on", "streaming=parallel"]),
                help="How the stream was made: whether a Stream Abort carries its LSN and time.",
            ),
            click.option(
                "--type",
                "types",
                multiple=True,
                metavar="NAME=enum",
                help="Say that a type is an enum, which a binary dump does not tell. Repeatable.",
            ),
        ]
    )(function)


def verbose_option(function: F) -> F:
    """`verbose`, a count."""
    return click.option("-v", "--verbose", count=True, help="Say more on standard error; twice: even more.")(function)
