"""Conditions on the values of a row: a tree of tests with SQL's three-valued logic.

A test of NULL, of a value that was not sent or cannot be decoded, and of a column that the table does not have is
neither true nor false: it is unknown. A condition is bound to one version of a table before it is evaluated, here or by
the scanner (native/_condition.pxi).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final, TypeAlias

from pgtail.changes.events import RowChange
from pgtail.changes.relations import Column, Relation
from pgtail.errors import OptionError
from pgtail.pgoutput.cells import UNCHANGED
from pgtail.values import Kind, Undecoded

_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_BOOLS: Final = {"true": "t", "false": "f", "t": "t", "f": "f", "yes": "t", "no": "f", "on": "t", "off": "f"}
_PLAIN_NUMBER: Final = re.compile(r"-?[0-9]{1,40}(\.[0-9]{1,40})?").fullmatch

_Ordered: TypeAlias = tuple[bool, Decimal]


def _number(text: str) -> _Ordered:
    """A number as PostgreSQL sorts it: NaN equals NaN and is greater than all others. Raises InvalidOperation."""
    value = Decimal(text.strip())
    return (True, Decimal(0)) if value.is_nan() else (False, value)


class Test:
    """A test of one column's value. `shown` is the condition as messages may quote it.

    The operators are those of comparison, `in`, `like`, `~` (a regular expression of Python's) and `is null`. `secret`
    says that messages may not quote the value to compare with. Raises OptionError if a regular expression is invalid.
    """

    def __init__(self, column: str, op: str, *values: str, shown: str = "", secret: bool = False) -> None:
        self.column, self.op, self.values = column, op, values
        self.shown = shown
        self.column_seen = False
        """Whether it was bound to a table that has the column."""
        self._secret = secret
        self._pattern: re.Pattern[str] | None = None
        if op == "like":
            self._pattern = _like(values[0])
        elif op == "~":
            try:
                self._pattern = re.compile(values[0])
            except re.error as error:
                reason = "an error" if secret else error  # re.error may quote the pattern
                raise OptionError(f"--where {shown!r}: {reason} in the regular expression") from error

    def holds(self, text: str, kind: Kind) -> bool | None:
        """Whether it holds for PostgreSQL's text of a value; None if that cannot be compared. Raises OptionError."""
        if self._pattern is not None:
            return self._pattern.search(text) is not None
        if self.op == "in":
            found = [self._compare("=", text, value, kind) for value in self.values]
            return True if True in found else None if None in found else False
        return self._compare(self.op, text, self.values[0], kind)

    def native(self, kind: Kind) -> bytes | None:
        """The value for a comparison in compiled code: a plain decimal number or text; None for any other test."""
        if self.op not in _COMPARE:
            return None
        if kind is Kind.NUMBER:
            value = self.values[0].strip()
            return value.encode() if _PLAIN_NUMBER(value) else None
        value = _BOOLS.get(self.values[0].lower(), self.values[0]) if kind is Kind.BOOL else self.values[0]
        try:
            return value.encode()
        except UnicodeEncodeError:
            return None

    def _compare(self, op: str, text: str, value: str, kind: Kind) -> bool | None:
        compare = _COMPARE[op]
        if kind is Kind.NUMBER:
            try:
                wanted = _number(value)
            except InvalidOperation:
                quoted = "the value" if self._secret else repr(value)
                raise OptionError(f"--where {self.shown!r}: {self.column} is a number, {quoted} is none") from None
            try:
                return compare(_number(text), wanted)
            except InvalidOperation:
                return None
        if kind is Kind.BOOL:
            return compare(text, _BOOLS.get(value.lower(), value))
        return compare(text, value)


def _like(pattern: str) -> re.Pattern[str]:
    """A LIKE pattern as a regular expression; a backslash escapes the next character."""
    parts = [
        re.escape(found[1])
        if found[1]
        else ".*"
        if found[0] == "%"
        else "."
        if found[0] == "_"
        else re.escape(found[0])
        for found in re.finditer(r"\\(.)|.", pattern, re.DOTALL)
    ]
    return re.compile(rf"\A{''.join(parts)}\Z", re.DOTALL)


@dataclass(frozen=True, slots=True, eq=False)
class Not:
    """True where `part` is false, and the other way round."""

    part: Condition


@dataclass(frozen=True, slots=True, eq=False)
class And:
    """True if all parts are, false if one is false. The parts are evaluated in order, up to the first false one."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Or:
    """True if one part is, false if all are false. The parts are evaluated in order, up to the first true one."""

    parts: tuple[Condition, ...]


Condition: TypeAlias = Test | Not | And | Or


def tests_of(condition: Condition) -> Iterator[Test]:
    """The tests in a condition, in order."""
    if isinstance(condition, Test):
        yield condition
    else:
        for part in [condition.part] if isinstance(condition, Not) else condition.parts:
            yield from tests_of(part)


class Bound:
    """A condition for one version of a table."""

    def __init__(self, condition: Condition, relation: Relation) -> None:
        self.condition = condition
        names = [column.name for column in relation.columns]
        self.places: dict[Test, int] = {}
        """The index of the column of each test, for columns that the table has."""
        self.relation = relation
        for test in tests_of(condition):
            if test.column in names:
                self.places[test] = names.index(test.column)
                test.column_seen = True
        self.untested = False
        """Whether the last evaluation needed a value that was not sent or cannot be decoded."""

    def nodes(self) -> list[tuple[str, int, Test | None]]:
        """The condition as a list: (test, not, and or or; the index after its last part; the test).

        A node stands before its parts.
        """
        found: list[tuple[str, int, Test | None]] = []
        _add_nodes(self.condition, found)
        return found

    def holds(self, change: RowChange) -> bool | None:
        """Whether it is true for the new row, or the old row of a delete; None if unknown. Raises OptionError."""
        self.untested = False
        return self._holds(self.condition, change)

    def _holds(self, condition: Condition, change: RowChange) -> bool | None:
        if isinstance(condition, Test):
            return self._test(condition, change)
        if isinstance(condition, Not):
            found = self._holds(condition.part, change)
            return None if found is None else not found
        decisive = isinstance(condition, Or)
        unknown = False
        for part in condition.parts:
            found = self._holds(part, change)
            if found is decisive:
                return decisive
            unknown = unknown or found is None
        return None if unknown else not decisive

    def _test(self, test: Test, change: RowChange) -> bool | None:
        index = self.places.get(test)
        if index is None:
            return None
        column = self.relation.columns[index]
        cells = change.new if change.new is not None else change.old
        cell = cells[index] if cells is not None and index < len(cells) else UNCHANGED
        if cell is UNCHANGED or (cell is None and _is_outside_key(change, column)):
            self.untested = True
            return None
        if test.op == "is null":
            return cell is None
        if cell is None:
            return None
        try:
            found = test.holds(column.codec.text(cell), column.codec.kind)
        except Undecoded:
            found = None
        self.untested = self.untested or found is None
        return found


def _add_nodes(condition: Condition, found: list[tuple[str, int, Test | None]]) -> None:
    place = len(found)
    found.append(("", 0, None))
    if isinstance(condition, Test):
        found[place] = ("test", place + 1, condition)
        return
    for part in [condition.part] if isinstance(condition, Not) else condition.parts:
        _add_nodes(part, found)
    found[place] = (type(condition).__name__.lower(), len(found), None)


def _is_outside_key(change: RowChange, column: Column) -> bool:
    """Whether a NULL of this change only says that the column is outside the replica identity."""
    return change.new is None and change.old_kind == "K" and not column.key
