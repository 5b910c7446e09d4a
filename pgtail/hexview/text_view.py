"""Write messages field by field with their bytes, for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Final

from pgtail.files.sink import Sink
from pgtail.hexview.fields import ShownField
from pgtail.hexview.views import Damage, MessageLocation
from pgtail.humanize import plural
from pgtail.pgoutput.cursor import TIME, Buffer
from pgtail.pgoutput.scalars import lsn_text, time_text
from pgtail.terminal.escape import escape
from pgtail.terminal.layout import GAP, Item, breakable, item_width, padding, width_of, wrap
from pgtail.terminal.style import Fragment, Painter, palette
from pgtail.terminal.values import name, table_name

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
        self._painter = Painter(palette(color=color, colors=colors))
        self._any = False

    def message(
        self, place: MessageLocation, buf: Buffer, fields: Sequence[ShownField], damage: Damage | None = None
    ) -> None:
        """Show one message, as far as it could be decoded."""
        self._begin(place, damage)
        mark: Item = () if damage is None else ((f"✗ {name(damage.field)}".rstrip(), "bad"),)
        columns = self._layout(place, fields, mark)
        for field in fields:
            label: Item = padding(2 * field.depth), (field.name, "plain" if field.depth else "name")
            values = [field.value, *[breakable(word, "note") for word in field.words]]
            span = (field.span.start, field.span.end)
            right = columns.beside(label, self._type(field.type), values, time=field.type == TIME[0])
            self._field(columns, place, buf, span, right, masked=field.masked)
        if damage is not None:
            reason = [breakable(escape(damage.error.reason), "bad")]
            span = (damage.start, damage.end)
            right = columns.beside(mark, "", reason)
            self._field(columns, place, buf, span, right, style="bad", masked=damage.masked)

    def _begin(self, place: MessageLocation, damage: Damage | None) -> None:
        if self._any:
            self._sink.write(b"\n")
        self._any = True
        self._write(wrap(_head(place, damage), self._width))

    def _layout(self, place: MessageLocation, fields: Sequence[ShownField], mark: Item) -> _Columns:
        """The columns of a message; `mark` is beside its damage."""
        names = max([item_width(mark), *[2 * field.depth + width_of(field.name) for field in fields]])
        types = max([len(self._type(field.type)) for field in fields], default=0)
        offsets = _MARGIN + len(str(place.at(place.end))) + (place.base is None)
        digits = 3 * self._bytes - 1 if self._wide else 2 * self._bytes
        return _Columns(self._width, offsets, digits, min(names, _WIDEST_NAME), types)

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

    def _write(self, lines: Iterable[list[Fragment]]) -> None:
        for line in lines:
            self._sink.write(f"{self._painter.line(line)}\n".encode())


def _head(place: MessageLocation, damage: Damage | None) -> list[Item]:
    """The kind of a message, and its place."""
    style, size = _OP_STYLES.get(place.kind, "xid"), place.end - place.start
    dot: Fragment = ("● ", "dot" if damage is None else "bad")
    items: list[Item] = [(dot, (f"{place.number}  ", "dim"), (place.kind, style))]
    if place.relation is not None:
        items.append(((table_name(place.relation), "table"),))
    if place.lsn is not None:
        items.append(((lsn_text(place.lsn), "lsn"),))
    if place.offset is not None:
        items.append(((f"byte {place.offset}", "dim"),))
    if place.sent is not None:
        items.append(((f"{place.sent.client} to {place.sent.server}", "origin"),))
        if place.sent.time is not None:
            items.append(((time_text(place.sent.time).replace("T", " "), "plain"),))
    items.append(((f"{size} {plural(size, 'byte')}", "dim"),))
    return items


def _more(columns: _Columns, count: int) -> list[Fragment]:
    """The last line of a field that is not shown whole. It may be wider than the left half: it has no right half."""
    return [padding(columns.offset + GAP), (f"{count} more {plural(count, 'byte')}", "dim")]


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
