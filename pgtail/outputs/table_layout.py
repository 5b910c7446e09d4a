"""Floor 4, measuring and wrapping for a terminal, in cells: knows styles by name, and nothing of what is shown."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from rich.cells import cell_len, get_character_cell_size

from pgtail.outputs.table_style import Fragment

Item: TypeAlias = tuple[Fragment, ...]
"""What stays on one line where it can: a name and its value."""

GAP: Final = 2
"""Cells between two items and between two columns."""

SPACE: Final[Fragment] = (" ", "plain")
_GAP: Final[Fragment] = (" " * GAP, "plain")


def width_of(text: str) -> int:
    """Cells that escaped text takes."""
    return len(text) if text.isascii() else cell_len(text)


def item_width(item: Sequence[Fragment]) -> int:
    """Cells that an item takes on one line."""
    width = 0
    for text, _ in item:
        width += len(text) if text.isascii() else cell_len(text)
    return width


def fitting(text: str, start: int, width: int) -> int:
    """Where the part of the text ends that begins at `start` and fits into so many cells."""
    if text.isascii():
        return min(len(text), start + width)
    for index in range(start, len(text)):
        width -= get_character_cell_size(text[index])
        if width < 0:
            return index
    return len(text)


def padding(width: int) -> Fragment:
    """So many cells of nothing."""
    return " " * width, "plain"


def spaced(text: str, style: str) -> Item:
    """Words that may stand on several lines."""
    fragments: list[Fragment] = []
    for word in text.split(" "):
        fragments += (SPACE, (word, style))
    return tuple(fragments[1:])


def sentence(text: str, style: str, width: int) -> Item:
    """Text that is broken between words, if it is longer than a line."""
    return ((text, style),) if width_of(text) <= width else spaced(text, style)


def wrap(items: Iterable[Item], width: int) -> Iterator[list[Fragment]]:
    """Lay items side by side in lines of at most `width` cells; one that is longer than a line is broken."""
    line: list[Fragment] = []
    used = 0
    for item in items:
        size = item_width(item)
        if line and used + GAP + size <= width:
            line += (_GAP, *item)
            used += GAP + size
            continue
        if line:
            yield line
        if size <= width:
            line, used = list(item), size
        else:
            line = yield from _broken(item, width)
            used = item_width(line)
    if line:
        yield line


def _broken(item: Item, width: int) -> Generator[list[Fragment], None, list[Fragment]]:
    """One item over several lines; returns the last one, which may have room for more.

    It is broken between fragments, and inside one that is longer than a line. Fragments of the same style side by side
    are one text, unless there is a space between them: a fragment that is one space only separates, and no line begins
    or ends with it.
    """
    line: list[Fragment] = []
    left, before = width, ""
    for text, style in item:
        size = width_of(text)
        if left < size <= width and (style != before or line[-1:] == [SPACE]):
            if line[-1:] == [SPACE]:
                del line[-1]
            if line:
                yield line
            line, left = [], width
        before = style
        if not line and text == " ":
            continue
        start = 0
        while size > left:
            end = fitting(text, start, left)
            piece = text[start:end]
            size -= width_of(piece)
            yield [*line, (piece, style)]
            line, start, left = [], end, width
        line.append((text[start:] if start else text, style))
        left -= size
    return line
