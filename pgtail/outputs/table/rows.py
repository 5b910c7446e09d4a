"""Make the row of a change: escaped and cut values, before columns are laid out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from msgspec import Struct

from pgtail.changes.ddl import DdlMessage
from pgtail.changes.events import OLD_ROWS, SEEN, LogicalMessage, RowChange, SchemaChange, TableTruncate
from pgtail.changes.relations import Column, Relation, differences
from pgtail.native.plan import ROW_OPS
from pgtail.outputs.choice import MAYBE, ColumnChoice
from pgtail.outputs.fields import local_time
from pgtail.outputs.rows import columns_of
from pgtail.pgoutput.cells import UNCHANGED, Cell, TupleData
from pgtail.pgoutput.decoder import FromClient
from pgtail.pgoutput.scalars import lsn_text
from pgtail.pgoutput.walsender import StartReplication
from pgtail.terminal.layout import GAP, SPACE, Item, SizedItem, breakable, padding, sized, sized_sentence, wrap_sized
from pgtail.terminal.style import Fragment
from pgtail.terminal.values import (
    BARE,
    SEEN_ARROW,
    UNCHANGED_MARK,
    Show,
    ValueStyle,
    column_name,
    ddl_name,
    name,
    table_name,
)
from pgtail.values import UNKNOWN, Codec

_ARROW: Final[Item] = (SPACE, ("→ ", "dim"))
_SEEN_ARROW: Final[Item] = (SPACE, (f"{SEEN_ARROW} ", "dim"))
_SEEN_BEFORE: Final = sized((("only the key was sent, the rest was seen before", "note"),))
_ONLY_THE_KEY: Final = sized((("only the key was sent", "note"),))
_NOTHING_CHANGED: Final = sized((("nothing changed", "note"),))
_NO_COLUMNS: Final = sized((("no columns", "note"),))
_NO_KEY: Final[SizedItem] = (0, ())

MARGIN: Final = 2
_OPERATIONS: Final = 7
LEFT: Final = MARGIN + _OPERATIONS + GAP
"""The width of a row's operation, in cells."""


def _operation(text: str, style: str) -> Item:
    return padding(MARGIN), (text, style), padding(LEFT - MARGIN - len(text))


def _sized(text: str, style: str) -> SizedItem:
    return sized(((text, style),))


_FEWEST_NULLS: Final = 3
"""Columns of a page that are always NULL; fewer of them are shown in their rows."""
_OF_ROWS: Final = {op: _operation(op.upper(), op) for op in ROW_OPS}
_TRUNCATE: Final = _operation("TRUNC", "truncate")
_MESSAGE: Final = _operation("MESSAGE", "message")
_DDL: Final = _operation("DDL", "message")
_SCHEMA: Final = _operation("SCHEMA", "dim")
_CONTEXT: Final = _operation("CONTEXT", "note")
_CLIENT: Final = _operation("CLIENT", "origin")


Hidden: TypeAlias = Mapping[int, Collection[int | None]]
"""By version of a table, the indexes of columns whose NULLs are not shown in rows."""


class TableRow:
    """One row of a table, independent of the widths of columns."""

    __slots__ = ("key", "not_null", "nulls", "op", "relation", "table", "values", "widest")

    def __init__(
        self, op: Item, table: SizedItem, key: SizedItem, values: list[SizedItem], relation: Relation | None = None
    ) -> None:
        self.op, self.table, self.key, self.values = op, table, key, values
        self.relation = relation
        """The relation of a change that was not rolled back; None otherwise."""
        self.nulls: dict[int, int] = {}
        """Place in `values` -> the index of a column that is NULL."""
        self.not_null: set[int] = set()
        """The indexes of columns that have, had or may have a value, also where it is not shown."""
        self.widest = 0
        """The width of its widest member of a value, which one line must have room for."""

    def shown(self, hidden: Hidden) -> list[SizedItem]:
        """Its values without NULLs that are hidden."""
        indexes = hidden.get(self.relation.version) if hidden and self.relation is not None else None
        if not indexes:
            return self.values
        return [item for place, item in enumerate(self.values) if self.nulls.get(place) not in indexes]

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


class _Column(Struct, frozen=True):
    """The common parts of a column's values; `show` shows a value after the label, `maybe` one that may have
    changed. `column` is None if its values have no members."""

    index: int
    column: Column | None
    label: Item
    codec: Codec
    bare: bool
    style: ValueStyle
    show: Show
    maybe: Show


class _TableParts:
    """The parts of rows with up to `count` cells that depend on the version of a table only."""

    def __init__(
        self, relation: Relation, count: int, keys: ValueStyle, values: ValueStyle, choice: ColumnChoice
    ) -> None:
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
                label = (*([(",", "plain"), SPACE] if self.keys else []), (f"{shown}=", "key"))
            style = keys if key else values
            show = maybe = style.of_column(codec, label, "key" if key else "value", bare=bare)
            if choice.changed and not key:
                maybe = values.of_column(codec, ((f"{MAYBE}{shown}", "dim"), SPACE), bare=bare)
            described = column if column.may_have_members else None
            found = _Column(index, described, label, codec, bare, style, show, maybe)
            (self.keys if key else self.others).append(found)
        kept = self.others[1:] if not self.keys else self.others
        self.optional = frozenset([column.index for column in kept] if relation.seen else ())
        """The columns that --changed may leave out: without a key, the first one stands in for it."""


class NullColumns:
    """The columns of each table that are NULL in all rows of a page; one line has them if there are enough."""

    def __init__(self) -> None:
        self._relations: dict[int, Relation] = {}
        self._nulls: dict[int, set[int]] = {}
        self._not_null: dict[int, set[int]] = {}

    def add(self, relation: Relation, nulls: Iterable[int], not_null: Iterable[int]) -> None:
        """The indexes of columns that are NULL in rows of a table, and of those that are not, or may not be."""
        version = relation.version
        self._relations.setdefault(version, relation)
        self._nulls.setdefault(version, set()).update(nulls)
        self._not_null.setdefault(version, set()).update(not_null)

    def found(self) -> dict[int, set[int]]:
        """By version of a table, the indexes of the columns."""
        found = {version: nulls - self._not_null[version] for version, nulls in self._nulls.items()}
        return {version: indexes for version, indexes in found.items() if len(indexes) >= _FEWEST_NULLS}

    def lines(self, width: int, left: int) -> Iterator[list[Fragment]]:
        """A line for each table that has such columns, after `left` cells."""
        for version, indexes in self.found().items():
            relation = self._relations[version]
            columns = columns_of(relation, max(indexes) + 1)
            names = ", ".join([column_name(columns[index].name) for index in sorted(indexes)])
            where = f" in {table_name(relation)}" if len(self._relations) > 1 else ""
            text = sized_sentence(f"+{len(indexes)} NULL{where}: {names}", "dim", width - left)
            yield from wrap_sized([text], width - left, (padding(left),), (padding(left),))


class RowFormatter:
    """Makes the rows of changes with the columns of `choice`; `values` shows their values, `keys` those of the key."""

    def __init__(
        self, values: ValueStyle, choice: ColumnChoice, *, fill_unchanged: bool, keys: ValueStyle | None = None
    ) -> None:
        self._keys, self._values = keys or values, values
        self._choice = choice
        self._fill = fill_unchanged
        self.room = 0
        """Cells of a line below the key, which a member of a value fits."""
        self._tables: dict[int, _TableParts] = {}

    def change(self, change: RowChange) -> TableRow:
        """A row inserted, updated, deleted or read for a snapshot."""
        old, new = change.old, change.new
        parts = self.parts(change.relation, len(new or ()) if old is None else max(len(old), len(new or ())))
        row = TableRow(_OF_ROWS[change.op], parts.table, self._key(parts, old, new), [], change.relation)
        if new is None:
            self._deleted(row, parts, change.old_kind, old or ())
        else:
            changed = self._choice.changed and change.op == "update"
            whole = old if old is not None and change.old_kind in OLD_ROWS else ()
            arrow = _SEEN_ARROW if change.old_kind == SEEN else _ARROW
            unchanged = self._written(row, parts, whole, new, arrow, changed=changed)
            if changed and row.values and not whole:
                self._choice.note_unknown(change.relation)
            if change.nothing_changed:
                row.values.append(_NOTHING_CHANGED)
            if unchanged and not self._choice.changed_alone:
                row.values.append(sized((*breakable(", ".join(unchanged), "name"), SPACE, UNCHANGED_MARK)))
        if not row.values and not row.key[1]:
            row.values.append(_NO_COLUMNS)
        return row

    def truncate(self, change: TableTruncate) -> TableRow:
        """One table of a Truncate."""
        text = change.options
        return TableRow(_TRUNCATE, self.parts(change.relation).table, _NO_KEY, [_sized(text, "note")] if text else [])

    def message(self, message: LogicalMessage) -> TableRow:
        """A logical decoding message, or the schema change in it."""
        if isinstance(message, DdlMessage):
            values = [_sized(name(text), "plain") for text in (message.ddl.tag, *message.texts)]
            return TableRow(_DDL, _sized(ddl_name(message.ddl), "table"), _NO_KEY, values)
        size: Item = (SPACE, (f"({len(message.content)} bytes)", "note"))
        values = [sized(self._values.cell(UNKNOWN, message.content, mark=size))]
        if not message.transactional:
            values.append(_sized("not transactional", "note"))
        return TableRow(_MESSAGE, _sized(name(message.prefix), "table"), _NO_KEY, values)

    def context(self, content: bytes) -> TableRow:
        """The context of the rows below it."""
        return TableRow(_CONTEXT, _NO_KEY, _NO_KEY, [sized(self._values.cell(UNKNOWN, content, bare=True))])

    def from_client(self, event: FromClient) -> TableRow:
        """A client's message in a packet capture."""
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
            parts = self._tables[relation.version] = _TableParts(
                relation, count, self._keys, self._values, self._choice
            )
        return parts

    def _key(self, parts: _TableParts, old: TupleData | None, new: TupleData | None) -> SizedItem:
        """The columns of the replica identity; old → new if they changed."""
        width, fragments = _NO_KEY
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
                size, item = self._changed(column, before, now)
            width += size
            fragments += item
        return width, fragments

    def _changed(self, column: _Column, old: Cell, new: Cell, arrow: Item = _ARROW) -> SizedItem:
        """A value that changed: old → new, after its label."""
        before, now = column.style.changed(column.codec, old, new, bare=column.bare)
        return sized((*column.label, *before, *arrow, *now))

    def _compared(self, row: TableRow, column: _Column, old: Cell, new: Cell, arrow: Item) -> None:
        """Show a value that changed, or the members in which a long one did."""
        members = []
        if column.column is not None:
            from pgtail.outputs.members import MOST, changed_members  # it loads json

            members = changed_members(column.column, old, new, column.style)
        if not members:
            _add(row, column, self._changed(column, old, new, arrow))
            return
        for member in members[:MOST]:
            item = member.line(column.label[0][0], arrow, self.room, self._values)
            row.widest = max(row.widest, item[0])
            _add(row, column, item)
        if len(members) > MOST:
            row.values.append(_sized(f"and {len(members) - MOST} more", "note"))

    def _written(
        self, row: TableRow, parts: _TableParts, old: TupleData, new: TupleData, arrow: Item, *, changed: bool
    ) -> list[str]:
        """Show the new row without the key; changed values are old → new if the whole old row was sent.

        With `changed` only the columns that changed or may have, the latter with a mark; returns the names of those
        left out because they are unchanged TOAST.
        """
        unchanged = list[str]()
        optional: frozenset[int] = parts.optional if changed else frozenset()
        for column in parts.others:
            index = column.index
            if index >= len(new):
                break
            cell = new[index]
            sent = index < len(old)
            same = sent and old[index] == cell
            if index in optional and (cell is UNCHANGED or same):
                if cell is not None:
                    row.not_null.add(index)
                if cell is UNCHANGED:
                    unchanged.append(column.label[0][0])
            elif changed and (not sent or old[index] is UNCHANGED):
                _show(row, column, cell, maybe=True)
            elif not sent or old[index] in (cell, UNCHANGED):
                _show(row, column, cell, maybe=False)
            elif cell is UNCHANGED:
                filled = self._fill and old[index] is not UNCHANGED
                item = (*column.show(old[index])[1], SPACE) if filled else column.label
                _add(row, column, sized((*item, UNCHANGED_MARK)))
            else:
                self._compared(row, column, old[index], cell, arrow)
        return unchanged

    def _deleted(self, row: TableRow, parts: _TableParts, kind: str, old: TupleData) -> None:
        """Show the old row without the key, as far as it was sent: a key tuple has NULL in all other columns."""
        whole = kind in OLD_ROWS and parts.relation.seen
        for column in parts.others:
            if (
                column.index < len(old)
                and (whole or old[column.index] is not None)
                and not (kind == SEEN and old[column.index] is UNCHANGED)
            ):
                _show(row, column, old[column.index], maybe=False)
        if kind == SEEN:
            row.values.append(_SEEN_BEFORE)
        elif not whole and len(row.values) < len(parts.others):
            row.values.append(_ONLY_THE_KEY)


def _show(row: TableRow, column: _Column, cell: Cell, *, maybe: bool) -> None:
    """Show a value, also NULL, in a row; `maybe` says that it may have changed."""
    if cell is None:
        row.nulls[len(row.values)] = column.index
    else:
        row.not_null.add(column.index)
    row.values.append((column.maybe if maybe else column.show)(cell))


def _add(row: TableRow, column: _Column, item: SizedItem) -> None:
    """Show the values that are not NULL, or were not."""
    row.not_null.add(column.index)
    row.values.append(item)
