"""`pgtail expect`: wait for changes that pass a filter."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from pgtail.changes.filters import Filter
from pgtail.commands.input.selection import filter_arguments, filters, report_context, report_filter
from pgtail.commands.options.server import EndOptions, ExpectOptions, StreamOptions
from pgtail.commands.stream.command import STREAM_SPILLS_MORE, Stream, StreamSink
from pgtail.commands.stream.expectation import Expectation, what_came_instead
from pgtail.errors import OptionError, PgtailError
from pgtail.files.stopping import Interrupt
from pgtail.humanize import counted
from pgtail.log import log_outcome, log_summary
from pgtail.pgoutput.scalars import lsn_text
from pgtail.terminal.escape import shell_word

_PATIENCE: Final = 5.0
"""Seconds for the command to end when it is asked to."""


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
        log_outcome(what_came_instead(expectation))

    def _report_withheld(self) -> None:
        if not self.expectation.met:
            super()._report_withheld()

    def _conditions(self) -> str:
        """The filters, as they were given."""
        given = {one.names[0]: getattr(self._options.filter, name) for name, one in filters()}
        given["--where"] = tuple(map(shell_word, self.expectation.shown_conditions))
        several = {name: value if isinstance(value, tuple) else (value,) for name, value in given.items() if value}
        return " ".join([f"{name} {value}" for name, values in several.items() for value in values]) or "any change"
