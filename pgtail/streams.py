"""Floor 3, the streamed transactions that are open: their changes wait here for the end; knows no order of messages."""

from __future__ import annotations

from collections.abc import Iterator

from pgtail.changes import ChangeMessage, changes_of, tables_of
from pgtail.relations import Relations
from pgtail.streambuffer import StreamBuffer
from pgtail.transaction import Change, Transaction
from pgtail.wire.rows import Delete, Insert, Update
from pgtail.wire.stream import StreamAbort, StreamStart
from pgtail.wire.transaction import Message

_OVERHEAD = 200
"""Bytes that a waiting change takes beside its values, roughly."""


class Streams:
    """Each with the changes that came so far, and the tables as they were at each of them."""

    def __init__(self, relations: Relations, buffer: StreamBuffer) -> None:
        self._relations = relations
        self._buffer = buffer
        self.open: dict[int, Transaction] = {}

    def start(self, message: StreamStart) -> bool:
        """A segment begins; returns False where earlier segments of its transaction were never seen."""
        xid = message.xid
        known = xid in self.open
        if message.first_segment or not known:
            self.open[xid] = Transaction(xid, streamed=True, begun=bool(message.first_segment))
            self._buffer.start(xid)
        return known or bool(message.first_segment)

    def keep(self, stream: int, message: ChangeMessage, lsn: int | None) -> None:
        """A change of transaction `stream` waits. Raises OutputError where it cannot be kept on disk."""
        versions = [self._relations.get(oid, stream).version for oid in tables_of(message)]
        subxid = stream if message.xid is None else message.xid
        self._buffer.add(stream, subxid, (message, lsn, versions), _OVERHEAD + _weight(message))

    def abort(self, message: StreamAbort) -> bool:
        """A transaction or subtransaction is rolled back; returns False where nothing of it was seen."""
        if message.xid not in self.open:
            return False
        if message.subxid == message.xid:
            del self.open[message.xid]
            self._buffer.drop(message.xid)
            self._relations.drop(message.xid)
        else:
            self._buffer.abort(message.xid, message.subxid)
        return True

    def end(self, xid: int) -> Transaction | None:
        """A transaction is committed or prepared, and its tables hold for everybody; None where it was never seen."""
        self._relations.keep(xid)
        return self.open.pop(xid, None)

    def changes(self, transaction: Transaction) -> Iterator[Change]:
        """What waited for the end of a transaction, without what was rolled back; forgets it."""
        if transaction.xid is None or transaction.xid not in self._buffer:
            return
        for message, lsn, versions in self._buffer.take(transaction.xid):
            relations = [self._relations.versions[version] for version in versions]
            yield from changes_of(transaction, message, lsn, relations)

    def gap(self) -> None:
        """Messages were skipped: the numbers of what is open are no longer known."""
        for transaction in self.open.values():
            transaction.begun = False

    def clear(self) -> None:
        """Forget all."""
        for xid in self.open:
            self._buffer.drop(xid)
            self._relations.drop(xid)
        self.open.clear()

    def close(self) -> None:
        """Give back the temporary file."""
        self._buffer.close()


def _weight(message: ChangeMessage) -> int:
    """About how many bytes a message's values take in memory."""
    if isinstance(message, Message):
        return len(message.content)
    if not isinstance(message, Insert | Update | Delete):
        return 0
    old = None if isinstance(message, Insert) else message.old
    new = None if isinstance(message, Delete) else message.new
    cells = [*(old or ()), *(new or ())]
    return 40 * len(cells) + sum([len(cell) for cell in cells if isinstance(cell, bytes)])
