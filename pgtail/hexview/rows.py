"""Show the most frequent messages fast: rows of known tables, Begin and Commit. Text that they share becomes templates.

The templates come from the fields that views show one by one, so both ways give the same text. Once the templates for
a shape of messages exist, the compiled scanner shows all others of that shape straight from bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, TypeAlias

from pgtail.changes.relations import Relation
from pgtail.files.sink import Sink
from pgtail.hexview.fields import CellFields, FieldDescriber, Reader, ShownField
from pgtail.hexview.scope import Scope
from pgtail.hexview.views import MessageLocation, NoRoom, View
from pgtail.native import compiled
from pgtail.pgoutput.cells import TupleData
from pgtail.pgoutput.cursor import Buffer, Traced, spans_of
from pgtail.pgoutput.decoder import AnyFrame
from pgtail.pgoutput.kinds import TAGS
from pgtail.pgoutput.rows import Delete, Insert, Update
from pgtail.pgoutput.transaction import Begin, Commit
from pgtail.records import NamedTuple
from pgtail.terminal.values import Show

_LONGEST: Final = 64 * 1024
"""Bytes; longer messages are shown field by field, which takes less memory."""

_MOST: Final = 1000
"""Shapes to keep, and layouts of each: tables may have any number of versions, and rows any pattern of NULLs."""

_VARYING: Final = frozenset(("Int64 (XLogRecPtr)", "Int64 (TimestampTz)", "Int32 (TransactionId)"))
"""The types of the fields before the cells that differ between messages of one shape."""

_TAGS: Final = {message: bytes([TAGS[message]]) for message in (Insert, Update, Delete, Begin, Commit)}

_Lead: TypeAlias = tuple[str, int, list[tuple[int, int, str, Reader | None]]]
"""The fields before a tuple's cells: template and size; start, end, type and reader (if it varies) of each."""


class _Cell(NamedTuple):
    """One kind of cell of a column: templates of its kind and length, and of its content if it has one."""

    kind: bytes
    head: str
    content: Any
    show: Show


class _Templates(NamedTuple):
    """A shape in one layout; `scanned` is the same for the scanner: leads and cells."""

    leads: list[_Lead]
    cells: list[list[dict[type, _Cell]]]
    scanned: tuple[list[Any], list[Any]] | None


class _MessageParts:
    """What the messages of one kind have in common, rows for one version of a table."""

    def __init__(self, leads: list[list[tuple[ShownField, bytes]]], tuples: list[list[dict[type, CellFields]]]) -> None:
        self.leads = leads
        """The fields before each tuple's cells, with their bytes."""
        self.tuples = tuples
        self.templates: dict[Any, _Templates | None] = {}
        self.layouts: dict[tuple[Any, ...], _Templates | None] = {}

    def fields(self, rows: Sequence[TupleData]) -> list[ShownField]:
        """The fields of a message with these rows, apart from their values."""
        found = [field for lead in self.leads for field, _ in lead]
        for cell in self._cells(rows):
            found += cell.fields
        return found

    def kinds(self, rows: Sequence[TupleData]) -> bytes:
        """The kinds of the cells of a message with these rows."""
        return b"".join([cell.kind for cell in self._cells(rows)])

    def _cells(self, rows: Sequence[TupleData]) -> list[CellFields]:
        return [
            column[type(cell)]
            for columns, row in zip(self.tuples, rows, strict=True)
            for column, cell in zip(columns, row, strict=True)
        ]


class TemplateWriter:
    """Shows row messages whose table is known, and the Begin and Commit around them."""

    def __init__(self, sink: Sink, view: View, fields: FieldDescriber, scope: Scope) -> None:
        self._sink = sink
        self._view = view
        self._fields = fields
        self._scope = scope
        self._shapes: dict[tuple[Any, ...], _MessageParts] = {}
        self._size = lru_cache(maxsize=_MOST)(lambda size: view.digits(size.to_bytes(4)))
        self._fast = compiled() if view.scanned else None
        self._formats: dict[int | None, dict[bytes, Any]] = {}
        """What the scanner can show: the formats of messages by key, for each version of a table and without one."""
        self._tables: object = None
        if self._fast is not None:
            ends = view.separator, view.end, view.spaced
            self._scanner = self._fast.InspectScanner(self._table, self._formats_of, sink.write, *ends)

    def scan(
        self, buf: Buffer, pos: int, end: int, framing: int, in_stream: bool, base: int, number: int, most: int
    ) -> tuple[int, int]:
        """Show messages of buf[pos:end] that are like others before them, at most `most`.

        `base` is the buffer's offset in the source, `number` that of the message before. Returns where the first
        message starts that is left, and how many were shown. The scope does not follow their transactions.
        """
        if self._fast is None or self._scope.expects_row:
            return pos, 0
        if self._tables != self._scope.tables:
            self._tables = self._scope.tables
            self._scanner.forget()
        pos = self._scanner.scan(buf, pos, end, framing, in_stream, base, number, most)
        if self._scanner.messages:
            self._scope.left_out()
        return pos, self._scanner.messages

    def _table(self, oid: int) -> Relation | None:
        relation = self._scope.relation(oid)
        return relation if relation.seen else None

    def _formats_of(self, relation: Relation | None) -> dict[bytes, Any]:
        return self._formats.setdefault(None if relation is None else relation.version, {})

    def show(self, place: MessageLocation, message: AnyFrame, buf: Buffer, trace: list[Traced]) -> bool:
        """Show a message if it is one of these; returns whether it was."""
        if place.base is None or place.end - place.start > _LONGEST:
            return False
        rows: Sequence[TupleData] = [()]
        key: tuple[Any, ...]
        if isinstance(message, Insert | Update | Delete):
            relation = place.relation = self._scope.relation(message.relation)
            rows = [traced[2] for traced in trace if isinstance(traced[2], tuple)]
            count = len(relation.columns)
            if not count or any(len(row) != count for row in rows):
                return False
            old_kind = "" if isinstance(message, Insert) else message.old_kind
            key = (type(message), len(trace), relation.version, old_kind, message.xid is None)
        elif isinstance(message, Commit) or (isinstance(message, Begin) and message.xid):  # 0 begins a snapshot
            key = (type(message), len(trace), 0 if isinstance(message, Begin) else message.flags)
        else:
            return False
        shape = self._shapes.get(key) or self._new_shape(key, place.relation, buf, trace)
        templates = self._templates(shape, place, rows)
        if templates is None:
            return False
        view = self._view
        if templates.scanned is not None and not (isinstance(message, Commit) and message.flags):
            self._register_format(templates.scanned, place, message, shape.kinds(rows), framed=trace[0][1] != "tag")
        parts = self._parts(templates, place, rows, buf)
        self._sink.write(f"{view.begin(place)}{view.separator.join(parts)}{view.end}".encode())
        return True

    def _register_format(
        self, scanned: tuple[list[Any], list[Any]], place: MessageLocation, message: Any, kinds: bytes, *, framed: bool
    ) -> None:
        """Make the scanner show messages like this one."""
        assert self._fast is not None
        row = place.relation is not None
        old_kind = b"" if not row else b"N" if isinstance(message, Insert) else message.old_kind.encode() or b"N"
        flags = framed | (row and message.xid is not None) << 1 | (place.lsn is not None) << 2
        digits = len(str(place.at(place.end)))
        key = b"%b%c%b%b%c" % (_TAGS[type(message)], flags, old_kind, kinds, digits)
        formats = self._formats_of(place.relation)
        if key not in formats:
            if len(formats) >= _MOST:
                formats.clear()
            formats[key] = self._fast.MessageFormat(*self._view.head(place), *scanned)

    def _new_shape(
        self, key: tuple[Any, ...], relation: Relation | None, buf: Buffer, trace: list[Traced]
    ) -> _MessageParts:
        described = groupby(self._fields.describe(buf, spans_of(trace)), attrgetter("depth"))
        leads = [
            [(field, buf[field.span.start : field.span.end]) for field in fields]
            for depth, fields in described
            if not depth
        ]
        tuples: list[list[dict[type, CellFields]]] = [[]]
        if relation is not None:
            names = [str(what) for _, what, row, _ in trace if isinstance(row, tuple)]
            tuples = [self._fields.cells(relation, name, key[3]) for name in names]
        if len(self._shapes) >= _MOST:
            self._shapes.clear()
            self._formats.clear()
            self._tables = None
        shape = self._shapes[key] = _MessageParts(leads, tuples)
        return shape

    def _templates(self, shape: _MessageParts, place: MessageLocation, rows: Sequence[TupleData]) -> _Templates | None:
        """The templates for a message; None if they have no room for one of its fields."""
        key = (len(str(place.at(place.end))), *[tuple(map(type, row)) for row in rows])
        if key in shape.layouts:
            return shape.layouts[key]
        layout = self._view.layout(place, shape.fields(rows))
        if layout not in shape.templates:
            shape.templates[layout] = self._make(shape, layout)
        if len(shape.layouts) >= _MOST:
            shape.layouts.clear()
        templates = shape.layouts[key] = shape.templates[layout]
        return templates

    def _make(self, shape: _MessageParts, layout: Any) -> _Templates | None:
        try:
            leads = [self._lead(fields, layout) for fields in shape.leads]
            cells = [
                [{type_: self._cell(cell, layout) for type_, cell in column.items()} for column in columns]
                for columns in shape.tuples
            ]
        except NoRoom:
            return None
        return _Templates(leads, cells, self._scanned(leads, cells))

    def _scanned(self, leads: list[_Lead], cells: list[list[dict[type, _Cell]]]) -> tuple[list[Any], list[Any]] | None:
        """The templates for the scanner."""
        fast = self._fast
        if fast is None:
            return None
        before = [
            fast.FieldsBefore(
                template, size, [(start, end, type_ if read else "") for start, end, type_, read in fields]
            )
            for template, size, fields in leads
        ]
        shown = [
            [
                {cell.kind[0]: fast.ShownCell(cell.head, self._content(cell)) for cell in column.values()}
                for column in columns
            ]
            for columns in cells
        ]
        return before, shown

    def _content(self, cell: _Cell) -> Any:
        """The content of a cell for the scanner; None if it has none."""
        if cell.content is None:
            return None
        view, inside, show = self._view, cell.content, cell.show

        def content(at: int, cell: bytes) -> str:
            return view.content(inside, at, cell, show(cell)[1])

        return view.scanned_content(inside, show, content)

    def _lead(self, fields: list[tuple[ShownField, bytes]], layout: Any) -> _Lead:
        view, first = self._view, fields[0][0].span.start
        texts, places = [], []
        for field, data in fields:
            varies = field.type in _VARYING
            texts.append(view.template(field, None if varies else data, layout))
            reader = self._fields.reader(field) if varies else None
            places.append((field.span.start - first, field.span.end - first, field.type, reader))
        return view.separator.join(texts), fields[-1][0].span.end - first, places

    def _cell(self, cell: CellFields, layout: Any) -> _Cell:
        view, (kind, *value) = self._view, cell.fields
        head = view.template(kind, cell.kind, layout)
        if not value:
            return _Cell(cell.kind, head, None, cell.show)
        length, content = value
        head += view.separator + view.template(length, None, layout)
        return _Cell(cell.kind, head, view.content_template(content, layout), cell.show)

    def _parts(
        self, templates: _Templates, place: MessageLocation, rows: Sequence[TupleData], buf: Buffer
    ) -> list[str]:
        """The fields of a message as text."""
        view, start = self._view, place.start
        shown, content, digits, sizes = view.shown, view.content, view.digits, self._size
        parts: list[str] = []
        beyond = at = place.at(start)
        for (template, size, fields), columns, row in zip(templates.leads, templates.cells, rows, strict=True):
            values: list[int | str] = []
            for first, last, _, read in fields:
                values.append(at + first)
                if read is not None:
                    data = buf[start + at - beyond + first : start + at - beyond + last]
                    values += (digits(data), shown(read(data)))
            parts.append(template % tuple(values))
            at += size
            for column, cell in zip(columns, row, strict=True):
                _, head, inside, show = column[cell.__class__]
                if inside is None:
                    parts.append(head % at)
                    at += 1
                elif isinstance(cell, bytes):
                    size = len(cell)
                    parts.append(head % (at, at + 1, sizes(size), size))
                    parts.append(content(inside, at + 5, cell, show(cell)[1]))
                    at += 5 + size
        return parts
