"""Make the row of a change: escaped and cut values, before columns are laid out."""

from __future__ import annotations

from typing import Final

from pgtail.changes.events import SEEN, LogicalMessage, RowChange, SchemaChange, TableTruncate
from pgtail.changes.relations import Relation, differences
from pgtail.native.plan import ROW_OPS
from pgtail.outputs.choice import MAYBE, ColumnChoice
from pgtail.outputs.fields import local_time
from pgtail.outputs.rows import columns_of
from pgtail.pgoutput.cells import UNCHANGED, Cell, TupleData
from pgtail.pgoutput.decoder import FromClient
from pgtail.pgoutput.scalars import lsn_text
from pgtail.pgoutput.walsender import StartReplication
from pgtail.records import NamedTuple, Record
from pgtail.terminal.layout import GAP, SPACE, Item, SizedItem, breakable, padding, sized
from pgtail.terminal.values import (
    BARE,
    MORE,
    NULL,
    SEEN_ARROW,
    UNCHANGED_MARK,
    Show,
    ValueStyle,
    column_name,
    name,
    table_name,
)
from pgtail.values import UNKNOWN, Codec

_ARROW: Final[Item] = (SPACE, ("→ ", "dim"))
_SEEN_ARROW: Final[Item] = (SPACE, (f"{SEEN_ARROW} ", "dim"))
_SEEN_BEFORE: Final = sized((("only the key was sent, the rest was seen before", "note"),))
_ONLY_THE_KEY: Final = sized((("only the key was sent", "note"),))
_NO_COLUMNS: Final = sized((("no columns", "note"),))
_NO_KEY: Final[SizedItem] = (0, ())

MARGIN: Final = 2
_OPERATIONS: Final = 7
LEFT: Final = MARGIN + _OPERATIONS + GAP
"""The width of a row's operation, in cells."""


def _operation(text: str, style: str) -> Item:
    """The start of a row."""
    return padding(MARGIN), (text, style), padding(LEFT - MARGIN - len(text))


def _sized(text: str, style: str) -> SizedItem:
    """An item of one fragment."""
    return sized(((text, style),))


_OF_ROWS: Final = {op: _operation(op.upper(), op) for op in ROW_OPS}
_TRUNCATE: Final = _operation("TRUNC", "truncate")
_MESSAGE: Final = _operation("MESSAGE", "message")
_SCHEMA: Final = _operation("SCHEMA", "dim")
_CLIENT: Final = _operation("CLIENT", "origin")


class TableRow(NamedTuple):
    """One row of a table, independent of the widths of columns."""

    op: Item
    table: SizedItem
    key: SizedItem
    values: list[SizedItem]

    def weight(self) -> int:
        """The number of characters in its values."""
        return sum([len(text) for _, item in self.values for text, _ in item])


def rolled_back(row: TableRow) -> TableRow:
    """The row struck through and labelled: some terminals cannot strike text through."""
    values = [*map(_strike, row.values), sized((("rolled back", "note"),))]
    return TableRow(_operation(row.op[1][0], "aborted"), _strike(row.table), _strike(row.key), values)


def _strike(sized_item: SizedItem) -> SizedItem:
    size, item = sized_item
    return size, tuple([(text, "aborted") for text, _ in item])


class _Column(Record):
    """What all values of a column have in common; `show` shows a value after the label, `maybe` one that may have
    changed."""

    index: int
    label: Item
    codec: Codec
    bare: bool
    show: Show
    maybe: Show


class _TableParts:
    """The parts of rows with up to `count` cells that depend on the version of a table only."""

    def __init__(self, relation: Relation, count: int, values: ValueStyle, choice: ColumnChoice) -> None:
        columns = columns_of(relation, count)
        self.relation, self.count = relation, len(columns)
        self.table = _sized(table_name(relation), "table")
        self.keys: list[_Column] = []
        self.others: list[_Column] = []
        keyed = relation.identity in ("default", "index")
        for index in choice.columns(relation, columns):
            column = columns[index]
            shown, codec, bare = column_name(column.name), column.codec, column.type_oid in BARE
            key = keyed and column.key
            label: Item = ((shown, "name"), SPACE)
            if key:
                label = (*([(", ", "plain")] if self.keys else []), (f"{shown}=", "key"))
            show = maybe = values.of_column(codec, label, "key" if key else "value", bare=bare)
            if choice.changed and not key:
                maybe = values.of_column(codec, ((f"{MAYBE}{shown}", "dim"), SPACE), bare=bare)
            found = _Column(index, label, codec, bare, show, maybe)
            (self.keys if key else self.others).append(found)
        self.shows = [(column.index, column.show) for column in self.others]
        self.maybe = [(column.index, column.maybe) for column in self.others]
        kept = self.others[1:] if not self.keys else self.others
        self.optional = frozenset([column.index for column in kept] if relation.seen else ())
        """The columns that --changed may leave out: without a key, the first one stands in for it."""


class RowFormatter:
    """Makes the rows of changes with the columns of `choice`; `values` shows their values."""

    operations: Final = [*_OF_ROWS.values()]
    """How rows start, by operation; this and the next are for the scanner."""
    fixed_items: Final = [_ARROW, (NULL,), (MORE,), _ONLY_THE_KEY[1], _NO_COLUMNS[1]]

    def __init__(self, values: ValueStyle, choice: ColumnChoice, *, fill_unchanged: bool) -> None:
        self.only_changed = choice.changed
        self._values = values
        self._choice = choice
        self._fill = fill_unchanged
        self._tables: dict[int, _TableParts] = {}

    def change(self, change: RowChange) -> TableRow:
        """A row inserted, updated, deleted or read for a snapshot."""
        old, new = change.old, change.new
        parts = self.parts(change.relation, len(new or ()) if old is None else max(len(old), len(new or ())))
        if new is None:
            values = self._deleted(parts, change.old_kind, old or ())
        else:
            changed = self._choice.changed and change.op == "update"
            whole = old if old is not None and change.old_kind in ("O", SEEN) else ()
            arrow = _SEEN_ARROW if change.old_kind == SEEN else _ARROW
            values = self._written(parts, whole, new, arrow, changed=changed)
            if changed and values and not whole:
                self._choice.tell_unknown(change.relation)
        key = self._key(parts, old, new)
        if not values and not key[1]:
            values = [_NO_COLUMNS]
        return TableRow(_OF_ROWS[change.op], parts.table, key, values)

    def truncate(self, change: TableTruncate) -> TableRow:
        """One table of a Truncate."""
        text = change.options
        return TableRow(_TRUNCATE, self.parts(change.relation).table, _NO_KEY, [_sized(text, "note")] if text else [])

    def message(self, message: LogicalMessage) -> TableRow:
        """A logical decoding message."""
        size: Item = (SPACE, (f"({len(message.content)} bytes)", "note"))
        values = [sized(self._values.cell(UNKNOWN, message.content, mark=size))]
        if not message.transactional:
            values.append(_sized("not transactional", "note"))
        return TableRow(_MESSAGE, _sized(name(message.prefix), "table"), _NO_KEY, values)

    def from_client(self, event: FromClient) -> TableRow:
        """What a client sent, in a packet capture."""
        message, values = event.message, list[SizedItem]()
        if isinstance(message, StartReplication):
            values.append(sized(breakable(name(message.command), "plain")))
        else:
            positions = {"flush": message.flush_lsn, "write": message.write_lsn, "apply": message.apply_lsn}
            for title, lsn in positions.items():
                values.append(sized(((f"{title} ", "name"), (lsn_text(lsn), "lsn"))))
            if message.reply_requested:
                values.append(_sized("reply requested", "note"))
        if event.time is not None:
            values.append(_sized(local_time(event.time), "dim"))
        return TableRow(_CLIENT, _sized(event.client, "dim"), _NO_KEY, values)

    def schema(self, event: SchemaChange) -> TableRow:
        """A table that was described for the first time, or whose description changed."""
        now = event.now
        if event.before is None:
            values = [
                sized(
                    (
                        (f"{column_name(column.name)} ", "name"),
                        (name(column.type_name), "dim"),
                        *([(" key", "note")] if column.key else []),
                    )
                )
                for column in now.columns
            ]
            values.append(_sized(f"identity {now.identity}", "note"))
        else:
            values = [_sized(name(text), "dim") for text in differences(event.before, now)]
        return TableRow(_SCHEMA, _sized(table_name(now), "dim"), _NO_KEY, values)

    def parts(self, relation: Relation, count: int = 0) -> _TableParts:
        """The parts of the rows of a table with up to `count` cells."""
        parts = self._tables.get(relation.version)
        if parts is None or parts.relation is not relation or parts.count < count:
            parts = self._tables[relation.version] = _TableParts(relation, count, self._values, self._choice)
        return parts

    def _key(self, parts: _TableParts, old: TupleData | None, new: TupleData | None) -> SizedItem:
        """The columns of the replica identity; old → new if they changed."""
        width, found = _NO_KEY
        cells = (old if new is None else new) or ()
        for column in parts.keys:
            index = column.index
            if index >= len(cells):
                break
            now = cells[index]
            before = now if old is None or index >= len(old) else old[index]
            if now is UNCHANGED or before == now:
                size, item = column.show(before)
            else:
                size, item = self.changed(column, before, now)
            width += size
            found += item
        return width, found

    def changed(self, column: _Column, old: Cell, new: Cell, arrow: Item = _ARROW) -> SizedItem:
        """A value that changed: old → new, after its label."""
        before = self._values.cell(column.codec, old, "old", bare=column.bare)
        now = self._values.cell(column.codec, new, "new", bare=column.bare)
        return sized((*column.label, *before, *arrow, *now))

    def _written(
        self, parts: _TableParts, old: TupleData, new: TupleData, arrow: Item, *, changed: bool
    ) -> list[SizedItem]:
        """The new row without the key; changed values are old → new if the whole old row was sent.

        With `changed` only the columns that changed or may have, the latter with a mark.
        """
        optional: frozenset[int] = parts.optional if changed else frozenset()
        if not old:
            return [
                show(new[index])
                for index, show in (parts.maybe if changed else parts.shows)
                if index < len(new) and not (index in optional and new[index] is UNCHANGED)
            ]
        values = []
        for column in parts.others:
            index = column.index
            if index >= len(new):
                break
            cell = new[index]
            if index in optional and (cell is UNCHANGED or (index < len(old) and old[index] == cell)):
                continue
            if changed and (index >= len(old) or old[index] is UNCHANGED):
                values.append(column.maybe(cell))
            elif index >= len(old) or old[index] in (cell, UNCHANGED):
                values.append(column.show(cell))
            elif cell is UNCHANGED:
                filled = self._fill and old[index] is not UNCHANGED
                item = (*column.show(old[index])[1], SPACE) if filled else column.label
                values.append(sized((*item, UNCHANGED_MARK)))
            else:
                values.append(self.changed(column, old[index], cell, arrow))
        return values

    def _deleted(self, parts: _TableParts, kind: str, old: TupleData) -> list[SizedItem]:
        """The old row without the key, as far as it was sent: a key tuple has NULL in all other columns."""
        whole = kind in ("O", SEEN) and parts.relation.seen
        values = [
            column.show(old[column.index])
            for column in parts.others
            if column.index < len(old)
            and (whole or old[column.index] is not None)
            and not (kind == SEEN and old[column.index] is UNCHANGED)
        ]
        if kind == SEEN:
            values.append(_SEEN_BEFORE)
        elif not whole and len(values) < len(parts.others):
            values.append(_ONLY_THE_KEY)
        return values
