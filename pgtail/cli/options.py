"""Floor 7, the options that commands share, each group as one decorator; imports nothing heavier than click."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import click

from pgtail.cli.settings import MOST_DIGITS, Configured
from pgtail.outputs import OUTPUTS

F = TypeVar("F", bound=Callable[..., Any])

configured: Final = partial(click.option, cls=Configured)
"""An option whose default may stand in the config file: its long name is the setting's."""


def in_order(options: Sequence[Callable[[F], F]]) -> Callable[[F], F]:
    """One decorator of several options, which the help shows in this order."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def count(ctx: click.Context, param: click.Parameter, value: str) -> int | None:
    """A number, or 0 for no limit (None)."""
    if not value.isdecimal() or len(value) > MOST_DIGITS:
        raise click.BadParameter(f"{value!r} is no number; 0 is for no limit", ctx, param)
    return int(value) or None


def color_options(function: F) -> F:
    """`color`: auto, always or never; `colors`: which."""
    return in_order(
        [
            configured(
                "--color",
                type=click.Choice(["auto", "always", "never"]),
                default="auto",
                show_default=True,
                help="Colours; auto looks at the terminal and at NO_COLOR.",
            ),
            configured(
                "--colors",
                metavar="THING=STYLE:...",
                help="Which colours: insert=bold green:old=01;31; see pgtail(1).",
            ),
        ]
    )(function)


def output_options(function: F) -> F:
    """What is written and where: `output`, `file`, `color` and the limits of tables."""
    return in_order(
        [
            configured(
                "-o",
                "--output",
                type=click.Choice(list(OUTPUTS)),
                help="Format; table on a terminal and json in a pipe unless told otherwise.",
            ),
            click.option(
                "--format-string",
                metavar="FORMAT",
                help="In place of -o: a line per change, such as '%o %t %k %{total}'; see pgtail(1).",
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
            configured(
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
                "--show-aborted",
                is_flag=True,
                help="Of streamed transactions also what was rolled back. Tables and JSON.",
            ),
            click.option(
                "--show-uncommitted",
                is_flag=True,
                help="Streamed transactions also as they come, before their end is known. Tables and JSON.",
            ),
            configured(
                "--max-width",
                metavar="N",
                callback=count,
                default="60",
                show_default=True,
                help="table: cells of a value before it is cut; 0 for no limit.",
            ),
            configured(
                "--max-rows",
                metavar="N",
                callback=count,
                default="20",
                show_default=True,
                help="table: changes of a transaction before the rest is only counted; 0 for no limit.",
            ),
            color_options,
            configured(
                "--highlight",
                multiple=True,
                metavar="PATTERN",
                help="table: mark what matches this regular expression, in colour. Repeatable.",
            ),
        ]
    )(function)


def filter_options(function: F) -> F:
    """Which changes are shown: `tables`, `exclude`, `ops`, `xids` and `where`; and what is masked of them."""
    return in_order([*_filters(Configured), *_redaction()])(function)


def own_filter_options(function: F) -> F:
    """The same, but for the filters of the config file, for a command that shows more than changes."""
    return in_order([*_filters(click.Option), *_redaction()])(function)


def redact_options(function: F) -> F:
    """What is masked, for a command that shows values and has no filter: `redact`, `redact_hash`, `redact_key_file`."""
    return in_order(_redaction())(function)


def _filters(cls: type[click.Option]) -> list[Callable[[F], F]]:
    option = partial(click.option, cls=cls)
    return [
        option(
            "-t",
            "--table",
            "tables",
            multiple=True,
            metavar="GLOB",
            help="Only these tables: a glob on schema.table, or without a dot on the name alone. Repeatable.",
        ),
        option("--exclude", multiple=True, metavar="GLOB", help="Not these tables; wins over --table. Repeatable."),
        option(
            "--op",
            "ops",
            multiple=True,
            metavar="OP",
            help="Only these: insert, update, delete, truncate, message, commit_prepared, rollback_prepared."
            " Repeatable, or with commas.",
        ),
        click.option("--xid", "xids", type=int, multiple=True, help="Only this transaction. Repeatable."),
        option(
            "--where",
            multiple=True,
            metavar="'COLUMN OP VALUE'",
            help="Only rows where it holds, with = != < <= > >= ~ !~, 'is null' or 'is not null'; tested on the new"
            " row, of a delete on the old one. Repeated: all must hold.",
        ),
    ]


def _redaction() -> list[Callable[[F], F]]:
    return [
        configured(
            "--redact",
            multiple=True,
            metavar="COLUMN,...",
            help="Mask the values of these columns: COLUMN, TABLE.COLUMN or SCHEMA.TABLE.COLUMN, also globs."
            " Repeatable; adds to what the config file masks.",
        ),
        configured(
            "--redact-hash",
            is_flag=True,
            help="Mask by a keyed hash: equal values stay equal. It needs --redact-key-file.",
        ),
        configured(
            "--redact-key-file",
            type=click.Path(),
            metavar="FILE",
            help="The key of --redact-hash: 16 bytes or more, such as `head -c 32 /dev/urandom` writes.",
        ),
    ]


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
