"""Floor 7, the slots of a server on the screen or as lines of JSON, once or again and again."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from pgtail.cli.common import report_palette, to_terminal
from pgtail.cli.connecting import connector_of
from pgtail.cli.sinks import FileSink, open_sink
from pgtail.cli.slot_view import render
from pgtail.outputs.escape import in_json
from pgtail.outputs.table_style import Palette
from pgtail.server import facts, slotlist
from pgtail.server.connection import Connector
from pgtail.server.slotlist import SlotReport
from pgtail.unhurried import orjson

_OTHER_SCREEN: Final = (b"\x1b[?1049h\x1b[?25l", b"\x1b[?1049l\x1b[?25h")
"""To a terminal's second screen without a cursor, and back."""
_HOME: Final = "\x1b[H"
_REST_OF_LINE, _REST_OF_SCREEN = "\x1b[K", "\x1b[J"


def show(options: dict[str, Any]) -> None:
    """Write what the options of `slot list` ask for. Raises PgtailError, and ClosedPipe where nobody reads it."""
    connector = connector_of(options)
    terminal = to_terminal(options)
    palette = report_palette(options)
    with open_sink(None) as sink, contextlib.suppress(KeyboardInterrupt):
        if not options["watch"]:
            _write(sink, _json(_ask(connector)) if palette is None else _table(_ask(connector), palette))
            return
        with _screen(sink) if terminal and palette is not None else contextlib.nullcontext():
            while True:
                reports = _ask(connector)
                if palette is None:
                    _write(sink, _json(reports))
                elif terminal:
                    _write(sink, _page(_table(reports, palette), options["interval"]))
                else:
                    _write(sink, _table(reports, palette) + "\n")
                time.sleep(options["interval"])


def _ask(connector: Connector) -> list[SlotReport]:
    """On a connection that does not stay: an idle one would hold up a smart shutdown."""
    with connector.ordinary() as connection:
        return slotlist.reports(connection, facts.server_facts(connection).major)


def _write(sink: FileSink, text: str) -> None:
    sink.write(text.encode("utf-8", "backslashreplace"))
    sink.flush()


def _json(reports: list[SlotReport]) -> str:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return "".join([in_json(orjson.dumps({"at": now, **report.facts}).decode()) + "\n" for report in reports])


def _table(reports: list[SlotReport], palette: Palette) -> str:
    return render(reports, palette, width=shutil.get_terminal_size((100, 24)).columns)


@contextlib.contextmanager
def _screen(sink: FileSink) -> Iterator[None]:
    """The terminal's second screen, so that the first one is as it was before."""
    enter, leave = _OTHER_SCREEN
    sink.write(enter)
    try:
        yield
    finally:
        sink.write(leave)
        sink.flush()


def _page(text: str, interval: float) -> str:
    """A page over the one before, without flicker; what does not fit is counted."""
    lines = [f"every {interval:g} s, {time.strftime('%H:%M:%S')}; Ctrl-C ends it", "", *text.splitlines()]
    room = shutil.get_terminal_size((100, 24)).lines - 1
    if len(lines) > room:
        lines[room - 1 :] = [f"… {len(lines) - room + 1} more lines"]
    return _HOME + "".join([f"{line}{_REST_OF_LINE}\n" for line in lines]) + _REST_OF_SCREEN
