"""`pgtail slot list`: one report, or one after another, as a table or as lines of JSON."""

from __future__ import annotations

import contextlib
import select
import time
from datetime import UTC, datetime
from typing import Final

from pgtail.commands.connect import connector_of
from pgtail.commands.console.full_screen import INTERVAL, Screen
from pgtail.commands.console.messages import say
from pgtail.commands.console.styling import report_json, report_palette, terminal_width, to_terminal
from pgtail.commands.options.server import ListOptions
from pgtail.commands.output.file_sink import FileSink, open_sink
from pgtail.commands.slot.table import away_note, render
from pgtail.files.stopping import Interrupt, begin
from pgtail.postgres import catalog, slot_report
from pgtail.postgres.connection import SHORT_TIMEOUT, Connector
from pgtail.postgres.errors import Unreachable
from pgtail.postgres.slot_growth import SlotGrowth
from pgtail.postgres.slot_report import SlotReport
from pgtail.terminal.escape import escape, json_line
from pgtail.terminal.style import Palette

_CRITICAL: Final = 10 << 30
"""Slots that retain so many bytes of WAL are red."""


def run(options: ListOptions) -> None:
    """Write one report, or with --watch one after another until Ctrl-C.

    Raises PgtailError and ClosedPipe.
    """
    connector, palette = connector_of(options.connection), report_palette(options.report)
    with open_sink(None) as sink:
        if not options.watch:
            begin()
            sink.show(_formatted(_reports(connector), palette, options))
        else:
            with Interrupt() as interrupt, contextlib.suppress(KeyboardInterrupt):
                _watch(sink, connector, palette, options, interrupt)


def _watch(
    sink: FileSink, connector: Connector, palette: Palette | None, options: ListOptions, interrupt: Interrupt
) -> None:
    """Once the server was reached, wait for it whenever it is away. Raises KeyboardInterrupt when asked to stop."""
    growth = SlotGrowth()
    with interrupt.raising():
        reports = _reports(connector)  # before the screen changes: it may ask for a password
    reports = growth.added(reports, time.monotonic())
    screen = Screen(sink) if palette is not None and to_terminal() else None
    away: str | None = None
    with contextlib.nullcontext() if screen is None else screen.shown():
        while True:
            if screen is not None and palette is not None:
                note = "" if away is None else away_note(away, palette, width=terminal_width())
                screen.show(note + _formatted(reports, palette, options))
            elif away is None:
                sink.show(_formatted(reports, palette, options) + ("\n" if palette is not None else ""))
            select.select([interrupt], [], [], INTERVAL)
            with interrupt.raising():
                before, (reports, away) = away, _next(connector, growth, reports, away)
            if screen is None and (before is None) != (away is None):
                say("connected again" if away is None else escape(away))


def _next(
    connector: Connector, growth: SlotGrowth, shown: list[SlotReport], away: str | None
) -> tuple[list[SlotReport], str | None]:
    """The reports to show, and since when the server is away; then they are those shown before."""
    try:
        return growth.added(_reports(connector, connect_timeout=SHORT_TIMEOUT), time.monotonic()), None
    except Unreachable as error:
        since, reason = time.strftime("%Y-%m-%d %H:%M:%S"), error.reason.partition("\n")[0]
        return shown, away or f"the server is away since {since}; trying again: {reason}"


def _reports(connector: Connector, *, connect_timeout: int | None = None) -> list[SlotReport]:
    """All slots, on a connection of its own: an idle one would delay a smart shutdown."""
    with connector.ordinary(connect_timeout=connect_timeout) as connection:
        return slot_report.reports(connection, catalog.server_facts(connection).major)


def _formatted(reports: list[SlotReport], palette: Palette | None, options: ListOptions) -> str:
    if palette is not None:
        return render(reports, palette, width=terminal_width(), critical=_CRITICAL)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return report_json("".join([json_line({"at": now, **report.facts}) for report in reports]), options.report)
