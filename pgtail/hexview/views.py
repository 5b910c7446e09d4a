"""Write messages field by field with their bytes, for people or as JSON lines."""

from __future__ import annotations

import binascii
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final, NamedTuple, Protocol

from pgtail._orjson import orjson
from pgtail.changes.relations import Relation
from pgtail.errors import DecodeError, Malformed
from pgtail.files.sink import Sink
from pgtail.hexview.fields import Field
from pgtail.pgoutput.cursor import Buffer
from pgtail.pgoutput.scalars import lsn_text
from pgtail.terminal.escape import escape
from pgtail.terminal.layout import GAP, Item, breakable, item_width, padding, width_of, wrap
from pgtail.terminal.style import Fragment, Painter, palette
from pgtail.terminal.values import name

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
_LONGEST_FIXED: Final = 33
"""Cells of the widest value of a field of fixed size: a time before our era."""
_HEX_PIECE: Final = 64 * 1024
_BAD_BYTES: Final = 16
"""Bytes shown of a bad field of unknown length."""
_OP_STYLES: Final = {"Insert": "insert", "Update": "update", "Delete": "delete", "Truncate": "truncate"}


@dataclass(slots=True)
class MessageLocation:
    """A message in the buffer and in its source.

    `number` counts from 1. `base` is the offset in the source of the byte at `start` in the buffer, None if the source
    is text, where offsets have no meaning.
    """

    number: int
    kind: str
    offset: int | None
    start: int
    end: int
    base: int | None = None
    lsn: int | None = None
    relation: Relation | None = None

    def at(self, position: int) -> int:
        """The offset of a buffer position: in the source, or from the start of the message if `base` is None."""
        return position - self.start + (self.base or 0)


@dataclass(slots=True)
class Damage:
    """The bad bytes of a message, from `start` to `end` as far as the buffer has them.

    If `masked`, they are not shown, because they may be a value.
    """

    error: DecodeError
    field: str
    start: int
    end: int
    masked: bool = False


class NoRoom(Exception):
    """A field needs more than one line."""


class View(Protocol):
    """A way to show messages: field by field, or with templates, %-formats of what many messages share.

    A layout says what templates depend on besides their fields.
    """

    separator: str
    """What is between two fields."""
    end: str
    """What follows the last field."""

    def message(
        self, place: MessageLocation, buf: Buffer, fields: Sequence[Field], damage: Damage | None = None
    ) -> None:
        """Show one message, as far as it could be decoded."""

    def begin(self, place: MessageLocation) -> str:
        """What precedes the fields of a message."""

    def layout(self, place: MessageLocation, fields: Sequence[Field]) -> Any:
        """The layout of a message with these fields."""

    def template(self, field: Field, data: bytes | None, layout: Any) -> str:
        """A field with these bytes: its offset is filled in; without bytes also digits() and shown(). Raises NoRoom."""

    def content_template(self, field: Field, layout: Any) -> Any:
        """What content() needs to show the content of a cell. Raises NoRoom."""

    def content(self, template: Any, at: int, cell: bytes, value: Item) -> str:
        """The content of a cell, at this offset."""

    def digits(self, data: bytes) -> str:
        """Bytes in hexadecimal digits."""

    def shown(self, value: Item) -> str:
        """A value in one line."""


def locate_damage(
    error: DecodeError, fields: Sequence[Field], stopped: int, bad: int | None
) -> tuple[list[Field], Damage]:
    """Split the fields of a damaged message into the good ones and the bad bytes.

    `stopped` is the cursor's position, `bad` the start of the bad bytes if the error has it. Either the last field was
    read and is invalid, or the field after it could not be read.
    """
    good = list(fields)
    last = good[-1] if good else None
    if bad is None:
        bad = last.span.start if last is not None and isinstance(error, Malformed) and _names(error, last) else stopped
    if last is not None and last.span.start == bad:
        return good[:-1], Damage(error, last.name, last.span.start, last.span.end)
    return good, Damage(error, error.field or "", bad, bad + _BAD_BYTES)


def _names(error: DecodeError, field: Field) -> bool:
    """Whether the error is about this field."""
    wrong = error.field if error.field is not None else "tag" if error.message is None else ""
    return field.span.field == wrong or field.span.field.startswith(f"{wrong} ")


class TextView:
    """Shows messages to people: offset and hex on the left; name, type and value of the field on the right.

    Lines are at most `width` cells wide. `max_bytes` limits the bytes shown of a field (None: no limit).
    """

    def __init__(self, sink: Sink, *, width: int, color: bool, max_bytes: int | None, colors: str = "") -> None:
        self._sink = sink
        self._width = max(width, NARROWEST)
        self._most = max_bytes
        self._wide = self._width >= _WIDE
        self._bytes = _HEX_LINE if self._width >= _NARROW else _HEX_LINE // 2
        self._paint = Painter(palette(color=color, colors=colors)).line
        self._any = False
        self._layouts: dict[tuple[int, int, int], _Columns] = {}

    def message(
        self, place: MessageLocation, buf: Buffer, fields: Sequence[Field], damage: Damage | None = None
    ) -> None:
        self._sink.write(self.begin(place, damage).encode())
        columns = self.layout(place, fields)
        for field in fields:
            label = self._label(field)
            values = [field.value, *_words(field)]
            span = (field.span.start, field.span.end)
            self._field(columns, place, buf, span, label, self._type(field.type), values, masked=field.masked)
        if damage is not None:
            label = (("✗ " + name(damage.field) if damage.field else "✗", "bad"),)
            reason = [breakable(escape(damage.error.reason), "bad")]
            span = (damage.start, damage.end)
            self._field(columns, place, buf, span, label, "", reason, style="bad", masked=damage.masked)

    def begin(self, place: MessageLocation, damage: Damage | None = None) -> str:
        lines = [self._paint(line) for line in wrap(self._head(place, damage), self._width)]
        if self._any:
            lines.insert(0, "")
        self._any = True
        return "\n".join([*lines, ""])

    def layout(self, place: MessageLocation, fields: Sequence[Field]) -> _Columns:
        names = max([2 * field.depth + width_of(field.name) for field in fields], default=0)
        types = max([len(self._type(field.type)) for field in fields], default=0)
        offsets = _MARGIN + len(str(place.at(place.end))) + (place.base is None)
        key = (offsets, min(names, _WIDEST_NAME), types)
        columns = self._layouts.get(key)
        if columns is None:
            digits = 3 * self._bytes - 1 if self._wide else 2 * self._bytes
            columns = self._layouts[key] = _Columns(self._width, offsets, digits, *key[1:])
        return columns

    def _head(self, place: MessageLocation, damage: Damage | None) -> list[Item]:
        style = _OP_STYLES.get(place.kind, "xid")
        items: list[Item] = [
            (("● ", "dot" if damage is None else "bad"), (f"{place.number}  ", "dim"), (place.kind, style))
        ]
        if place.relation is not None:
            items.append(((name(place.relation.qualified), "table"),))
        if place.lsn is not None:
            items.append(((lsn_text(place.lsn), "lsn"),))
        if place.offset is not None:
            items.append(((f"byte {place.offset}", "dim"),))
        items.append(((f"{place.end - place.start} bytes", "dim"),))
        return items

    def _label(self, field: Field) -> Item:
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
        label: Item,
        type_: str,
        values: list[Item],
        style: str = "plain",
        *,
        masked: bool = False,
    ) -> None:
        start, end = span[0], min(span[1], len(buf))
        left = self._hex(columns, place, _Hidden() if masked else buf, start, end, style)
        self._write(columns.join(left, columns.beside(label, type_, values)))

    def _hex(
        self, columns: _Columns, place: MessageLocation, buf: Buffer | _Hidden, start: int, end: int, style: str
    ) -> Iterator[list[Fragment]]:
        shown = end if self._most is None else min(end, start + self._most)
        sign = "+" if place.base is None else ""
        for at in range(start, shown, self._bytes):
            line = buf[at : min(at + self._bytes, shown)]
            digits = line.hex(" ") if self._wide else line.hex()
            yield [(f"{sign}{place.at(at)}".rjust(columns.offset), "dim"), padding(GAP), (digits, style)]
        if shown < end:
            yield [padding(columns.offset + GAP), (f"{end - shown} more bytes", "dim")]

    # -- templates ---------------------------------------------------------------------------------------------

    separator = end = ""

    def template(self, field: Field, data: bytes | None, layout: _Columns) -> str:
        size = field.span.end - field.span.start
        if size > self._bytes or layout.values < _LONGEST_FIXED:
            raise NoRoom
        left = self._left(layout, "%s" if data is None else self.digits(data), 3 * size - 1 if self._wide else 2 * size)
        middle = self._middle(layout, field).replace("%", "%%")
        if data is None:
            return f"{left}{middle}%s\n"
        values, *more = wrap([field.value, *_words(field)], layout.values)
        if more:
            raise NoRoom
        return f"{left}{middle}{self._paint(values).replace('%', '%%')}\n"

    def content_template(self, field: Field, layout: _Columns) -> _Content:
        digits = 3 * self._bytes - 1 if self._wide else 2 * self._bytes
        words = _words(field)
        room = layout.values - sum([GAP + item_width(word) for word in words])
        word = self._paint([fragment for word in words for fragment in (padding(GAP), *word)])
        lefts = [self._left(layout, "%s", width) for width in range(digits + 1)]
        margin = self._paint([padding(layout.left)])
        bare = self._paint([(f"%{layout.offset}d", "dim"), padding(GAP), ("%s", "plain")]) + "\n"
        return _Content(layout, lefts, bare, margin, self._middle(layout, field), words, word, room, field.masked)

    def content(self, template: _Content, at: int, cell: bytes, value: Item) -> str:
        """As _field()."""
        rights = self._rights(template, value)
        size = len(cell)
        shown = size if self._most is None or size < self._most else self._most
        if template.masked:
            digits = _Hidden(shown).hex(" " if self._wide else "")
        else:
            digits = self.digits(cell[:shown])
        lines = []
        step, used = self._bytes, 3 if self._wide else 2
        for start in range(0, shown, step):
            line = digits[used * start : used * (start + step)].rstrip(" ")
            if rights:
                lines.append(template.lefts[len(line)] % (at + start, line) + rights.pop(0))
            else:
                lines.append(template.bare % (at + start, line))
        if shown < size:
            more = [padding(template.columns.offset + GAP), (f"{size - shown} more bytes", "dim")]
            if rights:
                more.append(padding(template.columns.left - item_width(more)))
            lines.append(self._paint(more) + (rights.pop(0) if rights else "\n"))
        lines += [template.margin + right for right in rights]
        return "".join(lines)

    def _rights(self, template: _Content, value: Item) -> list[str]:
        """The lines of the right half: name, type and the value with its explanations."""
        if len(value) == 1:
            [(text, _)] = value
            if len(text) <= template.room and text.isascii():
                return [f"{template.middle}{self._paint(value)}{template.word}\n"]
        first, *more = wrap([value, *template.words], template.columns.values)
        margin = padding(template.columns.right)
        return [f"{template.middle}{self._paint(first)}\n", *[f"{self._paint([margin, *line])}\n" for line in more]]

    def _left(self, columns: _Columns, digits: str, width: int) -> str:
        """The template of the left half, with digits that are `width` cells wide."""
        gap = padding(columns.left - columns.offset - GAP - width)
        return self._paint([(f"%{columns.offset}d", "dim"), padding(GAP), (digits, "plain"), gap])

    def _middle(self, columns: _Columns, field: Field) -> str:
        """The name and type of a field and the space after them. Raises NoRoom."""
        label, type_ = self._label(field), self._type(field.type)
        width = item_width(label)
        if columns.below or width > columns.names:
            raise NoRoom
        type_at = columns.names + GAP
        gap = padding(columns.right - type_at - len(type_))
        return self._paint([*label, padding(type_at - width), (type_, "dim"), gap])

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
    middle: str
    words: list[Item]
    word: str
    """The words, after a gap."""
    room: int
    """The maximum width in cells of a value beside its words."""
    masked: bool


def _words(field: Field) -> list[Item]:
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
        self.below = self.values < _FEWEST_VALUES
        if self.below:
            self.right, self.values = GAP, width - self.left - GAP

    def beside(self, label: Item, type_: str, value: list[Item]) -> Iterator[list[Fragment]]:
        """The right half: name, type and the value, which goes below if there is no room beside them."""
        lines = list(wrap([label], self.names + GAP + self.types))
        if item_width(label) <= self.names:
            lines[0] += [padding(self.names + GAP - item_width(label)), (type_, "dim")]
        elif type_:
            lines.append([padding(self.names + GAP), (type_, "dim")])
        values = wrap(value, self.values)
        for line in lines:
            beside = None if self.below else next(values, None)
            yield line if beside is None else [*line, padding(self.right - item_width(line)), *beside]
        for beside in values:
            yield [padding(self.right), *beside]

    def join(self, left: Iterable[list[Fragment]], right: Iterable[list[Fragment]]) -> Iterator[list[Fragment]]:
        """Join both halves line by line."""
        for line, beside in zip_longest(left, right, fillvalue=()):
            if beside:
                yield [*line, padding(self.left - item_width(line)), *beside]
            else:
                yield list(line)


class JsonView:
    """Writes messages as JSON lines: an object for each message, with its fields."""

    def __init__(self, sink: Sink) -> None:
        self._write = sink.write

    def message(
        self, place: MessageLocation, buf: Buffer, fields: Sequence[Field], damage: Damage | None = None
    ) -> None:
        self._write(self.begin(place).encode())
        for index, field in enumerate(fields):
            if index:
                self._write(b",")
            self._field(place, buf, field)
        self._write(b"]")
        if damage is not None:
            self._write(b',"error":' + _described(place, buf, damage))
        self._write(b"}\n")

    def begin(self, place: MessageLocation) -> str:
        head = {
            "message": place.number,
            "kind": place.kind,
            "offset": place.offset,
            "size": place.end - place.start,
            "lsn": None if place.lsn is None else lsn_text(place.lsn),
            "relation": None if place.relation is None else place.relation.qualified,
        }
        return _object(head)[:-1].decode() + ',"fields":['

    # -- templates ---------------------------------------------------------------------------------------------

    separator = ","
    end = "]}\n"

    def layout(self, place: MessageLocation, fields: Sequence[Field]) -> None:
        return None

    def template(self, field: Field, data: bytes | None, layout: None) -> str:
        names, means = _around(field)
        digits, value = ("%s", "%s") if data is None else (data.hex(), self.shown(field.value).replace("%", "%%"))
        digits = f"null{'%.0s' if data is None else ''}" if field.masked else f'"{digits}"'
        names, means = names.decode().replace("%", "%%"), means.decode().replace("%", "%%")
        return f'{{"offset":%d,"hex":{digits},{names}{value}{means}'

    def content_template(self, field: Field, layout: None) -> str:
        return self.template(field, None, layout)

    def content(self, template: str, at: int, cell: bytes, value: Item) -> str:
        return template % (at, cell.hex(), self.shown(value))

    def digits(self, data: bytes) -> str:
        return data.hex()

    def shown(self, value: Item) -> str:
        return "".join([orjson.dumps(text)[1:-1].decode() for text, _ in value])

    def _field(self, place: MessageLocation, buf: Buffer, field: Field) -> None:
        """Write one field; bytes and value may be long and are written in pieces."""
        self._write(b'{"offset":%d,"hex":' % place.at(field.span.start))
        self._write(b"null," if field.masked else b'"')
        for at in () if field.masked else range(field.span.start, field.span.end, _HEX_PIECE):
            self._write(binascii.b2a_hex(buf[at : min(at + _HEX_PIECE, field.span.end)]))
        names, means = _around(field)
        self._write((b"" if field.masked else b'",') + names)
        for text, _ in field.value:
            self._write(orjson.dumps(text)[1:-1])
        self._write(means)


def _around(field: Field) -> tuple[bytes, bytes]:
    """What is before and after the value of a field, apart from its offset and bytes."""
    names = _object({"field": field.span.field, "column": _column(field), "type": field.type})
    means = b',"means":' + orjson.dumps(", ".join(field.words)) if field.words else b""
    return names[1:-1] + b',"value":"', b'"' + means + b"}"


def _column(field: Field) -> str | None:
    """The column of a field, also for the kind and length fields of its value."""
    if field.name == field.span.field:
        return None
    suffix = next((suffix for suffix in (" kind", " length") if field.span.field.endswith(suffix)), "")
    return field.name.removesuffix(suffix)


def _described(place: MessageLocation, buf: Buffer, damage: Damage) -> bytes:
    return _object(
        {
            "offset": place.at(damage.start),
            "hex": None if damage.masked else buf[damage.start : damage.end].hex(),
            "field": damage.field or None,
            "expected": damage.error.reason,
        }
    )


def _object(pairs: Mapping[str, object]) -> bytes:
    """A JSON object of the pairs whose value is not None."""
    return orjson.dumps({key: value for key, value in pairs.items() if value is not None})
