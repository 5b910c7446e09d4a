"""The events that the assembler sends to outputs: a transaction's start, its changes in order, its end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

from msgspec import Struct

from pgtail.changes.relations import Relation
from pgtail.native.batch import BeginEntry, Slice, Totals
from pgtail.pgoutput.cells import UNCHANGED, TupleData
from pgtail.pgoutput.decoder import FromClient
from pgtail.pgoutput.kinds import Role, messages
from pgtail.pgoutput.rows import Delete, Insert, Truncate, Update
from pgtail.pgoutput.scalars import time_text
from pgtail.pgoutput.streaming import StreamCommit
from pgtail.pgoutput.transaction import Commit, Message
from pgtail.pgoutput.two_phase import CommitPrepared, Prepare, RollbackPrepared

if TYPE_CHECKING:
    from pgtail.changes.context import Context


class Transaction(Struct):
    """One top-level transaction. LSNs and times are None until they are known.

    `state` is "prepared" until the outcome is known, "open" for a part shown before the end is known, otherwise None.
    `streamed` says that it was sent in blocks before its end, `aborted` that the whole transaction was rolled back.
    `begun` is False if its Begin is missing: its changes then have no `seq`. `changes` is the last `seq` assigned,
    `messages` the number of logical messages. `context` is that of the change which is processed now: the pipeline sets
    it, if --context asks for it.

    A `snapshot` has the rows that a table had at `end_lsn`, and no xid. `table` is that table; None if it was not
    described. Row numbers continue from one table of a snapshot to the next: `skipped` are those of earlier tables.
    """

    xid: int | None
    commit_lsn: int | None = None
    commit_ts: int | None = None
    end_lsn: int | None = None
    prepare_lsn: int | None = None
    prepare_ts: int | None = None
    origin: str | None = None
    gid: str | None = None
    state: str | None = None
    begun: bool = True
    streamed: bool = False
    aborted: bool = False
    changes: int = 0
    messages: int = 0
    snapshot: bool = False
    table: Relation | None = None
    skipped: int = 0
    context: Context | None = None

    @property
    def count(self) -> int:
        """The number of its changes."""
        return self.changes - self.skipped

    @property
    def settled(self) -> bool:
        """Whether it is committed or prepared, not rolled back and not still open."""
        return not self.aborted and self.state != "open"

    @property
    def lsn(self) -> int | None:
        """The LSN that identifies it: of its commit, or else of its prepare."""
        return self.prepare_lsn if self.commit_lsn is None else self.commit_lsn

    @property
    def time(self) -> int | None:
        """The time of its commit, or else of its prepare."""
        return self.prepare_ts if self.commit_ts is None else self.commit_ts


class Started(Struct):
    """A transaction starts. Everything known before its first change is filled in."""

    transaction: Transaction


SEEN: Final = "S"
"""The `old_kind` of a row that the server did not send (changes/seen_rows.py)."""
OLD_ROWS: Final = ("O", SEEN)
"""The `old_kind` of old rows, which are not only a key."""


class RowChange(Struct):
    """One row inserted, updated, deleted, or read for a snapshot (ROW_OPS).

    `old_kind` is K, O or empty, as in the Update message, but K for an O without REPLICA IDENTITY FULL; or SEEN: then
    `old` is the row as the input had shown it before, and its unknown values are UNCHANGED.

    In all changes `aborted` marks those that were rolled back; they have no `seq`.
    """

    op: str
    transaction: Transaction
    seq: int | None
    lsn: int | None
    relation: Relation
    old_kind: str
    old: TupleData | None
    new: TupleData | None
    aborted: bool = False

    @property
    def nothing_changed(self) -> bool:
        """Whether it is an update that changed nothing of a row that is completely known."""
        old, new = self.old, self.new
        if self.old_kind not in OLD_ROWS or not self.relation.seen or not old or not new or len(old) != len(new):
            return False
        if UNCHANGED not in new:
            return old == new
        return all(now is UNCHANGED or now == before for before, now in zip(old, new, strict=True))


class TableTruncate(Struct):
    """One table of a Truncate message."""

    transaction: Transaction
    seq: int | None
    lsn: int | None
    relation: Relation
    cascade: bool
    restart_identity: bool
    aborted: bool = False

    op: ClassVar[str] = "truncate"

    @property
    def options(self) -> str:
        """The options of the TRUNCATE in words; empty without any."""
        words = (("cascade", self.cascade), ("restart identity", self.restart_identity))
        return ", ".join([word for word, given in words if given])


class LogicalMessage(Struct):
    """A message of pg_logical_emit_message; `transaction` is None if it is not transactional."""

    transaction: Transaction | None
    lsn: int | None
    prefix: str
    content: bytes
    transactional: bool
    aborted: bool = False

    op: ClassVar[str] = "message"


class Ended(Struct):
    """A transaction ends. `complete` is False if the source broke off inside it: whether it committed is unknown."""

    transaction: Transaction
    complete: bool = True


class SnapshotEnded(Struct):
    """No more tables of a snapshot follow. `complete` is False if the input broke off: whether any do is not known."""

    complete: bool = True


class Outcome(Struct):
    """A prepared transaction was committed or rolled back; `op` is commit_prepared or rollback_prepared.

    For a commit `lsn` and `time` are the commit's; for a rollback `lsn` is the end of the prepare.
    """

    op: str
    xid: int
    gid: str
    lsn: int
    end_lsn: int
    time: int
    prepare_ts: int | None = None


class SchemaChange(Struct):
    """A table was described, for the first time (`before` is None) or again."""

    before: Relation | None
    now: Relation


class Described(Struct, frozen=True):
    """A table's description came, perhaps the same as before: its rows may have changed unseen.

    A description inside a streamed transaction is sent again, `repeated`, at its place among the changes of the
    transaction. `commits_at` is the commit LSN of its transaction, if that is not streamed. `lsn` is that of the
    message: a recorder sets it to the commit LSN of the table's snapshot if no change since then was missed.
    """

    oid: int
    repeated: bool = False
    commits_at: int | None = None
    lsn: int | None = None


class UndecodedRows(Struct):
    """Row messages of a streamed transaction that ends, in a framing of pgoutput/frames.py, from `pos` on.

    The pipeline may process some of them and set `pos` to where the next one starts. The rest follows as changes.
    `tables` are their tables by OID.
    """

    transaction: Transaction
    data: bytes
    framing: int
    tables: dict[int, Relation]
    pos: int = 0


class Rows(Struct):
    """Rows that were not decoded, with the starts and ends of their transactions.

    `transaction` is the one that was open before them, `open` the one that is open after them; None outside of any.
    """

    slice: Slice
    totals: Totals
    transaction: Transaction | None
    open: Transaction | None

    def change(self, place: int) -> RowChange:
        """The change of a row that is written alone."""
        row = self.slice.row(place)
        if row.is_last:
            transaction = self.open
        elif row.begin is None:
            transaction = self.transaction
        else:
            transaction = begun(row.begin)
        assert transaction is not None
        return RowChange(row.op, transaction, row.seq, row.lsn, row.relation, row.old_kind, row.old, row.new)


def begun(begin: BeginEntry) -> Transaction:
    """The transaction of a Begin in a batch."""
    return Transaction(begin.xid, commit_lsn=begin.final_lsn, commit_ts=begin.commit_time)


class Note(Struct):
    """A warning for people; `damage` says that the input is incomplete."""

    text: str
    offset: int | None = None
    damage: bool = False


Change: TypeAlias = RowChange | TableTruncate | LogicalMessage
Event: TypeAlias = (
    Started | Change | UndecodedRows | Ended | SnapshotEnded | Outcome | SchemaChange | Described | Note | FromClient
)


ChangeMessage: TypeAlias = Insert | Update | Delete | Truncate | Message
CHANGES: Final = messages(Role.ROW, Role.TRUNCATE, Role.MESSAGE, Role.OUTCOME)
"""Messages for a change or for the outcome of a prepared transaction."""


def row_change(
    transaction: Transaction, message: Insert | Update | Delete, lsn: int | None, relation: Relation
) -> RowChange:
    """The change of a row message, with the next `seq` of its transaction."""
    seq = _next_seq(transaction)
    if isinstance(message, Insert):
        op = "snapshot" if transaction.snapshot else "insert"
        return RowChange(op, transaction, seq, lsn, relation, "", None, message.new)
    old_kind = message.old_kind
    if old_kind == "O" and relation.seen and relation.identity != "full":
        old_kind = "K"  # of a partition whose identity is not FULL, as that of its root is
    if isinstance(message, Update):
        return RowChange("update", transaction, seq, lsn, relation, old_kind, message.old, message.new)
    return RowChange("delete", transaction, seq, lsn, relation, old_kind, message.old, None)


def changes_of(
    transaction: Transaction, message: ChangeMessage, lsn: int | None, relations: Sequence[Relation]
) -> Iterator[Change]:
    """The changes of a message; `relations` are its tables in the order of tables_of().

    A logical message has no `seq`, so the numbers of rows do not depend on the messages option.
    """
    if isinstance(message, Message):
        own = transaction if message.transactional else None
        if own is not None:
            own.messages += 1
        yield LogicalMessage(own, lsn, message.prefix, message.content, message.transactional)
    elif isinstance(message, Truncate):
        cascade, restart_identity = bool(message.options & 1), bool(message.options & 2)
        for relation in relations:
            yield TableTruncate(transaction, _next_seq(transaction), lsn, relation, cascade, restart_identity)
    else:
        yield row_change(transaction, message, lsn, relations[0])


def _next_seq(transaction: Transaction) -> int | None:
    transaction.changes += 1
    return transaction.changes if transaction.begun else None


def unnumbered(transaction: Transaction, found: Iterable[Change], *, aborted: bool = False) -> Iterator[Change]:
    """Changes without a `seq`, because they are not committed, or not yet. They do not advance the counters."""
    before = transaction.changes, transaction.messages
    for change in found:
        transaction.changes, transaction.messages = before
        change.aborted = aborted
        if not isinstance(change, LogicalMessage):
            change.seq = None
        yield change


def tables_of(message: ChangeMessage) -> tuple[int, ...]:
    """The OIDs of the tables that a message changes."""
    if isinstance(message, Message):
        return ()
    return message.relations if isinstance(message, Truncate) else (message.relation,)


def outcome_of(message: CommitPrepared | RollbackPrepared) -> Outcome:
    """The outcome in a message."""
    if isinstance(message, CommitPrepared):
        times = (message.commit_lsn, message.end_lsn, message.commit_time)
        return Outcome("commit_prepared", message.xid, message.gid, *times)
    times = (message.prepare_end_lsn, message.rollback_end_lsn, message.rollback_time)
    return Outcome("rollback_prepared", message.xid, message.gid, *times, prepare_ts=message.prepare_time)


def unknown_flags(
    message: Commit | Prepare | CommitPrepared | RollbackPrepared | StreamCommit, offset: int | None
) -> list[Note]:
    """A warning if `flags`, which must be 0, is not."""
    if not message.flags:
        return []
    return [Note(f"{type(message).__name__} has unknown flags 0x{message.flags:02x}", offset)]


def time_damage(end: Commit | Prepare, begun: int | None, offset: int | None = None) -> list[Note]:
    """A note of damage if the time of a transaction's end differs from that of its Begin: servers send the same."""
    time = end.commit_time if isinstance(end, Commit) else end.prepare_time
    if begun is None or time == begun:
        return []
    begin, kind = time_text(begun), type(end).__name__
    text = f"time {time_text(time)} of {kind}, but {begin} of its Begin, which the changes have: one of them is damaged"
    return [Note(text, offset, damage=True)]


def tuple_mismatch(change: Change) -> str | None:
    """A warning if a change does not fit its Relation, otherwise None."""
    if isinstance(change, LogicalMessage):
        return None
    relation = change.relation
    if not relation.seen:
        return f"relation {relation.oid} was never described: its columns are shown as ?1, ?2, ..."
    if isinstance(change, TableTruncate):
        return None
    columns = len(relation.columns)
    for row in (change.new, change.old):
        if row is not None and len(row) > columns:
            return f"a row of {relation.qualified} has {len(row)} columns, its Relation {columns}"
        if row is not None and len(row) < columns:
            return f"a row of {relation.qualified} has only {len(row)} of {columns} columns"
    return None


def not_in_identity(change: RowChange) -> list[int]:
    """The indexes of the old tuple that carry no information: in a key tuple, the columns outside the identity.

    They are NULL. For a table that was not described this applies to every NULL.
    """
    if change.old is None or (change.old_kind == "O" and change.relation.seen):
        return []
    keys = [column.key for column in change.relation.columns]
    return [i for i, cell in enumerate(change.old) if cell is None and not (i < len(keys) and keys[i])]
