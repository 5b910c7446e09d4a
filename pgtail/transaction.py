"""Floor 3, what the assembler tells the outputs: a transaction, its changes in order, its end; no bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from pgtail.relations import Relation
from pgtail.wire.cells import TupleData


@dataclass(slots=True)
class Transaction:
    """One top-level transaction, filled as far as it is known; LSNs and times are None until then.

    `state` is "prepared" while its outcome is open, "open" of a part that is shown before the end is known, else None;
    `aborted` says that all of it was rolled back. `begun` is False where its Begin was never seen:
    its changes then have no `seq`. `changes` is the last `seq` given, `messages` the number of logical messages.
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

    def take_over(self, other: Transaction) -> None:
        """Become what `other` is: the same transaction, seen again from its beginning to its end."""
        for name in self.__slots__:
            setattr(self, name, getattr(other, name))

    @property
    def settled(self) -> bool:
        """Whether it is committed or prepared: neither rolled back, nor a part of one that is still open."""
        return not self.aborted and self.state != "open"

    @property
    def lsn(self) -> int | None:
        """The log position that names it: of its commit, or of its prepare."""
        return self.prepare_lsn if self.commit_lsn is None else self.commit_lsn

    @property
    def time(self) -> int | None:
        """Its commit's time, or its prepare's."""
        return self.prepare_ts if self.commit_ts is None else self.commit_ts


@dataclass(slots=True)
class Started:
    """The transaction's first word; everything known before its first change is filled in."""

    transaction: Transaction


@dataclass(slots=True)
class RowChange:
    """One row inserted, updated or deleted. `old_kind` is K, O or empty, as in the Update message.

    What was rolled back is `aborted`, here and in the other changes, and has no `seq`.
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


@dataclass(slots=True)
class TableTruncate:
    """One table of a Truncate message."""

    transaction: Transaction
    seq: int | None
    lsn: int | None
    relation: Relation
    cascade: bool
    restart_identity: bool
    aborted: bool = False

    op: ClassVar[str] = "truncate"


@dataclass(slots=True)
class LogicalMessage:
    """A message of pg_logical_emit_message; outside of any transaction where it is not transactional."""

    transaction: Transaction | None
    lsn: int | None
    prefix: str
    content: bytes
    transactional: bool
    aborted: bool = False

    op: ClassVar[str] = "message"


@dataclass(slots=True)
class Ended:
    """The transaction's last word. `complete` is False where the source broke it off: nothing was committed or
    prepared as far as is known."""

    transaction: Transaction
    complete: bool = True


@dataclass(slots=True)
class Outcome:
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


@dataclass(slots=True)
class SchemaChange:
    """A table was described, for the first time (`before` is None) or anew."""

    before: Relation | None
    now: Relation


@dataclass(slots=True)
class Note:
    """Something worth a word to a person that is no error; `damage` says that the input is incomplete by it."""

    text: str
    offset: int | None = None
    damage: bool = False


Change: TypeAlias = RowChange | TableTruncate | LogicalMessage
Event: TypeAlias = Started | Change | Ended | Outcome | SchemaChange | Note
