"""`pgtail stats`: count the changes of dumps or of a slot, and report."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pgtail import __version__
from pgtail.commands.console.messages import collected, without_passwords
from pgtail.commands.console.pager import paged
from pgtail.commands.console.styling import report_json, report_palette, terminal_width, to_terminal
from pgtail.commands.decode.command import Decode
from pgtail.commands.input.selection import build_redaction
from pgtail.commands.options.common import DecodeOptions
from pgtail.commands.options.server import EndOptions, StatsOptions, StreamOptions
from pgtail.commands.output.file_sink import FileSink, check_appended, check_not_read, continue_file, open_sink
from pgtail.errors import InputError, OptionError, ServerError
from pgtail.outputs import OutputOptions
from pgtail.reading.names import check_readable
from pgtail.stats.collect import Statistics
from pgtail.stats.report_json import stats_json
from pgtail.stats.report_table import stats_table

if TYPE_CHECKING:
    from pgtail.terminal.style import Palette

_MAX_WARNINGS = 100
"""Warnings in the report."""
_NO_OUTPUT = OutputOptions(file=os.devnull, output="table")
"""The report is the only output, and comes at the end."""


def run(sources: tuple[str, ...], options: StatsOptions) -> bool:
    """Count and report; returns whether damage was skipped. Raises PgtailError and ClosedPipe."""
    try:
        return _run(sources, options)
    except InputError as error:
        if error.source in sources and not os.path.lexists(error.source):
            error.reason += "; of a database, pgtail stats needs --slot NAME, --for TIME or --watch"
        raise


def _run(sources: tuple[str, ...], options: StatsOptions) -> bool:
    file = options.report.file
    check_not_read(file, sources)
    stats = Statistics(build_redaction(options.filter))
    palette = report_palette(options.report)
    _check_page(options)
    if options.watch:
        from pgtail.commands.stats.slot import StatsWatch  # imports psycopg

        check_appended(file)
        stream = _stream_options(sources, options)
        with open_sink(file, append=True) as sink:
            if file not in (None, "-"):
                continue_file(sink)
            return StatsWatch(stream, stats, sink, options.report).run()
    count = _reader(sources, options, stats)
    # Opened first, so that an output that cannot be written is reported at once; emptied only when the report is ready.
    with open_sink(file, append=True) as sink:
        try:
            with collected(stats.warnings, _MAX_WARNINGS):
                damaged = count()
        except (InputError, ServerError) as error:
            stats.warnings.append(without_passwords(f"not read to the end: {error}"))
            if stats.tables or stats.transactions.count:
                _write(stats, options, sink, palette)
            raise
        _write(stats, options, sink, palette)
    return damaged


def _reader(sources: tuple[str, ...], options: StatsOptions, stats: Statistics) -> Callable[[], bool]:
    """The reader of the files or the slot. Raises OptionError, and InputError before a file would be created."""
    if options.request.slot is None and options.request.fork is None and options.seconds is None:
        if not sources:
            raise OptionError(
                "nothing to read: name FILEs, or a slot (--slot NAME); --for TIME and --watch read a temporary one"
            )
        if options.report.file is not None:
            check_readable(sources, options.dump.storage)
        stats.sources = [*map(without_passwords, sources)]
        return lambda: Decode(_decode_options(options), stats=stats).run(sources)
    from pgtail.commands.stats.slot import StatsSlot  # imports psycopg

    slot = options.request.slot or options.request.fork
    stats.sources = ["a temporary slot" if slot is None else f"slot {slot}"]
    return StatsSlot(_stream_options(sources, options), stats).run


def _check_page(options: StatsOptions) -> None:
    """Raises OptionError if a page cannot be shown where it would be written, or has no use for an option."""
    report = options.report
    if report.output != "html":
        if options.hot_keys:
            raise OptionError(f"--hot-keys belongs to -o html, not to {report.output}")
    elif options.watch:
        raise OptionError("--watch shows samples, which -o html does not: use -o table or -o json")
    elif to_terminal(report.file):
        raise OptionError("-o html is for a browser, not for a terminal: name a file, such as -f report.html")


def _check_slot_options(sources: tuple[str, ...], options: StatsOptions) -> None:
    if len(sources) > 1:
        raise OptionError("a slot is read from one database: give one DSN")
    for name, value in (
        ("input-format", options.dump.input_format),
        ("type", options.dump.types),
        ("storage", options.dump.storage.pairs),
        ("verify", options.dump.verify),
    ):
        if value:
            raise OptionError(f"--{name} is for dumps, not for a slot")


def _decode_options(options: StatsOptions) -> DecodeOptions:
    return DecodeOptions(
        format=_NO_OUTPUT,
        filter=options.filter,
        dump=options.dump,
        until=None if options.until == "now" else options.until,
        limit=options.limit,
        resync=options.resync,
        verbosity=options.verbosity,
    )


def _stream_options(sources: tuple[str, ...], options: StatsOptions) -> StreamOptions:
    _check_slot_options(sources, options)
    until = options.until or ("now" if options.seconds is None and not options.watch else None)
    return StreamOptions(
        connection=replace(options.connection, dsn=sources[0] if sources else options.connection.dsn),
        request=replace(options.request, ack="none"),
        end=EndOptions(until=until, seconds=options.seconds, reconnect=options.reconnect),
        format=_NO_OUTPUT,
        filter=options.filter,
        limit=options.limit,
        pager=False,  # the report has one
        verbosity=options.verbosity,
    )


def _write(stats: Statistics, options: StatsOptions, sink: FileSink, palette: Palette | None) -> None:
    """Write the report in these colours, or as JSON without; it replaces what the file contained."""
    file = options.report.file
    if file not in (None, "-"):
        with contextlib.suppress(OSError):  # a device or a pipe
            os.ftruncate(sink.fd, 0)
    with paged(options.pager and file is None):
        if options.report.output == "html":
            from pgtail.stats.report_html import html_page  # other reports do not load it

            sink.write(html_page(stats, __version__, keys=options.hot_keys).encode())
        elif palette is None:
            sink.write(report_json(stats_json(stats), options.report).encode())
        else:
            sink.write(stats_table(stats, palette, width=terminal_width()))
        sink.flush()
