"""`pgtail.expect`: waits for changes in a test, as the command of that name."""

from __future__ import annotations

import contextlib
import time
from typing import Self, Unpack

from pgtail.api.arguments import FollowArguments, check_form, in_keywords, record_of, takes
from pgtail.api.follow import Stream, stream_options
from pgtail.api.records import Change
from pgtail.api.values import Form
from pgtail.commands.input.selection import build_redaction, filter_arguments
from pgtail.commands.options.server import StreamOptions
from pgtail.commands.stream.expectation import Expectation, what_came_instead
from pgtail.errors import OptionError, PgtailError
from pgtail.humanize import counted


class NotAsExpected(PgtailError, AssertionError):
    """The changes that pgtail.expect() waits for did not come in time; the message says what came instead."""


class _Endless(Expectation):
    """An expectation with which the stream does not end: what counts is what the program was given."""

    @property
    def met(self) -> bool:
        return False


class Expected:
    """Changes to wait for. Once it is entered, every later commit counts; leaving it waits, unless wait() did."""

    def __init__(self, stream: Stream, expectation: Expectation, timeout: float, conditions: str) -> None:
        self._stream, self._expectation = stream, expectation
        self._timeout, self._conditions = timeout, conditions
        self.changes: list[Change] = []
        """The changes that came until wait() ended."""

    @property
    def change(self) -> Change:
        """The last of them."""
        return self.changes[-1]

    def wait(self, timeout: float | None = None) -> Change:
        """Wait for the changes, at most so many seconds from now on; returns the last of them.

        Raises NotAsExpected, and PgtailError.
        """
        begun, count = time.monotonic(), self._expectation.count
        deadline = begun + (self._timeout if timeout is None else timeout)
        with contextlib.suppress(TimeoutError):
            while len(self.changes) < count and (transaction := self._stream.next(deadline - time.monotonic())):
                self.changes.extend(transaction)
        if len(self.changes) >= count:
            return self.change
        came = f"{len(self.changes)} of {counted(count, 'change')} came ({self._conditions})"
        instead = "; ".join([*self._stream.warnings, in_keywords(what_came_instead(self._expectation))])
        raise NotAsExpected(f"not as expected after {time.monotonic() - begun:.1f} s: {came}; {instead}")

    def __enter__(self) -> Self:
        self._stream.__enter__()
        return self

    def __exit__(self, kind: object, error: object, at: object) -> None:
        try:
            if error is None:
                self.wait()
        finally:
            self._stream.__exit__(kind, error, at)


@takes(FollowArguments, StreamOptions, "pgtail stream")
def expect(
    conninfo: str = "",
    *,
    count: int = 1,
    timeout: float = 30.0,
    values: Form = "python",
    **arguments: Unpack[FollowArguments],
) -> Expected:
    """Expect `count` changes that pass the filters: `with pgtail.expect(..., tables="orders") as expected:`, then act.

    Leaving the block waits for them, at most `timeout` seconds, or Expected.wait() inside of it. The other arguments
    are those of follow(). With a slot, changes that it retains count, too.
    """
    if count < 1:
        raise OptionError(f"count: {count} is not a positive number")
    options = stream_options(conninfo, record_of(StreamOptions, arguments))
    redaction = build_redaction(options.filter)
    expectation = _Endless(count, **filter_arguments(options.filter, redaction))
    given = {**arguments, **({"where": expectation.shown_conditions} if "where" in arguments else {})}
    conditions = ", ".join([f"{name}={value!r}" for name, value in given.items()]) or "any change"
    stream = Stream(options, expectation, redaction, check_form(values))
    return Expected(stream, expectation, timeout, conditions)
