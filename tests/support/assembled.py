"""Messages of a made-up table, and the events that an assembler makes of them, as tuples."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from typing import Any

from pgtail.changes.assembler import Assembler
from pgtail.changes.events import (
    Described,
    Ended,
    Event,
    LogicalMessage,
    Note,
    Outcome,
    RowChange,
    SchemaChange,
    SnapshotEnded,
    Started,
    TableTruncate,
    UndecodedRows,
)
from pgtail.changes.stream_buffer import StreamBuffer
from pgtail.pgoutput.decoder import AnyFrame, FromClient
from pgtail.pgoutput.rows import Insert
from pgtail.pgoutput.schema import Relation, RelationColumn
from pgtail.pgoutput.streaming import StreamCommit, StreamStart, StreamStop
from pgtail.pgoutput.transaction import Begin, Commit, Message
from pgtail.pgoutput.two_phase import BeginPrepare, Prepare
from pgtail.values import Types

T, U = 100, 200


def table(oid: int = T, *names: str, xid: int | None = None) -> Relation:
    columns = [RelationColumn(int(i == 0), name, 25, -1) for i, name in enumerate(names or ("id",))]
    return Relation(xid, oid, "public", f"t{oid}", "d", tuple(columns))


def begin(xid: int = 7) -> Begin:
    return Begin(xid * 16, 5, xid)


def snapshot(oid: int, *values: bytes, end_lsn: int = 100) -> list[AnyFrame]:
    """A table as it was at this LSN."""
    lsn = end_lsn - 1
    return [Begin(lsn, 5, 0), table(oid), *[insert(one, oid) for one in values], Commit(0, lsn, end_lsn, 5)]


def commit(xid: int = 7) -> Commit:
    return Commit(0, xid * 16, xid * 16 + 8, 5)


def insert(value: bytes = b"v", oid: int = T, xid: int | None = None) -> Insert:
    return Insert(xid, oid, (value,))


def start(xid: int = 7, first: int = 1) -> StreamStart:
    return StreamStart(xid, first)


def stream_commit(xid: int = 7) -> StreamCommit:
    return StreamCommit(xid, 0, xid * 16, xid * 16 + 8, 5)


def prepared(xid: int = 7, gid: str = "g") -> tuple[BeginPrepare, Prepare]:
    return BeginPrepare(xid * 16, xid * 16 + 8, 5, xid, gid), Prepare(0, xid * 16, xid * 16 + 8, 5, xid, gid)


class Restart:
    """In place of a message: the stream restarts here."""


RESTART = Restart()
STOP = StreamStop()
NOT_TRANSACTIONAL = Message(None, 0, 9, "p", b"now")
TRANSACTIONAL = Message(None, 1, 9, "p", b"later")


def shown(event: Event) -> tuple[Any, ...]:
    """An event as a tuple of the parts that the tests compare."""
    match event:
        case Started(transaction):
            return "started", transaction.xid
        case Ended(transaction, complete):
            return "ended", transaction.xid, "complete" if complete else "broken off"
        case RowChange():
            cells = event.new if event.new is not None else event.old
            return event.op, event.seq, *([] if cells is None else cells)
        case TableTruncate():
            return "truncate", event.seq, event.relation.oid, event.cascade, event.restart_identity
        case LogicalMessage():
            return "message", event.content, None if event.transaction is None else event.transaction.xid
        case Outcome():
            return event.op, event.gid
        case SnapshotEnded(complete):
            return "snapshot ended", complete
        case SchemaChange():
            return "described", event.now.oid, len(event.now.columns)
        case UndecodedRows() | Described():
            raise AssertionError("only the pipeline leaves rows undecoded, and asks for descriptions")
        case Note():
            return "note", event.text
        case FromClient():
            return "client", type(event.message).__name__


class Collector:
    """Feeds an assembler and collects its events."""

    def __init__(self, *, strict: bool = False, limit: int = 10**9) -> None:
        self.assembler = Assembler(Types(), strict=strict, buffer=StreamBuffer(limit))
        self.events: list[Event] = []

    def feed(self, *messages: AnyFrame | Restart) -> Collector:
        for message in messages:
            if isinstance(message, Restart):
                self.events += self.assembler.restart()
            else:
                self.events += self.assembler.feed(message, None, 40)
        return self

    def end(self) -> list[tuple[Any, ...]]:
        with closing(self.assembler):
            self.events += self.assembler.finish()
        return [shown(event) for event in self.events]


def events_of(*messages: AnyFrame | Restart, **options: Any) -> list[tuple[Any, ...]]:
    """The events of these messages, without schema changes."""
    return [event for event in Collector(**options).feed(*messages).end() if event[0] != "described"]


def notes(events: Iterable[tuple[Any, ...]]) -> list[str]:
    return [event[1] for event in events if event[0] == "note"]
