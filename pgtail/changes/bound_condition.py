"""A condition for the changes of one kind (insert, update, ...) to one version of a table.

Binding evaluates the constant parts: op, schema, table, a row that such changes do not have. A test of NULL, of a value
that was not sent or cannot be compared, or of a column that the table does not have is unknown: neither true nor false.
Compiled code evaluates the same (native/rows/condition.pyx).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias

from msgspec import Struct

from pgtail.changes.comparison import COMPARE, NUMBER, TIMESTAMPTZ, Comparison, has_zone
from pgtail.changes.condition import Condition, Not, Or, Test, like, tests_of
from pgtail.changes.events import Change, RowChange
from pgtail.changes.operand import NULL, OperandSource, is_json, source_of
from pgtail.changes.relations import Relation
from pgtail.errors import OptionError
from pgtail.local_time import is_utc
from pgtail.native.plan import NativeTest, NotTested
from pgtail.pgoutput.cells import UNCHANGED, Cell
from pgtail.values.codec import DAMAGED

Truth: TypeAlias = bool | None
"""None is unknown."""

_PLAIN_NUMBER: Final = re.compile(r"-?[0-9]{1,40}(\.[0-9]{1,40})?").fullmatch


class BoundTest:
    """One test of the value at `left`, compared with that at `right` or with constants."""

    def __init__(self, test: Test, left: OperandSource, right: OperandSource | None, how: Comparison) -> None:
        self.test, self.left, self.right, self._how = test, left, right, how
        self._literals = [_literal(test, left, how, value) for value in test.values] if self._compares else []
        self._keys = [how.key(value) for value in self._literals]
        self._passes = self._text_test()

    @property
    def _compares(self) -> bool:
        return self.test.op in COMPARE or self.test.op in ("in", "distinct")

    @property
    def note(self) -> str | None:
        """How it differs from what the user may mean."""
        column, as_number = self.left.column, self.test.numeric and self._how.what == "text"
        if column is not None and self.test.op in ("<", "<=", ">", ">=") and (as_number or not self._how.ordered):
            unlike = "not as a number" if as_number else "unlike PostgreSQL"
            return f"{self.left.name} is {column.type_name}, which --where orders by its text, {unlike}"
        if self._compares and self._how is TIMESTAMPTZ and not all(map(has_zone, self.test.values)) and not is_utc():
            return f"--where {self.test.shown}: a time without a zone is UTC there"
        return None

    def holds(self, change: Change) -> bool | None:
        """Whether it is true for a change; None for unknown. Raises NotTested."""
        if self.test.op == "changed" and isinstance(change, RowChange) and self._is_unchanged(change):
            return False
        return self.of_cells(
            self.left.cell(change), NULL.cell(change) if self.right is None else self.right.cell(change)
        )

    def of_cells(self, left: Cell, right: Cell) -> bool | None:
        """Whether it is true for these cells; None for unknown. Raises NotTested."""
        op = self.test.op
        if op == "changed":
            return left != right
        if op == "is null" and not self.left.path:
            return left is None
        text = self.left.text(left)
        if op == "is null":
            return text is None
        if self.right is None:
            return self._of_null if text is None else self._of_text(text, self._passes)
        other = self.right.text(right)
        if text is None or other is None:
            return (text is None) != (other is None) if op == "distinct" else None
        return self._of_text(text, self._comparing(other))

    @property
    def _of_null(self) -> bool | None:
        """Whether it is true for NULL, compared with constants."""
        return True if self.test.op == "distinct" else None

    def native(self) -> NativeTest | None:
        """The compiled test; None if Python must do it."""
        op, how = self.test.op, self._how.native
        if op in ("is null", "changed") and self.left.column is not None and not self.left.path:
            return NativeTest(op, "")
        if how is None or not (op in COMPARE or op == "in"):
            return None
        if not all(map(_is_native, [self.left] if self.right is None else [self.left, self.right])):
            return None
        if self.right is not None:
            return NativeTest(op, how) if self.left.how is self.right.how else None
        if how == "number" and not all(map(_PLAIN_NUMBER, self._literals)):
            return None
        try:
            return NativeTest(op, how, tuple([value.encode() for value in self._literals]))
        except UnicodeEncodeError:
            return None

    def _is_unchanged(self, change: RowChange) -> bool:
        """Whether the server sent that a value is as before, in place of the value."""
        return change.new is not None and change.new[self.left.index : self.left.index + 1] == (UNCHANGED,)

    def _of_text(self, text: str, passes: Callable[[str], bool]) -> bool | None:
        try:
            return passes(text)
        except ValueError:
            if self.left.path:  # it is no number, which counts as NULL
                return self._of_null
            raise NotTested from None

    def _comparing(self, other: str) -> Callable[[str], bool]:
        key, compare = self._how.key, COMPARE["<>" if self.test.op == "distinct" else self.test.op]
        assert self.right is not None
        other_key = self.right.how.key

        def passes(text: str) -> bool:
            return compare(key(text), other_key(other))

        return passes

    def _text_test(self) -> Callable[[str], bool]:
        """A function that tests a value's text against constants; it raises ValueError for one it cannot compare."""
        op = self.test.op
        if op in ("like", "ilike"):
            lower = op == "ilike"
            matches = like(self.test.values[0].lower() if lower else self.test.values[0]).fullmatch
            return lambda text: matches(text.lower() if lower else text) is not None
        if op in ("~", "~*"):
            search = re.compile(self.test.values[0], re.IGNORECASE * (op == "~*")).search
            return lambda text: search(text) is not None
        key = self._how.key
        if op == "in":
            keys = frozenset(self._keys)
            return lambda text: key(text) in keys
        compare = COMPARE["<>" if op == "distinct" else op if op in COMPARE else "="]
        wanted = self._keys[0] if self._keys else None
        return lambda text: compare(key(text), wanted)


class Node(Struct, frozen=True):
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

        Kinds are test, not, and, or, true, false and unknown. A node precedes its parts.
        """
        return _nodes(self.root, 0)

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
            truth = self._holds(part.parts[0], change)
            return None if truth is None else not truth
        decisive = part.kind == "or"
        unknown = False
        for one in part.parts:
            truth = self._holds(one, change)
            if truth is decisive:
                return decisive
            unknown = unknown or truth is None
        return None if unknown else not decisive

    def _part(self, condition: Condition) -> Part:
        if isinstance(condition, Test):
            return _bind(condition, self.relation, self._op)
        if isinstance(condition, Not):
            part = self._part(condition.part)
            if isinstance(part, BoundTest | Node):
                return Node("not", (part,))
            return None if part is None else not part
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


def _nodes(part: Part, place: int) -> list[tuple[str, int, BoundTest | None]]:
    """The nodes of a part that begins at this place of the list."""
    if isinstance(part, BoundTest):
        return [("test", place + 1, part)]
    if not isinstance(part, Node):
        return [("unknown" if part is None else "true" if part else "false", place + 1, None)]
    inside: list[tuple[str, int, BoundTest | None]] = []
    for one in part.parts:
        inside += _nodes(one, place + 1 + len(inside))
    return [(part.kind, place + 1 + len(inside), None), *inside]


def _bind(test: Test, relation: Relation | None, op: str) -> BoundTest | bool | None:
    """A test for changes `op` of a table; True, False or None if its result is the same for all of them.

    Raises OptionError if a value does not fit the type of its column.
    """
    left = source_of(test.operand, relation, op)
    right = left if test.other is None else source_of(test.other, relation, op)
    if left is None or right is None:
        return None
    if test.op == "changed" and op != "update":
        return False
    for operand in (left, right):
        if operand.path and operand.column is not None and not is_json(operand.column):
            raise OptionError(
                f"--where {test.shown!r}: {operand.name} is {operand.column.type_name}; -> and ->> need json or jsonb"
            )
    how = NUMBER if left.path and test.numeric else left.how
    if test.other is not None:
        how = _common(test, left, right)
    bound = BoundTest(test, left, None if test.other is None else right, how)
    if left.place != "constant" or right.place != "constant":
        return bound
    cells = [None if one.constant is None else one.constant.encode() for one in (left, right)]
    return bound.of_cells(*cells)


def _literal(test: Test, left: OperandSource, how: Comparison, value: str) -> str:
    try:
        return how.literal(value)
    except DAMAGED:
        quoted = "the value" if test.secret else repr(value)
        raise OptionError(f"--where {test.shown!r}: {left.name} is {how.what}, {quoted} is none") from None


def _common(test: Test, left: OperandSource, right: OperandSource) -> Comparison:
    """How the values of two columns compare. Raises OptionError if they do not."""
    one, other = left.how, right.how
    if NULL in (left, right) or one.what == other.what or {one.key, other.key} == {TIMESTAMPTZ.key}:
        return other if left == NULL else one
    raise OptionError(f"--where {test.shown!r}: {left.name} is {one.what}, {right.name} is {other.what}")


def _is_native(source: OperandSource) -> bool:
    """Whether compiled code finds the text of this source: all but properties and members of JSON documents."""
    return source.column is not None and not source.path and source.column.codec.native is not None
