"""Floor 3, which changes pass: by table, operation, transaction and value; knows no output."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Iterable
from decimal import Decimal, InvalidOperation
from fnmatch import fnmatchcase
from typing import Any, Final, TypeAlias

from pgtail.errors import OptionError
from pgtail.redaction import Redaction
from pgtail.relations import Relation
from pgtail.transaction import Change, Outcome, RowChange, SchemaChange, TableTruncate
from pgtail.values import Kind, Undecoded
from pgtail.wire.cells import UNCHANGED, Binary

OPS: Final = ("insert", "update", "delete", "truncate", "message", "commit_prepared", "rollback_prepared")

_WHERE = re.compile(
    r"""\s*(?: "(?P<quoted>(?:[^"]|"")+)" | (?P<plain>[^\s=!<>~"]+) )\s*
        (?: (?P<op>!=|<>|<=|>=|!~|=|<|>|~)\s*(?P<value>.*?)
          | (?P<null>is\s+null) | (?P<not_null>is\s+not\s+null) )\s*""",
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
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
    """A number in PostgreSQL's order: NaN equals itself and is above everything. Raises InvalidOperation."""
    value = Decimal(text.strip())
    return (True, Decimal(0)) if value.is_nan() else (False, value)


class Where:
    """One condition, `COLUMN OP VALUE`. Raises OptionError for text that is none.

    Of columns that `redaction` masks it quotes no value, not even the one to compare with.
    """

    def __init__(self, text: str, redaction: Redaction | None = None) -> None:
        match = _WHERE.fullmatch(text)
        if match is None:
            raise OptionError(
                f"--where {text!r}: expected COLUMN OP VALUE with one of = != < <= > >= ~ !~, or COLUMN is [not] null"
            )
        self.column = match["quoted"].replace('""', '"') if match["quoted"] else match["plain"]
        self.op = match["op"] or ("is null" if match["null"] else "is not null")
        self.value = _unquoted(match["value"] or "")
        self.column_seen = False
        self._secret = redaction is not None and redaction.may_hide(self.column)
        self.shown = f"{self.column} {self.op} ..." if self._secret else text
        """The condition as it may be quoted."""
        self._pattern: re.Pattern[str] | None = None
        if self.op in ("~", "!~"):
            try:
                self._pattern = re.compile(self.value)
            except re.error as error:
                reason = "an error" if self._secret else error  # which may quote a part of it
                raise OptionError(f"--where {self.shown!r}: {reason} in the regular expression") from error

    def matches(self, change: RowChange) -> bool | None:
        """Whether it holds for the new row, of a delete for the old; None where the value was not sent."""
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


def _unquoted(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] == "'":
        return value[1:-1].replace("''", "'")
    return value


class Filter:
    """Decides for each change whether it passes; `not_sent` counts rows whose tested value was not sent.

    Conditions are about the true values, also of columns that `redaction` masks.
    Patterns are shell globs, case-sensitive: with a dot on schema.table, without on the table's name in any schema.
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
        """The tables of which nothing passed because of their names, in the order in which they came."""
        self._known: dict[int, bool] = {}

    @property
    def active(self) -> bool:
        """Whether anything at all is filtered."""
        return bool(self._tables or self._exclude or self._ops or self._xids or self.where)

    @property
    def by_table_and_op(self) -> bool:
        """Whether a row's table and operation alone decide."""
        return not (self._xids or self.where)

    @property
    def a_table_came(self) -> bool:
        """Whether anything was of a table."""
        return bool(self._known)

    @property
    def no_table_passed(self) -> bool:
        """Whether there were tables, and none of them has a name that was asked for."""
        return bool(self.left_out) and not any(self._known.values())

    def row_passes(self, relation: Relation, op: str) -> bool:
        """Whether such rows are to be shown, where their table and operation decide."""
        return self.table_passes(relation) and (not self._ops or op in self._ops)

    def passes(self, change: Change) -> bool:
        """Whether a change is to be shown. Raises OptionError where a condition does not fit its column."""
        if isinstance(change, RowChange | TableTruncate):
            if not self.table_passes(change.relation):  # looked at first: every table that came is told at the end
                return False
        elif self._tables or self.where:
            return False
        if self._ops and change.op not in self._ops:
            return False
        if self._xids and (change.transaction is None or change.transaction.xid not in self._xids):
            return False
        return not self.where or (isinstance(change, RowChange) and self._where_passes(change))

    def outcome_passes(self, outcome: Outcome) -> bool:
        """The same for the outcome of a prepared transaction, of which no table is known."""
        if (self._ops and outcome.op not in self._ops) or (self._xids and outcome.xid not in self._xids):
            return False
        return not (self._tables or self.where)

    def described(self, event: SchemaChange) -> bool:
        """Whether a table that was described passes; what is masked of one that does not must be known all the same,
        for it may be renamed to one that does."""
        if self.redaction is not None:
            self.redaction.learn(event.before, event.now)
        return self.table_passes(event.now)

    def table_passes(self, relation: Relation) -> bool:
        """Whether a table's changes may pass."""
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
            held = condition.matches(change)
            if held is None:
                self.not_sent += 1
            if not held:
                return False
        return True


def _matches(relation: Relation, pattern: str) -> bool:
    name = f"{relation.schema}.{relation.name}" if "." in pattern else relation.name
    return relation.seen and fnmatchcase(name, pattern)
