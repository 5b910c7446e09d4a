"""The table of `pgtail capture list`: a line for each segment and snapshot, with its contents below."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from pgtail.capture.contents import SegmentContents, TableContents
from pgtail.capture.format import TIMELINE, gap_in
from pgtail.capture.overview import SegmentOverview, SnapshotOverview
from pgtail.capture.state import NO_STATE, CaptureState
from pgtail.humanize import counted, grouped, size_text
from pgtail.local_time import zone_text
from pgtail.outputs.fields import local_minute
from pgtail.pgoutput.scalars import lsn_text
from pgtail.terminal.escape import escape
from pgtail.terminal.layout import GAP, Item, indented, padding, paragraph, sentence, width_of, wrap
from pgtail.terminal.style import Fragment

Line = list[Fragment]

_INDENT: Final = 4
_NAME: Final = 27
"""Cells of a segment's name."""
_SIZE: Final = 10
_TIME: Final = 16
_WIDTH: Final = _NAME + _SIZE + 2 * _TIME + 3 * GAP
"""Cells of a line with columns; on a narrower terminal their values stand side by side as far as there is room."""
_PARAMETERS: Final = {
    "slot": "pgtail.slot",
    "database": "pgtail.database",
    "publications": "pgtail.publications",
    "server": "server_version",
    "timeline": TIMELINE,
    "from": "pgtail.from",
}
"""What is shown of the parameters of segments: word -> name."""


class CaptureTable:
    """Makes the lines of a capture, each of at most `width` cells as far as names allow, and counts what they show."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._segments = self._size = self._gaps = self._missing = self._unknown = 0
        self._times: list[int] = []
        """The first and the last time of a commit."""

    def head(self, place: str, known: CaptureState) -> Iterator[Line]:
        """The facts about the whole capture, and the titles of the columns."""
        yield [(escape(place), "table")]
        if known is not NO_STATE:
            yield from self._below(_state_items(known))
        yield []
        if self._width >= _WIDTH:
            titles = ("SEGMENT", "SIZE", "FIRST COMMIT", "LAST COMMIT")
            yield [*_columns(*[(title, "dim") for title in titles])]

    def segment(self, overview: SegmentOverview) -> Iterator[Line]:
        """A segment of the stream."""
        self._segments += 1
        self._size += overview.file.size
        contents = overview.contents
        if overview.incomplete:
            self._missing += 1
            yield from self._words(f"segment {overview.missing} is missing here", "bad")
        elif overview.missing:
            yield from self._words(f"segment {overview.missing} came before it and is not here", "note")
        if contents is not None and (gap := gap_in(contents.parameters)):
            self._gaps += 1
            yield from self._words(f"gap: what was committed {gap} is not in the capture", "bad")
        times = () if contents is None else contents.times or ()
        self._times = [*self._times, *times]
        self._times = [min(self._times), max(self._times)] if self._times else []
        first, last = map(local_minute, times) if times else ("", "")
        yield from self._line(str(overview.file.name), overview.file.size, first, last)
        if overview.file.open:
            yield from self._words("not closed: it is being written, or its last transaction is not complete", "note")
        elif contents is None:
            self._unknown += 1
            why = "its end does not say what it contains: it is cut off, damaged, uncompressed or of an older version"
            yield from self._words(f"{why}; pgtail capture verify reads it", "warning")
        else:
            yield from self._below(_contents_items(contents))

    def snapshot(self, overview: SnapshotOverview) -> Iterator[Line]:
        """The snapshot of a table."""
        snapshot, segments = overview.snapshot, len(overview.snapshot.segments)
        self._size += snapshot.bytes
        self._segments += segments
        self._missing += overview.missing
        yield from self._line(str(snapshot.segments[0].name), snapshot.bytes, "", "")
        amount = f"{counted(snapshot.rows, 'row')} in {counted(segments, 'segment')}"
        yield from self._words(f"{snapshot}: {amount}", "snapshot")
        if overview.missing:
            yield from self._words(f"{counted(overview.missing, 'segment')} of it missing", "bad")
        if not overview.counts:
            yield from self._words("the stream has not reached it: it does not count yet", "note")

    def end(self, known: CaptureState, missing: str) -> Iterator[Line]:
        """The sums, after the name of the last segment if that is missing."""
        if missing:
            self._missing += 1
            yield from self._words(f"segment {missing} is missing here", "bad")
        self._gaps += known.gap is not None  # at the end: no segment has it yet
        bad = self._gaps or self._missing
        parts = [counted(self._segments, "segment"), size_text(self._size)]
        if known is not NO_STATE:
            parts.append(f"{'up to' if bad or self._unknown else 'complete up to'} {lsn_text(known.position)}")
        if self._times:
            first, last = self._times
            parts.append(f"committed {local_minute(first)} to {local_minute(last)}{zone_text(last)}")
        parts += [counted(self._gaps, "gap")] if self._gaps else []
        parts += [f"{counted(self._missing, 'segment')} missing"] if self._missing else []
        parts += [f"{counted(self._unknown, 'segment')} not known"] if self._unknown else []
        yield []
        yield from paragraph(", ".join(parts), "bad" if bad else "value", self._width)

    def _line(self, name: str, size: int, first: str, last: str) -> Iterator[Line]:
        cells = (name, "table"), (size_text(size), "value"), (first, "time"), (last, "time")
        if self._width >= _WIDTH:
            yield [*_columns(*cells)]
        else:
            yield from wrap([(cell,) for cell in cells if cell[0]], self._width)

    def _words(self, text: str, style: str) -> Iterator[Line]:
        return self._below([sentence(escape(text), style, self._width - _INDENT)])

    def _below(self, items: Iterator[Item] | list[Item]) -> Iterator[Line]:
        return indented(wrap(items, max(self._width - _INDENT, 20)), _INDENT)


def _columns(name: Fragment, size: Fragment, first: Fragment, last: Fragment) -> Iterator[Fragment]:
    yield from (name, padding(_NAME - width_of(name[0]) + GAP), padding(_SIZE - len(size[0])), size)
    if first[0]:
        yield from (padding(GAP), first, padding(_TIME - len(first[0]) + GAP), last)


def _state_items(known: CaptureState) -> Iterator[Item]:
    head: Mapping[str, str] = known.head
    for word, name in _PARAMETERS.items():
        if head.get(name):
            yield (f"{word} ", "name"), (escape(head[name]), "value")
    if known.pruned is not None:
        yield ((f"pruned up to {lsn_text(known.pruned.position)}", "note"),)
    if known.gap is not None:
        yield ((f"a gap at the end: {lsn_text(known.gap.start)} to {lsn_text(known.gap.end)}", "bad"),)


def _contents_items(contents: SegmentContents) -> Iterator[Item]:
    inside = contents.times is not None and not contents.transactions
    yield (("a part of a transaction" if inside else counted(contents.transactions, "transaction"), "value"),)
    if contents.messages:
        yield ((counted(contents.messages, "message"), "message"),)
    if contents.prepared:
        yield ((f"{len(contents.prepared)} prepared", "prepared"),)
    if contents.tables is None:
        yield (("tables: too many to be listed", "note"),)
    for table in contents.tables or ():
        changes = [*_changes(table)]
        if changes:
            yield (escape(f"{table.schema}.{table.table}"), "table"), *changes


def _changes(table: TableContents) -> Iterator[Fragment]:
    counts = (
        ("+", table.inserts, "insert"),
        ("~", table.updates, "update"),
        ("-", table.deletes, "delete"),
        ("truncated ", table.truncates, "truncate"),
    )
    for sign, count, style in counts:
        if count:
            yield from (padding(1), (f"{sign}{grouped(count)}", style))
