"""Selects the columns of a row to show: --columns and --changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from pgtail.changes.column_rules import ColumnRule, column_rules, unmatched
from pgtail.changes.relations import Column, Relation
from pgtail.errors import COMMAND, OptionError
from pgtail.log import logger
from pgtail.native.plan import Cell, Cells, Changed, Side, Skip
from pgtail.outputs.base import Once
from pgtail.outputs.rows import Shape
from pgtail.terminal.escape import escape

if TYPE_CHECKING:
    from pgtail.outputs import OutputOptions

MAYBE: Final = "?"
"""The mark before the name of a column that may have changed, for people."""
_REMEMBERS: Final = "--old-values seen remembers the rows that the input showed before"
_NOT_SEEN: Final = "that row was not seen before, or may have changed since"


class Shown(NamedTuple):
    """The columns of a row that are shown."""

    indexes: tuple[int, ...]
    """In ascending order."""
    optional: frozenset[int]
    """Columns that are left out of the rows of an update if they did not change."""
    comparable: bool
    """Whether all values can be compared with those of the old row."""
    unknown: tuple[int, ...] = ()
    """Columns that may have changed in an update: --changed names or marks them."""

    def skip(self, index: int, side: Side) -> Skip:
        """The values of a column to leave out in this tuple: none in a key tuple."""
        if index not in self.optional:
            return Skip.NOTHING
        return Skip.SAME if self.comparable else Skip.UNCHANGED if side == "new" else Skip.NOTHING


class ColumnChoice:
    """Decides which columns are shown. The key always is.

    A table that no rule is about is shown whole. With `changed`, or if the options say so, an update shows the key and
    what changed or may have: without the old value, everything but unchanged TOAST. Where the key is not known (replica
    identity full or nothing) the first column stands in for it. Raises OptionError if a rule is invalid.
    """

    def __init__(self, options: OutputOptions, *, changed: bool = False, once: Once | None = None) -> None:
        self._rules = _rules(options.columns)
        self._tables: dict[int, Relation] = {}
        """The versions of tables whose columns were chosen."""
        self._once = once or Once()
        self._takes_seen = options.takes_seen
        self.changed: bool = changed or options.changed
        self.changed_alone: bool = options.changed
        """Whether --changed was given: what did not change is not named."""

    def columns(self, relation: Relation, columns: Sequence[Column]) -> tuple[int, ...]:
        """The indexes of the shown columns of a table."""
        self._tables[relation.version] = relation
        rules = [rule for rule in self._rules if rule.matches_table(relation)]
        if not rules:
            return tuple(range(len(columns)))
        key, found = set(relation.key), []
        for index, column in enumerate(columns):
            if column.name in key or any(rule.column.fullmatch(column.name) for rule in rules):
                found.append(index)
        return tuple(found)

    def shown(self, shape: Shape) -> Shown:
        """The shown columns of the rows of a shape."""
        indexes = self.columns(shape.relation, shape.columns)
        comparable = shape.has_old_row
        if shape.op != "update" or not self.changed:
            return Shown(indexes, frozenset(), comparable)
        key = set(shape.relation.key)
        keys = [index for index in indexes if shape.columns[index].name in key]
        unknown = () if comparable else tuple([index for index in indexes if index not in keys])
        if unknown:
            self.note_unknown(shape.relation)
        return Shown(indexes, frozenset(indexes).difference(keys or indexes[:1]), comparable, unknown)

    def note_unknown(self, relation: Relation) -> None:
        """Say once how to see which columns an update changed: an update of this table has no old row."""
        if relation.seen and self._once.first("note about --changed") is None:
            from pgtail.outputs.sql.statements import table  # not loaded for every output

            seen, each = f"; {_NOT_SEEN if self._takes_seen else _REMEMBERS}", ""
            if relation.partition is not None:
                seen, each = "", ", for each partition"
            logger.info(
                f"without the old row, columns marked {MAYBE} or in maybe_changed may be unchanged{seen} (see"
                f" pgtail-old-values(7)). To have the old row sent{each}:"
                f"{COMMAND}ALTER TABLE {table(relation.to_alter)} REPLICA IDENTITY FULL;"
            )

    def note_unused(self) -> None:
        """Say once which rules matched no column."""
        if self._rules:
            tables = self._tables.values()
            for rule in unmatched(self._rules, tables):
                logger.info(escape(f"no table had a column {rule.text} (--columns){rule.meant(tables)}"))
        self._tables.clear()


def _rules(texts: Sequence[str]) -> list[ColumnRule]:
    """The rules of --columns. Raises OptionError."""
    if not texts:
        return []
    found = [rule for text in texts for rule in column_rules("--columns", text)]
    if not found:
        raise OptionError("--columns names no column")
    return found


def changed_columns(shape: Shape, shown: Shown, of: Callable[[Sequence[int], Sequence[int]], bytes]) -> Changed:
    """The shown columns of an update that changed, and those that may have. The server sends the old key if it
    changed."""
    compared = tuple([index for index in shown.indexes if index not in shown.unknown]) if shape.old_kind else ()
    return Changed(compared, shown.unknown, of)


def seen_columns(shape: Shape, shown: Shown, name: Callable[[str], bytes]) -> Cells:
    """The names, by `name`, of the shown columns whose old value the server did not send, as far as it is known."""
    indexes = [index for index in shown.indexes if index in shape.seen]
    names = [Cell(at, name(shape.columns[at].name), None, b"", skip=shown.skip(at, "old")) for at in indexes]
    return Cells("old", tuple(names))
