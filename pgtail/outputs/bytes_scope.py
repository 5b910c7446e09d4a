"""Floor 4, what stands around a message: the tables in force and the transaction it belongs to; shows nothing.

The assembler knows this too, but it keeps streamed changes for their commit: here each message counts where it lies.
"""

from __future__ import annotations

from pgtail.redaction import Redaction
from pgtail.relations import Relation, Relations
from pgtail.values import Types
from pgtail.wire.decoder import AnyFrame
from pgtail.wire.schema import Relation as RelationMessage
from pgtail.wire.schema import Type as TypeMessage
from pgtail.wire.stream import StreamAbort, StreamCommit, StreamStart, StreamStop
from pgtail.wire.transaction import Begin, Commit, Message
from pgtail.wire.two_phase import BeginPrepare, CommitPrepared, Prepare, RollbackPrepared, StreamPrepare


class Scope:
    """Follows the messages of one stream: enter() before one is looked at, leave() after it."""

    def __init__(self, types: Types, redaction: Redaction | None = None) -> None:
        self._relations = Relations(types)
        self.redaction = redaction
        """What masks cells, if anything does."""
        self._stream: int | None = None
        self._ends = False
        self.xid: int | None = None
        """The top-level transaction that the message belongs to, where it is known."""

    def relation(self, oid: int) -> Relation:
        """The table in force; one with `seen` False where it was never described."""
        return self._relations.get(oid, self._stream)

    def enter(self, message: AnyFrame) -> None:
        if isinstance(message, Begin | BeginPrepare):
            self.xid = message.xid
        elif isinstance(message, StreamStart):
            self.xid = self._stream = message.xid
        elif isinstance(message, StreamCommit | StreamAbort | CommitPrepared | RollbackPrepared | StreamPrepare):
            self.xid = message.xid
            self._ends = True
        elif isinstance(message, RelationMessage):
            before, now = self._relations.see(message, self._stream)
            if self.redaction is not None and now is not before:
                self.redaction.learn(before, now)
        elif isinstance(message, TypeMessage):
            self._relations.see_type(message)

    def leave(self, message: AnyFrame) -> None:
        if isinstance(message, StreamCommit | StreamPrepare):
            self._relations.keep(message.xid)
        elif isinstance(message, StreamAbort) and message.subxid == message.xid:
            self._relations.drop(message.xid)
        if self._ends or isinstance(message, Commit | Prepare | StreamStop):
            self.lost()

    def belongs(self, message: AnyFrame) -> int | None:
        """The top-level transaction of a message; a message of pg_logical_emit_message may belong to none."""
        return None if isinstance(message, Message) and not message.transactional else self.xid

    def lost(self) -> None:
        """Outside of every transaction: one has ended, or messages were skipped here."""
        self._stream = self.xid = None
        self._ends = False
