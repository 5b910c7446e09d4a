"""Templates show the same as the fields one by one: every capture, both views, many layouts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from pgtail.changes.redaction import Redaction
from pgtail.files.sink import Sink
from pgtail.hexview.fields import FieldDescriber
from pgtail.hexview.json_view import JsonView
from pgtail.hexview.rows import TemplateWriter
from pgtail.hexview.scope import Scope
from pgtail.hexview.text_view import TextView
from pgtail.hexview.views import MessageLocation, View
from pgtail.pgoutput.cursor import TracedCursor
from pgtail.pgoutput.decoder import AnyFrame, Decoder
from pgtail.terminal.values import ValueStyle
from pgtail.values import Types
from tests.support.corpus import Capture, captures
from tests.support.render import Sink as Memory

VIEWS: tuple[tuple[Callable[[Sink], View], int | None], ...] = (
    (JsonView, None),
    (lambda sink: TextView(sink, width=120, color=False, max_bytes=None), None),
    (lambda sink: TextView(sink, width=100, color=False, max_bytes=8), 8),
    (lambda sink: TextView(sink, width=160, color=True, max_bytes=40), 40),
    (lambda sink: TextView(sink, width=80, color=True, max_bytes=20), 20),
    (lambda sink: TextView(sink, width=70, color=False, max_bytes=None), None),
)
"""How to make a view, and the limit of its values."""

ENOUGH = 10
"""Messages of one kind about one table to compare in a capture; further rows are not decoded."""

_TAG = 25
"""The offset of a message's tag in its frame."""


class Both:
    """One view of messages by templates, and field by field."""

    def __init__(self, make: Callable[[Sink], View], limit: int | None, scope: Scope) -> None:
        self._by_templates, self._by_fields = Memory(), Memory()
        self._fields = FieldDescriber(scope, ValueStyle(limit), encoding="utf-8")
        self._rows = TemplateWriter(self._by_templates, make(self._by_templates), self._fields, scope)
        self._view = make(self._by_fields)
        self.taken = 0
        """How many messages were shown by templates."""

    def compare(self, place: MessageLocation, message: AnyFrame, frame: bytes, cursor: TracedCursor) -> None:
        place.relation = None
        if self._rows.show(place, message, frame, cursor.trace):
            described = list(self._fields.describe(frame, cursor.spans))
            place.relation = self._fields.relation
            self._view.message(place, frame, described)
            assert self._by_templates.text == self._by_fields.text
            self._by_templates.parts.clear()
            self._by_fields.parts.clear()
            self.taken += 1


def compared(source: Capture, redaction: Redaction | None) -> list[int]:
    """Show a capture in both ways; returns how many messages were shown by templates, for each view."""
    scope = Scope(Types(), redaction)
    views = [Both(make, limit, scope) for make, limit in VIEWS]
    cursor = TracedCursor()
    decoder = Decoder(cursor=cursor)
    seen: Counter[bytes] = Counter()
    offset = 0
    for number, frame in enumerate(source.frames(), 1):
        kind = frame[_TAG : _TAG + 5]  # and the table of a row
        seen[kind] += 1
        if kind[:1] not in b"IUD" or seen[kind] <= ENOUGH:
            message, lsn, _ = decoder.frame(frame, 0, len(frame))
            scope.enter(message)
            place = MessageLocation(number, type(message).__name__, offset, 0, len(frame), offset, lsn)
            for view in views if seen[kind] <= ENOUGH else ():
                view.compare(place, message, frame, cursor)
            scope.leave(message)
        offset += len(frame)
    return [view.taken for view in views]


@pytest.mark.parametrize("part", range(2))
def test_captures(part: int) -> None:
    """Half of the captures with masked columns."""
    step = 2 * 6
    taken = [compared(one, Redaction(["*a*"]) if part else None) for one in captures()[part::step]]
    assert min(map(sum, zip(*taken, strict=True))) > 500
