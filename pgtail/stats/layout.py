"""The layout of reports: sections of aligned columns, and sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pgtail.terminal.layout import (
    GAP,
    SPACE,
    Item,
    bar,
    fit_end,
    indented,
    item_width,
    padding,
    paragraph,
    width_of,
    wrap,
)
from pgtail.terminal.style import Fragment

MARGIN: Final = 2
_MIN_WIDTH: Final = 40
"""The minimum width in cells: lines are not made narrower than this."""
_COLUMNS_WIDTH: Final = 80
"""In narrower terminals (in cells) the other columns go below the first if they do not fit beside it."""
_BAR: Final = 20
_MIN_NAME_WIDTH: Final = 12

StyledLine = list[Fragment]


class ReportLayout:
    """Lays out lines of at most `width` cells (at least 40), `inner` of them beside the margin."""

    def __init__(self, width: int) -> None:
        self.width = max(width, _MIN_WIDTH)
        self.inner = self.width - MARGIN

    def columns(
        self, heads: Sequence[Fragment], rows: Sequence[Sequence[Item]], shares: Sequence[float] = ()
    ) -> Iterator[StyledLine]:
        """A table: the first column is left-aligned and cut if there is no room, the others are right-aligned.

        `shares` (0 to 1) are drawn as bars after the rows if there is room.
        """
        table = [[(head,) for head in heads], *rows]
        widths = [max([item_width(row[column]) for row in table]) for column in range(len(heads))]
        others = sum(widths[1:]) + GAP * (len(heads) - 1)
        if self.width < _COLUMNS_WIDTH and widths[0] + others > self.inner:
            yield from self._stacked(heads, rows)
            return
        widths[0] = min(widths[0], max(self.inner - others, _MIN_NAME_WIDTH))
        room = min(self.inner - widths[0] - others - GAP, _BAR)
        bars = ["", *[bar(share, room) for share in shares]] if shares and room > 0 else [""] * len(table)
        for row, drawn in zip(table, bars, strict=True):
            first = _cut(row[0], widths[0])
            line: StyledLine = [padding(MARGIN), *first, padding(widths[0] - item_width(first))]
            for item, width in zip(row[1:], widths[1:], strict=True):
                line += [padding(GAP + width - item_width(item)), *item]
            yield [*line, padding(GAP), (drawn, "lsn")] if drawn else line

    def _stacked(self, heads: Sequence[Fragment], rows: Sequence[Sequence[Item]]) -> Iterator[StyledLine]:
        """The same for narrow terminals: the values of the other columns go below the first, with their names."""
        yield from self.words(*heads[0])
        for first, *others in rows:
            yield from self.indented(wrap([first], self.inner))
            named = [(head, SPACE, *item) for head, item in zip(heads[1:], others, strict=True)]
            yield from indented(wrap(named, self.inner - MARGIN), 2 * MARGIN)

    def words(self, text: str, style: str = "note") -> Iterator[StyledLine]:
        yield from self.indented(paragraph(text, style, self.inner))

    def indented(self, lines: Iterable[StyledLine]) -> Iterator[StyledLine]:
        return indented(lines, MARGIN)


def _cut(item: Item, width: int) -> Item:
    """The item cut to `width` cells, with an ellipsis if it was cut."""
    if item_width(item) <= width:
        return item
    found: list[Fragment] = []
    left = width - 1
    for text, style in item:
        end = fit_end(text, 0, left)
        found.append((text[:end], style))
        left -= width_of(text[:end])
        if end < len(text):
            break
    return (*found, ("…", "dim"))
