"""Which columns of a row are shown: --columns and --changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from pgtail.changes.column_rules import column_rules, unmatched
from pgtail.changes.relations import Column, Relation
from pgtail.errors import OptionError
from pgtail.native.plan import Changed, Side, Skip
from pgtail.outputs.rows import Shape


class Shown(NamedTuple):
    """The columns of a row that are shown."""

    indexes: tuple[int, ...]
    """In ascending order."""
    optional: frozenset[int]
    """Those that are left out of the rows of an update where they did not change."""
    whole: bool
    """Whether all values can be compared with those of the old row."""

    def skip(self, index: int, side: Side) -> Skip:
        """What is left out of a column in this tuple. In a key tuple nothing is."""
        if index not in self.optional:
            return Skip.NOTHING
        return Skip.SAME if self.whole else Skip.UNCHANGED if side == "new" else Skip.NOTHING


class ColumnChoice:
    """Decides which columns are shown. The key always is.

    A table that no rule is about is shown whole. With `changed`, an update shows the key and what changed or may have:
    without the old value, everything but unchanged TOAST. Where the key is not known (replica identity full or nothing)
    the first column stands in for it. Raises OptionError if a rule is invalid.
    """

    def __init__(self, rules: Iterable[str] = (), *, changed: bool = False) -> None:
        texts = [*rules]
        self._rules = [rule for text in texts for rule in column_rules("--columns", text)]
        if texts and not self._rules:
            raise OptionError("--columns names no column")
        self._tables: dict[int, Relation] = {}
        """The versions of tables whose columns were chosen."""
        self.changed = changed

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
        whole = shape.old_kind == "O" and shape.relation.seen
        if shape.op != "update" or not self.changed:
            return Shown(indexes, frozenset(), whole)
        key = set(shape.relation.key)
        kept = [index for index in indexes if shape.columns[index].name in key] or indexes[:1]
        return Shown(indexes, frozenset(indexes).difference(kept), whole)

    def tell_unused(self, tell: Callable[[str], None]) -> None:
        """Tell once which rules matched no column."""
        tables = self._tables.values()
        for rule in unmatched(self._rules, tables):
            tell(f"note: no table had a column {rule.text} (--columns){rule.meant(tables)}")
        self._tables.clear()


def changed_columns(shape: Shape, shown: Shown, of: Callable[[Sequence[int]], bytes]) -> Changed:
    """The shown columns of an update that changed or may have. The server sends the old key if it changed."""
    key = [index for index in shown.indexes if shape.columns[index].name in shape.relation.key]
    compared = shown.indexes if shown.whole else tuple(key) if shape.old_kind else ()
    unknown = () if shown.whole else tuple([index for index in shown.indexes if index not in key])
    return Changed(compared, unknown, of)
