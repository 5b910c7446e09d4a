"""Floor 7, what commands have in common: errors to exit statuses, options to objects, bytes to files."""

from __future__ import annotations

import codecs
import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from pgtail.cli.standard import say
from pgtail.errors import OptionError

if TYPE_CHECKING:
    from pgtail.filters import Filter
    from pgtail.outputs.base import Output, OutputOptions, Sink
    from pgtail.outputs.table_style import Palette
    from pgtail.redaction import Redaction
    from pgtail.transaction import Note
    from pgtail.uncommitted import Show
    from pgtail.values import Types

TEMPLATE: Final = "--format-string"
SHOW_UNSETTLED: Final = ("table", "json", "json-tx")
"""The outputs that tell apart what was not committed."""


def wants_color(choice: str, *, terminal: bool) -> bool:
    """Whether to write colours: as asked, else on a terminal without NO_COLOR."""
    if choice != "auto":
        return choice == "always"
    return terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def to_terminal(options: Mapping[str, Any]) -> bool:
    """Whether a command without `file`, or with none given, writes to a terminal."""
    return options.get("file") is None and sys.stdout is not None and sys.stdout.isatty()


def palette_of(options: dict[str, Any], *, terminal: bool) -> Palette:
    """The colours that the options ask for. Raises OptionError."""
    from pgtail.outputs.table_style import palette

    return palette(color=wants_color(options["color"], terminal=terminal), colors=options["colors"] or "")


def report_palette(options: dict[str, Any]) -> Palette | None:
    """The colours of a report for people; None where the options, or a pipe, want JSON. Raises OptionError."""
    terminal = to_terminal(options)
    palette = palette_of(options, terminal=terminal)
    return palette if (options["output"] or ("table" if terminal else "json")) == "table" else None


def build_output(
    options: dict[str, Any], sink: Sink, *, tell: Callable[[str], None] = say, database: str = ""
) -> Output:
    """The output that the output options ask for, to `sink`; it is told no value that is masked. Raises OptionError.

    `tell` is for what the output has to say to a person, `database` the name of the one that is read, if known.
    """
    from pgtail.cli.formats import format_options
    from pgtail.outputs import open_output
    from pgtail.outputs.escape import escape

    terminal = to_terminal(options)
    name = TEMPLATE if options["format_string"] is not None else options["output"] or ("table" if terminal else "json")
    _check_shows(options, name)
    more = format_options(options, name, sink, database)
    made = replace(_output_options(options, terminal), tell=lambda text: tell(escape(text)), **more)
    output: Output = _template(sink, made) if name == TEMPLATE else open_output(name, _harmless(sink, name, tell), made)
    if name == "sql" and redaction_of(options) is not None:
        raise OptionError("-o sql is for a database to run, which would have masks for values: not with --redact")
    return masked(output, options)


def _template(sink: Sink, options: OutputOptions) -> Output:
    from pgtail.outputs.template import Template  # brings rich with it

    return Template(sink, options)


def _harmless(sink: Sink, output: str, tell: Callable[[str], None]) -> Sink:
    """The sink; where it is a terminal, with what keeps the output's values from driving it."""
    from pgtail.cli.sinks import FileSink
    from pgtail.outputs import OUTPUTS
    from pgtail.outputs.harmless import Harmless

    hidden = OUTPUTS[output].hidden
    if hidden == "spelled out" or not (isinstance(sink, FileSink) and os.isatty(sink.fd)):
        return sink
    return Harmless(sink, tell, json=hidden == "as they are in JSON")


def masked(output: Output, options: dict[str, Any]) -> Output:
    """The same output, told no value that the options mask."""
    redaction = redaction_of(options)
    if redaction is None:
        return output
    from pgtail.outputs.masked import Masked

    return Masked(output, redaction)


def _check_shows(options: dict[str, Any], output: str) -> None:
    """What was not committed must be told apart, and formats of others have no words for it. Raises OptionError."""
    asked = [name for name in ("--show-aborted", "--show-uncommitted") if options[name[2:].replace("-", "_")]]
    if output == TEMPLATE:
        if click.get_current_context().get_parameter_source("output") is ParameterSource.COMMANDLINE:
            raise OptionError(f"{TEMPLATE} stands in place of --output: give one of them")
        if asked and "%a" not in options["format_string"]:
            raise OptionError(f"{TEMPLATE}: with {asked[0]} it needs %a, which tells what was not committed")
    elif asked and output not in SHOW_UNSETTLED:
        raise OptionError(f"{asked[0]}: only with -o {', '.join(SHOW_UNSETTLED)}; this is {output}")


def show_of(options: dict[str, Any]) -> Show:
    """What is to be told of streamed transactions."""
    from pgtail.uncommitted import Show

    return Show(options["show_aborted"], options["show_uncommitted"])


def _output_options(options: dict[str, Any], terminal: bool) -> OutputOptions:
    from pgtail.outputs.base import OutputOptions

    return OutputOptions(
        fill_unchanged=options["fill_unchanged"],
        transactions=options["transactions"],
        schema_changes=options["schema_changes"],
        color=wants_color(options["color"], terminal=terminal),
        width=shutil.get_terminal_size((100, 24)).columns,
        max_width=options["max_width"],
        max_rows=options["max_rows"],
        colors=options["colors"] or "",
        highlight=options["highlight"],
        format=options["format_string"] or "",
    )


def build_filter(options: dict[str, Any]) -> Filter:
    """The filter that the filter options ask for. Raises OptionError."""
    from pgtail.filters import Filter

    return Filter(**filter_arguments(options))


def filter_arguments(options: dict[str, Any]) -> dict[str, Any]:
    """What the filter options say, as a Filter takes it. Raises OptionError."""
    from pgtail.filters import OPS

    ops = [op.strip() for text in options["ops"] for op in text.split(",") if op.strip()]
    for op in ops:
        if op not in OPS:
            raise OptionError(f"--op {op}: expected one of {', '.join(OPS)}")
    names = ("tables", "exclude", "xids", "where")
    return {"ops": ops, "redaction": redaction_of(options), **{name: options[name] for name in names}}


def redaction_of(options: dict[str, Any]) -> Redaction | None:
    """What masks values in this run of a command, if anything does; always the same one. Raises OptionError."""
    if "redaction" not in options:
        options["redaction"] = _build_redaction(options["redact"], options["redact_hash"], options["redact_key_file"])
    found: Redaction | None = options["redaction"]
    return found


def _build_redaction(columns: Sequence[str], hashed: bool, file: str | None) -> Redaction | None:
    if not columns:
        if hashed:
            raise OptionError("--redact-hash: --redact says which columns are masked")
        return None
    if hashed and file is None:
        raise OptionError(
            "--redact-hash needs --redact-key-file FILE: without a key values could be guessed from their hashes;"
            " `head -c 32 /dev/urandom > FILE` makes one"
        )
    from pgtail.redaction import Redaction

    return Redaction(columns, _key(file) if hashed and file is not None else None)


def _key(file: str) -> bytes:
    try:
        with open(os.path.expanduser(file), "rb") as key:
            return key.read()
    except OSError as error:
        raise OptionError(f"--redact-key-file {file}: {error.strerror}") from error


@contextlib.contextmanager
def no_quotes(options: dict[str, Any]) -> Iterator[None]:
    """Errors quote no part of a value where values are masked."""
    from pgtail.errors import InputError, ServerError
    from pgtail.redaction import WITHHELD, without_quotes

    try:
        yield
    except ServerError as error:
        if error.quotes and redaction_of(options) is not None:
            error.reason = WITHHELD
        raise
    except InputError as error:
        if redaction_of(options) is not None:
            error.reason = without_quotes(error.reason)
        raise


def build_types(*, encoding: str, numbers: str, declared: Sequence[str]) -> Types:
    """The types of one stream, with the enums of `--type NAME=enum`. Raises OptionError."""
    from pgtail.values import Types

    if not _holds_ascii(encoding):
        raise OptionError(f"--encoding {encoding}: no encoding of PostgreSQL; utf-8, latin1 or cp1252 are examples")
    enums = []
    for text in declared:
        name, _, kind = text.rpartition("=")
        if not name or kind != "enum":
            raise OptionError(f"--type {text}: expected NAME=enum")
        enums.append(name)
    return Types(encoding=encoding, numbers="string" if numbers == "string" else "exact", enums=enums)


def _holds_ascii(encoding: str) -> bool:
    """Whether ASCII means itself there, as in every encoding of PostgreSQL: not so in UTF-16, escapes and the like."""
    probe = bytes(range(0x80)) + b"\\ud800+2AA-~{\x1b$B!!"
    try:
        same = probe.decode(encoding) == probe.decode("ascii") and b"xn--p1ai".decode(encoding) == "xn--p1ai"
    except (LookupError, ValueError):
        return False
    return same and codecs.lookup(encoding).name != "utf-8-sig"


def tell_note(note: Note, source: str | None = None, tell: Callable[[str], None] = say) -> None:
    """A note on standard error, with its place."""
    from pgtail.outputs.escape import escape

    place = [part for part in (source, None if note.offset is None else f"byte {note.offset}") if part]
    tell(escape(": ".join(["note", *place, note.text])))


def tell_filter(filter_: Filter, tell: Callable[[str], None] = say) -> None:
    """What a filter could not decide, and what was to be masked but was not there, at the end."""
    from pgtail.outputs.escape import escape

    if filter_.not_sent:
        rows = "1 row" if filter_.not_sent == 1 else f"{filter_.not_sent} rows"
        tell(f"note: --where could not be tested on {rows}: the server did not send the value")
    for condition in filter_.where:
        if filter_.a_table_came and not condition.column_seen and not filter_.no_table_passed:
            tell(escape(f"note: no table had a column {condition.column} (--where {condition.shown})"))
    if filter_.redaction is not None:
        from pgtail.cli.settings import settings

        usual = settings(click.get_current_context()).get("redact")
        for text in filter_.redaction.unused:
            if usual is None or text not in str(usual.value):  # that is about other dumps as well
                tell(escape(f"note: no table had a column {text} (--redact)"))
