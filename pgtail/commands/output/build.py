"""Where the changes of a command go: the target, the format and its colours, from the output options."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from pgtail.commands.console.pager import pager_in_use
from pgtail.commands.console.styling import terminal_width, to_terminal, wants_color
from pgtail.commands.output.file_sink import GZIP, FileSink, open_sink
from pgtail.errors import OptionError
from pgtail.files.sink import Sink
from pgtail.humanize import counted, size_text
from pgtail.log import logger
from pgtail.options import options_of
from pgtail.outputs import FORMATS, OUTPUTS, TEMPLATE, Format, OutputOptions, open_output
from pgtail.outputs.base import Output
from pgtail.terminal.escape import EscapingSink

if TYPE_CHECKING:
    from pgtail.changes.seen_rows import SeenRows
    from pgtail.commands.output.directory_sink import DirectorySink
    from pgtail.outputs.base import OpenFile
    from pgtail.replication.plan import Plan

_BY_DEFAULT: Final = ("table", "line", "json", "json-tx")
"""The formats in which --changed takes seen values by default: in csv these are rows of their own."""


@contextlib.contextmanager
def open_target(file: str | None) -> Iterator[FileSink | DirectorySink]:
    """Standard output, a file, or a directory (an existing one, or any name that ends with /). Raises OutputError."""
    if file is not None and (file.endswith("/") or os.path.isdir(file)):
        from pgtail.commands.output.directory_sink import DirectorySink

        yield DirectorySink(file)
        return
    with open_sink(file) as sink:
        yield sink


def build_output(options: OutputOptions, sink: Sink, *, masked: bool, database: str = "") -> Output:
    """The output that the options ask for, to `sink`. Raises OptionError.

    `masked`: the values that it gets are masked. `database` is the name of the one being read, if known.
    """
    terminal = to_terminal(options.file)
    name = _format_name(options, terminal)
    format_ = FORMATS[name]
    _check_shows(options, name, format_)
    _check_options(options, name, format_, sink)
    resolved = replace(
        options,
        client=name in ("table", "line") if options.client is None else options.client,
        fill_unchanged=options.fill_unchanged or options.takes_seen,
        colored=wants_color(options.color, terminal=terminal),
        width=terminal_width(),
        paged=pager_in_use(),
        measure=terminal_width if terminal else None,
        database=database,
        open_file=_opener(sink),
    )
    if masked and name == "sql":
        raise OptionError("-o sql cannot be used with --redact: the statements would write the masks into a database")
    return open_output(name, _shown(sink, format_, colored=resolved.colored), resolved)


def is_in_order(options: OutputOptions) -> bool:
    """Whether the output must be written by one process; else several may write parts of it."""
    terminal = to_terminal(options.file)
    compressed = options.file is not None and options.file.endswith(GZIP)
    needs_all = options.takes_seen or options.columns or options.undo
    return bool(terminal or compressed or needs_all or FORMATS[_format_name(options, terminal)].in_order)


def with_old_values(options: OutputOptions) -> OutputOptions:
    """The same for an input that names the tables with every change: --changed then uses seen values."""
    name = _format_name(options, to_terminal(options.file))
    takes = options.changed and options.old_values is None and name in _BY_DEFAULT
    return replace(options, old_values="seen") if takes else options


def report_dropped(seen_rows: SeenRows | None, options: OutputOptions) -> None:
    """Report how many rows did not fit into the memory for them."""
    if seen_rows is not None and seen_rows.dropped:
        limit = size_text(options.old_values_limit)
        logger.info(
            f"{counted(seen_rows.dropped, 'row')} did not fit into {limit} (--old-values-limit):"
            " their old values were taken for unknown"
        )


def check_acknowledged(options: OutputOptions, plan: Plan, output: Output) -> None:
    """Check that nothing is acknowledged before it is written. Raises OptionError.

    A temporary slot is exempt: it does not outlive this run.
    """
    if plan.temporary or plan.ack == "none":
        return
    if options.undo and plan.ack == "commit":
        raise OptionError(
            "--undo writes at the end: with --ack commit, changes not yet written would be acknowledged; use"
            " --ack exit or --ack none"
        )
    if plan.decodes_two_phase and output.buffers_prepared:
        raise OptionError(
            f"-o {options.output} shows a prepared transaction when it is committed, but --ack {plan.ack} acknowledges"
            " it when it is prepared; use --ack none, or a slot created without two_phase"
        )


def _opener(sink: Sink) -> OpenFile | None:
    """The function that opens the file of a table, if the sink is a directory."""
    return getattr(sink, "open", None)


def _format_name(options: OutputOptions, terminal: bool) -> str:
    if options.format_string is not None:
        return TEMPLATE
    return options.output or ("table" if terminal else "json")


def _shown(sink: Sink, format_: Format, *, colored: bool) -> Sink:
    """The sink of a format; on a terminal, values cannot control it, and JSON is coloured."""
    if format_.hidden == "spelled out" or not (isinstance(sink, FileSink) and sink.on_terminal):
        return sink
    json = format_.hidden == "as they are in JSON"
    if json and colored:
        from pgtail.terminal.json_colors import ColoringSink

        return EscapingSink(ColoringSink(sink), json=True)
    return EscapingSink(sink, json=json)


def _check_shows(options: OutputOptions, name: str, format_: Format) -> None:
    """Formats of other programs cannot mark what was not committed. Raises OptionError."""
    asked = "--show-aborted" if options.show_aborted else "--show-uncommitted" if options.show_uncommitted else None
    if options.format_string is not None:
        if options.output is not None:
            raise OptionError(f"{TEMPLATE} replaces --output: give one of them")
        if asked and "%a" not in options.format_string:
            raise OptionError(f"{TEMPLATE} needs %a with {asked}, to mark what was not committed")
    elif asked and not format_.marks:
        raise OptionError(f"{asked}: only with -o {_formats_that_mark()}; this is {name}")


def _check_options(options: OutputOptions, name: str, format_: Format, sink: Sink) -> None:
    """Options that belong to another format. Raises OptionError."""
    for field, option in options_of(OutputOptions):
        if option.formats and name not in option.formats and getattr(options, field):
            raise OptionError(f"{option.long_name} belongs to -o {' and '.join(option.formats)}, not to {name}")
    if format_.whole_rows is not None and (options.columns or options.changed):
        asked = "--columns" if options.columns else "--changed"
        others = ", ".join([other for other, one in OUTPUTS.items() if one.whole_rows is None])
        raise OptionError(f"{asked} belongs to -o {others}, not to {name}: {format_.whole_rows}")
    if name == "sql" and options.old_values is not None and not options.undo:
        raise OptionError("--old-values belongs to --undo: other statements need no old values")
    if options.client and not format_.marks:
        raise OptionError(f"--client: only with -o {_formats_that_mark()}; this is {name}")
    if _opener(sink) is not None and name != "csv":
        raise OptionError(f"-f {options.file} is a directory: only csv writes one file per table")


def _formats_that_mark() -> str:
    return ", ".join([name for name, one in OUTPUTS.items() if one.marks])
