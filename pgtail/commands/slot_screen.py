"""`pgtail slot list`: one report, or one after another, as a table or as lines of JSON."""

from __future__ import annotations

import contextlib
import select
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from pgtail._orjson import orjson
from pgtail.commands.connect import connector_of
from pgtail.commands.options import ConnectionOptions, ReportOptions
from pgtail.commands.output import report_palette, to_terminal
from pgtail.commands.sinks import FileSink, open_sink
from pgtail.commands.slot_table import render
from pgtail.files.signals import Interrupt
from pgtail.files.stopping import Stoppable
from pgtail.postgres import catalog, slot_report
from pgtail.postgres.connection import Connector
from pgtail.postgres.slot_report import SlotReport
from pgtail.terminal.escape import escape_json
from pgtail.terminal.restore import SHOW_CURSOR, restored, write_if_taken
from pgtail.terminal.style import Palette

_ENTER: Final = b"\x1b[?1049h\x1b[?25l"
_LEAVE: Final = b"\x1b[m\x1b[?1049l" + SHOW_CURSOR
"""To a terminal's alternate screen without a cursor, and back."""
_HOME: Final = "\x1b[H"
_CLEAR_LINE, _CLEAR_SCREEN = "\x1b[K", "\x1b[J"
"""From the cursor to the end of the line, of the screen."""


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
    with Interrupt() as interrupt, _alternate_screen(sink) if paged else contextlib.nullcontext():
        while not interrupt.count:
            with contextlib.suppress(KeyboardInterrupt), interrupt.raising():
                text = _formatted(_reports(connector), palette)
                if paged:
                    text = _page(text, interval)
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


@contextlib.contextmanager
def _alternate_screen(sink: FileSink) -> Iterator[None]:
    """The terminal's alternate screen, so that the main one is unchanged afterwards."""
    with restored(lambda: write_if_taken(sink.fd, _LEAVE)):
        sink.write(_ENTER)
        sink.flush()
        yield


def _page(text: str, interval: float) -> str:
    """The text over the previous page, without flicker; lines that do not fit are counted."""
    lines = [f"every {interval:g} s, {time.strftime('%H:%M:%S')}; Ctrl-C ends it", "", *text.splitlines()]
    room = shutil.get_terminal_size((100, 24)).lines - 1
    if len(lines) > room:
        lines[room - 1 :] = [f"… {len(lines) - room + 1} more lines"]
    return _HOME + "".join([f"{line}{_CLEAR_LINE}\n" for line in lines]) + _CLEAR_SCREEN
