"""Groups of options that commands share, each as one decorator. Imports click and nothing heavier."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from pgtail.cli import complete
from pgtail.cli.command import heading
from pgtail.cli.options.encoding import encoding_name
from pgtail.cli.settings import MOST_DIGITS, Configured, always_redacted, given, settings_in_use
from pgtail.errors import OptionError
from pgtail.inputs import INPUTS
from pgtail.outputs import OUTPUTS

if TYPE_CHECKING:
    from pgtail.storage.options import StorageOptions

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

configured: Final = partial(click.option, cls=Configured)
"""An option whose default may come from a variable or the config file, under its long name."""


def options_from(cls: type[T], parameters: Mapping[str, Any]) -> T:
    """The options object (a class of pgtail.commands.options) of the running command, from its parameters."""
    from pgtail.commands.options import from_parameters

    more: dict[str, Any] = {"settings": settings_in_use(), "always_redacted": always_redacted()}
    if parameters.get("format_string") is not None and not given("output"):
        more["output"] = None  # the configuration's does not contradict --format-string
    return from_parameters(cls, {**parameters, **more})


def in_order(options: Sequence[Callable[[F], F]]) -> Callable[[F], F]:
    """One decorator for several options, which --help shows in this order."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def count(ctx: click.Context, param: click.Parameter, value: str) -> int | None:
    """A number; 0, for no limit, becomes None. Raises BadParameter."""
    if not value.isdecimal() or len(value) > MOST_DIGITS:
        raise click.BadParameter(f"{value!r} is not a number; 0 means no limit", ctx, param)
    return int(value) or None


def storage_options(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> StorageOptions:
    """Options given as KEY=VALUE. Raises BadParameter, which does not repeat a value: it may be a secret."""
    from pgtail.storage.options import parse_options

    try:
        return parse_options(values)
    except OptionError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def items(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    """The items of values that commas separate."""
    return tuple([item.strip() for value in values for item in value.split(",") if item.strip()])


def color_options(function: F) -> F:
    """`color` (auto, always or never) and `colors` (the styles)."""
    return in_order(
        [
            heading("output"),
            configured(
                "--color",
                type=click.Choice(["auto", "always", "never"]),
                default="auto",
                show_default=True,
                help="Colours; auto: on a terminal, unless NO_COLOR is set.",
            ),
            configured(
                "--colors",
                metavar="THING=STYLE:...",
                shell_complete=complete.colors,
                help="Styles, such as insert=bold green:old=01;31; see pgtail(1).",
            ),
        ]
    )(function)


def output_options(function: F) -> F:
    """What is written and where: the fields of commands.options.FormatOptions."""
    return in_order(
        [
            heading("output"),
            configured(
                "-o",
                "--output",
                type=click.Choice(list(OUTPUTS)),
                help="Format; the default is table on a terminal, and json elsewhere.",
            ),
            click.option(
                "--format-string",
                metavar="FORMAT",
                help="Instead of -o: a line per change, such as '%o %t %k %{total}'; see pgtail(1).",
            ),
            click.option(
                "-f",
                "--file",
                type=click.Path(),
                metavar="FILE",
                help="Write to FILE (*.gz: compressed); decode overwrites it, stream and"
                " expect append. csv: DIR/ for a file per table.",
            ),
            click.option(
                "--columns",
                multiple=True,
                metavar="GLOB,...",
                help="Show only these columns and the key: COLUMN, TABLE.COLUMN or SCHEMA.TABLE.COLUMN, also globs;"
                " other tables are shown whole. Table, line, JSON, CSV.",
            ),
            click.option(
                "--changed",
                is_flag=True,
                help="Of updates show only the key and what changed, or may have: without the old row that is unknown,"
                " and marked ? or named in maybe_changed. Table, line, JSON, CSV.",
            ),
            click.option(
                "--wal2json",
                multiple=True,
                metavar="NAME[=on|off]",
                shell_complete=complete.wal2json,
                help="wal2json, wal2json-v1: an option of that plugin, such as include-xids. Repeatable.",
            ),
            click.option(
                "--source-name",
                metavar="NAME[/DATABASE]",
                help="debezium: source.name and source.db; stream knows the database.",
            ),
            click.option(
                "--schema/--no-schema",
                "kafka_schema",
                default=False,
                help="debezium: include the schema in each event.",
            ),
            click.option(
                "--keys",
                is_flag=True,
                help="debezium: the key and a tab before each event, and an empty event (a tombstone) after a delete.",
            ),
            click.option(
                "--undo", is_flag=True, help="sql: statements that undo the changes, newest first, written at the end."
            ),
            configured(
                "--numbers",
                type=click.Choice(["exact", "string"]),
                default="exact",
                show_default=True,
                help="JSON: int8 and numeric as numbers with all digits, or quoted, for readers with 53-bit numbers."
                " debezium: numeric and money as with decimal.handling.mode precise, or string.",
            ),
            click.option(
                "--fill-unchanged",
                is_flag=True,
                help="Take unchanged TOAST values from the old row, if it was sent.",
            ),
            click.option(
                "--transactions",
                is_flag=True,
                help="json, debezium: also a line at the begin and end of a transaction.",
            ),
            click.option(
                "--schema-changes",
                is_flag=True,
                help="Also show when the description of a table first comes or changes.",
            ),
            click.option(
                "--show-aborted",
                is_flag=True,
                help="Also show rolled-back parts of streamed transactions. Table, line, JSON.",
            ),
            click.option(
                "--show-uncommitted",
                is_flag=True,
                help="Show streamed transactions as they arrive, before they commit. Table, line, JSON.",
            ),
            configured(
                "--max-width",
                metavar="N",
                callback=count,
                default="60",
                show_default=True,
                help="table, line on a terminal: width of a value before it is cut; 0 for no limit.",
            ),
            configured(
                "--max-rows",
                metavar="N",
                callback=count,
                default="20",
                show_default=True,
                help="table: changes of a transaction to show, the rest is counted; 0 for no limit.",
            ),
            color_options,
            configured(
                "--highlight",
                multiple=True,
                metavar="PATTERN",
                help="table, line: mark matches of this regular expression in colour. Repeatable.",
            ),
        ]
    )(function)


def filter_options(function: F) -> F:
    """Which changes are shown and what is masked: the fields of commands.options.FilterOptions."""
    return in_order([*_filters(Configured), *_redaction()])(function)


def own_filter_options(function: F) -> F:
    """The same without filters from the config file, for a command that shows more than changes."""
    return in_order([*_filters(click.Option), *_redaction()])(function)


def _filters(cls: type[click.Option]) -> list[Callable[[F], F]]:
    option = partial(click.option, cls=cls)
    return [
        heading("filter"),
        option(
            "-t",
            "--table",
            "tables",
            multiple=True,
            metavar="GLOB,...",
            shell_complete=complete.tables,
            callback=items,
            help="Only these tables: a glob on schema.table, or, without a dot, on the table name. Repeatable.",
        ),
        option(
            "--exclude",
            multiple=True,
            metavar="GLOB,...",
            shell_complete=complete.tables,
            callback=items,
            help="Not these tables, even if --table matches. Repeatable.",
        ),
        option(
            "--op",
            "ops",
            multiple=True,
            metavar="OP,...",
            shell_complete=complete.ops,
            callback=items,
            help="Only these operations: insert, update, delete, truncate, message, commit_prepared, rollback_prepared."
            " Repeatable.",
        ),
        click.option("--xid", "xids", type=int, multiple=True, help="Only this transaction. Repeatable."),
        option(
            "--where",
            multiple=True,
            metavar="CONDITION",
            help="Only changes for which it is true: \"total > 100 and (status in ('new', 'paid') or not note like"
            " 'a%')\", \"changed(status) and old.status = 'new'\"; see pgtail-filter(7). Repeatable: all must be true.",
        ),
    ]


def _redaction() -> list[Callable[[F], F]]:
    return [
        heading("masking"),
        configured(
            "--redact",
            multiple=True,
            metavar="COLUMN,...",
            help="Mask the values of these columns: COLUMN, TABLE.COLUMN or SCHEMA.TABLE.COLUMN, also globs."
            " Repeatable; adds to the columns in the config file.",
        ),
        configured(
            "--redact-hash",
            is_flag=True,
            help="Mask with a keyed hash: equal values stay equal. Needs --redact-key-file.",
        ),
        configured(
            "--redact-key-file",
            type=click.Path(),
            metavar="FILE",
            help="The key of --redact-hash: at least 16 bytes, for example from `head -c 32 /dev/urandom`.",
        ),
    ]


def limit_option(function: F) -> F:
    """`limit`, a number of transactions."""
    return in_order(
        [
            heading("range"),
            click.option(
                "-n", "--limit", type=click.IntRange(min=1), metavar="N", help="Stop after N transactions were shown."
            ),
        ]
    )(function)


def storage_option(function: F) -> F:
    """`storage`."""
    return click.option(
        "--storage",
        multiple=True,
        metavar="KEY=VALUE",
        callback=storage_options,
        help="An option of the storage of s3://, gs://, az:// and abfs:// URIs, such as aws_region; by default the"
        " environment's. Repeatable.",
    )(function)


def dump_options(function: F) -> F:
    """How dumps are read: the fields of commands.options.DumpOptions."""
    return in_order(
        [
            heading("input"),
            click.option(
                "--input-format",
                type=click.Choice(list(INPUTS)),
                help="The form of the files, if pgtail does not detect it.",
            ),
            click.option(
                "--encoding",
                default="utf-8",
                show_default=True,
                callback=encoding_name,
                help="The encoding of names and text in the dump.",
            ),
            click.option(
                "--assume",
                type=click.Choice(["streaming=on", "streaming=parallel"]),
                callback=lambda ctx, param, value: value and value.partition("=")[2],
                help="The streaming option of the dump: with parallel, a Stream Abort has an LSN and a time.",
            ),
            click.option(
                "--type",
                "types",
                multiple=True,
                metavar="NAME=enum",
                help="Declare an enum type, which a binary dump does not reveal. Repeatable.",
            ),
            storage_option,
        ]
    )(function)


def verify_option(function: F) -> F:
    """`verify`."""
    return click.option(
        "--verify",
        is_flag=True,
        help="Compare the checksums of gzipped files and captures before anything is shown; takes a second pass.",
    )(function)


def pager_option(function: F) -> F:
    """`pager`."""
    return in_order(
        [
            heading("output"),
            click.option(
                "--pager/--no-pager",
                default=True,
                help="On a terminal, show long output with $PAGER, or less; the default.",
            ),
        ]
    )(function)


def verbose_option(function: F) -> F:
    """`verbose`, a count, and -q."""
    return in_order(
        [
            heading("other"),
            click.option("-v", "--verbose", count=True, help="Print details on standard error; -vv: a trace."),
            click.option(
                "-q",
                "--quiet",
                is_flag=True,
                expose_value=False,
                callback=_be_quiet,
                help="Print no notes and no progress on standard error, only errors and warnings.",
            ),
        ]
    )(function)


def _be_quiet(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if not ctx.resilient_parsing:
        from pgtail.commands import stderr

        stderr.quiet_mode = value
