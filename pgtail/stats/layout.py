"""The layout of reports: sections of aligned columns, and sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Final

from pgtail.terminal.layout import GAP, Item, bar, indented, item_width, padding, paragraph
from pgtail.terminal.report import table
from pgtail.terminal.style import Fragment

MARGIN: Final = 2
_MIN_WIDTH: Final = 40
"""The minimum width in cells: lines are not made narrower than this."""
_BAR: Final = 20

StyledLine = list[Fragment]


class ReportLayout:
    """Lays out lines of at most `width` cells (at least 40), `inner` of them beside the margin."""

    def __init__(self, width: int) -> None:
        self.width = max(width, _MIN_WIDTH)
        self.inner = self.width - MARGIN

    def columns(
        self, heads: Sequence[Fragment], rows: Sequence[Sequence[Item]], shares: Sequence[float] = ()
    ) -> Iterator[StyledLine]:
        """A table: the first column is left-aligned, the others are right-aligned.

        `shares` (0 to 1) are drawn as bars after the rows if there is room.
        """
        head, *lines = table(heads, rows, self.inner)
        width = max(map(item_width, [head, *lines]))
        room = min(self.inner - width - GAP, _BAR)
        yield from self.indented([head])
        for line, share in zip_longest(lines, shares if room > 0 else ()):
            drawn = bar(share or 0, room)
            space = padding(width - item_width(line) + GAP)
            yield from self.indented([[*line, space, (drawn, "lsn")] if drawn else line])

    def words(self, text: str, style: str = "note") -> Iterator[StyledLine]:
        yield from self.indented(paragraph(text, style, self.inner))

    def indented(self, lines: Iterable[StyledLine]) -> Iterator[StyledLine]:
        return indented(lines, MARGIN)
