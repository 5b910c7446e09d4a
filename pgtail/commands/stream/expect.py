"""`pgtail expect`: wait for changes that pass a filter."""

from __future__ import annotations

import contextlib
import io
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from pgtail.changes.events import Change, LogicalMessage, Outcome
from pgtail.changes.filters import Filter
from pgtail.changes.redaction import Redaction
from pgtail.commands.input.selection import filter_arguments, filters, report_context, report_filter
from pgtail.commands.options.server import EndOptions, ExpectOptions, StreamOptions
from pgtail.commands.stream.command import STREAM_SPILLS_MORE, Stream, StreamSink
from pgtail.errors import OptionError, PgtailError
from pgtail.files.stopping import Interrupt
from pgtail.humanize import counted
from pgtail.log import log_outcome, log_summary
from pgtail.outputs import OutputOptions
from pgtail.outputs.ndjson import Json
from pgtail.pgoutput.scalars import lsn_text
from pgtail.terminal.escape import shell_word

KEPT: Final = 5
"""How many of the changes that did not pass are kept."""


class Expectation(Filter):
    """Met after `count` changes passed; `conditions` are those of Filter.

    `instead` counts the other changes by (operation, table).
    """

    def __init__(self, count: int, **conditions: Any) -> None:
        super().__init__(**conditions)
        self.count = count
        self.came = 0
        self.instead: Counter[tuple[str, str]] = Counter()
        self._near: deque[Change] = deque(maxlen=KEPT)
        self._far: deque[Change] = deque(maxlen=KEPT)

    @property
    def active(self) -> bool:
        return True

    @property
    def needs_events(self) -> bool:
        return True

    @property
    def met(self) -> bool:
        """Whether enough changes passed."""
        return self.came >= self.count

    @property
    def last_instead(self) -> list[Change]:
        """The last changes that did not pass: of the requested tables, or else of any table."""
        return [*(self._near or self._far)]

    def passes(self, change: Change) -> bool:
        passed = super().passes(change)
        if not _settled(change):
            return passed  # shown if it passes, but not counted: it is not committed
        if passed:
            self.came += 1
        elif isinstance(change, LogicalMessage):
            self.instead[change.op, ""] += 1
            self._far.append(_kept(change))
        else:
            self.instead[change.op, change.relation.qualified] += 1
            (self._near if self.table_passes(change.relation) else self._far).append(_kept(change))
        return passed

    def outcome_passes(self, outcome: Outcome, shown: bool | None = None) -> bool:
        passed = super().outcome_passes(outcome, shown)
        if not passed:
            self.instead[outcome.op, ""] += 1
        elif self._passes_by_itself(outcome, None):  # else it is shown beside a change that counted
            self.came += 1
        return passed


def _kept(change: Change) -> Change:
    """The change with the context that it has now: its transaction may get another one."""
    transaction = change.transaction
    if transaction is None or transaction.context is None:
        return change
    return replace(change, transaction=replace(transaction))


def _settled(change: Change) -> bool:
    """Whether a change was committed or prepared."""
    return not change.aborted and (change.transaction is None or change.transaction.settled)


_PATIENCE: Final = 5.0
"""Seconds for the command to end when it is asked to."""
_LINE_LIMIT: Final = 1000
"""Characters of a line that shows an unexpected change."""


class Expect(Stream):
    """One run; `succeeded` says whether all was as expected. `command` starts once changes can be seen.

    Raises OptionError if there is no such command.
    """

    _name = "expect"
    _spool_cure = STREAM_SPILLS_MORE

    def __init__(self, options: ExpectOptions, command: Sequence[str] = ()) -> None:
        if command and shutil.which(command[0]) is None:
            raise OptionError(f"there is no command {command[0]}")
        super().__init__(
            StreamOptions(
                connection=options.connection,
                request=replace(options.request, ack="none"),
                end=EndOptions(seconds=options.timeout, reconnect=options.reconnect),
                format=options.format,
                filter=options.filter,
                verbosity=options.verbosity,
            )
        )
        self.expectation = Expectation(options.count, **filter_arguments(options.filter, self._redaction))
        self._since = time.monotonic()
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._watching = threading.Thread(target=self._watch, name="command", daemon=True)
        self._failed = False
        """Whether the command failed, or was stopped."""

    @property
    def succeeded(self) -> bool:
        """Whether the changes came, and the command, if there was one, ended well."""
        return self.expectation.met and not self._failed

    def _follow(self, sink: StreamSink, interrupt: Interrupt) -> bool:
        self._interrupt = interrupt
        try:
            return super()._follow(sink, interrupt)
        finally:
            if self._process is not None:
                self._end_command(self._process, interrupt)

    def _make_filter(self) -> Filter:
        return self.expectation

    def _ready(self, position: int) -> None:
        self._since = time.monotonic()
        log_outcome(f"ready: every commit from {lsn_text(position)} on will be seen")
        if self._command:
            self._start_command()

    def _start_command(self) -> None:
        """Start the command. It writes to standard error: standard output has the changes. Raises OptionError."""
        try:
            self._process = subprocess.Popen(self._command, stdout=sys.stderr or subprocess.DEVNULL)
        except OSError as error:
            raise OptionError(f"cannot start {self._command[0]}: {error.strerror}") from None
        self._watching.start()

    def _watch(self) -> None:
        """If the command fails, say so, and wait only for what was committed before."""
        assert self._process is not None
        status = self._process.wait()
        if status and not self._failed:
            self._failed = True
            how = f"exit status {status}" if status > 0 else signal.strsignal(-status) or f"signal {-status}"
            stopped = self._interrupt.count or status == -signal.SIGINT  # Ctrl-C is for both
            log_outcome(f"{self._command[0]} {'was stopped' if stopped else f'failed: {how}'}")
            self._tail.end_now()

    def _end_command(self, process: subprocess.Popen[bytes], interrupt: Interrupt) -> None:
        """Wait for the command; stop it if the expected changes did not come, or if pgtail is to stop."""
        if self.expectation.met:
            with contextlib.suppress(KeyboardInterrupt), interrupt.raising():
                process.wait()
        if process.poll() is None:
            self._failed = True
            process.terminate()
            try:
                process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
            log_outcome(f"{self._command[0]} was stopped")
        self._watching.join()

    def _summarize(self, error: PgtailError | None = None) -> None:
        if self._tail.resume is None or isinstance(error, OptionError):
            return  # it was never ready, or could not test a change, and the error says why
        expectation, after = self.expectation, f"after {time.monotonic() - self._since:.1f} s"
        if expectation.met:
            log_summary(f"as expected, {after}: {counted(expectation.came, 'change')}")
            return
        report_filter(expectation)
        report_context(self._options.filter, self._pipeline.seen)
        came = f"{expectation.came} of {counted(expectation.count, 'change')} came"
        unread = "; changes may be among those that were not read" if self._pipeline.gap else ""
        log_outcome(f"not as expected, {after}: {came} ({self._conditions()}){unread}")
        log_outcome(_what_came_instead(expectation))

    def _report_withheld(self) -> None:
        if not self.expectation.met:
            super()._report_withheld()

    def _conditions(self) -> str:
        """The filters, as they were given."""
        given = {one.names[0]: getattr(self._options.filter, name) for name, one in filters()}
        given["--where"] = tuple(map(shell_word, self.expectation.shown_conditions))
        several = {name: value if isinstance(value, tuple) else (value,) for name, value in given.items() if value}
        return " ".join([f"{name} {value}" for name, values in several.items() for value in values]) or "any change"


def _what_came_instead(expectation: Expectation) -> str:
    """The number of other changes by kind, and the last of them as lines of JSON."""
    if not expectation.instead:
        return "nothing else came either"
    kinds = [f"{count} {op} {table}".strip() for (op, table), count in expectation.instead.most_common(10)]
    more = len(expectation.instead) - len(kinds)
    words = ", ".join(kinds) + (f", and {more} other kinds" if more else "")
    lines = [_line(change, expectation.redaction) for change in expectation.last_instead]
    return "\n".join([f"instead came {words}{'; the last ones:' if lines else ''}", *lines])


def _line(change: Change, redaction: Redaction | None) -> str:
    """A change as JSON, cut if it is very long."""
    line = io.BytesIO()
    Json(line, OutputOptions()).event(change if redaction is None else redaction.event(change))
    text = line.getvalue().decode("utf-8", "backslashreplace").rstrip("\n")
    return text if len(text) <= _LINE_LIMIT else text[:_LINE_LIMIT] + "..."
