"""A condition for the changes of one kind (insert, update, ...) to one version of a table.

What is the same for all of them is evaluated when it is bound: op, schema, table, a row that such changes do not have.
A test of NULL, of a value that was not sent or cannot be compared, and of a column that the table does not have is
neither true nor false: it is unknown. The scanner evaluates the same (native/_condition.pxi).
"""

from __future__ import annotations

from typing import TypeAlias

from pgtail.changes.bound_test import BoundTest, bind
from pgtail.changes.condition import Condition, Not, Or, Test, tests_of
from pgtail.changes.events import Change
from pgtail.changes.relations import Relation
from pgtail.native.conditions import NotTested
from pgtail.records import Record

Truth: TypeAlias = bool | None
"""None is unknown."""


class Node(Record):
    """`not`, `and` or `or` of the parts."""

    kind: str
    parts: tuple[Part, ...]


Part: TypeAlias = Truth | BoundTest | Node


class Bound:
    """A condition for changes `op` of a table, or of none. Raises OptionError if it does not fit the table's types."""

    def __init__(self, condition: Condition, relation: Relation | None, op: str) -> None:
        self.relation = relation
        self._op = op
        self.root = self._part(condition)
        """The condition; True, False or None if it is the same for all rows."""
        self.untested = False
        """Whether the last evaluation needed a value that was not sent or cannot be compared."""

    def nodes(self) -> list[tuple[str, int, BoundTest | None]]:
        """The condition as a list of (kind, the index after its last part, its test).

        Kinds are test, not, and, or, true, false and unknown. A node stands before its parts.
        """
        found: list[tuple[str, int, BoundTest | None]] = []
        _add_nodes(self.root, found)
        return found

    def holds(self, change: Change) -> Truth:
        """Whether it is true for a change of this kind."""
        self.untested = False
        return self._holds(self.root, change)

    def _holds(self, part: Part, change: Change) -> Truth:
        if isinstance(part, BoundTest):
            try:
                return part.holds(change)
            except NotTested:
                self.untested = True
                return None
        if not isinstance(part, Node):
            return part
        if part.kind == "not":
            found = self._holds(part.parts[0], change)
            return None if found is None else not found
        decisive = part.kind == "or"
        unknown = False
        for one in part.parts:
            found = self._holds(one, change)
            if found is decisive:
                return decisive
            unknown = unknown or found is None
        return None if unknown else not decisive

    def _part(self, condition: Condition) -> Part:
        if isinstance(condition, Test):
            return bind(condition, self.relation, self._op)
        if isinstance(condition, Not):
            part = self._part(condition.part)
            return (None if part is None else not part) if _is_known(part) else Node("not", (part,))
        decisive = isinstance(condition, Or)
        parts = []
        for one in condition.parts:
            part = self._part(one)
            if part is decisive:
                return decisive  # what follows may not fit this table: table = 'orders' and total > 5
            parts.append(part)
        left = tuple([part for part in parts if part is not (not decisive)])
        if all(part is None for part in left):
            return None if left else not decisive
        return left[0] if len(left) == 1 else Node("or" if decisive else "and", left)


def names_in(condition: Condition, relation: Relation | None) -> tuple[set[str], set[str]]:
    """The columns in a condition that the table has, and the properties in it that have the name of a column."""
    names = set() if relation is None else {column.name for column in relation.columns}
    operands = [one for test in tests_of(condition) for one in (test.operand, test.other) if one is not None]
    columns, properties = (
        {one.name for one in operands if one.is_property is which} & names for which in (False, True)
    )
    return columns, properties


def _is_known(part: Part) -> bool:
    return part is None or isinstance(part, bool)


def _add_nodes(part: Part, found: list[tuple[str, int, BoundTest | None]]) -> None:
    place = len(found)
    found.append(("", 0, None))
    if isinstance(part, BoundTest):
        found[place] = ("test", place + 1, part)
        return
    if not isinstance(part, Node):
        found[place] = ("unknown" if part is None else "true" if part else "false", place + 1, None)
        return
    for one in part.parts:
        _add_nodes(one, found)
    found[place] = (part.kind, len(found), None)
