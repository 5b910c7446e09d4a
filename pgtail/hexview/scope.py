"""Track the context of each message: the current tables and the transaction.

The assembler tracks them too, but it buffers streamed changes until their commit; `inspect` shows messages in their
order in the input.
"""

from __future__ import annotations

from typing import Final

from pgtail.changes.events import Transaction
from pgtail.changes.redaction import Redaction
from pgtail.changes.relations import Relation, Relations
from pgtail.pgoutput.decoder import AnyFrame
from pgtail.pgoutput.kinds import Role, messages
from pgtail.pgoutput.schema import Relation as RelationMessage
from pgtail.pgoutput.schema import Type as TypeMessage
from pgtail.pgoutput.streaming import StreamAbort, StreamCommit, StreamStart, StreamStop
from pgtail.pgoutput.two_phase import StreamPrepare
from pgtail.values import Types

_WITH_OWN_XID: Final = messages(Role.BEGIN, Role.STREAM_END, Role.OUTCOME)
"""Messages with the xid of the top-level transaction that they are about."""
_LAST: Final = messages(Role.END, Role.STREAM_END, Role.OUTCOME) | {StreamStop}
"""Messages after which no transaction is open."""


class Scope:
    """Follows the messages of one stream: call enter() before a message is shown and leave() after it."""

    def __init__(self, types: Types, redaction: Redaction | None = None) -> None:
        self._relations = Relations(types)
        self.redaction = redaction
        """Masks cells, if not None."""
        self._stream: int | None = None
        self.xid: int | None = None
        """The top-level transaction of the message, if known; 0 in a snapshot."""

    def relation(self, oid: int) -> Relation:
        """The current version of a table; one with `seen` False if no Relation described it."""
        return self._relations.get(oid, self._stream)

    @property
    def transaction(self) -> Transaction:
        """The transaction of the message, whose changes are not counted."""
        return Transaction(self.xid or None, begun=False, snapshot=self.xid == 0)

    def enter(self, message: AnyFrame) -> None:
        changes = self._relations.follow(message, self._stream)
        if type(message) in _WITH_OWN_XID:
            self.xid = getattr(message, "xid", None)
        elif isinstance(message, StreamStart):
            self.xid = self._stream = message.xid
        elif isinstance(message, RelationMessage):
            changes.append(self._relations.see(message, self._stream))
        elif isinstance(message, TypeMessage):
            self._relations.see_type(message)
        for before, now in changes:
            if self.redaction is not None and now is not before:
                self.redaction.learn(before, now)

    def leave(self, message: AnyFrame) -> None:
        if isinstance(message, StreamCommit | StreamPrepare):
            self._relations.keep(message.xid)
        elif isinstance(message, StreamAbort) and message.subxid == message.xid:
            self._relations.drop(message.xid)
        if type(message) in _LAST:
            self.lost()

    def lost(self) -> None:
        """No transaction is open: one ended, or messages were skipped."""
        self._stream = self.xid = None
