"""Selects the changes to show: by table, operation, transaction and value."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from pgtail.changes.commit_range import CommitRange
from pgtail.changes.condition import CHANGE_OPS, CONTEXT, And, Condition, Test, tests_of
from pgtail.changes.ddl import DdlMessage
from pgtail.changes.events import Change, LogicalMessage, Outcome, RowChange, SchemaChange, TableTruncate, Transaction
from pgtail.changes.relations import Relation
from pgtail.native.plan import ROW_OPS

if TYPE_CHECKING:
    from pgtail.changes.bound_condition import Bound
    from pgtail.changes.redaction import Redaction

OPS: Final = (*CHANGE_OPS, "commit_prepared", "rollback_prepared")


def condition_of(text: str, redaction: Redaction | None = None, *, context: bool = False) -> Condition:
    """The condition of one --where; with `context` it may test that. Raises OptionError if the text is invalid.

    Errors do not quote the values to compare with if `redaction` may mask the column. An invalid text may name any
    column: with `redaction` no part of it is quoted.
    """
    from pgtail.changes.where_parser import Parser

    return Parser(text, None if redaction is None else redaction.may_hide, context=context).parse()


class Filter:
    """Decides which changes pass; `not_sent` counts rows whose tested value was not sent.

    Conditions test the original values, including those that `redaction` masks; with `context` they may test that, too.
    Patterns are case-sensitive shell globs: with a dot they match schema.table, without one the table name in any
    schema.
    """

    def __init__(
        self,
        *,
        tables: Iterable[str] = (),
        exclude: Iterable[str] = (),
        ops: Collection[str] = (),
        xids: Collection[int] = (),
        where: Iterable[str] = (),
        commits: CommitRange | None = None,
        redaction: Redaction | None = None,
        context: bool = False,
    ) -> None:
        # The globs of tables, the operations and the transactions that are shown; all, if they are empty.
        self.tables = list(tables)
        self._exclude = list(exclude)
        self.ops = frozenset(ops)
        self.xids = frozenset(xids)
        self.commits = commits or CommitRange()
        """The commits that are shown."""
        texts = list(where)
        conditions = [condition_of(text, redaction, context=context) for text in texts]
        self.condition = And(tuple(conditions))
        """True for the changes that are shown."""
        self.shown_conditions = [_shown(*pair) for pair in zip(texts, conditions, strict=True)]
        """The parts of the condition as messages may quote them."""
        self.tests = [*tests_of(self.condition)]
        self.tests_context = any(test.operand.is_property and test.operand.name == CONTEXT for test in self.tests)
        """Whether a condition depends on the context, which slices do not have."""
        self.redaction = redaction
        self.not_sent = 0
        self.left_out: dict[str, None] = {}
        """The tables whose names did not match, in the order of their first appearance."""
        self.shadowed: dict[str, str] = {}
        """The properties in conditions that have the name of a column, each with a table that has it."""
        self.notes: dict[str, None] = {}
        """How conditions differ from what people may mean, each once."""
        self.columns: set[str] = set()
        """The columns of the tables whose names matched."""
        self.seen: set[str] = set()
        """The columns in conditions that a table had, or a published one has."""
        self._known: dict[int, bool] = {}
        self._bound: dict[tuple[int | None, str], Bound] = {}

    @property
    def active(self) -> bool:
        """Whether there are any conditions."""
        return bool(self.tables or self._exclude or self.ops or self.xids or self.tests or self.commits.active)

    @property
    def may_skip(self) -> bool:
        """Whether skips() may say yes. Redaction learns about every table, so nothing is skipped with it."""
        selects = bool(self.tables or self._exclude or self.xids or self.commits.since.time is not None)
        return selects and self.redaction is None and not self.needs_events

    @property
    def needs_events(self) -> bool:
        """Whether every change must go through passes(), and not only those that were decoded."""
        return False

    @property
    def met(self) -> bool:
        """Whether all awaited changes have passed."""
        return False

    @property
    def columns_not_seen(self) -> list[tuple[str, Test]]:
        """The columns in conditions that no table had, with their tests."""
        operands = [(one, test) for test in self.tests for one in (test.operand, test.other) if one is not None]
        columns = {(one.name, test): None for one, test in operands if not one.is_property}
        return [(name, test) for name, test in columns if name not in self.seen]

    @property
    def a_table_came(self) -> bool:
        """Whether any change of a table was seen."""
        return bool(self._known)

    @property
    def no_table_passed(self) -> bool:
        """Whether there were tables, but no name matched."""
        return bool(self.left_out) and not any(self._known.values())

    def selects(self, transaction: Transaction) -> bool:
        """Whether changes of a transaction pass by its xid, and by the place and time of its commit."""
        return (not self.xids or transaction.xid in self.xids) and self.commits.contains(
            transaction.lsn, transaction.time
        )

    def row_passes(self, relation: Relation, op: str) -> bool:
        """Whether these rows pass by table and operation."""
        return self.table_passes(relation) and (not self.ops or op in self.ops)

    def snapshot_passes(self, transaction: Transaction) -> bool:
        """Whether rows of a snapshot may pass, by its table, xid, place and time: its start and end are then shown."""
        table = transaction.table
        return self.selects(transaction) and table is not None and self.row_passes(table, "snapshot")

    def passes(self, change: Change) -> bool:
        """Whether a change is shown. Raises OptionError if a condition does not fit the column's type."""
        if isinstance(change, RowChange | TableTruncate):
            if not self.table_passes(change.relation):  # first, so left_out gets every table
                return False
        elif isinstance(change, DdlMessage) and change.ddl.name is not None:
            if not self.name_passes(change.ddl.schema or "", change.ddl.name):
                return False
        elif self.tables:
            return False
        if self.ops and change.op not in self.ops:
            return False
        if change.transaction is not None:
            if not self.selects(change.transaction):
                return False
        elif self.xids or not self.commits.contains(change.lsn, None):
            return False
        return not self.tests or self._where_passes(change)

    def outcome_passes(self, outcome: Outcome, shown: bool | None = None) -> bool:
        """Whether the outcome of a prepared transaction is shown; `shown`: whether a change of it was, None if unknown.

        If a change was shown, so is the outcome. Otherwise a filter without tables and conditions shows it if --op
        names it, or if there is no --op and `shown` is None. In every case it must pass selects_outcome().
        """
        if not (shown or self._passes_by_itself(outcome, shown)):
            return False
        return self.selects_outcome(outcome)

    def _passes_by_itself(self, outcome: Outcome, shown: bool | None) -> bool:
        if self.tables or self.tests:
            return False
        return outcome.op in self.ops if self.ops else shown is None

    def selects_outcome(self, outcome: Outcome) -> bool:
        """Whether an outcome passes by its xid, place and time."""
        place = outcome.end_lsn if outcome.op == "rollback_prepared" else outcome.lsn  # whose lsn is the prepare's
        return (not self.xids or outcome.xid in self.xids) and self.commits.contains(place, outcome.time)

    def described(self, event: SchemaChange) -> bool:
        """Whether a schema change is shown. Raises OptionError if a condition does not fit the table's types.

        Conditions are bound here, also if none of the table's changes pass otherwise. Redaction learns about every
        table: one that does not pass may be renamed to one that does.
        """
        if self.redaction is not None:
            self.redaction.learn(event.before, event.now)
        passes = self.table_passes(event.now)
        if passes:
            for op in ROW_OPS:
                self.bound(event.now, op)
        return passes

    def table_passes(self, relation: Relation) -> bool:
        known = self._known.get(relation.version)
        if known is None:
            known = self._known[relation.version] = (
                self.name_passes(relation.schema, relation.name) if relation.seen else not self.tables
            )
            if known:
                self.columns.update(column.name for column in relation.columns)
            elif relation.seen:
                self.left_out[f"{relation.schema}.{relation.name}"] = None
        return known

    def name_passes(self, schema: str, table: str) -> bool:
        return selected(schema, table, self.tables, self._exclude)

    def skips(
        self,
        tables: Mapping[tuple[str, str], bool],
        messages: int,
        ddl: int,
        xids: tuple[int, int] | None,
        times: tuple[int, int] | None,
    ) -> bool:
        """Whether no event of a part of the stream passes, except for outcomes of prepared transactions.

        `tables` are its tables by schema and name, with whether it describes them again, `messages` the number of its
        logical messages and `ddl` that of those about schema changes, which may be of any table, `xids` and `times` the
        least and greatest of its transactions. State that later parts need is updated as if it had been read.
        """
        passing = [name for name in tables if self.name_passes(*name)]
        if any(tables[name] for name in passing):
            return False
        of_xids = not self.xids or (xids is not None and any(xids[0] <= xid <= xids[1] for xid in self.xids))
        since = self.commits.since.time
        of_times = since is None or (times is not None and times[1] >= since)
        of_names = bool(passing or ddl) or not (self.tables or (self._exclude and not messages))
        if of_xids and of_times and of_names:
            return False
        self.left_out.update(dict.fromkeys([f"{name[0]}.{name[1]}" for name in tables if name not in passing]))
        return True

    def bound(self, relation: Relation | None, op: str) -> Bound | None:
        """The condition for changes `op` of a table, or of none; None if there is no condition.

        Raises OptionError if a value does not fit the type of its column.
        """
        if not self.tests:
            return None
        from pgtail.changes.bound_condition import Bound, names_in

        version = None if relation is None else relation.version
        bound = self._bound.get((version, op))
        if bound is None or bound.relation is not relation:
            seen, shadowed = names_in(self.condition, relation)
            self.seen |= seen  # also of a condition that is refused
            for name in shadowed:
                self.shadowed.setdefault(name, "" if relation is None else relation.qualified)
            bound = self._bound[version, op] = Bound(self.condition, relation, op)
            notes = [test.note for _, _, test in bound.nodes() if test is not None]
            self.notes.update(dict.fromkeys([note for note in notes if note is not None]))
        return bound

    def _where_passes(self, change: Change) -> bool:
        bound = self.bound(None if isinstance(change, LogicalMessage) else change.relation, change.op)
        assert bound is not None  # as there are tests
        found = bound.holds(change)
        self.not_sent += found is None and bound.untested
        return found is True


def _shown(text: str, condition: Condition) -> str:
    """A condition without secret values."""
    tests = [*tests_of(condition)]
    if not any(test.secret for test in tests):
        return text
    return tests[0].shown if len(tests) == 1 else "..."


def name_matches(schema: str, table: str, pattern: str) -> bool:
    """Whether a glob on schema.table, or without a dot on the table's name, matches."""
    return fnmatchcase(f"{schema}.{table}" if "." in pattern else table, pattern)


def any_matches(schema: str, table: str, patterns: Iterable[str]) -> bool:
    """Whether one of these globs matches, as in name_matches()."""
    return any(name_matches(schema, table, pattern) for pattern in patterns)


def selected(schema: str, table: str, tables: Collection[str], exclude: Collection[str] = ()) -> bool:
    """Whether a table matches one of the globs `tables`, if there are any, and none of `exclude`."""
    return (not tables or any_matches(schema, table, tables)) and not any_matches(schema, table, exclude)
