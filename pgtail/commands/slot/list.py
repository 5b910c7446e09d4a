"""`pgtail slot list`: one report, or one after another, as a table or as lines of JSON."""

from __future__ import annotations

import contextlib
import select
import time
from datetime import UTC, datetime
from typing import NamedTuple

from pgtail.commands.connect import connector_of
from pgtail.commands.console.full_screen import INTERVAL, Screen
from pgtail.commands.console.messages import is_dumb
from pgtail.commands.console.styling import report_json, report_palette, terminal_width, to_terminal
from pgtail.commands.options.server import ListOptions
from pgtail.commands.output.file_sink import FileSink, open_sink
from pgtail.commands.slot.table import away_note, render
from pgtail.files.stopping import Interrupt, begin
from pgtail.log import log_outcome
from pgtail.postgres import catalog, slot_report
from pgtail.postgres.connection import SHORT_TIMEOUT, Connector
from pgtail.postgres.errors import Unreachable
from pgtail.postgres.pg_wal import PgWal, pg_wal
from pgtail.postgres.slot_report import SlotGrowth, SlotReport
from pgtail.terminal.escape import escape, json_line
from pgtail.terminal.style import Palette


class _Report(NamedTuple):
    """All slots, and the contents of pg_wal."""

    slots: list[SlotReport]
    wal: PgWal | None


def run(options: ListOptions) -> None:
    """Write one report, or with --watch one after another until Ctrl-C.

    Raises PgtailError and ClosedPipe.
    """
    connector, palette = connector_of(options.connection), report_palette(options.report)
    with open_sink(None) as sink:
        if not options.watch:
            begin()
            sink.show(_formatted(_report(connector), palette, options))
        else:
            with Interrupt() as interrupt, contextlib.suppress(KeyboardInterrupt):
                _watch(sink, connector, palette, options, interrupt)


def _watch(
    sink: FileSink, connector: Connector, palette: Palette | None, options: ListOptions, interrupt: Interrupt
) -> None:
    """Once the server was reached, wait for it whenever it is away. Raises KeyboardInterrupt when asked to stop."""
    growth = SlotGrowth()
    with interrupt.raising():
        report = _report(connector)  # before the screen changes: it may ask for a password
    report = report._replace(slots=growth.added(report.slots, time.monotonic()))
    screen = Screen(sink) if palette is not None and to_terminal() and not is_dumb() else None
    away: str | None = None
    unit = "line" if options.verbosity.verbose else "slot"
    with contextlib.nullcontext() if screen is None else screen.shown(interrupt):
        while True:
            if screen is not None and palette is not None:
                note = "" if away is None else away_note(away, palette, width=terminal_width())
                text = _formatted(report, palette, options, by_name=screen.keys.by_name)
                with interrupt.raising():  # also while the terminal is stopped (Ctrl-S)
                    screen.show(note + text, unit=unit)
            elif away is None:
                sink.show(_formatted(report, palette, options) + ("\n" if palette is not None else ""))
            woken = bool(select.select([interrupt], [], [], INTERVAL)[0])
            interrupt.clear()
            with interrupt.raising():
                if woken:
                    continue  # the order has changed
                before, (report, away) = away, _next(connector, growth, report, away)
            if screen is None and (before is None) != (away is None):
                log_outcome("connected again" if away is None else escape(away))


def _next(connector: Connector, growth: SlotGrowth, shown: _Report, away: str | None) -> tuple[_Report, str | None]:
    """The report to show, and since when the server is away; then it is that shown before."""
    try:
        slots, wal = _report(connector, connect_timeout=SHORT_TIMEOUT)
        return _Report(growth.added(slots, time.monotonic()), wal), None
    except Unreachable as error:
        since, reason = time.strftime("%Y-%m-%d %H:%M:%S"), error.reason.partition("\n")[0]
        return shown, away or f"the server is away since {since}; trying again: {reason}"


def _report(connector: Connector, *, connect_timeout: int | None = None) -> _Report:
    """The slots on a connection of its own: an idle one would delay a smart shutdown."""
    with connector.ordinary(connect_timeout=connect_timeout) as connection:
        slots = slot_report.reports(connection, catalog.server_facts(connection).major)
        return _Report(slots, pg_wal(connection, slots))


def _formatted(report: _Report, palette: Palette | None, options: ListOptions, *, by_name: bool = False) -> str:
    if palette is not None:
        return render(
            report.slots,
            report.wal,
            palette,
            width=terminal_width(),
            by_name=by_name,
            verbose=options.verbosity.verbose > 0,
        )
    now, wal = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"), report.wal
    size = None if wal is None else wal.size
    lines = [
        {"at": now, **one.facts, "pg_wal_bytes": size, "drop_frees_bytes": wal and wal.freed(one.slot.name)}
        for one in report.slots
    ]
    return report_json("".join(map(json_line, lines)), options.report)
