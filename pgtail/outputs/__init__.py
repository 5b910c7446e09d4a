"""Write events as text. A format is one module or folder, and one entry in OUTPUTS; its own options are fields here."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from msgspec import Struct

from pgtail.options import limit, option, size, size_or_no_limit

if TYPE_CHECKING:
    from pgtail.files.sink import Sink
    from pgtail.files.spool import SpoolLimit
    from pgtail.outputs.base import OpenFile, Output


class Format(NamedTuple):
    """The implementation of an output format, and what it can show."""

    module: str
    """Loaded on use only: the table loads rich."""
    factory: str
    """The class, or a function with the same parameters: (sink, options)."""
    hidden: Literal["as they are", "as they are in JSON", "spelled out"] = "as they are"
    """How control and invisible characters are written. All but "spelled out" need an EscapingSink on a terminal."""
    marks: bool = False
    """Whether it marks what was not committed, and shows what a client sent."""
    whole_rows: str | None = "its readers expect whole rows"
    """Why it cannot leave out columns; None if it can."""
    in_order: bool = False
    """Whether parts of a stream cannot be written independently of each other."""


_output = partial(option, group="output")
_JSON: Final = "as they are in JSON"
OUTPUTS: Final = {
    "table": Format(
        "pgtail.outputs.table.table",
        "TableOutput",
        "spelled out",
        marks=True,
        whole_rows=None,
        in_order=True,  # tables are separated from what came before
    ),
    "line": Format("pgtail.outputs.line", "Line", "spelled out", marks=True, whole_rows=None),
    "json": Format("pgtail.outputs.ndjson", "Json", _JSON, marks=True, whole_rows=None),
    "json-tx": Format("pgtail.outputs.ndjson_tx", "JsonTx", _JSON, marks=True, whole_rows=None),
    "wal2json": Format("pgtail.outputs.wal2json.v2", "Wal2Json", _JSON),
    "wal2json-v1": Format("pgtail.outputs.wal2json.v1", "Wal2JsonV1", _JSON),
    "debezium": Format("pgtail.outputs.debezium.events", "Debezium", _JSON, in_order=True),
    "sql": Format(
        "pgtail.outputs.sql.forward", "open_sql", "spelled out", whole_rows="a statement needs the whole row"
    ),
    "csv": Format("pgtail.outputs.csv", "Csv", whole_rows=None),
}
"""The formats of --output."""

TEMPLATE: Final = "--format-string"
FORMATS: Final = {
    **OUTPUTS,
    TEMPLATE: Format(
        "pgtail.outputs.template",
        "Template",
        "spelled out",
        whole_rows="%{NAME} selects a column",
        in_order=True,  # it reports columns that no table had
    ),
}


def open_output(name: str, sink: Sink, options: OutputOptions) -> Output:
    """The output of that name. Raises KeyError for a name that is not in FORMATS."""
    format_ = FORMATS[name]
    output: Output = getattr(import_module(format_.module), format_.factory)(sink, options)
    return output


def color_option() -> Any:
    """The field `color` of options: when to write colours."""
    return _output(
        "--color",
        kind=("auto", "always", "never"),
        default="auto",
        setting="text",
        help="Colours; auto: on a terminal, unless NO_COLOR is set.",
    )


def colors_option() -> Any:
    """The field `colors` of options: the styles."""
    return _output(
        "--colors",
        metavar="THING=STYLE:...",
        completion="colors",
        setting="text",
        help="Styles, such as insert=bold green:old=01;31; see pgtail-output(5).",
    )


class OutputOptions(Struct, frozen=True):
    """The output of changes, where it goes, and what belongs to a single format.

    `max_width` (cells of a value) is None for no limit. The fields after `highlight` are no options of the command
    line: they tell an output about the terminal and the command.
    """

    output: str | None = _output(
        "-o", "--output", kind=tuple(OUTPUTS), setting="text", help="Default: table on a terminal, else json."
    )
    format_string: str | None = _output(
        TEMPLATE,
        metavar="FORMAT",
        instead_of="output",
        help="Instead of -o: a line per change, such as '%o %t %k %{total}'; see pgtail-output(5).",
    )
    file: str | None = _output(
        "-f",
        "--file",
        kind="file",
        metavar="FILE",
        help="Write to FILE; stream and expect append. decode overwrites it, and also writes *.gz, and DIR/ with"
        " -o csv.",
    )
    columns: tuple[str, ...] = _output(
        "--columns",
        default=(),
        metavar="GLOB,...",
        completion="columns",
        help="Only the key and [[SCHEMA.]TABLE.]COLUMN, also globs. Table, line, JSON, CSV.",
    )
    changed: bool = _output(
        "--changed",
        default=False,
        help="Of updates only the key and what changed, or may have (marked ?). Table, line, JSON, CSV.",
    )
    wal2json: tuple[str, ...] = _output(
        "--wal2json",
        default=(),
        metavar="NAME[=on|off]",
        completion="wal2json",
        formats=("wal2json", "wal2json-v1"),
        help="wal2json, wal2json-v1: an option of that plugin, such as include-xids. Repeatable.",
    )
    source_name: str | None = _output(
        "--source-name",
        metavar="NAME[/DATABASE]",
        formats=("debezium",),
        help="debezium: source.name and source.db; stream knows the database.",
    )
    kafka_schema: bool = _output(
        "--schema/--no-schema", default=False, formats=("debezium",), help="debezium: include the schema in each event."
    )
    keys: bool = _output(
        "--keys",
        default=False,
        formats=("debezium",),
        help="debezium: the key and a tab before each event, and an empty event (a tombstone) after a delete.",
    )
    undo: bool = _output(
        "--undo",
        default=False,
        formats=("sql",),
        help="sql: statements that undo the changes, newest first, written at the end.",
    )
    numbers: Literal["exact", "string"] = _output(
        "--numbers",
        kind=("exact", "string"),
        default="exact",
        setting="text",
        help="JSON: int8 and numeric as numbers with all digits, or quoted, for readers with 53-bit numbers. debezium:"
        " numeric and money as with decimal.handling.mode precise, or string.",
    )
    old_values: str | None = _output(
        "--old-values",
        kind=("sent", "seen"),
        formats=("table", "line", "json", "json-tx", "debezium", "sql", "csv"),
        shown_default="sent; with --changed seen where that is sure",
        help="seen: take old values that the server did not send from the rows that the input showed before; see"
        " pgtail-old-values(7).",
    )
    old_values_limit: int = _output(
        "--old-values-limit",
        default="256MB",
        convert=size,
        metavar="SIZE",
        help="--old-values: how much memory these rows may take; the least recently used are dropped.",
    )
    fill_unchanged: bool = _output(
        "--fill-unchanged", default=False, help="Take unchanged TOAST values from the old row, if it was sent."
    )
    transactions: bool = _output(
        "--transactions", default=False, help="json, debezium: also a line at the begin and end of a transaction."
    )
    schema_changes: bool = _output(
        "--schema-changes", default=False, help="Also show when the description of a table first comes or changes."
    )
    show_aborted: bool = _output(
        "--show-aborted", default=False, help="Also show rolled-back parts of streamed transactions. Table, line, JSON."
    )
    show_uncommitted: bool = _output(
        "--show-uncommitted",
        default=False,
        help="Show streamed transactions as they arrive, before they commit. Table, line, JSON.",
    )
    all_columns: bool = _output(
        "--all-columns", default=False, formats=("table",), help="table: of updates also what did not change."
    )
    max_width: int | None = _output(
        "--max-width",
        default="60",
        convert=size_or_no_limit,
        metavar="N",
        setting="number",
        help="table, line on a terminal: width of a value before it is cut; 0 for no limit, of lines neither.",
    )
    max_rows: int | None = _output(
        "--max-rows",
        convert=limit,
        metavar="N",
        setting="number",
        shown_default="20, in a pager 0",
        help="table: changes of a transaction to show, the rest is counted; 0 for no limit.",
    )
    color: str = color_option()
    colors: str | None = colors_option()
    highlight: tuple[str, ...] = _output(
        "--highlight",
        default=(),
        metavar="PATTERN",
        setting="one by one",
        help="table, line: mark matches of this regular expression in colour. Repeatable.",
    )
    context: str | None = None
    """The prefix of the messages that give changes their context."""
    client: bool | None = None
    """Whether to show the messages of clients; None: in tables and lines."""
    colored: bool = False
    width: int = 80
    """The width of the terminal in cells."""
    paged: bool = False
    """Whether a pager shows the output."""
    measure: Callable[[], int] | None = None
    """Gives the width after a resize; None: there is no terminal."""
    database: str = ""
    """The name of the database that is read, if it is known."""
    open_file: OpenFile | None = None
    """None if all tables go to one sink."""
    spool: SpoolLimit | None = None
    """Limits the temporary files of transactions that cannot be written yet."""

    @property
    def takes_seen(self) -> bool:
        """Whether old values that were not sent are taken from the rows that the input showed before."""
        return self.old_values == "seen"
