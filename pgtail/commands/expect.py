"""`pgtail expect`: wait for changes that pass a filter."""

from __future__ import annotations

import io
import time
from typing import Final

from pgtail.changes.events import Change
from pgtail.changes.expectation import Expectation
from pgtail.changes.filters import Filter
from pgtail.changes.redaction import Redaction
from pgtail.commands.selection import filter_arguments, filters, tell_filter
from pgtail.commands.server_options import EndOptions, ExpectOptions, StreamOptions
from pgtail.commands.stream import Stream
from pgtail.errors import OptionError, PgtailError
from pgtail.humanize import counted
from pgtail.outputs import OutputOptions
from pgtail.outputs.ndjson import Json
from pgtail.pgoutput.scalars import lsn_text
from pgtail.records import replace

_LINE_LIMIT: Final = 1000
"""Characters of a line that shows an unexpected change."""


class Expect(Stream):
    """One run of the command; `expectation` says whether it was met."""

    def __init__(self, options: ExpectOptions) -> None:
        super().__init__(
            StreamOptions(
                connection=options.connection,
                request=replace(options.request, ack="none"),
                end=EndOptions(seconds=options.within, reconnect=options.reconnect),
                format=options.format,
                filter=options.filter,
                verbosity=options.verbosity,
            )
        )
        self.expectation = Expectation(options.count, **filter_arguments(options.filter, self._redaction))
        self._since = time.monotonic()

    def _make_filter(self) -> Filter:
        return self.expectation

    def _ready(self, position: int) -> None:
        self._since = time.monotonic()
        self._stderr.tell(f"ready: every commit from {lsn_text(position)} on will be seen")

    def _summarize(self, error: PgtailError | None = None) -> None:
        if self._tail.resume is None or isinstance(error, OptionError):
            return  # it was never ready, or could not test a change, and the error says why
        stderr, expectation, after = self._stderr, self.expectation, f"after {time.monotonic() - self._since:.1f} s"
        if expectation.met:
            stderr.inform(f"as expected, {after}: {counted(expectation.came, 'change')}")
            return
        tell_filter(expectation, stderr.tell)
        came = f"{expectation.came} came" if expectation.came else "none came"
        expected = counted(expectation.count, "change")
        unread = "; changes may be among those that were not read" if self._pipeline.gap else ""
        stderr.tell(f"not as expected, {after}: {came} of {expected} ({self._conditions()}){unread}")
        stderr.tell(_what_came_instead(expectation))

    def _conditions(self) -> str:
        """The filters, as they were given."""
        given = {one.names[0]: getattr(self._options.filter, name) for name, one in filters()}
        given["--where"] = tuple([f"'{text}'" for text in self.expectation.shown_conditions])
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
