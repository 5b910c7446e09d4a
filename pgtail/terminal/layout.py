"""Measure, wrap and draw text in terminal cells. Imports rich for text beyond ASCII alone, because it takes long."""

from __future__ import annotations

import locale
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from pgtail.terminal.style import Fragment

Item: TypeAlias = tuple[Fragment, ...]
"""Fragments that stay on one line if possible, such as a name and its value."""

SizedItem: TypeAlias = tuple[int, Item]
"""An item and its width in cells."""

GAP: Final = 2
"""Cells between two items and between two columns."""

DOT: Final = "·"
"""What separates two things in a line, one cell wide."""

_OWN: Final = str.maketrans("", "", f"{DOT}→…")
"""Removes the characters that pgtail itself writes, each one cell wide."""

SPACE: Final[Fragment] = (" ", "plain")
_GAP: Final[Fragment] = (" " * GAP, "plain")


def width_of(text: str) -> int:
    """The width of escaped text in cells."""
    if text.isascii() or text.translate(_OWN).isascii():
        return len(text)
    from rich.cells import cell_len, get_character_cell_size

    return cell_len(text) if len(text) > 1 else get_character_cell_size(text)


def item_width(item: Sequence[Fragment]) -> int:
    """The width of an item in cells."""
    width = 0
    for text, _ in item:
        width += len(text) if text.isascii() else width_of(text)
    return width


def sized(item: Item) -> SizedItem:
    """The item with its width."""
    return item_width(item), item


def fit_end(text: str, start: int, width: int) -> int:
    """The end of the longest part of the text from `start` that is at most `width` cells wide."""
    if text.isascii():
        return min(len(text), start + width)
    from rich.cells import get_character_cell_size

    for index in range(start, len(text)):
        width -= get_character_cell_size(text[index])
        if width < 0:
            return index
    return len(text)


def middle_cut(text: str, width: int) -> str:
    """Escaped text of at most `width` cells: of longer text the start and the end, with an ellipsis between them."""
    if width_of(text) <= width:
        return text
    room = max(width - 1, 0)
    start = fit_end(text, 0, room - room // 2)
    backwards = text[start:][::-1]
    end = fit_end(backwards, 0, room // 2)
    return f"{text[:start]}…{backwards[:end][::-1]}"


def padding(width: int) -> Fragment:
    """`width` spaces."""
    return " " * width, "plain"


def breakable(text: str, style: str) -> Item:
    """Text that may be broken between words."""
    fragments: list[Fragment] = []
    for word in text.split(" "):
        fragments += (SPACE, (word, style))
    return tuple(fragments[1:])


def sentence(text: str, style: str, width: int) -> Item:
    """Text that is broken between words if it is wider than `width` cells, the width of a line."""
    return sized_sentence(text, style, width)[1]


def sized_sentence(text: str, style: str, width: int) -> SizedItem:
    """The same with its width."""
    size = width_of(text)
    return size, ((text, style),) if size <= width else breakable(text, style)


def wrap(items: Iterable[Item], width: int) -> Iterator[list[Fragment]]:
    """Lay items side by side in lines of at most `width` cells; an item wider than a line is broken."""
    return wrap_sized(map(sized, items), width)


def paragraph(text: str, style: str, width: int) -> Iterator[list[Fragment]]:
    """Text broken between words into lines of at most `width` cells."""
    return wrap([sentence(text, style, width)], width)


def indented(lines: Iterable[list[Fragment]], cells: int) -> Iterator[list[Fragment]]:
    """These lines, each after so many spaces."""
    for line in lines:
        yield [padding(cells), *line]


def wrap_sized(
    items: Iterable[SizedItem], width: int, first: Sequence[Fragment] = (), rest: Sequence[Fragment] = ()
) -> Iterator[list[Fragment]]:
    """As wrap(). The first line starts with `first`, the others with `rest`, which `width` does not include."""
    line, used = [*first], -1
    for size, item in items:
        if used >= 0:
            if used + GAP + size <= width:
                line.append(_GAP)
                line += item
                used += GAP + size
                continue
            yield line
            line = [*rest]
        if size <= width:
            line += item
            used = size
        else:
            pieces = _broken(item, width)
            piece, used = next(pieces)
            for following in pieces:
                yield line + piece
                line = [*rest]
                piece, used = following
            line += piece
    if line:
        yield line


def line_count(items: Iterable[SizedItem], width: int) -> int:
    """How many lines wrap_sized() makes, as if items wider than a line were broken anywhere."""
    lines, used = 1, -1
    for size, _ in items:
        if used >= 0 and used + GAP + size <= width:
            used += GAP + size
            continue
        more = max(size - 1, 0) // width
        lines += more + (used >= 0)
        used = size - more * width
    return lines


def _broken(item: Item, width: int) -> Iterator[tuple[list[Fragment], int]]:
    """Break one item into lines, with their widths; the last one may have room for more.

    Lines are broken between texts, and inside texts wider than a line. Adjacent fragments of the same style are one
    text; a fragment of one space separates them, and no line begins or ends with it.
    """
    line: list[Fragment] = []
    left, before = width, ""
    sizes = [width_of(text) for text, _ in item]
    for place, (fragment, size) in enumerate(zip(item, sizes, strict=True)):
        text, style = fragment
        end, whole = place + 1, size
        while whole <= width and end < len(item) and item[end][1] == style and item[end] != SPACE:
            whole += sizes[end]
            end += 1
        if left < whole <= width and (style != before or line[-1:] == [SPACE]):
            if line[-1:] == [SPACE]:
                del line[-1]
            if line:
                yield line, width - left
            line, left = [], width
        before = style
        if not line and text == " ":
            continue
        start = 0
        while size > left:
            end = fit_end(text, start, left)
            piece = text[start:end]
            size -= width_of(piece)
            yield [*line, (piece, style)], width
            line, start, left = [], end, width
        line.append((text[start:], style) if start else fragment)
        left -= size
    yield line, width - left


_BLOCKS: Final = "utf" in locale.getencoding().lower()
"""Whether the encoding of terminals has block elements."""
_HORIZONTAL: Final = " ▏▎▍▌▋▊▉█" if _BLOCKS else "    #####"
_VERTICAL: Final = " ▁▂▃▄▅▆▇█" if _BLOCKS else " .:-=+*%#"


def bar(value: float, width: int) -> str:
    """A horizontal bar for a share (0 to 1) of `width` cells; only 0 gives an empty one."""
    eighths = min(round(value * width * 8), width * 8)
    full, rest = divmod(max(eighths, 1) if value > 0 else 0, 8)
    return _HORIZONTAL[8] * full + (_HORIZONTAL[rest] if rest else "")


def sparkline(values: Sequence[float], least: float = 0) -> str:
    """A line of bars, one cell for each value: the lowest one for `least`, the highest one for the maximum."""
    most = max(values, default=0)
    steps = [7 * (value - least) / (most - least) if most > least else 0 for value in values]
    return "".join([_VERTICAL[1 + round(step)] for step in steps])


CUT: Final = "▲" if _BLOCKS else "^"


def cut_height(values: Iterable[int]) -> int:
    """The height of a chart of these values: the maximum, or less if few would flatten the others.

    Where a quarter of them at most is eight times as high as the next one, they are cut off.
    """
    ordered = sorted(filter(None, values), reverse=True)
    cuts = [number for number in range(1, (len(ordered) + 1) // 4 + 1) if ordered[number - 1] >= 8 * ordered[number]]
    return ordered[max(cuts, default=0)] if ordered else 0


def plot(values: Sequence[int], height: int) -> tuple[list[str], list[int]]:
    """Vertical bars, one cell wide each, as `height` lines from top to bottom; and the indexes of those cut off there.

    cut_height() says which are.
    """
    top = cut_height(values)
    eighths = [0 if not value else max(1, value * height * 8 // top) for value in values]
    lines = [
        "".join([_VERTICAL[min(8, max(0, one - 8 * line))] for one in eighths]).rstrip()
        for line in reversed(range(height))
    ]
    cut = [place for place, value in enumerate(values) if value > top]
    lines[0] = "".join([CUT if place in cut else cell for place, cell in enumerate(lines[0])])
    return lines, cut
