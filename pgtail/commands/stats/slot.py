"""`pgtail stats` of a slot, and --watch: what is written now, as a screen or as lines of JSON, until Ctrl-C."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from logging.handlers import BufferingHandler
from typing import Final, Protocol

from pgtail.commands.console.full_screen import HEAD, INTERVAL, Screen
from pgtail.commands.console.messages import handled_by, is_dumb
from pgtail.commands.console.stderr_thread import StderrThread
from pgtail.commands.console.styling import report_json, report_palette, to_terminal
from pgtail.commands.input.selection import report_filter
from pgtail.commands.options.common import ReportOptions
from pgtail.commands.options.server import StreamOptions
from pgtail.commands.output.file_sink import FileSink
from pgtail.commands.stream.command import STREAM_SPILLS_MORE, Stream, StreamSink
from pgtail.errors import PgtailError
from pgtail.files.spool import SpoolLimit
from pgtail.local_time import clock
from pgtail.log import SUMMARY, logger
from pgtail.outputs.base import Output
from pgtail.replication.plan import Plan
from pgtail.replication.probe import Probe
from pgtail.replication.queue import FrameQueue
from pgtail.replication.render_thread import Rendering, RenderThread
from pgtail.stats.collect import Statistics
from pgtail.stats.report_json import top_json
from pgtail.stats.top import Position, Sample, Top
from pgtail.stats.top_table import top_table
from pgtail.terminal.keys import Keys

_MESSAGES: Final = 100
"""Messages that are written after the screen was shown, at most."""


class _Show(Protocol):
    """Shows the counts up to a position, or `again` the last ones; the last call is at the end."""

    def __call__(self, position: int, /, *, last: bool = False, again: bool = False) -> None: ...


class _WatchThread(RenderThread):
    """Counts, and calls `show` (with the position) every INTERVAL seconds, at the end, and when the order changes."""

    idle_timeout = 0.1

    def __init__(self, rendering: Rendering, queue: FrameQueue, show: _Show, keys: Keys, *, position: int) -> None:
        super().__init__(rendering, queue, position=position)
        self._show = show
        self._keys, self._by_name = keys, keys.by_name
        self._due = time.monotonic() + INTERVAL

    @property
    def status_always(self) -> bool:
        return False

    def _batch(self, frames: bytes) -> None:
        super()._batch(frames)
        self._show_if_due()

    def _tick(self) -> None:
        super()._tick()
        self._show_if_due()

    def _end(self) -> None:
        super()._end()
        self._show(self.position, last=True)

    def _show_if_due(self) -> None:
        now = time.monotonic()
        if now >= self._due:
            self._due = now + INTERVAL
            self._show(self.position)
        elif self._by_name != self._keys.by_name:
            self._show(self.position, again=True)
        self._by_name = self._keys.by_name


class StatsSlot(Stream):
    """Reads a slot into statistics, and writes nothing."""

    _name = "stats"
    _masks = False  # masked values would all compare equal
    _spool_cure = STREAM_SPILLS_MORE

    def __init__(self, options: StreamOptions, stats: Statistics) -> None:
        super().__init__(options, stats.redaction)
        self._stats = stats

    def _output(self, sink: StreamSink, plan: Plan, spool: SpoolLimit) -> Output:
        return self._stats

    def _summarize(self, error: PgtailError | None = None) -> None:
        report_filter(self._filter)


class StatsWatch(StatsSlot):
    """Shows samples of the statistics, as a table or lines of JSON."""

    def __init__(self, options: StreamOptions, stats: Statistics, sink: FileSink, report: ReportOptions) -> None:
        super().__init__(options, stats)
        self._sink = sink
        self._report, self._palette = report, report_palette(report)
        screen = self._palette is not None and sink.on_terminal and to_terminal() and not is_dumb()
        self._screen = Screen(sink) if screen else None
        self._shown = contextlib.ExitStack()
        self._kept = BufferingHandler(sys.maxsize)
        """Messages while the screen is shown: the screen shows the last one, and the last ones are written after it."""
        if not options.verbosity.verbose:
            self._kept.setLevel(SUMMARY)  # no details, although it is a terminal

    def run(self) -> bool:
        """Count and show until the end, as Stream.run()."""
        try:
            with self._shown:
                return super().run()
        finally:
            for record in self._kept.buffer[-_MESSAGES:]:
                logger.handle(record)

    def _open_messages(self) -> contextlib.AbstractContextManager[StderrThread | None]:
        if self._screen is not None:
            return handled_by(self._kept)
        quiet = self._options.verbosity.quiet or self._report.file in (None, "-")  # then the output says it
        return StderrThread(quiet=quiet)

    def _render_thread(self, rendering: Rendering, queue: FrameQueue, position: int) -> RenderThread:
        if self._screen is not None:  # not before: the connection may have asked for a password
            self._shown.enter_context(self._screen.shown())
        lag = Probe(self._connector, pause=INTERVAL)
        lag.poll()
        kept = self._kept
        top = Top(self._stats, time.monotonic())

        sample: Sample | None = None

        def show(reached: int, *, last: bool = False, again: bool = False) -> None:
            nonlocal sample
            if last and self._screen is not None and not self._screen.empty:
                return  # its rates would be those of an instant
            if sample is None or not again:
                sample = top.sample(time.monotonic(), Position(reached, lag.answer, self._pipeline.unfinished))
                lag.poll()
            text = self._text(sample)
            if self._screen is not None:
                self._screen.show(text, f"\n{kept.format(kept.buffer[-1])}\n" if kept.buffer else "")
            else:
                self._sink.show(text)

        keys = Keys() if self._screen is None else self._screen.keys
        return _WatchThread(rendering, queue, show, keys, position=position)

    def _text(self, sample: Sample) -> str:
        if self._palette is None:
            return report_json(top_json(self._stats, sample, now=clock()), self._report)
        size = shutil.get_terminal_size((100, 24))
        room = size.lines - HEAD - 2
        by_name = self._screen is not None and self._screen.keys.by_name
        text = top_table(
            self._stats, sample, self._palette, width=size.columns, height=room, now=clock(), by_name=by_name
        )
        return text if self._screen is not None else f"{text}\n"
