"""Make the row of a change: escaped and cut values, before columns are laid out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pgtail.changes.events import LogicalMessage, RowChange, SchemaChange, TableTruncate
from pgtail.changes.relations import Relation, differences
from pgtail.outputs.cells import columns_of
from pgtail.pgoutput.cells import UNCHANGED, Cell, TupleData
from pgtail.terminal.layout import GAP, SPACE, Item, padding
from pgtail.terminal.style import Fragment
from pgtail.terminal.values import BARE, UNCHANGED_MARK, Show, ValueStyle, name
from pgtail.values import UNKNOWN

_ARROW: Final[Item] = (SPACE, ("→ ", "dim"))
_ONLY_THE_KEY: Final[Item] = (("only the key was sent", "note"),)
_NO_COLUMNS: Final[Item] = (("no columns", "note"),)

MARGIN: Final = 2
_OPERATIONS: Final = 7
LEFT: Final = MARGIN + _OPERATIONS + GAP
"""The width of a row's operation, in cells."""


def _operation(text: str, style: str) -> Item:
    """The start of a row."""
    return padding(MARGIN), (text, style), padding(LEFT - MARGIN - len(text))


_OF_ROWS: Final = {op: _operation(op.upper(), op) for op in ("insert", "update", "delete")}
_TRUNCATE: Final = _operation("TRUNC", "truncate")
_MESSAGE: Final = _operation("MESSAGE", "message")
_SCHEMA: Final = _operation("SCHEMA", "dim")


@dataclass(slots=True)
class Row:
    """One row of a table, independent of the widths of columns."""

    op: Item
    table: Item
    key: Item = ()
    values: list[Item] = field(default_factory=list)

    def weight(self) -> int:
        """The number of characters in its values."""
        return sum([len(text) for item in self.values for text, _ in item])


def rolled_back(row: Row) -> Row:
    """The row struck through and labelled: some terminals cannot strike text through."""
    table, key = _strike(row.table), _strike(row.key)
    return Row(_operation(row.op[1][0], "aborted"), table, key, [*map(_strike, row.values), (("rolled back", "note"),)])


def _strike(item: Item) -> Item:
    return tuple([(text, "aborted") for text, _ in item])


class _Column(NamedTuple):
    """What all values of a column have in common."""

    index: int
    name: str
    label: Item
    show: Show


class _TableParts:
    """The parts of rows with up to `count` cells that depend on the version of a table only."""

    def __init__(self, relation: Relation, count: int, values: ValueStyle) -> None:
        columns = columns_of(relation, count)
        self.relation, self.count = relation, len(columns)
        self.table: Item = ((name(relation.qualified), "table"),)
        self.keys: list[_Column] = []
        self.others: list[_Column] = []
        keyed = relation.identity in ("default", "index")
        for index, column in enumerate(columns):
            shown, show = name(column.name), values.of_column(column.codec, bare=column.type_oid in BARE)
            found = _Column(index, shown, ((shown, "name"), SPACE), show)
            (self.keys if keyed and column.key else self.others).append(found)


class RowFormatter:
    """Makes the rows of changes; `values` shows their values."""

    def __init__(self, values: ValueStyle, *, fill_unchanged: bool) -> None:
        self._values = values
        self._fill = fill_unchanged
        self._tables: dict[int, _TableParts] = {}

    def change(self, change: RowChange) -> Row:
        """A row inserted, updated or deleted."""
        old, new = change.old, change.new
        parts = self._table(change.relation, max(len(old or ()), len(new or ())))
        if new is None:
            values = self._deleted(parts, change.old_kind, old or ())
        else:
            values = self._written(parts, old if old is not None and change.old_kind == "O" else (), new)
        key = self._key(parts, old, new)
        if not values and not key:
            values = [_NO_COLUMNS]
        return Row(_OF_ROWS[change.op], parts.table, key, values)

    def truncate(self, change: TableTruncate) -> Row:
        """One table of a Truncate."""
        words = [("cascade", change.cascade), ("restart identity", change.restart_identity)]
        text = ", ".join([word for word, said in words if said])
        return Row(_TRUNCATE, self._table(change.relation).table, (), [((text, "note"),)] if text else [])

    def message(self, message: LogicalMessage) -> Row:
        """A logical decoding message."""
        size: Item = (SPACE, (f"({len(message.content)} bytes)", "note"))
        values = [self._values.cell(UNKNOWN, message.content, mark=size)]
        if not message.transactional:
            values.append((("not transactional", "note"),))
        return Row(_MESSAGE, ((name(message.prefix), "table"),), (), values)

    def schema(self, event: SchemaChange) -> Row:
        """A table that was described for the first time, or whose description changed."""
        now = event.now
        if event.before is None:
            values: list[Item] = [
                (
                    (f"{name(column.name)} ", "name"),
                    (name(column.type_name), "dim"),
                    *([(" key", "note")] if column.key else []),
                )
                for column in now.columns
            ]
            values.append(((f"identity {now.identity}", "note"),))
        else:
            values = [((name(text), "dim"),) for text in differences(event.before, now)]
        return Row(_SCHEMA, ((name(now.qualified), "dim"),), (), values)

    def _table(self, relation: Relation, count: int = 0) -> _TableParts:
        parts = self._tables.get(relation.version)
        if parts is None or parts.relation is not relation or parts.count < count:
            parts = self._tables[relation.version] = _TableParts(relation, count, self._values)
        return parts

    def _key(self, parts: _TableParts, old: TupleData | None, new: TupleData | None) -> Item:
        """The columns of the replica identity; old → new if they changed."""
        found: Item = ()
        cells = (old if new is None else new) or ()
        for column in parts.keys:
            index = column.index
            if index >= len(cells):
                break
            label: Item = ((f"{', ' if found else ''}{column.name}=", "plain"),)
            before, now = old[index] if old is not None and index < len(old) else cells[index], cells[index]
            if now is UNCHANGED or before == now:
                found += label + column.show(before)
            else:
                found += label + _changed(column, before, now)
        return found

    def _written(self, parts: _TableParts, old: TupleData, new: TupleData) -> list[Item]:
        """The new row without the key; changed values are old → new if the whole old row was sent."""
        values = []
        for column in parts.others:
            index, _, label, show = column
            if index >= len(new):
                break
            cell = new[index]
            if index >= len(old) or old[index] == cell:
                values.append(label + show(cell))
            elif cell is UNCHANGED:
                filled = self._fill and old[index] is not UNCHANGED
                value = (*show(old[index]), SPACE) if filled else ()
                values.append((*label, *value, UNCHANGED_MARK))
            else:
                values.append(label + _changed(column, old[index], cell))
        return values

    def _deleted(self, parts: _TableParts, kind: str, old: TupleData) -> list[Item]:
        """The old row without the key, as far as it was sent: a key tuple has NULL in all other columns."""
        whole = kind == "O" and parts.relation.seen
        values: list[Item] = [
            label + show(old[index])
            for index, _, label, show in parts.others
            if index < len(old) and (whole or old[index] is not None)
        ]
        if not whole and len(values) < len(parts.others):
            values.append(_ONLY_THE_KEY)
        return values


def _changed(column: _Column, old: Cell, new: Cell) -> Item:
    return column.show(old, "old") + _ARROW + column.show(new, "new")
