"""Tables of reports, drawn by rich: a line for each row, which fits the terminal."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from io import StringIO
from typing import Final

from pgtail.terminal.layout import GAP, Item, item_width
from pgtail.terminal.style import Fragment

_LEAST: Final = 16
"""Cells that a column of text keeps, if it has so many, before other columns are left out."""


def table(
    heads: Sequence[Fragment], rows: Sequence[Sequence[Item]], width: int, texts: Collection[int] = (0,)
) -> list[list[Fragment]]:
    """The line of the heads, then one for each row, of at most `width` cells.

    `texts` are the places of columns of text, which are left-aligned. Where there is no room, text in the last column
    and then in the first ends with an ellipsis; others stay whole, and the last columns are left out, which an ellipsis
    after the heads says.
    """
    from rich.console import Console
    from rich.segment import Segment
    from rich.style import Style
    from rich.table import Table
    from rich.text import Text

    def cell(item: Item) -> Text:
        parts = [(text, Style(meta={"style": style})) for text, style in item]
        return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")

    all_rows = [[(head,) for head in heads], *rows]
    sizes = [max(map(item_width, column)) for column in zip(*all_rows, strict=True)]
    cut = {0, len(heads) - 1} & set(texts)
    least = [min(size, _LEAST) if place in cut else size for place, size in enumerate(sizes)]
    room = width
    while len(least) > 1 and sum(least) + GAP * (len(least) - 1) > room:
        del least[-1]
        room = max(width - 2, 1)
    sizes[0] = min(sizes[0], room - sum(least[1:]) - GAP * (len(least) - 1))
    drawn = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), show_header=False)
    for place, size in enumerate(sizes[: len(least)]):
        # rich takes the room that lacks from columns whose lines may be broken: here from the last one
        whole = place == 0 or place not in cut
        drawn.add_column(justify="left" if place in texts else "right", no_wrap=whole, max_width=size)
    for row in all_rows:
        drawn.add_row(*map(cell, row[: len(least)]))
    lines = Segment.split_lines(Console(file=StringIO(), width=room, _environ={}).render(drawn))
    fragments = [
        _stripped([(one.text, one.style.meta.get("style", "plain") if one.style else "plain") for one in line])
        for line in lines
    ]
    fragments[0] += [(" …", "dim")] if room == width - 2 else []
    return fragments


def _stripped(line: list[Fragment]) -> list[Fragment]:
    while line and not line[-1][0].strip():
        del line[-1]
    return line
