"""Write messages field by field with their bytes, for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, Final

from pgtail.files.sink import Sink
from pgtail.hexview.fields import ShownField
from pgtail.hexview.views import Damage, MessageLocation, NoRoom
from pgtail.humanize import plural
from pgtail.native import compiled
from pgtail.pgoutput.cursor import TIME, Buffer
from pgtail.pgoutput.scalars import lsn_text, time_text
from pgtail.records import NamedTuple
from pgtail.terminal.escape import escape
from pgtail.terminal.layout import GAP, Item, breakable, item_width, padding, width_of, wrap
from pgtail.terminal.style import Fragment, Painter, palette
from pgtail.terminal.values import MORE, Show, name

_MARGIN: Final = 2
_HEX_LINE: Final = 8
_NARROW: Final = 60
"""Narrower terminals (in cells) get half as many hex digits in a line."""
_WIDE: Final = 110
"""Terminals from this width (in cells) on get spaces between bytes and full type names."""
_WIDEST_NAME: Final = 32
_FEWEST_VALUES: Final = 18
"""Values with fewer cells than this go below their names."""
NARROWEST: Final = 40
"""The minimum width in cells: lines are not made narrower than this."""
_WIDEST_TIME: Final = 33
"""Cells of a time before our era. Times go below their names where values have less room."""
_VALUE: Final = ("\0", "")
"""Where a template has the value of a field."""
_OP_STYLES: Final = {"Insert": "insert", "Update": "update", "Delete": "delete", "Truncate": "truncate"}


class TextView:
    """Shows messages to people: offset and hex on the left; name, type and value of the field on the right.

    Lines are at most `width` cells wide. `max_bytes` limits the bytes shown of a field (None: no limit).
    """

    def __init__(
        self, sink: Sink, *, width: int, color: bool, max_bytes: int | None, colors: str | None = None
    ) -> None:
        self._sink = sink
        self._width = max(width, NARROWEST)
        self._most = max_bytes
        self._wide = self._width >= _WIDE
        self._bytes = _HEX_LINE if self._width >= _NARROW else _HEX_LINE // 2
        painter = Painter(palette(color=color, colors=colors))
        self._paint, self._codes = painter.line, painter.codes
        self.scanned = not any((*self._codes["value"], *self._codes["plain"]))
        self.spaced = self._wide
        self._any = False
        self._layouts: dict[tuple[int, int, int], _Columns] = {}

    def message(
        self, place: MessageLocation, buf: Buffer, fields: Sequence[ShownField], damage: Damage | None = None
    ) -> None:
        self._sink.write(self.begin(place, damage).encode())
        mark: Item = () if damage is None else ((f"✗ {name(damage.field)}".rstrip(), "bad"),)
        columns = self.layout(place, fields, mark)
        for field in fields:
            label = self._label(field)
            values = [field.value, *_words(field)]
            span = (field.span.start, field.span.end)
            right = columns.beside(label, self._type(field.type), values, time=field.type == TIME[0])
            self._field(columns, place, buf, span, right, masked=field.masked)
        if damage is not None:
            reason = [breakable(escape(damage.error.reason), "bad")]
            span = (damage.start, damage.end)
            right = columns.beside(mark, "", reason)
            self._field(columns, place, buf, span, right, style="bad", masked=damage.masked)

    def begin(self, place: MessageLocation, damage: Damage | None = None) -> str:
        size = place.end - place.start
        lsn = "" if place.lsn is None else lsn_text(place.lsn)
        items = self._head(place, damage, str(place.number), lsn, str(place.offset), f"{size} {plural(size, 'byte')}")
        lines = [self._paint(line) for line in wrap(items, self._width)]
        if self._any:
            lines.insert(0, "")
        self._any = True
        return "\n".join([*lines, ""])

    def head(self, place: MessageLocation) -> tuple[str, int | None]:
        without_numbers = self._head(place, None, "", "", "", " bytes")
        room = self._width - GAP * (len(without_numbers) - 1) - sum(map(item_width, without_numbers))
        if place.relation is not None and "%" in place.relation.qualified:
            room = 0
        items = self._head(place, None, "%(number)d", "%(lsn)s", "%(offset)d", "%(size)d bytes")
        line = [fragment for item in items for fragment in (padding(GAP), *item)]
        return f"\n{self._paint(line[1:])}\n", max(room, 0)

    def layout(self, place: MessageLocation, fields: Sequence[ShownField], mark: Item = ()) -> _Columns:
        """The columns of a message; `mark` is beside its damage."""
        names = max([item_width(mark), *[2 * field.depth + width_of(field.name) for field in fields]])
        types = max([len(self._type(field.type)) for field in fields], default=0)
        offsets = _MARGIN + len(str(place.at(place.end))) + (place.base is None)
        key = (offsets, min(names, _WIDEST_NAME), types)
        columns = self._layouts.get(key)
        if columns is None:
            digits = 3 * self._bytes - 1 if self._wide else 2 * self._bytes
            columns = self._layouts[key] = _Columns(self._width, offsets, digits, *key[1:])
        return columns

    def _head(
        self, place: MessageLocation, damage: Damage | None, number: str, lsn: str, offset: str, size: str
    ) -> list[Item]:
        style = _OP_STYLES.get(place.kind, "xid")
        items: list[Item] = [(("● ", "dot" if damage is None else "bad"), (f"{number}  ", "dim"), (place.kind, style))]
        if place.relation is not None:
            items.append(((name(place.relation.qualified), "table"),))
        if place.lsn is not None:
            items.append(((lsn, "lsn"),))
        if place.offset is not None:
            items.append(((f"byte {offset}", "dim"),))
        if place.sent is not None:
            items.append(((f"{place.sent.client} to {place.sent.server}", "origin"),))
            if place.sent.time is not None:
                items.append(((time_text(place.sent.time).replace("T", " "), "plain"),))
        items.append(((size, "dim"),))
        return items

    def _label(self, field: ShownField) -> Item:
        return padding(2 * field.depth), (field.name, "name" if field.depth == 0 else "plain")

    def _type(self, type_: str) -> str:
        """The type as in the manual, on narrow terminals without the PostgreSQL type in parentheses."""
        return type_ if self._wide else type_.partition(" ")[0]

    def _field(
        self,
        columns: _Columns,
        place: MessageLocation,
        buf: Buffer,
        span: tuple[int, int],
        right: Iterator[list[Fragment]],
        style: str = "plain",
        *,
        masked: bool = False,
    ) -> None:
        start, end = span[0], min(span[1], len(buf))
        shown = end if self._most is None else min(end, start + self._most)
        left = self._hex(columns, place, _Hidden() if masked else buf, start, shown, style)
        self._write(columns.join(left, right))
        if shown < end:
            self._write([_more(columns, end - shown)])

    def _hex(
        self, columns: _Columns, place: MessageLocation, buf: Buffer | _Hidden, start: int, shown: int, style: str
    ) -> Iterator[list[Fragment]]:
        sign = "+" if place.base is None else ""
        for at in range(start, shown, self._bytes):
            line = buf[at : min(at + self._bytes, shown)]
            digits = line.hex(" ") if self._wide else line.hex()
            yield [(f"{sign}{place.at(at)}".rjust(columns.offset), "dim"), padding(GAP), (digits, style)]

    # -- templates ---------------------------------------------------------------------------------------------

    separator = end = ""

    def template(self, field: ShownField, data: bytes | None, layout: _Columns) -> str:
        size, time = field.span.end - field.span.start, field.type == TIME[0]
        if size > self._bytes or (time and layout.below_width < _WIDEST_TIME):
            raise NoRoom
        left = self._left(layout, "%s" if data is None else self.digits(data), 3 * size - 1 if self._wide else 2 * size)
        values: list[Item] = [(_VALUE,)] if data is None else [field.value, *_words(field)]
        first, *more = map(self._paint, layout.beside(self._label(field), self._type(field.type), values, time=time))
        margin = self._paint([padding(layout.left)])
        right = "".join([f"{first}\n", *[f"{margin}{line}\n" for line in more]])
        return left + right.replace("%", "%%").replace("\0", "%s")

    def content_template(self, field: ShownField, layout: _Columns) -> _Content:
        digits = 3 * self._bytes - 1 if self._wide else 2 * self._bytes
        words = _words(field)
        room = layout.values - sum([GAP + item_width(word) for word in words])
        word = self._paint([fragment for word in words for fragment in (padding(GAP), *word)])
        lefts = [self._left(layout, "%s", width) for width in range(digits + 1)]
        margin = self._paint([padding(layout.left)])
        bare = self._paint([(f"%{layout.offset}d", "dim"), padding(GAP), ("%s", "plain")]) + "\n"
        label, type_ = self._label(field), self._type(field.type)
        heads = [(self._paint(line), item_width(line)) for line in layout.heads(label, type_)]
        middle = None
        if len(heads) == 1 and not layout.below:
            middle = heads[0][0] + " " * (layout.right - heads[0][1])
        return _Content(layout, lefts, bare, margin, label, type_, heads, middle, words, word, room, field.masked)

    def content(self, template: _Content, at: int, cell: bytes, value: Item) -> str:
        """As _field()."""
        rights = self._rights(template, value)
        size, step = len(cell), self._bytes
        shown = size if self._most is None or size < self._most else self._most
        if 0 < size == shown <= step and len(rights) == 1 and not template.masked:
            line = self.digits(cell)
            return template.lefts[len(line)] % (at, line) + rights[0]
        if template.masked:
            digits = _Hidden(shown).hex(" " if self._wide else "")
        else:
            digits = self.digits(cell[:shown])
        lines = []
        used = 3 if self._wide else 2
        for start in range(0, shown, step):
            line = digits[used * start : used * (start + step)].rstrip(" ")
            if rights:
                lines.append(template.lefts[len(line)] % (at + start, line) + rights.pop(0))
            else:
                lines.append(template.bare % (at + start, line))
        lines += [template.margin + right for right in rights]
        if shown < size:
            lines.append(self._paint(_more(template.columns, size - shown)) + "\n")
        return "".join(lines)

    def scanned_content(self, template: _Content, show: Show, python: Callable[[int, bytes], str]) -> Any:
        fast, columns, words = compiled(), template.columns, template.words
        if fast is None:
            return None
        width = sum(map(item_width, words))
        ordinary = not template.masked and len(words) <= 1 and width <= columns.values
        return fast.TextContent(
            show if ordinary else None,
            python,
            left=template.bare[:-1],
            more=self._paint(_more(columns, None)),
            one_more=self._paint(_more(columns, 1)),
            left_width=columns.left,
            indent=columns.right,
            room=columns.values,
            step=self._bytes,
            most=self._most,
            spaced=self._wide,
            heads=[(head.encode(), width) for head, width in template.heads],
            below=columns.below,
            gap_and_word=template.word,
            word=self._paint([fragment for word in words for fragment in word]),
            word_width=width,
            ellipsis=self._paint([MORE]),
        )

    def _rights(self, template: _Content, value: Item) -> list[str]:
        """The lines of the right half: name, type and the value with its explanations."""
        if template.middle is not None and len(value) == 1:
            [(text, style)] = value
            if len(text) <= template.room and text.isascii():
                before, after = self._codes[style]
                return [f"{template.middle}{before}{text}{after}{template.word}\n"]
        lines = template.columns.beside(template.label, template.type, [value, *template.words])
        return [f"{self._paint(line)}\n" for line in lines]

    def _left(self, columns: _Columns, digits: str, width: int) -> str:
        """The template of the left half, with digits that are `width` cells wide."""
        gap = padding(columns.left - columns.offset - GAP - width)
        return self._paint([(f"%{columns.offset}d", "dim"), padding(GAP), (digits, "plain"), gap])

    def digits(self, data: bytes) -> str:
        return data.hex(" ") if self._wide else data.hex()

    def shown(self, value: Item) -> str:
        return self._paint(value)

    def _write(self, lines: Iterable[list[Fragment]]) -> None:
        for line in lines:
            self._sink.write(f"{self._paint(line)}\n".encode())


class _Content(NamedTuple):
    """The parts of the lines of a cell's content, painted."""

    columns: _Columns
    lefts: list[str]
    """Templates of offset, digits and the space after them, by the number of digits and spaces."""
    bare: str
    """The template of a line without a right half."""
    margin: str
    """The left half of a line without bytes."""
    label: Item
    type: str
    heads: list[tuple[str, int]]
    """The lines of name and type, with their widths."""
    middle: str | None
    """Name and type and the space after them; None if they have several lines, or the value goes below."""
    words: list[Item]
    word: str
    """The words, after a gap."""
    room: int
    """The maximum width in cells of a value beside its words."""
    masked: bool


def _more(columns: _Columns, count: int | None) -> list[Fragment]:
    """The last line of a field that is not shown whole, or its template.

    It may be wider than the left half, so it has no right half.
    """
    text = "%d more bytes" if count is None else f"{count} more {plural(count, 'byte')}"
    return [padding(columns.offset + GAP), (text, "dim")]


def _words(field: ShownField) -> list[Item]:
    return [breakable(word, "note") for word in field.words]


class _Hidden:
    """A buffer whose bytes are hidden: each is shown as two asterisks."""

    def __init__(self, count: int = 0) -> None:
        self._count = count

    def __getitem__(self, place: slice) -> _Hidden:
        return _Hidden(place.stop - place.start)

    def hex(self, sep: str = "") -> str:
        return sep.join(["**"] * self._count)


class _Columns:
    """The column positions and widths of one message, in cells."""

    def __init__(self, width: int, offset: int, digits: int, names: int, types: int) -> None:
        self.offset = offset
        self.left = offset + GAP + digits + GAP
        self.names = names = min(names, width - self.left - GAP - types)
        self.types = types
        self.right = names + GAP + types + GAP
        self.values = width - self.left - self.right
        self.below_width = width - self.left - GAP
        self.below = self.values < _FEWEST_VALUES
        if self.below:
            self.right, self.values = GAP, self.below_width

    def heads(self, label: Item, type_: str) -> list[list[Fragment]]:
        """The lines of a name and its type."""
        lines = list(wrap([label], self.names + GAP + self.types))
        if item_width(label) <= self.names:
            lines[0] += [padding(self.names + GAP - item_width(label)), (type_, "dim")]
        elif type_:
            lines.append([padding(self.names + GAP), (type_, "dim")])
        return lines

    def beside(self, label: Item, type_: str, value: list[Item], *, time: bool = False) -> Iterator[list[Fragment]]:
        """The right half: name, type and the value, which goes below if there is no room beside them."""
        below, right, values = self.below, self.right, self.values
        if time and values < _WIDEST_TIME:
            below, right, values = True, GAP, self.below_width
        lines = wrap(value, values)
        for head in self.heads(label, type_):
            beside = None if below else next(lines, None)
            yield head if beside is None else [*head, padding(right - item_width(head)), *beside]
        for beside in lines:
            yield [padding(right), *beside]

    def join(self, left: Iterable[list[Fragment]], right: Iterable[list[Fragment]]) -> Iterator[list[Fragment]]:
        """Join both halves line by line."""
        for line, beside in zip_longest(left, right, fillvalue=()):
            if beside:
                yield [*line, padding(self.left - item_width(line)), *beside]
            else:
                yield list(line)
