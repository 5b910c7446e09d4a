"""What a segment contains, which is written at its end: readers skip it unread if nothing of that is asked for."""

from __future__ import annotations

import json
import struct
import sys
import threading
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from pgtail.capture.format import CONTENTS, END, GAP, POSITION, PREDECESSOR, SEGMENT, read_parameters
from pgtail.capture.segment import SegmentFrames, position_of
from pgtail.errors import DecodeError, InputError
from pgtail.files.deflate import GZIP
from pgtail.files.gunzip import MEMBER
from pgtail.native import compiled
from pgtail.pgoutput.cursor import Layout
from pgtail.pgoutput.decoder import XLOG_HEADER_SIZE
from pgtail.pgoutput.kinds import TAGS
from pgtail.pgoutput.rows import Delete, Insert, Truncate, Update
from pgtail.pgoutput.scalars import parse_lsn
from pgtail.pgoutput.schema import Relation
from pgtail.pgoutput.transaction import BEGIN, Begin, Message
from pgtail.pgoutput.two_phase import (
    BEGIN_PREPARE,
    COMMIT_PREPARED,
    PREPARE,
    ROLLBACK_PREPARED,
    BeginPrepare,
    CommitPrepared,
    Prepare,
    RollbackPrepared,
)
from pgtail.service.progress import MOST_TABLES, TableRows
from pgtail.storage import Location

READERS: Final = 8
"""Segments whose ends are read at a time: an object store takes long to answer."""
_MOST: Final = 48 * 1024
"""Bytes of the parameter. Where the tables need more they are left out; where the rest does, there is none."""
_TAILS: Final = (4 * 1024, 64 * 1024)
"""Bytes at the end of a file that have its last two members: with few tables, and as a rule with as many as fit."""
_DEFAULT_SCHEMA: Final = b"pg_catalog"
"""The schema of a Relation message without a namespace."""

_TAG: Final = XLOG_HEADER_SIZE
_BODY: Final = _TAG + 1
_OID: Final = struct.Struct(">I")
_TIME: Final = struct.Struct(">q")
_ROWS: Final = {TAGS[kind]: place for place, kind in enumerate((Insert, Update, Delete))}
_TRUNCATE, _RELATION, _MESSAGE = TAGS[Truncate], TAGS[Relation], TAGS[Message]
_TRUNCATED: Final = _BODY + 5
"""Where the OIDs of a Truncate start."""
_TRUNCATES, _DESCRIPTIONS = 3, 4
_COUNTS: Final = 5
_OTHER_TABLES: Final = (b"", b"")


class _Places(NamedTuple):
    """Where the frame of a message that begins or ends something has the time and the xid, and where a gid follows."""

    time: int
    xid: int
    gid: int


def _places(layout: Layout, time: str) -> _Places:
    return _Places(_BODY + layout.offset(time), _BODY + layout.offset("xid"), _BODY + layout.size)


_BEGINS: Final = {
    TAGS[Begin]: _places(BEGIN, "commit_time"),
    TAGS[BeginPrepare]: _places(BEGIN_PREPARE, "prepare_time"),
}
_PREPARE: Final = TAGS[Prepare]
_ENDS: Final = {
    _PREPARE: _places(PREPARE, "prepare_time"),
    TAGS[CommitPrepared]: _places(COMMIT_PREPARED, "commit_time"),
    TAGS[RollbackPrepared]: _places(ROLLBACK_PREPARED, "rollback_time"),
}


class TableContents(NamedTuple):
    """What a segment has of a table: changes by operation, and Relation messages that change its description."""

    schema: str
    table: str
    inserts: int
    updates: int
    deletes: int
    truncates: int
    descriptions: int


class PreparedTransaction(NamedTuple):
    """A transaction that is prepared, or a prepared one that has its outcome."""

    xid: int
    gid: str


class SegmentContents(NamedTuple):
    """What a closed segment contains; a transaction of which it has only a part counts in full, except in counts.

    Names are as the decoder has them. `tables` are in the order of their first messages, None if they are too many.
    """

    segment: str
    predecessor: str
    gap: str
    """These three are the parameters at its beginning, empty without one."""
    position: int
    """The LSN up to which the capture is complete with it."""
    tables: tuple[TableContents, ...] | None
    transactions: int
    """How many begin in it."""
    messages: int
    """Logical messages, inside of transactions and outside."""
    xids: tuple[int, int] | None
    """The least and the greatest one, as unsigned numbers; None if there is none."""
    times: tuple[int, int] | None
    """The first and the last time of a commit, a prepare or an outcome, in microseconds since 2000-01-01 UTC."""
    prepared: tuple[PreparedTransaction, ...]
    """The transactions that are prepared in it and have no outcome in it."""
    outcomes: tuple[PreparedTransaction, ...]
    """Transactions that have an outcome in it and were prepared before it."""

    @property
    def parameters(self) -> Mapping[str, str]:
        """The parameters at its beginning that say where it belongs."""
        return {SEGMENT: self.segment, PREDECESSOR: self.predecessor, GAP: self.gap}


def read_contents(segment: Location, encoding: str = "utf-8") -> SegmentContents | None:
    """What a closed segment says that it contains: reads the end of the file. Names are in this encoding.

    None if it does not say it, if it is not compressed (only members have checksums), or if its end is damaged. Raises
    InputError if the file cannot be read.
    """
    found: dict[str, str] = {}
    with segment.open() as file:
        for size in _TAILS:
            members = _last_members(file.pread(size, max(file.size - size, 0)))
            end, found = (read_parameters(next(members, b"")) for _ in range(2))
            if [*end] == [END] and found:
                break
    if [*found] != [CONTENTS, POSITION]:
        return None
    try:
        return _parsed(json.loads(found[CONTENTS]), parse_lsn(found[POSITION]), encoding)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None  # it is read, which finds what is wrong


def _last_members(tail: bytes) -> Iterator[bytes]:
    """The content of the last members, the last one first, in the bytes at the end of a file that ends with one."""
    stop = at = len(tail)
    while (at := tail.rfind(MEMBER, 0, at)) >= 0:
        content = _whole_member(tail[at:stop])
        if content is not None:
            yield content
            stop = at


def _whole_member(data: bytes) -> bytes | None:
    """The content of one member; None if this is another thing, or more, or less."""
    inflater = zlib.decompressobj(GZIP)
    try:
        content = inflater.decompress(data, 1 << 20)
    except zlib.error:
        return None
    return content if inflater.eof and not inflater.unused_data else None


def count_contents(segment: Location) -> SegmentContents:
    """What a closed segment contains, of all of its messages. Raises InputError, also if that cannot be known."""
    counter = ContentsCounter()
    with segment.open() as file:
        frames = SegmentFrames(file, str(segment), closed=True)
        try:
            counter.take_segment(frames, sys.maxsize)
        except DecodeError as error:
            raise frames.located(error) from None
    text = counter.text()
    if text is None:
        raise InputError("is damaged: it has messages of tables that it does not describe", source=str(segment))
    return _parsed(json.loads(text), position_of(segment), "utf-8")


def _parsed(found: Any, position: int, encoding: str) -> SegmentContents:
    """Raises ValueError, TypeError, LookupError if it is not as it was written."""

    def name(text: str) -> str:
        return text.encode("utf-8", "surrogateescape").decode(encoding, "backslashreplace")

    def prepared(some: list[list[Any]]) -> tuple[PreparedTransaction, ...]:
        return tuple([PreparedTransaction(int(xid), name(gid)) for xid, gid in some])

    def bounds(some: list[int] | None) -> tuple[int, int] | None:
        return None if some is None else (int(some[0]), int(some[1]))

    tables = found["tables"]
    return SegmentContents(
        str(found["segment"]),
        str(found["predecessor"]),
        str(found["gap"]),
        position,
        None
        if tables is None
        else tuple([TableContents(name(schema), name(table), *map(int, counts)) for schema, table, *counts in tables]),
        int(found["transactions"]),
        int(found["messages"]),
        bounds(found["xids"]),
        bounds(found["times"]),
        prepared(found["prepared"]),
        prepared(found["outcomes"]),
    )


class ContentsCounter:
    """Counts what the segments of a stream contain, one after another; is given every message that is recorded."""

    def __init__(self) -> None:
        fast = compiled()
        self._counts = None if fast is None else fast.counted_messages
        self._names: dict[int, tuple[bytes, bytes]] = {}
        self._descriptions: dict[int, bytes] = {}
        """Schema and name, and the last Relation message, of each table by OID."""
        self._open: tuple[int, int] | None = None
        """xid and time of the transaction that began last."""
        self.last_time: int | None = None
        """The time of the last transaction, which may not be complete."""
        self._before: dict[tuple[bytes, bytes], list[int]] = {}
        """What the segments before this one have of each table."""
        self._tables: dict[tuple[bytes, bytes], list[int]] = {}
        self._lock = threading.Lock()
        """While the counts of a segment are added to those before."""
        self.start({}, inside=False)

    def start(self, head: Mapping[str, str], *, inside: bool) -> None:
        """A segment with these parameters begins, inside the transaction that began last or outside."""
        self._head = head
        self._known = True
        with self._lock:
            self._before = _joined(self._before, self._tables)
            self._tables = {}
        self._transactions = self._messages = 0
        self._xids: tuple[int, int] | None = None
        self._times: tuple[int, int] | None = None
        self._prepared: dict[int, bytes] = {}
        self._outcomes: dict[int, bytes] = {}
        if inside and self._open is not None:
            self._widen(*self._open)

    def take_segment(self, frames: SegmentFrames, size: int) -> None:
        """Count what is in the first bytes of a segment, that many of them uncompressed. Raises InputError."""
        own = False
        frames.read_head()
        for start, stop in frames:
            if frames.offset_of(stop) > size:
                break
            if frames.head.own and not own:
                own = True
                self.start(frames.head.parameters, inside=frames.head.transaction is not None)
            self.take(frames.buf[start:stop])

    def take(self, frame: bytes) -> None:
        """Count a walsender frame with a message. Of a segment with a damaged one nothing is known."""
        try:
            self._take(frame[_TAG], frame)
        except (struct.error, IndexError, ValueError):
            self._known = False

    def take_run(self, messages: bytes) -> None:
        """Count CopyData messages with Begins, rows and Commits; only of the scanner."""
        assert self._counts is not None
        tables, transactions, xids, times = self._counts(messages)
        for oid, *rows in tables:
            counts = self._table(oid)
            for place, count in enumerate(rows):
                counts[place] += count
        if transactions:
            self._transactions += transactions
            for xid, time in zip(xids, times, strict=True):
                self._widen(xid, time)
            self.last_time = times[1]

    def rows_by_table(self) -> list[TableRows]:
        """What was counted since the first segment. Any thread may ask."""
        with self._lock:
            found = _joined(self._before, self._tables)
        return [
            TableRows(schema.decode("utf-8", "replace"), table.decode("utf-8", "replace"), *counts[:_DESCRIPTIONS])
            for (schema, table), counts in found.items()
        ]

    def text(self) -> str | None:
        """The parameter of the segment that began last; None if not enough is known, or it would be too long."""
        found: dict[str, Any] = {
            **{
                key: self._head.get(name, "")
                for key, name in (("segment", SEGMENT), ("predecessor", PREDECESSOR), ("gap", GAP))
            },
            "transactions": self._transactions,
            "messages": self._messages,
            "xids": self._xids,
            "times": self._times,
            "prepared": [(xid, _text(gid)) for xid, gid in self._prepared.items()],
            "outcomes": [(xid, _text(gid)) for xid, gid in self._outcomes.items()],
        }
        tables = [(_text(schema), _text(table), *counts) for (schema, table), counts in self._tables.items()]
        if not self._known:
            return None
        for some in (tables, None):
            text = json.dumps(found | {"tables": some}, separators=(",", ":"))
            if len(text) <= _MOST:
                return text
        return None

    def _take(self, tag: int, frame: bytes) -> None:
        place = _ROWS.get(tag)
        if place is not None:
            self._table(_OID.unpack_from(frame, _BODY)[0])[place] += 1
        elif tag in _BEGINS:
            self._open = _moment(frame, _BEGINS[tag])
            self._transactions += 1
            self._widen(*self._open)
            self.last_time = self._open[1]
        elif tag in _ENDS:
            self._end(tag, frame)
        elif tag == _RELATION:
            self._describe(_OID.unpack_from(frame, _BODY)[0], frame)
        elif tag == _TRUNCATE:
            for (oid,) in _OID.iter_unpack(frame[_TRUNCATED:]):
                self._table(oid)[_TRUNCATES] += 1
        elif tag == _MESSAGE:
            self._messages += 1

    def _end(self, tag: int, frame: bytes) -> None:
        """A transaction is prepared, or has its outcome."""
        places = _ENDS[tag]
        xid, time = _moment(frame, places)
        self._widen(xid, time)
        gid = frame[places.gid :].partition(b"\0")[0]
        if tag == _PREPARE:
            self._prepared[xid] = gid
        elif xid not in self._prepared:
            self._outcomes[xid] = gid
        elif self._prepared.pop(xid) != gid:
            self._known = False

    def _describe(self, oid: int, frame: bytes) -> None:
        known = self._descriptions.get(oid)
        if known is not None and known[_TAG:] == frame[_TAG:]:
            return
        schema, table, *_ = frame[_BODY + _OID.size :].split(b"\0", 2)
        self._descriptions[oid], self._names[oid] = frame, (schema or _DEFAULT_SCHEMA, table)
        self._table(oid)[_DESCRIPTIONS] += 1

    def _table(self, oid: int) -> list[int]:
        name = self._names.get(oid)
        if name is None:
            self._known = False
            return [0] * _COUNTS
        counts = self._tables.get(name)
        if counts is None:
            counts = self._tables[name] = [0] * _COUNTS
        return counts

    def _widen(self, xid: int, time: int) -> None:
        least, greatest = self._xids or (xid, xid)
        self._xids = min(least, xid), max(greatest, xid)
        first, last = self._times or (time, time)
        self._times = min(first, time), max(last, time)


def _moment(frame: bytes, places: _Places) -> tuple[int, int]:
    """xid and time."""
    return _OID.unpack_from(frame, places.xid)[0], _TIME.unpack_from(frame, places.time)[0]


def _joined(
    before: dict[tuple[bytes, bytes], list[int]], tables: dict[tuple[bytes, bytes], list[int]]
) -> dict[tuple[bytes, bytes], list[int]]:
    """The sums for each table, of as many tables as are counted."""
    found = {name: [*counts] for name, counts in before.items()}
    for name, counts in list(tables.items()):  # in one step: the thread that counts may add a table
        known = name in found or len(found) < MOST_TABLES
        sums = found.setdefault(name if known else _OTHER_TABLES, [0] * _COUNTS)
        for place, count in enumerate(counts):
            sums[place] += count
    return found


def _text(name: bytes) -> str:
    """A name for JSON: as UTF-8, where bytes that are not become surrogates."""
    return name.decode("utf-8", "surrogateescape")
