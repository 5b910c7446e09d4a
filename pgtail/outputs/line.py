"""`-o line`: one line for each change, for people: time, xid, operation, table, key, and what changed.

On a terminal an update also shows what did not change, after what did. Values are cut there at --max-width or a third
of its width, those of the key in the middle, and lines at its width, with the number of columns left out. Elsewhere
nothing is cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import Final, NamedTuple

from msgspec.structs import replace

from pgtail.changes.ddl import DdlMessage
from pgtail.changes.events import (
    SEEN,
    Ended,
    Event,
    LogicalMessage,
    Outcome,
    RowChange,
    SchemaChange,
    TableTruncate,
    Transaction,
)
from pgtail.changes.relations import Relation, differences
from pgtail.files.sink import Sink
from pgtail.native.plan import Cell, Cells, Field, Padded, Piece, Plan, Previous, Side, Skip, Text, Value, joined
from pgtail.outputs import OutputOptions
from pgtail.outputs.choice import MAYBE, Shown, changed_columns
from pgtail.outputs.executor import Part, joined_parts
from pgtail.outputs.planned import PlannedOutput
from pgtail.outputs.rows import Shape, Write, columns_of
from pgtail.outputs.values import shown_encoding, text_of_item
from pgtail.pgoutput.decoder import FromClient
from pgtail.pgoutput.scalars import lsn_text
from pgtail.pgoutput.walsender import StartReplication
from pgtail.terminal.escape import quoted
from pgtail.terminal.layout import GAP, Item, fit_end, middle_cut, width_of
from pgtail.terminal.style import RESET, SGR, Painter, palette
from pgtail.terminal.values import (
    BARE,
    NULL,
    SEEN_ARROW,
    UNCHANGED_MARK,
    ValueStyle,
    column_name,
    ddl_name,
    name,
    table_name,
)
from pgtail.values import UNKNOWN, Codec, ValueKind

_OPERATIONS: Final = 8
"""Cells for the operation and a blank."""
_TABLE: Final = 16
_KEY: Final = 10
"""The smallest number of cells for a table and a key; a wider table takes a multiple of _STEP."""
_STEP: Final = 4
_WIDEST_NAME: Final = 0.3
"""The share of the terminal's width that a table's name may have."""
_WIDE: Final = 120
"""The smallest width of a terminal where times are whole, and keys as long as other values: uuids have room."""
_NARROWEST: Final = 40
_OP: Final = {"truncate": "TRUNC", "commit_prepared": "COMMIT", "rollback_prepared": "ROLLBACK"}


class Line(PlannedOutput):
    """`-o line`. Of an update it shows what --changed shows, and the old value before a value that is known to have
    changed; on a terminal without --changed also the rest.

    Lines on a terminal and lines with --highlight are laid out column by column, and not by plans.
    """

    rows_alone = True
    changed_only = True

    def __init__(self, sink: Sink, options: OutputOptions) -> None:
        super().__init__(sink, options)
        self._painter = Painter(palette(color=options.colored, colors=options.colors), options.highlight)
        self._codes = self._painter.codes
        self._more = f"{RESET}…" if options.colored else "…"
        self._marks = options.colored and bool(options.highlight)
        self._context: list[Piece] = [] if options.context is None else [Text(self._of_context)]
        self.events_only = self._marks or options.measure is not None
        self._set_width(options.width if options.measure is None else options.measure())

    # -- the terminal's width ----------------------------------------------------------------------------------

    def _set_width(self, width: int) -> None:
        """Lay out the following lines for a terminal of this width; elsewhere they are as long as they are."""
        options, on_terminal = self.options, self.options.measure is not None
        self._width = width
        limited = on_terminal and options.max_width is not None
        self._most = max(width, _NARROWEST) if limited else 0
        narrow = on_terminal and width < _WIDE
        limit = keys = options.max_width
        if limit is not None:
            limit = min(limit, self._most // 3)
            keys = min(limit, self._most // 6) if narrow else limit
        self._values = ValueStyle(limit if on_terminal else None)
        self._keys = ValueStyle(keys if on_terminal else None, ends=True)  # keys may differ at either end only
        self._contents = ValueStyle(options.max_width if on_terminal else None)
        self._time = Field.CLOCK if narrow else Field.TIME

    def _follow_width(self) -> None:
        """Make new plans after a resize."""
        width = self._width if self.options.measure is None else self.options.measure()
        if width != self._width:
            self._set_width(width)
            self.rows.forget_plans()

    def started(self, transaction: Transaction) -> None:
        self._follow_width()

    # -- rows --------------------------------------------------------------------------------------------------

    def row(self, shape: Shape) -> tuple[Plan, Write]:
        shown = self.choice.shown(shape)
        side = shape.row_side
        key = set(shape.relation.key)
        keys = [index for index in shown.indexes if shape.columns[index].name in key]
        others = [index for index in shown.indexes if index not in keys]
        partial = side == "old" and not all(map(shape.in_old, others))  # usually the line ends with the key
        cells = self._cells(shape, shown, side, others)
        seen = side == "old" and shape.seen and bool(cells) and not partial
        pieces = [*self._head(shape.op, shape.relation)]
        pieces += self._keyed(shape, shown, side, keys, pad=bool(cells) and not partial)
        pieces += [b" ", self._paint("(seen before)", "note")] if seen else []
        pieces += self._columns(side, cells)
        if self.options.measure is not None and shape.has_old_row and side == "new":
            everything = shown._replace(indexes=tuple(range(len(shape.columns))))
            pieces.append(changed_columns(shape, everything, self._nothing))
        if self.options.measure is not None and not self.options.changed:
            pieces += self._columns(side, self._rest(shape, shown, others))
        pieces += [Text(_origin), *self._context]  # last: where a line is cut, what changed says more
        return joined([*pieces, b"\n"]), self.write

    @property
    def _lays_out(self) -> bool:
        """Whether lines are cut, broken or marked."""
        return bool(self._most) or self._marks

    def _row(self, change: RowChange) -> None:
        if not self._lays_out:
            super()._row(change)
            return
        columns = [ColumnText("")]
        for piece, parts in self.rows.pieces(change):
            if isinstance(piece, Cells) and not piece.separator:  # of one column
                if parts:
                    columns += self._members(change, piece.cells[0]) or [self._column(*map(_text, parts))]
            else:
                last = columns.pop()
                columns.append(last._replace(rest=last.rest + "".join(map(_text, parts))))
        last = columns.pop()
        self.write(self._fitted([*columns, last._replace(rest=last.rest.removesuffix("\n"))]))

    def _column(self, before: str, *parts: str) -> ColumnText:
        """The parts of a cell, in which the old value is between two texts."""
        if len(parts) == 2:
            return ColumnText(before + "".join(parts))
        start, old, end, *rest = parts
        stop = len(self._codes["old"][1])
        return ColumnText(before, start + old + end[:stop], "".join([end[stop:], *rest]))

    def _nothing(self, changed: Sequence[int], maybe: Sequence[int]) -> bytes:
        """The text of an update that changed nothing of a known row."""
        return b"" if changed or maybe else b" " + self._paint("(nothing changed)", "note")

    def _members(self, change: RowChange, cell: Cell) -> list[ColumnText]:
        """A column for each member in which a long value differs from the old one."""
        index, old, new = cell.index, change.old or (), change.new or ()
        if cell.previous is None or not index < min(len(old), len(new)):
            return []
        column = columns_of(change.relation, index + 1)[index]
        if not column.may_have_members:
            return []
        from pgtail.outputs.members import MOST, changed_members  # it loads json

        members, texts = changed_members(column, old[index], new[index], self._values), list[ColumnText]()
        arrow = self._paint(SEEN_ARROW if change.old_kind == SEEN else "→", "dim")
        for member in members[:MOST]:
            path = member.named(column_name(column.name), self._most // 3)
            before, now = [b"".join([self._paint(*part) for part in item]) for item in member.shown(self._values)]
            start = b" " + self._paint(f"{path}=", "name")
            texts.append(ColumnText(*map(_text, (start, before, (arrow if before and now else b"") + now))))
        if len(members) > MOST:
            texts.append(ColumnText(" " + _text(self._paint(f"(and {len(members) - MOST} more)", "note"))))
        return texts

    def _columns(self, side: Side, cells: tuple[Cell, ...]) -> list[Piece]:
        """Columns after blanks, each a piece of its own where lines are laid out."""
        columns = tuple(map(_apart, cells))
        together = [(cell,) for cell in columns] if self._lays_out else [columns] if columns else []
        return [Cells(side, cells_, b"") for cells_ in together]

    def _rest(self, shape: Shape, shown: Shown, others: list[int]) -> tuple[Cell, ...]:
        """The columns that an update did not change; only those of unchanged TOAST where the old row is not known."""
        indexes = [index for index in others if index in shown.optional]
        cells = self._cells(shape, shown._replace(unknown=()), "new", indexes)
        rest = [replace(cell, after=b"", previous=None, uncompared=None, skip=Skip.DIFFERENT) for cell in cells]
        return tuple(rest if shown.comparable else [replace(cell, null=None) for cell in rest])

    def _keyed(self, shape: Shape, shown: Shown, side: Side, keys: list[int], *, pad: bool) -> list[Piece]:
        """The key and the state of the transaction, padded if something follows."""
        cells = self._cells(shape, shown, side, keys, key=True)
        pieces: list[Piece] = [b"[", Cells(side, cells, b",", fill=True), b"]"] if cells else []
        pieces += _STATE
        least = (_KEY if cells else 0) + GAP - 1  # the last blank precedes a column
        return [Padded((*pieces, b" " * (GAP - 1)), partial(padded, least), least)] if pad else pieces

    def _cells(
        self, shape: Shape, shown: Shown, side: Side, indexes: list[int], *, key: bool = False
    ) -> tuple[Cell, ...]:
        """Columns with their names and values; after the old value if that was sent and differs."""
        cells = []
        for index in indexes:
            if index >= shape.width(side):
                break
            column = shape.columns[index]
            compared = side == "new" and (shown.comparable or (key and shape.old_kind != ""))
            arrow = self._paint(SEEN_ARROW if index in shape.seen else "→", "dim")
            bold = self._codes["key"] if key else ("", "")
            named = column_name(column.name)
            maybe = self._paint(f"{MAYBE}{named}=", "dim")
            values = self._keys if key and column.codec.kind is not ValueKind.NUMBER else self._values
            bare = column.type_oid in BARE
            cells.append(
                Cell(
                    index,
                    (maybe if index in shown.unknown else self._paint(f"{named}=", "key" if key else "name"))
                    + bold[0].encode(),
                    shown_encoding(column.codec, values, bare=bare),
                    self._paint(*NULL) if side == "new" or shape.in_old(index) else None,
                    self._paint(*UNCHANGED_MARK) if side == "new" or not shape.seen else None,
                    bold[1].encode() or (self._codes["new"][1].encode() if compared else b""),
                    skip=shown.skip(index, side),
                    previous=self._previous(bold[1], arrow, column.codec, values, bare=bare) if compared else None,
                    uncompared=maybe if side == "new" and index in shape.seen else None,
                )
            )
        return tuple(cells)

    def _previous(self, end: str, arrow: bytes, codec: Codec, values: ValueStyle, *, bare: bool) -> Previous:
        def pair(old: bytes, new: bytes) -> tuple[bytes, bytes]:
            before, now = values.changed(codec, old, new, bare=bare)
            return text_of_item(before), text_of_item(now)

        before, after = self._codes["old"]
        return Previous(f"{end}{before}".encode(), after.encode() + arrow + self._codes["new"][0].encode(), pair)

    # -- other events ------------------------------------------------------------------------------------------

    def other(self, event: Event) -> None:
        if isinstance(event, TableTruncate):
            rest = [*_MARKS, b"  ", self._paint(event.options, "note")] if event.options else _MARKS
            head = self._head(event.op, event.relation)
            self._write(self.rows.truncate(joined([*head, *rest, *self._context]), event))
        elif isinstance(event, LogicalMessage):
            self._write(self.rows.message(joined([*self._head(event.op, None), *self._content(event)]), event))
        elif isinstance(event, Outcome):
            transaction = Transaction(event.xid, event.lsn, event.time)
            what = [b"prepared ", self._paint(name(quoted(event.gid)), "prepared")]
            self._write(self.rows.boundary(joined([*self._head(event.op, None), *what]), transaction))
        elif isinstance(event, SchemaChange) and self.options.schema_changes:
            plan = joined([*self._head("schema", event.now), *self._description(event)])
            inside = self.open is not None
            self._write((b"" if inside else b"-") + self.rows.boundary(plan, self.open or Transaction(None)))
        elif isinstance(event, FromClient) and self.options.client:
            plan = joined([*self._head("client", None), self._named(name(event.client)), _from_client(event)])
            self._write(self.rows.boundary(plan, Transaction(None, commit_ts=event.time)))

    def ended(self, event: Ended) -> None:
        if not event.complete:
            broken = self._paint("broken off here: its end was not seen", "bad")
            self._write(self.rows.boundary(joined([*self._start(), broken]), event.transaction))

    def _content(self, message: LogicalMessage) -> list[Piece]:
        if isinstance(message, DdlMessage):
            texts = ", ".join(map(name, message.texts))
            change = f"{name(message.ddl.tag)}{texts and ': '}{texts}".encode()
            return [self._named(ddl_name(message.ddl)), change, *_MARKS, *self._context]
        size: Item = ((f" ({len(message.content)} bytes)", "note"),)
        content = text_of_item(self._contents.cell(UNKNOWN, message.content, mark=size))
        transactional = [] if message.transactional else [b" ", self._paint("not transactional", "note")]
        return [self._named(name(message.prefix)), content, *_MARKS, *self._context, *transactional]

    def _of_context(self, transaction: Transaction) -> bytes:
        if transaction.context is None:
            return b""
        shown = transaction.context.shown
        text = text_of_item(self._contents.cell(UNKNOWN, shown, bare=shown.lstrip().startswith(b"{"), mark=()))
        return b" " + self._paint("context=", "note") + text

    def _description(self, event: SchemaChange) -> list[Piece]:
        now = event.now
        if event.before is not None:
            return [name(text).encode() + b"  " for text in differences(event.before, now)]
        columns = [f"{column_name(one.name)} {name(one.type_name)}{' key' if one.key else ''}, " for one in now.columns]
        return [*[column.encode() for column in columns], f"identity {now.identity}".encode()]

    # -- parts of lines ----------------------------------------------------------------------------------------

    def _start(self) -> list[Piece]:
        """The time, or the LSN where it is not known, and the xid."""
        time, xid = self._codes["time"], self._codes["xid"]
        return [
            *(Value(self._time, time[0].encode(), time[1].encode(), missing=Field.LSN), b" "),
            *(Value(Field.XID, xid[0].encode(), xid[1].encode(), missing=b"-"), b" "),
        ]

    def _head(self, op: str, relation: Relation | None) -> list[Piece]:
        """The start of a line up to the table."""
        shown = _OP.get(op, op.upper())
        style = op if op in self._codes else "dim"
        operation = self._paint(shown, style) + b" " * max(_OPERATIONS - len(shown), 1)
        return [*self._start(), operation, *([] if relation is None else [self._named(table_name(relation))])]

    def _named(self, shown: str) -> bytes:
        """A table or a prefix, padded to the start of a column."""
        if self._most:
            shown = middle_cut(shown, int(self._most * _WIDEST_NAME))
        width = width_of(shown)
        room = max(_TABLE, -(-width // _STEP) * _STEP) + 1
        return self._paint(shown, "table") + b" " * (room - width)

    def _paint(self, text: str, style: str) -> bytes:
        before, after = self._codes[style]
        return f"{before}{text}{after}".encode() if text else b""

    def _write(self, text: bytes) -> None:
        text = text.rstrip(b" ")
        self.write(self._fitted([ColumnText(text.decode())]) if self._lays_out else text + b"\n")

    def _fitted(self, columns: Sequence[ColumnText]) -> bytes:
        fitted = cut(columns, self._most, self._more)
        return f"{self._painter.marked_line(fitted) if self._marks else fitted}\n".encode()


def _origin(transaction: Transaction) -> bytes:
    gid = "" if transaction.gid is None else f" gid {name(quoted(transaction.gid))}"
    origin = "" if transaction.origin is None else f" from {name(transaction.origin)}"
    return f"{gid}{origin}".encode()


def _from_client(event: FromClient) -> bytes:
    """A client's message in a packet capture."""
    message = event.message
    if isinstance(message, StartReplication):
        return name(message.command).encode()
    positions = {"flush": message.flush_lsn, "write": message.write_lsn, "apply": message.apply_lsn}
    texts = [f"{title}={lsn_text(lsn)}" for title, lsn in positions.items()]
    return " ".join([*texts, *(["reply requested"] if message.reply_requested else [])]).encode()


_STATE: Final[list[Piece]] = [
    Value(Field.STATE, b" (", b")"),
    Text(lambda transaction: b"" if transaction.begun else b" (its beginning was not seen)"),
]
_MARKS: Final[list[Piece]] = [*_STATE, Text(_origin)]
"""What is special about a transaction."""


class ColumnText(NamedTuple):
    """The text of a column in two parts; an old value may precede the second, which then begins with an arrow."""

    before: str
    old: str = ""
    rest: str = ""

    @property
    def text(self) -> str:
        """All of it."""
        return self.before + self.old + self.rest


def _apart(cell: Cell) -> Cell:
    uncompared = None if cell.uncompared is None else b" " + cell.uncompared
    return replace(cell, before=b" " + cell.before, uncompared=uncompared)


def _text(part: Part) -> str:
    return joined_parts([part]).decode()


def _width(text: str) -> int:
    """The width of a text with SGR sequences in cells."""
    return width_of(SGR.sub("", text))


def padded(least: int, text: bytes) -> bytes:
    """A text padded with blanks to so many terminal cells."""
    return text + b" " * (least - _width(text.decode()))


def cut(columns: Sequence[ColumnText], most: int, more: str) -> str:
    """A line cut to `most` terminal cells (0: no limit), with `more` and how many columns are left out: ` +3`.

    An old value is left out where the line would end before the new one, which would look like it, or before the end of
    one of which the start is not shown: the line would show what both have in common.
    """
    widths = [_width(column.text) for column in columns]
    text = "".join([column.text for column in columns])
    if not most or sum(widths) <= most:
        return text
    *starts, _ = accumulate(widths)
    room = most - 1 - len(f" +{len(starts)}")
    left_out = sum([start >= room - 1 for start in starts])  # not more than its blank is shown
    end = room if left_out else most - 1
    for place, (column, start) in enumerate(zip(columns, [0, *starts], strict=True)):
        value = start + _width(column.before)
        needed = _width(column.rest) if SGR.sub("", column.rest)[1:2] == "…" else 0
        if column.old and value <= end <= value + _width(column.old) + needed:
            without = ColumnText(f"{column.before}…{column.rest}")
            return cut([*columns[:place], without, *columns[place + 1 :]], most, more)
    return _first_cells(SGR.split(text), end) + more + (f" +{left_out}" if left_out else "")


def _first_cells(parts: list[str], left: int) -> str:
    """The first `left` cells of text, of which every second part is an SGR sequence."""
    text = ""
    for number, part in enumerate(parts):
        if number % 2 == 0:
            end = fit_end(part, 0, left)
            text += part[:end]
            left -= width_of(part[:end])
            if end < len(part):
                break
        else:
            text += part
    return text
