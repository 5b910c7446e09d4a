"""Floor 7, `pgtail expect`: wait for changes, for tests and CI."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import click

from pgtail.cli.options import filter_options, output_options, verbose_option
from pgtail.cli.stream import Stream
from pgtail.cli.stream_options import connection_options, duration, publication_options, slot_option

if TYPE_CHECKING:
    from pgtail.cli.voice import Voice
    from pgtail.expectation import Expectation
    from pgtail.filters import Filter
    from pgtail.pipeline import Pipeline
    from pgtail.redaction import Redaction
    from pgtail.server.tail import Tail
    from pgtail.transaction import Change

_LONGEST: Final = 1000
"""Characters of a line that tells what came instead."""


@click.command("expect", context_settings={"help_option_names": ["--help"]})
@connection_options
@slot_option
@publication_options
@filter_options
@click.option(
    "--within", type=duration, metavar="TIME", default="30s", show_default=True, help="How long to wait, once ready."
)
@click.option(
    "--count", type=click.IntRange(min=1), default=1, show_default=True, help="Wait for so many changes, at least."
)
@output_options
@verbose_option
def command(**options: Any) -> None:
    """Wait for changes, for tests and CI.

    Ends with exit status 0 as soon as the changes came that the filters describe, and were committed; they are its
    output. Ends with 1, and says on standard error what came instead, if they did not come in time.

    "pgtail: ready" on standard error says that every commit from then on will be seen. With --slot, what the slot
    still holds counts too; nothing of it is consumed.

    \b
    pgtail expect shop -t orders --op update --where 'status = paid'
    pgtail expect shop -t 'audit.*' --count 3 -o table
    """
    from pgtail.cli.standard import ClosedPipe, exit_statuses

    with exit_statuses():
        expect = Expect(options)
        try:
            expect.run()
        except ClosedPipe:
            if expect.expectation.met:
                raise
        raise SystemExit(0 if expect.expectation.met else 1)


class Expect(Stream):
    """One run of the command."""

    def __init__(self, options: dict[str, Any]) -> None:
        from pgtail.cli.common import filter_arguments
        from pgtail.expectation import Expectation

        conditions = filter_arguments(options)  # what masks values is among the options from here on
        super().__init__({**options, "ack": "none", "seconds": options["within"]})
        self.expectation: Expectation = Expectation(options["count"], **conditions)
        self._since = time.monotonic()

    def _filter(self) -> Filter:
        return self.expectation

    def _ready(self, position: int, voice: Voice) -> None:
        from pgtail.wire.scalars import lsn_text

        self._since = time.monotonic()
        voice.tell(f"ready: every commit from {lsn_text(position)} on will be seen")

    def _enough(self, pipeline: Pipeline) -> bool:
        return self.expectation.met

    def _last_words(
        self, tail: Tail, pipeline: Pipeline, filter_: Filter, voice: Voice, *, written: bool = True
    ) -> None:
        from pgtail.cli.common import tell_filter

        expectation, after = self.expectation, f"after {time.monotonic() - self._since:.1f} s"
        if expectation.met:
            voice.tell(f"as expected, {after}: {_changes(expectation.came)}")
            return
        tell_filter(filter_, voice.tell)
        came = f"{expectation.came} came" if expectation.came else "none came"
        voice.tell(f"not as expected, {after}: {came} of {_changes(expectation.count)} ({self._conditions()})")
        voice.tell(_what_came_instead(expectation))

    def _conditions(self) -> str:
        """The filters, as they were given."""
        options = self._options
        given = [("-t", options["tables"]), ("--exclude", options["exclude"]), ("--op", options["ops"])]
        given += [("--xid", options["xids"]), ("--where", [f"'{where.shown}'" for where in self.expectation.where])]
        return " ".join([f"{name} {value}" for name, values in given for value in values]) or "any change"


def _changes(count: int) -> str:
    return f"{count} change{'s'[: count != 1]}"


def _what_came_instead(expectation: Expectation) -> str:
    """How many changes of what else, and the last of them as lines of JSON."""
    if not expectation.instead:
        return "nothing else came either"
    kinds = [f"{count} {op} {table}".strip() for (op, table), count in expectation.instead.most_common(10)]
    more = len(expectation.instead) - len(kinds)
    words = ", ".join(kinds) + (f", and {more} other kinds" if more else "")
    lines = [_line(change, expectation.redaction) for change in expectation.last_instead]
    return "\n".join([f"instead came {words}; the last ones:", *lines])


def _line(change: Change, redaction: Redaction | None) -> str:
    """A change as JSON, cut where it is very long."""
    import io

    from pgtail.outputs.base import OutputOptions
    from pgtail.outputs.ndjson import Json

    line = io.BytesIO()
    Json(line, OutputOptions()).event(change if redaction is None else redaction.event(change))
    text = line.getvalue().decode("utf-8", "backslashreplace").rstrip("\n")
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."
