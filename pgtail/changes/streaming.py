"""The open streamed transactions: buffers their changes until they end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from pgtail.changes.events import (
    Change,
    ChangeMessage,
    Described,
    Ended,
    Event,
    Started,
    Transaction,
    UndecodedRows,
    changes_of,
    tables_of,
    unnumbered,
)
from pgtail.changes.relations import Relation, Relations
from pgtail.changes.stream_buffer import StreamBuffer
from pgtail.native import compiled
from pgtail.native.batch import Batch
from pgtail.pgoutput.cursor import Buffer
from pgtail.pgoutput.decoder import Decoder
from pgtail.pgoutput.frames import SEPARATED, bounds
from pgtail.pgoutput.rows import Delete, Insert, Update
from pgtail.pgoutput.streaming import StreamAbort, StreamStart
from pgtail.pgoutput.transaction import Message

_OVERHEAD: Final = 200
"""The approximate memory overhead of a buffered change in bytes."""
_CHUNK: Final = 256 * 1024
"""The approximate number of bytes in one KeptRows."""


class KeptRows(NamedTuple):
    """Undecoded row messages of one (sub)transaction as they were received, in a framing of pgoutput/frames.py.

    `tables` are the OIDs of their tables, each with the version at that point (Relation.version).
    """

    data: bytes
    framing: int
    tables: tuple[tuple[int, int], ...]


class Streams:
    """The open streamed transactions, with their changes so far and the versions of the tables at each change."""

    def __init__(self, relations: Relations, buffer: StreamBuffer, show: Show) -> None:
        self._relations = relations
        self._buffer = buffer
        self._show_aborted = show.aborted
        self._uncommitted = Uncommitted() if show.uncommitted else None
        self.open: dict[int, Transaction] = {}
        self.received: dict[int, int] = {}
        """How many changes of each open transaction came so far, also those of rolled-back subtransactions."""

    def start(self, message: StreamStart) -> bool:
        """A segment starts; returns False if earlier segments of its transaction are missing."""
        xid = message.xid
        known = xid in self.open
        if message.first_segment or not known:
            self.open[xid] = Transaction(xid, begun=bool(message.first_segment), streamed=True)
            self.received[xid] = 0
            self._buffer.start(xid)
        if self._uncommitted is not None:
            self._uncommitted.start(self.open[xid])
        return known or bool(message.first_segment)

    def stop(self, *, complete: bool = True) -> list[Event]:
        """A segment ends, or breaks off; returns the events if uncommitted changes are shown."""
        return [] if self._uncommitted is None else self._uncommitted.stop(complete=complete)

    def origin(self, stream: int, name: str) -> None:
        """Transaction `stream` has this replication origin."""
        self.open[stream].origin = name
        if self._uncommitted is not None:
            self._uncommitted.origin(name)

    def keep(self, stream: int, message: ChangeMessage, lsn: int | None) -> Iterable[Event]:
        """Buffer a change of transaction `stream`; returns the events to show at once.

        Raises OutputError if it cannot be written to disk.
        """
        relations = [self._relations.get(oid, stream) for oid in tables_of(message)]
        versions = [relation.version for relation in relations]
        subxid = stream if message.xid is None else message.xid
        self._buffer.add(stream, subxid, (message, lsn, versions), _OVERHEAD + _weight(message))
        self.received[stream] += 1
        return () if self._uncommitted is None else self._uncommitted.change(message, lsn, relations)

    def describe(self, stream: int, oid: int) -> None:
        """Note that a table was described here, whether or not what follows is rolled back."""
        self._buffer.add(stream, stream, Described(oid, repeated=True), _OVERHEAD)

    def keep_rows(self, stream: int, buf: Buffer, pos: int, end: int, framing: int) -> int:
        """Buffer row messages of transaction `stream` undecoded; returns where the first other message starts.

        Incomplete, large and unusual messages are left to the decoder; all are without compiled code, or if
        uncommitted changes are shown.
        """
        module = compiled() if self._uncommitted is None else None
        while module is not None and pos < end:
            batch: Batch = module.index(buf, pos, end, framing, True)
            for stop, subxid, oids, rows in module.runs_of_rows(batch, _CHUNK):
                data, pos = bytes(buf[pos:stop]), stop
                tables = tuple([(oid, self._relations.get(oid, stream).version) for oid in oids])
                self._buffer.add(stream, subxid, KeptRows(data, framing, tables), _OVERHEAD + len(data))
                self.received[stream] += rows
            if batch.ended != "full":
                break
        return pos

    def abort(self, message: StreamAbort) -> Iterable[Event] | None:
        """A (sub)transaction is rolled back; returns its events, or None if the transaction is unknown."""
        if message.xid not in self.open:
            return None
        if message.subxid != message.xid:
            self._buffer.abort(message.xid, message.subxid)
            return ()
        transaction = self.open.pop(message.xid)
        del self.received[message.xid]
        self._relations.drop(message.xid)
        if self._show_aborted:
            transaction.aborted = True
            return self._rolled_back(transaction)
        self._buffer.drop(message.xid)
        return ()

    def _rolled_back(self, transaction: Transaction) -> Iterator[Event]:
        yield Started(transaction)
        yield from self.changes(transaction)
        yield Ended(transaction)

    def end(self, xid: int) -> Transaction | None:
        """A transaction is committed or prepared: its tables now apply to all. Returns None if it is unknown."""
        self._relations.keep(xid)
        self.received.pop(xid, None)
        return self.open.pop(xid, None)

    def changes(self, transaction: Transaction) -> Iterator[Change | UndecodedRows | Described]:
        """The buffered changes of a transaction, which are removed. Rows that are not decoded are offered first."""
        if transaction.xid is None or transaction.xid not in self._buffer:
            return
        for entry, aborted in self._buffer.take_all(transaction.xid):
            if isinstance(entry, Described):
                yield entry
            elif not (aborted or transaction.aborted):
                if isinstance(entry, KeptRows):
                    yield from self._rows(transaction, entry)
                else:
                    yield from self._changes(transaction, entry)
            elif self._show_aborted:
                yield from unnumbered(transaction, self._changes(transaction, entry), aborted=True)

    def _changes(self, transaction: Transaction, entry: Any) -> Iterator[Change]:
        """The changes of one buffered entry."""
        if isinstance(entry, KeptRows):
            for found in self._rows(transaction, entry):
                if not isinstance(found, UndecodedRows):
                    yield found
            return
        message, lsn, versions = entry
        relations = [self._relations.versions[version] for version in versions]
        yield from changes_of(transaction, message, lsn, relations)

    def _rows(self, transaction: Transaction, rows: KeptRows) -> Iterator[Change | UndecodedRows]:
        tables = {oid: self._relations.versions[version] for oid, version in rows.tables}
        undecoded = UndecodedRows(transaction, rows.data, rows.framing, tables)
        decoder = Decoder()
        decoder.in_stream = True
        message: object
        lsn: int | None = None
        while True:
            yield undecoded
            start, end = undecoded.pos, len(rows.data)
            if start >= end:
                return
            if rows.framing == SEPARATED:
                message = decoder.next_message(rows.data, start, end, final=True)
                undecoded.pos = decoder.cursor.pos + 1
            else:
                start, undecoded.pos = bounds(rows.data, start, rows.framing)
                message, lsn, _ = decoder.frame(rows.data, start, undecoded.pos)
            assert isinstance(message, Insert | Update | Delete)
            yield from changes_of(transaction, message, lsn, [tables[message.relation]])

    def gap(self) -> None:
        """Messages are missing: the open transactions no longer have valid `seq` numbers."""
        for transaction in self.open.values():
            transaction.begun = False

    def clear(self) -> None:
        """Forget all open transactions. Call stop() first if a segment is open."""
        for xid in self.open:
            self._buffer.drop(xid)
            self._relations.drop(xid)
        self.open.clear()
        self.received.clear()

    def close(self) -> None:
        """Delete the temporary file."""
        self._buffer.close()


def _weight(message: ChangeMessage) -> int:
    """The approximate memory of a message's values in bytes."""
    if isinstance(message, Message):
        return len(message.content)
    if not isinstance(message, Insert | Update | Delete):
        return 0
    old = None if isinstance(message, Insert) else message.old
    new = None if isinstance(message, Delete) else message.new
    cells = [*(old or ()), *(new or ())]
    return 40 * len(cells) + sum([len(cell) for cell in cells if isinstance(cell, bytes)])


class Show(NamedTuple):
    """Streamed transactions to show besides committed and prepared ones."""

    aborted: bool = False
    """Rolled back changes."""
    uncommitted: bool = False
    """Every change as soon as it is received."""


class Uncommitted:
    """Shows each segment at once, as a part of its transaction with the `state` "open"."""

    def __init__(self) -> None:
        self._whole = self._part = Transaction(None)
        self._started = False

    def start(self, transaction: Transaction) -> None:
        """A segment of this transaction starts."""
        self._whole, self._part = transaction, Transaction(transaction.xid, origin=transaction.origin, state="open")
        self._part.begun, self._part.context = transaction.begun, transaction.context
        self._started = False

    def origin(self, name: str) -> None:
        self._part.origin = name

    def change(self, message: ChangeMessage, lsn: int | None, relations: Sequence[Relation]) -> Iterator[Event]:
        """The events of a message; the first one also starts the part."""
        if not self._started:
            self._started = True
            yield Started(self._part)
        yield from unnumbered(self._part, changes_of(self._part, message, lsn, relations))

    def stop(self, *, complete: bool) -> list[Event]:
        """The segment ends, or breaks off."""
        self._whole.context = self._part.context
        started, self._started = self._started, False
        return [Ended(self._part, complete=complete)] if started else []
