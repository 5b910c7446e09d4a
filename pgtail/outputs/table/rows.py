"""Make the row of a change: escaped and cut values, before columns are laid out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from pgtail.changes.events import LogicalMessage, RowChange, SchemaChange, TableTruncate
from pgtail.changes.relations import Relation, differences
from pgtail.outputs.cells import columns_of
from pgtail.pgoutput.cells import UNCHANGED, Cell, TupleData
from pgtail.terminal.layout import SPACE, Item
from pgtail.terminal.style import Fragment
from pgtail.terminal.values import BARE, UNCHANGED_MARK, ValueStyle, name
from pgtail.values import UNKNOWN

_ARROW: Final[Item] = (SPACE, ("→ ", "dim"))
_ONLY_THE_KEY: Final[Item] = (("only the key was sent", "note"),)
_NO_COLUMNS: Final[Item] = (("no columns", "note"),)


@dataclass(slots=True)
class Row:
    """One row of a table, independent of the widths of columns."""

    op: Fragment
    table: Item
    key: Item = ()
    values: list[Item] = field(default_factory=list)

    def weight(self) -> int:
        """The number of characters in its values."""
        return sum([len(text) for item in self.values for text, _ in item])


def rolled_back(row: Row) -> Row:
    """The row struck through and labelled: some terminals cannot strike text through."""
    table, key = _strike(row.table), _strike(row.key)
    return Row((row.op[0], "aborted"), table, key, [*map(_strike, row.values), (("rolled back", "note"),)])


def _strike(item: Item) -> Item:
    return tuple([(text, "aborted") for text, _ in item])


class _TableParts:
    """The parts of rows with up to `count` cells that depend on the version of a table only."""

    def __init__(self, relation: Relation, count: int) -> None:
        columns = columns_of(relation, count)
        self.relation = relation
        self.table: Item = ((name(relation.qualified), "table"),)
        self.names = [name(column.name) for column in columns]
        self.codecs = [column.codec for column in columns]
        self.bare = [column.type_oid in BARE for column in columns]
        key = relation.identity in ("default", "index")
        self.keys = [index for index, column in enumerate(columns) if key and column.key]
        self.others = [index for index in range(len(columns)) if index not in self.keys]


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
        return Row((change.op.upper(), change.op), parts.table, key, values)

    def truncate(self, change: TableTruncate) -> Row:
        """One table of a Truncate."""
        words = [("cascade", change.cascade), ("restart identity", change.restart_identity)]
        text = ", ".join([word for word, said in words if said])
        return Row(("TRUNC", "truncate"), self._table(change.relation).table, (), [((text, "note"),)] if text else [])

    def message(self, message: LogicalMessage) -> Row:
        """A logical decoding message."""
        size: Item = (SPACE, (f"({len(message.content)} bytes)", "note"))
        values = [self._values.cell(UNKNOWN, message.content, mark=size)]
        if not message.transactional:
            values.append((("not transactional", "note"),))
        return Row(("MESSAGE", "message"), ((name(message.prefix), "table"),), (), values)

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
        return Row(("SCHEMA", "dim"), ((name(now.qualified), "dim"),), (), values)

    def _table(self, relation: Relation, count: int = 0) -> _TableParts:
        parts = self._tables.get(relation.version)
        if parts is None or parts.relation is not relation or len(parts.names) < count:
            parts = self._tables[relation.version] = _TableParts(relation, count)
        return parts

    def _cell(self, parts: _TableParts, index: int, cell: Cell, style: str = "value") -> Item:
        return self._values.cell(parts.codecs[index], cell, style, bare=parts.bare[index])

    def _key(self, parts: _TableParts, old: TupleData | None, new: TupleData | None) -> Item:
        """The columns of the replica identity; old → new if they changed."""
        found: list[Fragment] = []
        cells = (old if new is None else new) or ()
        for index in parts.keys:
            if index >= len(cells):
                break
            found.append((f"{', ' if found else ''}{parts.names[index]}=", "plain"))
            before, now = old[index] if old is not None and index < len(old) else cells[index], cells[index]
            if now is UNCHANGED or before == now:
                found += self._cell(parts, index, before)
            else:
                found += self._changed(parts, index, before, now)
        return tuple(found)

    def _changed(self, parts: _TableParts, index: int, old: Cell, new: Cell) -> Item:
        return (*self._cell(parts, index, old, "old"), *_ARROW, *self._cell(parts, index, new, "new"))

    def _written(self, parts: _TableParts, old: TupleData, new: TupleData) -> list[Item]:
        """The new row without the key; changed values are old → new if the whole old row was sent."""
        values = []
        for index in parts.others:
            if index >= len(new):
                break
            cell = new[index]
            label: Item = ((parts.names[index], "name"), SPACE)
            if index >= len(old) or old[index] == cell:
                values.append((*label, *self._cell(parts, index, cell)))
            elif cell is UNCHANGED:
                filled = self._fill and old[index] is not UNCHANGED
                value = (*self._cell(parts, index, old[index]), SPACE) if filled else ()
                values.append((*label, *value, UNCHANGED_MARK))
            else:
                values.append((*label, *self._changed(parts, index, old[index], cell)))
        return values

    def _deleted(self, parts: _TableParts, kind: str, old: TupleData) -> list[Item]:
        """The old row without the key, as far as it was sent: a key tuple has NULL in all other columns."""
        whole = kind == "O" and parts.relation.seen
        values: list[Item] = [
            ((parts.names[index], "name"), SPACE, *self._cell(parts, index, old[index]))
            for index in parts.others
            if index < len(old) and (whole or old[index] is not None)
        ]
        if not whole and len(values) < len(parts.others):
            values.append(_ONLY_THE_KEY)
        return values
