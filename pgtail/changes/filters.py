"""Which changes are shown: by table, operation, transaction and value."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from typing import Final

from pgtail.changes.condition import And, Bound, Condition, Not, Test, tests_of
from pgtail.changes.events import Change, Outcome, RowChange, SchemaChange, TableTruncate
from pgtail.changes.redaction import Redaction
from pgtail.changes.relations import Relation
from pgtail.changes.where_parser import parse

OPS: Final = ("insert", "update", "delete", "truncate", "message", "commit_prepared", "rollback_prepared")


def condition_of(text: str, redaction: Redaction | None = None) -> Condition:
    """The condition of one --where, `COLUMN OP VALUE`. Raises OptionError if the text is invalid.

    Errors do not quote the value to compare with if `redaction` may mask the column. An invalid text may name any
    column: with `redaction` no part of it is quoted.
    """
    column, op, value = parse(text, secret=redaction is not None)
    secret = redaction is not None and redaction.may_hide(column)
    shown = f"{column} {op} ..." if secret else text
    negated = op in ("!~", "is not null")
    positive = {"!~": "~", "is not null": "is null"}.get(op, op)
    test = Test(column, positive, value, shown=shown, secret=secret)
    return Not(test) if negated else test


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
        self.xids = frozenset(xids)
        """The transactions that are shown; all, if empty."""
        self.condition = And(tuple([condition_of(text, redaction) for text in where]))
        """True for the rows that are shown."""
        self.tests = [*tests_of(self.condition)]
        self.redaction = redaction
        self.not_sent = 0
        self.left_out: dict[str, None] = {}
        """The tables whose names did not match, in the order of their first appearance."""
        self._known: dict[int, bool] = {}
        self._bound: dict[int, Bound] = {}

    @property
    def active(self) -> bool:
        """Whether there are any conditions."""
        return bool(self._tables or self._exclude or self._ops or self.xids or self.tests)

    @property
    def needs_events(self) -> bool:
        """Whether every change must go through passes(), and not only those that the scanner leaves."""
        return False

    @property
    def a_table_came(self) -> bool:
        """Whether any change of a table was seen."""
        return bool(self._known)

    @property
    def no_table_passed(self) -> bool:
        """Whether there were tables, but no name matched."""
        return bool(self.left_out) and not any(self._known.values())

    def row_passes(self, relation: Relation, op: str) -> bool:
        """Whether these rows pass by table and operation."""
        return self.table_passes(relation) and (not self._ops or op in self._ops)

    def passes(self, change: Change) -> bool:
        """Whether a change is shown. Raises OptionError if a condition does not fit the column's type."""
        if isinstance(change, RowChange | TableTruncate):
            if not self.table_passes(change.relation):  # first, so left_out gets every table
                return False
        elif self._tables or self.tests:
            return False
        if self._ops and change.op not in self._ops:
            return False
        if self.xids and (change.transaction is None or change.transaction.xid not in self.xids):
            return False
        return not self.tests or (isinstance(change, RowChange) and self._where_passes(change))

    def outcome_passes(self, outcome: Outcome) -> bool:
        """The same for the outcome of a prepared transaction, which names no table."""
        if (self._ops and outcome.op not in self._ops) or (self.xids and outcome.xid not in self.xids):
            return False
        return not (self._tables or self.tests)

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

    def bound(self, relation: Relation) -> Bound | None:
        """The condition for the rows of a table; None if there is none."""
        if not self.tests:
            return None
        bound = self._bound.get(relation.version)
        if bound is None or bound.relation is not relation:
            bound = self._bound[relation.version] = Bound(self.condition, relation)
        return bound

    def _where_passes(self, change: RowChange) -> bool:
        bound = self.bound(change.relation)
        if bound is None:
            return True
        found = bound.holds(change)
        self.not_sent += found is None and bound.untested
        return found is True


def _matches(relation: Relation, pattern: str) -> bool:
    name = f"{relation.schema}.{relation.name}" if "." in pattern else relation.name
    return relation.seen and fnmatchcase(name, pattern)
