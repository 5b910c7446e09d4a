"""`pgtail stats` of a slot, and --watch: what is written now, as a screen or as lines of JSON, until Ctrl-C."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections import deque
from typing import Final, Protocol

from pgtail.commands.console.full_screen import HEAD, INTERVAL, Screen
from pgtail.commands.console.messages import StderrThread
from pgtail.commands.console.styling import report_json, report_palette, to_terminal
from pgtail.commands.input.selection import tell_filter
from pgtail.commands.options.common import ReportOptions
from pgtail.commands.options.server import StreamOptions
from pgtail.commands.output.file_sink import FileSink
from pgtail.commands.stream.command import STREAM_SPILLS_MORE, Stream, StreamSink
from pgtail.errors import PgtailError
from pgtail.files.spool import SpoolLimit
from pgtail.local_time import clock
from pgtail.outputs.base import Output
from pgtail.replication.plan import Plan
from pgtail.replication.probe import Probe
from pgtail.replication.queue import FrameQueue
from pgtail.replication.render_thread import Rendering, RenderThread
from pgtail.stats.collect import Statistics
from pgtail.stats.report_json import top_json
from pgtail.stats.top import Position, Sample, Top
from pgtail.terminal.keys import Keys

_MESSAGES: Final = 100
"""Messages that are kept while the screen is shown."""


class _KeptMessages(StderrThread):
    """Keeps messages while the screen is shown; the screen shows the last one, and all are printed after it."""

    def __init__(self, verbosity: int) -> None:
        super().__init__(verbosity)
        self.wants_status, self._wants_detail = False, verbosity > 0
        self.kept: deque[str] = deque(maxlen=_MESSAGES)

    def _put(self, line: str) -> None:
        self.kept.append(line)


class _Show(Protocol):
    """Shows what was counted up to a position, or `again` what it showed; the last call is the one at the end."""

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
        tell_filter(self._filter, self._stderr.tell)


class StatsWatch(StatsSlot):
    """Shows samples of the statistics, as a table or lines of JSON."""

    def __init__(self, options: StreamOptions, stats: Statistics, sink: FileSink, report: ReportOptions) -> None:
        super().__init__(options, stats)
        self._sink = sink
        self._report, self._palette = report, report_palette(report)
        screen = self._palette is not None and sink.on_terminal and to_terminal()
        self._screen = Screen(sink) if screen else None
        self._shown = contextlib.ExitStack()
        self._messages: deque[str] = deque()

    def run(self) -> bool:
        """Count and show until the end, as Stream.run()."""
        try:
            with self._shown:
                return super().run()
        finally:
            if self._messages and sys.stderr is not None:
                sys.stderr.write("".join([f"{line}\n" for line in self._messages]))

    def _open_stderr(self) -> StderrThread:
        if self._screen is None:
            stderr = super()._open_stderr()
            stderr.wants_status = stderr.wants_status and self._report.file not in (None, "-")  # the output says it
            return stderr
        kept = _KeptMessages(self._options.verbosity.verbose)
        self._messages = kept.kept
        return kept

    def _render_thread(self, rendering: Rendering, queue: FrameQueue, position: int) -> RenderThread:
        if self._screen is not None:  # not before: the connection may have asked for a password
            self._shown.enter_context(self._screen.shown())
        lag = Probe(self._connector, pause=INTERVAL)
        lag.poll()
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
                self._screen.show(text, f"\n{self._messages[-1]}\n" if self._messages else "")
            else:
                self._sink.show(text)

        keys = Keys() if self._screen is None else self._screen.keys
        return _WatchThread(rendering, queue, show, keys, position=position)

    def _text(self, sample: Sample) -> str:
        if self._palette is None:
            return report_json(top_json(self._stats, sample, now=clock()), self._report)
        from pgtail.stats.top_table import top_table  # not for JSON

        size = shutil.get_terminal_size((100, 24))
        room = size.lines - HEAD - 2
        by_name = self._screen is not None and self._screen.keys.by_name
        text = top_table(
            self._stats, sample, self._palette, width=size.columns, height=room, now=clock(), by_name=by_name
        )
        return text if self._screen is not None else f"{text}\n"
