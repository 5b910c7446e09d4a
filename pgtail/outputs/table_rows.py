"""Floor 4, a change -> its row, in cells that are cut and escaped; knows no width of any column and no colour."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from pgtail.outputs.table_layout import SPACE, Item
from pgtail.outputs.table_style import Fragment
from pgtail.outputs.table_values import BARE, UNCHANGED_MARK, ValueStyle, name
from pgtail.relations import Relation, differences
from pgtail.transaction import LogicalMessage, RowChange, SchemaChange, TableTruncate
from pgtail.values import UNKNOWN
from pgtail.wire.cells import UNCHANGED, Cell, TupleData

_ARROW: Final[Item] = (SPACE, ("→ ", "dim"))
_ONLY_THE_KEY: Final[Item] = (("only the key was sent", "note"),)
_NO_COLUMNS: Final[Item] = (("no columns", "note"),)


@dataclass(slots=True)
class Row:
    """One line of a table, as far as it is the same at any width."""

    op: Fragment
    table: Item
    key: Item = ()
    values: list[Item] = field(default_factory=list)

    def weight(self) -> int:
        """Characters in its values."""
        return sum([len(text) for item in self.values for text, _ in item])


def rolled_back(row: Row) -> Row:
    """The same struck through, and in words, for not every terminal can."""
    table, key = _struck(row.table), _struck(row.key)
    return Row((row.op[0], "aborted"), table, key, [*map(_struck, row.values), (("rolled back", "note"),)])


def _struck(item: Item) -> Item:
    return tuple([(text, "aborted") for text, _ in item])


class _Shape:
    """What one version of a table contributes to all its rows."""

    def __init__(self, relation: Relation) -> None:
        self.relation = relation
        self._beyond = relation.beyond
        self.table: Item = ((name(relation.qualified), "table"),)
        self.names = [name(column.name) for column in relation.columns]
        self.codecs = [column.codec for column in relation.columns]
        self.bare = [column.type_oid in BARE for column in relation.columns]
        key = relation.identity in ("default", "index")
        self.keys = [index for index, column in enumerate(relation.columns) if key and column.key]
        self.others = [index for index in range(len(relation.columns)) if index not in self.keys]

    def widen(self, count: int) -> None:
        """Name the columns that the Relation does not have ?n, up to `count` of them."""
        for index in range(len(self.names), count):
            self.names.append(f"?{index + 1}")
            self.codecs.append(self._beyond)
            self.bare.append(False)
            self.others.append(index)


class Rows:
    """Makes the rows of changes."""

    def __init__(self, values: ValueStyle, *, fill_unchanged: bool) -> None:
        self._values = values
        self._fill = fill_unchanged
        self._shapes: dict[int, _Shape] = {}

    def change(self, change: RowChange) -> Row:
        """A row inserted, updated or deleted."""
        shape = self._shape(change.relation)
        old, new = change.old, change.new
        width = max(len(old or ()), len(new or ()))
        if width > len(shape.names):
            shape.widen(width)
        if new is None:
            values = self._deleted(shape, change.old_kind, old or ())
        else:
            values = self._written(shape, old if old is not None and change.old_kind == "O" else (), new)
        key = self._key(shape, old, new)
        if not values and not key:
            values = [_NO_COLUMNS]
        return Row((change.op.upper(), change.op), shape.table, key, values)

    def truncate(self, change: TableTruncate) -> Row:
        """One table of a Truncate."""
        words = [("cascade", change.cascade), ("restart identity", change.restart_identity)]
        text = ", ".join([word for word, said in words if said])
        return Row(("TRUNC", "truncate"), self._shape(change.relation).table, (), [((text, "note"),)] if text else [])

    def message(self, message: LogicalMessage) -> Row:
        """A logical decoding message."""
        size: Item = (SPACE, (f"({len(message.content)} bytes)", "note"))
        values = [self._values.cell(UNKNOWN, message.content, mark=size)]
        if not message.transactional:
            values.append((("not transactional", "note"),))
        return Row(("MESSAGE", "message"), ((name(message.prefix), "table"),), (), values)

    def schema(self, event: SchemaChange) -> Row:
        """A table that was described for the first time, or anew."""
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

    def _shape(self, relation: Relation) -> _Shape:
        shape = self._shapes.get(relation.version)
        if shape is None or shape.relation is not relation:
            shape = self._shapes[relation.version] = _Shape(relation)
        return shape

    def _cell(self, shape: _Shape, index: int, cell: Cell, style: str = "value") -> Item:
        return self._values.cell(shape.codecs[index], cell, style, bare=shape.bare[index])

    def _key(self, shape: _Shape, old: TupleData | None, new: TupleData | None) -> Item:
        """The identity's columns; old → new where the identity changed."""
        found: list[Fragment] = []
        cells = (old if new is None else new) or ()
        for index in shape.keys:
            if index >= len(cells):
                break
            found.append((f"{', ' if found else ''}{shape.names[index]}=", "plain"))
            before, now = old[index] if old is not None and index < len(old) else cells[index], cells[index]
            if now is UNCHANGED or before == now:
                found += self._cell(shape, index, before)
            else:
                found += self._changed(shape, index, before, now)
        return tuple(found)

    def _changed(self, shape: _Shape, index: int, old: Cell, new: Cell) -> Item:
        return (*self._cell(shape, index, old, "old"), *_ARROW, *self._cell(shape, index, new, "new"))

    def _written(self, shape: _Shape, old: TupleData, new: TupleData) -> list[Item]:
        """The new row beside the key; where the whole old row was sent, what changed shows as old → new."""
        values = []
        for index in shape.others:
            if index >= len(new):
                break
            cell = new[index]
            label: Item = ((shape.names[index], "name"), SPACE)
            if index >= len(old) or old[index] == cell:
                values.append((*label, *self._cell(shape, index, cell)))
            elif cell is UNCHANGED:
                filled = self._fill and old[index] is not UNCHANGED
                value = (*self._cell(shape, index, old[index]), SPACE) if filled else ()
                values.append((*label, *value, UNCHANGED_MARK))
            else:
                values.append((*label, *self._changed(shape, index, old[index], cell)))
        return values

    def _deleted(self, shape: _Shape, kind: str, old: TupleData) -> list[Item]:
        """The old row beside the key, as far as it was sent: a key tuple has NULL in every other column."""
        whole = kind == "O" and shape.relation.seen
        values: list[Item] = [
            ((shape.names[index], "name"), SPACE, *self._cell(shape, index, old[index]))
            for index in shape.others
            if index < len(old) and (whole or old[index] is not None)
        ]
        if not whole and len(values) < len(shape.others):
            values.append(_ONLY_THE_KEY)
        return values
