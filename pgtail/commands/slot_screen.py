"""`pgtail slot list`: one report, or one after another, as a table or as lines of JSON."""

from __future__ import annotations

import contextlib
import select
import shutil
from datetime import UTC, datetime

from pgtail._orjson import orjson
from pgtail.commands.connect import connector_of
from pgtail.commands.options import ConnectionOptions, ReportOptions
from pgtail.commands.output import report_palette, to_terminal
from pgtail.commands.screen import alternate_screen, page
from pgtail.commands.sinks import FileSink, open_sink
from pgtail.commands.slot_table import render
from pgtail.files.signals import Interrupt
from pgtail.files.stopping import Stoppable
from pgtail.postgres import catalog, slot_report
from pgtail.postgres.connection import Connector
from pgtail.postgres.slot_report import SlotReport
from pgtail.terminal.escape import escape_json
from pgtail.terminal.style import Palette


def run(connection: ConnectionOptions, options: ReportOptions, *, interval: float | None) -> None:
    """Write one report, or with an `interval` (seconds) one after another until Ctrl-C.

    Raises PgtailError and ClosedPipe.
    """
    connector, palette = connector_of(connection), report_palette(options)
    with open_sink(None) as sink:
        if interval is None:
            with Stoppable():
                _write(sink, _formatted(_reports(connector), palette))
        else:
            _watch(sink, connector, palette, interval)


def _watch(sink: FileSink, connector: Connector, palette: Palette | None, interval: float) -> None:
    paged = palette is not None and to_terminal()
    with Interrupt() as interrupt, alternate_screen(sink) if paged else contextlib.nullcontext():
        while not interrupt.count:
            with contextlib.suppress(KeyboardInterrupt), interrupt.raising():
                text = _formatted(_reports(connector), palette)
                if paged:
                    text = page(text, interval)
                elif palette is not None:
                    text += "\n"
                _write(sink, text)
            select.select([interrupt], [], [], interval)


def _reports(connector: Connector) -> list[SlotReport]:
    """All slots, on a connection of its own: an idle one would delay a smart shutdown."""
    with connector.ordinary() as connection:
        return slot_report.reports(connection, catalog.server_facts(connection).major)


def _write(sink: FileSink, text: str) -> None:
    sink.write(text.encode("utf-8", "backslashreplace"))
    sink.flush()


def _formatted(reports: list[SlotReport], palette: Palette | None) -> str:
    if palette is not None:
        return render(reports, palette, width=shutil.get_terminal_size((100, 24)).columns)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return "".join([escape_json(orjson.dumps({"at": now, **report.facts}).decode()) + "\n" for report in reports])
