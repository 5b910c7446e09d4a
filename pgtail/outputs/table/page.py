"""Pages of rows: their columns and lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from pgtail.outputs.table.rows import LEFT, MARGIN, Hidden, NullColumns, TableRow
from pgtail.terminal.layout import GAP, SizedItem, line_count, padding, wrap_sized
from pgtail.terminal.style import Fragment

PAGE: Final = 100
"""The maximum number of rows in a page."""

PAGE_TEXT: Final = 256 * 1024
"""The approximate maximum number of characters in a page."""

MIN_WIDTH: Final = 40
"""The minimum width in cells: lines are not made narrower than this."""

_TABLE_SHARE, _KEY_SHARE = 0.4, 0.25
_VALUES_SHARE, _MIN_VALUES = 0.35, 28


class Columns:
    """The positions and widths of columns, for tables and keys that are so wide."""

    def __init__(self, width: int, table: int, key: int) -> None:
        self.width = width
        self.left = LEFT
        self.table = table
        self.values = LEFT + self.table + GAP + (key + GAP if key else 0)
        self.min_values = max(_MIN_VALUES, int(width * _VALUES_SHARE))
        self.below = LEFT if width >= 2 * MIN_WIDTH else 2 * MARGIN

    def lines(self, row: TableRow, hidden: Hidden) -> Iterable[list[Fragment]]:
        """The lines of a row: values beside the key, or below it if there is no room or little of it."""
        left, used = self._left(row)
        values = row.shown(hidden)
        start = max(self.values, used + GAP)
        room = self.width - start
        if values and room >= max(self.min_values, row.widest) and not self._is_flatter_below(values, room):
            left.append(padding(start - used))
            return wrap_sized(values, room, left, (padding(start),))
        first: Iterable[list[Fragment]] = [left]
        if used > self.width:
            items = [row.table, row.key] if row.key[1] else [row.table]
            first = wrap_sized(items, self.width - LEFT, row.op, (padding(LEFT),))
        below = (padding(self.below),) if values else ()
        return chain(first, wrap_sized(values, self.width - self.below, below, below))

    def _is_flatter_below(self, values: list[SizedItem], room: int) -> bool:
        """Whether less than half the width is left beside the key, and values below it need fewer lines."""
        return 2 * room < self.width and 1 + line_count(values, self.width - self.below) < line_count(values, room)

    def _left(self, row: TableRow) -> tuple[list[Fragment], int]:
        """Operation, table and key on one line, and their width in cells."""
        (size, table), (key_size, key) = row.table, row.key
        left, used = [*row.op, *table], LEFT + size
        if key:
            gap = max(self.table - size, 0) + GAP
            left += (padding(gap), *key)
            used += gap + key_size
        return left, used


class Page:
    """Rows that are not yet laid out. Their text is limited to `most_text` characters."""

    def __init__(self, most_text: int) -> None:
        self._rows: list[TableRow] = []
        self._most_text = self._left = most_text

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def full(self) -> bool:
        """Whether it must be laid out."""
        return len(self._rows) >= PAGE or self._left <= 0

    def add(self, row: TableRow) -> None:
        """Add a row."""
        self._rows.append(row)
        self._left -= row.weight()

    def widths(self, most_table: int, most_key: int) -> tuple[int, int]:
        """The widths of the widest table and the widest key within these limits."""
        rows = self._rows
        return _widest([row.table for row in rows], most_table), _widest([row.key for row in rows], most_key)

    def nulls(self) -> NullColumns:
        """The columns of all rows that are NULL, or not."""
        nulls = NullColumns()
        for row in self._rows:
            if row.relation is not None:
                nulls.add(row.relation, row.nulls.values(), row.not_null)
        return nulls

    def lay_out(self, columns: Columns, hidden: Hidden) -> Iterator[list[Fragment]]:
        """The lines of all rows without `hidden`; the page is then empty."""
        rows, self._rows, self._left = self._rows, [], self._most_text
        return chain.from_iterable([columns.lines(row, hidden) for row in rows])


def _widest(items: Iterable[SizedItem], most: int) -> int:
    return max([width for width, _ in items if width <= most], default=0)


def columns_for(page: Page, width: int) -> Columns:
    """The columns for the rows of a page, and for what follows."""
    return Columns(width, *page.widths(int(width * _TABLE_SHARE), int(width * _KEY_SHARE)))
