"""Which changes are shown: by table, operation, transaction and value."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Iterable
from decimal import Decimal, InvalidOperation
from fnmatch import fnmatchcase
from typing import Any, Final, TypeAlias

from pgtail.changes.condition import parse
from pgtail.changes.events import Change, Outcome, RowChange, SchemaChange, TableTruncate
from pgtail.changes.redaction import Redaction
from pgtail.changes.relations import Relation
from pgtail.errors import OptionError
from pgtail.pgoutput.cells import UNCHANGED, Binary
from pgtail.values import Kind, Undecoded

OPS: Final = ("insert", "update", "delete", "truncate", "message", "commit_prepared", "rollback_prepared")

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

_Ordered: TypeAlias = tuple[bool, Decimal]


def _number(text: str) -> _Ordered:
    """A number as PostgreSQL sorts it: NaN equals NaN and is greater than all others. Raises InvalidOperation."""
    value = Decimal(text.strip())
    return (True, Decimal(0)) if value.is_nan() else (False, value)


class Where:
    """One condition, `COLUMN OP VALUE`. Raises OptionError if the text is invalid.

    Errors do not quote the value to compare with if `redaction` may mask the column. An invalid text may name any
    column: with `redaction` no part of it is quoted.
    """

    def __init__(self, text: str, redaction: Redaction | None = None) -> None:
        self.column, self.op, self.value = parse(text, secret=redaction is not None)
        self.column_seen = False
        self._secret = redaction is not None and redaction.may_hide(self.column)
        self.shown = f"{self.column} {self.op} ..." if self._secret else text
        """The condition as it may be quoted."""
        self._pattern: re.Pattern[str] | None = None
        if self.op in ("~", "!~"):
            try:
                self._pattern = re.compile(self.value)
            except re.error as error:
                reason = "an error" if self._secret else error  # re.error may quote the pattern
                raise OptionError(f"--where {self.shown!r}: {reason} in the regular expression") from error

    def matches(self, change: RowChange) -> bool | None:
        """Whether it is true for the new row, or the old row of a delete; None if the value was not sent."""
        cells = change.new if change.new is not None else change.old
        columns = change.relation.columns
        index = next((i for i, column in enumerate(columns) if column.name == self.column), None)
        if index is None:
            return False
        column = columns[index]
        self.column_seen = True
        cell = cells[index] if cells is not None and index < len(cells) else UNCHANGED
        if cell is None and change.new is None and change.old_kind == "K" and not column.key:
            return None
        if cell is UNCHANGED:
            return None
        if cell is None or self.op.startswith("is"):
            return self.op == ("is null" if cell is None else "is not null")
        try:
            text = column.codec.text_binary(cell) if isinstance(cell, Binary) else column.codec.text_text(cell)
        except Undecoded:
            return None
        return self._holds(text, column.codec.kind)

    def _holds(self, text: str, kind: Kind) -> bool | None:
        if self._pattern is not None:
            return bool(self._pattern.search(text)) == (self.op == "~")
        compare = _COMPARE[self.op]
        if kind is Kind.NUMBER:
            try:
                wanted = _number(self.value)
            except InvalidOperation:
                value = "the value" if self._secret else repr(self.value)
                raise OptionError(f"--where {self.shown!r}: {self.column} is a number, {value} is none") from None
            try:
                return compare(_number(text), wanted)
            except InvalidOperation:
                return None
        if kind is Kind.BOOL:
            return compare(text, _BOOLS.get(self.value.lower(), self.value))
        return compare(text, self.value)


class Filter:
    """Decides which changes pass; `not_sent` counts rows whose tested value was not sent.

    Conditions test the original values, including those that `redaction` masks. Patterns are case-sensitive shell
    globs: with a dot they match schema.table, without one the table name in any schema.
    """

    def __init__(
        self,
        *,
        tables: Iterable[str] = (),
        exclude: Iterable[str] = (),
        ops: Collection[str] = (),
        xids: Collection[int] = (),
        where: Iterable[str] = (),
        redaction: Redaction | None = None,
    ) -> None:
        self._tables = list(tables)
        self._exclude = list(exclude)
        self._ops = frozenset(ops)
        self._xids = frozenset(xids)
        self.where = [Where(text, redaction) for text in where]
        self.redaction = redaction
        self.not_sent = 0
        self.left_out: dict[str, None] = {}
        """The tables whose names did not match, in the order of their first appearance."""
        self._known: dict[int, bool] = {}

    @property
    def active(self) -> bool:
        """Whether there are any conditions."""
        return bool(self._tables or self._exclude or self._ops or self._xids or self.where)

    @property
    def by_table_and_op(self) -> bool:
        """Whether the table and operation of a row are enough to decide."""
        return not (self._xids or self.where)

    @property
    def a_table_came(self) -> bool:
        """Whether any change of a table was seen."""
        return bool(self._known)

    @property
    def no_table_passed(self) -> bool:
        """Whether there were tables, but no name matched."""
        return bool(self.left_out) and not any(self._known.values())

    def row_passes(self, relation: Relation, op: str) -> bool:
        """Whether these rows are shown; only valid with `by_table_and_op`."""
        return self.table_passes(relation) and (not self._ops or op in self._ops)

    def passes(self, change: Change) -> bool:
        """Whether a change is shown. Raises OptionError if a condition does not fit the column's type."""
        if isinstance(change, RowChange | TableTruncate):
            if not self.table_passes(change.relation):  # first, so left_out gets every table
                return False
        elif self._tables or self.where:
            return False
        if self._ops and change.op not in self._ops:
            return False
        if self._xids and (change.transaction is None or change.transaction.xid not in self._xids):
            return False
        return not self.where or (isinstance(change, RowChange) and self._where_passes(change))

    def outcome_passes(self, outcome: Outcome) -> bool:
        """The same for the outcome of a prepared transaction, which names no table."""
        if (self._ops and outcome.op not in self._ops) or (self._xids and outcome.xid not in self._xids):
            return False
        return not (self._tables or self.where)

    def described(self, event: SchemaChange) -> bool:
        """Whether a schema change is shown.

        Redaction learns about every table: one that does not pass may be renamed to one that does.
        """
        if self.redaction is not None:
            self.redaction.learn(event.before, event.now)
        return self.table_passes(event.now)

    def table_passes(self, relation: Relation) -> bool:
        """Whether the name of a table matches."""
        known = self._known.get(relation.version)
        if known is None:
            known = self._known[relation.version] = (
                not self._tables or any(_matches(relation, pattern) for pattern in self._tables)
            ) and not any(_matches(relation, pattern) for pattern in self._exclude)
            if not known and relation.seen:
                self.left_out[f"{relation.schema}.{relation.name}"] = None
        return known

    def _where_passes(self, change: RowChange) -> bool:
        for condition in self.where:
            matched = condition.matches(change)
            if matched is None:
                self.not_sent += 1
            if not matched:
                return False
        return True


def _matches(relation: Relation, pattern: str) -> bool:
    name = f"{relation.schema}.{relation.name}" if "." in pattern else relation.name
    return relation.seen and fnmatchcase(name, pattern)
