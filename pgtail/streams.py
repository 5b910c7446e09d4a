"""Floor 3, the streamed transactions that are open: their changes wait here for the end; knows no order of messages."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

from pgtail.changes import ChangeMessage, changes_of, tables_of, unnumbered
from pgtail.keptrows import KeptRows, rows_of_one
from pgtail.relations import Relation, Relations
from pgtail.streambuffer import StreamBuffer
from pgtail.transaction import Change, Ended, Event, Started, Transaction
from pgtail.uncommitted import Show, Uncommitted
from pgtail.wire.cursor import Buffer
from pgtail.wire.decoder import Decoder
from pgtail.wire.rows import Delete, Insert, Update
from pgtail.wire.stream import StreamAbort, StreamStart
from pgtail.wire.transaction import Message

_OVERHEAD = 200
"""Bytes that a waiting change takes beside its values, roughly."""
_LENGTH = struct.Struct(">I")

TakeKept: TypeAlias = Callable[[Transaction, KeptRows, dict[int, Relation], int], int]
"""A short way for rows that waited: (transaction, rows, their tables, pos) -> where the first one starts that is to be
decoded."""


class Streams:
    """Each with the changes that came so far, and the tables as they were at each of them."""

    def __init__(self, relations: Relations, buffer: StreamBuffer, show: Show) -> None:
        self._relations = relations
        self._buffer = buffer
        self._show_aborted = show.aborted
        self._uncommitted = Uncommitted() if show.uncommitted else None
        self.open: dict[int, Transaction] = {}

    def start(self, message: StreamStart) -> bool:
        """A segment begins; returns False where earlier segments of its transaction were never seen."""
        xid = message.xid
        known = xid in self.open
        if message.first_segment or not known:
            self.open[xid] = Transaction(xid, streamed=True, begun=bool(message.first_segment))
            self._buffer.start(xid)
        if self._uncommitted is not None:
            self._uncommitted.start(self.open[xid])
        return known or bool(message.first_segment)

    def stop(self, *, complete: bool = True) -> list[Event]:
        """A segment ends, or was broken off: what is to be told of it, where it was told as it came."""
        return [] if self._uncommitted is None else self._uncommitted.stop(complete=complete)

    def origin(self, stream: int, name: str) -> None:
        """Transaction `stream` comes from elsewhere."""
        self.open[stream].origin = name
        if self._uncommitted is not None:
            self._uncommitted.origin(name)

    def keep(self, stream: int, message: ChangeMessage, lsn: int | None) -> Iterable[Event]:
        """A change of transaction `stream` waits; returns what is to be told of it at once.

        Raises OutputError where it cannot be kept on disk.
        """
        relations = [self._relations.get(oid, stream) for oid in tables_of(message)]
        versions = [relation.version for relation in relations]
        subxid = stream if message.xid is None else message.xid
        self._buffer.add(stream, subxid, (message, lsn, versions), _OVERHEAD + _weight(message))
        return () if self._uncommitted is None else self._uncommitted.change(message, lsn, relations)

    def keep_rows(self, stream: int, buf: Buffer, pos: int, end: int, framing: int) -> int:
        """Row messages of transaction `stream` wait as they are; returns where the first other message starts.

        Where they are to be told at once, none are taken.
        """
        while self._uncommitted is None:
            after, frames, subxid, oids = rows_of_one(buf, pos, end, framing)
            if after == pos:
                return pos
            tables = tuple([(oid, self._relations.get(oid, stream).version) for oid in oids])
            self._buffer.add(stream, subxid, KeptRows(frames, tables), _OVERHEAD + len(frames))
            pos = after
        return pos

    def abort(self, message: StreamAbort) -> Iterable[Event] | None:
        """A transaction or subtransaction is rolled back: what to tell of it; None where nothing of it was seen."""
        if message.xid not in self.open:
            return None
        if message.subxid != message.xid:
            self._buffer.abort(message.xid, message.subxid)
            return ()
        transaction = self.open.pop(message.xid)
        self._relations.drop(message.xid)
        if self._show_aborted:
            transaction.aborted = True
            return self._rolled_back(transaction)
        self._buffer.drop(message.xid)
        return ()

    def _rolled_back(self, transaction: Transaction) -> Iterator[Event]:
        yield Started(transaction)
        yield from self.changes(transaction, None)
        yield Ended(transaction)

    def end(self, xid: int) -> Transaction | None:
        """A transaction is committed or prepared, and its tables hold for everybody; None where it was never seen."""
        self._relations.keep(xid)
        return self.open.pop(xid, None)

    def changes(self, transaction: Transaction, take: TakeKept | None) -> Iterator[Change]:
        """What waited for the end of a transaction; forgets it.

        `take` may take rows instead, in their order.
        """
        if transaction.xid is None or transaction.xid not in self._buffer:
            return
        for entry, aborted in self._buffer.take_all(transaction.xid):
            if not (aborted or transaction.aborted):
                yield from self._changes(transaction, entry, take)
            elif self._show_aborted:
                yield from unnumbered(transaction, self._changes(transaction, entry, None), aborted=True)

    def _changes(self, transaction: Transaction, entry: Any, take: TakeKept | None) -> Iterator[Change]:
        """Those of one entry."""
        if isinstance(entry, KeptRows):
            yield from self._rows(transaction, entry, take)
            return
        message, lsn, versions = entry
        relations = [self._relations.versions[version] for version in versions]
        yield from changes_of(transaction, message, lsn, relations)

    def _rows(self, transaction: Transaction, rows: KeptRows, take: TakeKept | None) -> Iterator[Change]:
        tables = {oid: self._relations.versions[version] for oid, version in rows.tables}
        decoder, buf, pos = Decoder(), rows.frames, 0
        decoder.in_stream = True
        while True:
            if take is not None:
                pos = take(transaction, rows, tables, pos)
            if pos >= len(buf):
                return
            start = pos + _LENGTH.size
            pos = start + _LENGTH.unpack_from(buf, pos)[0]
            message, lsn, _ = decoder.frame(buf, start, pos)
            assert isinstance(message, Insert | Update | Delete)
            yield from changes_of(transaction, message, lsn, [tables[message.relation]])

    def gap(self) -> None:
        """Messages were skipped: the numbers of what is open are no longer known."""
        for transaction in self.open.values():
            transaction.begun = False

    def clear(self) -> None:
        """Forget all; a segment that was told as it came was broken off before."""
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
