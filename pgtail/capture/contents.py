"""The contents of a segment, written at its end: readers skip a segment that has nothing they select."""

from __future__ import annotations

import json
import struct
import sys
import threading
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from msgspec import Struct, convert

from pgtail.capture.format import CONTENTS, END, GAP, POSITION, PREDECESSOR, SEGMENT, read_parameters
from pgtail.capture.segment import SegmentFrames, position_of
from pgtail.changes.ddl import PREFIX
from pgtail.errors import DecodeError, InputError
from pgtail.files.deflate import GZIP
from pgtail.files.gunzip import MEMBER
from pgtail.native.batch import Copied
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
"""Most bytes of the parameter: it lacks tables that do not fit, and is not written if the rest does not fit."""
_TAILS: Final = (4 * 1024, 64 * 1024)
"""Bytes to read at the end of a file for its last two members: enough for few tables, and usually for many."""
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
_PREFIX: Final = _BODY + 9
"""Where the prefix of a logical message starts."""
_DDL: Final = PREFIX.encode() + b"\0"
_TRUNCATES, _DESCRIPTIONS = 3, 4
_COUNTS: Final = 5
_OTHER_TABLES: Final = (b"", b"")


class _Places(NamedTuple):
    """Offsets of time, xid and gid in the frame of a message that begins or ends a transaction."""

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
    """A table's changes in a segment, by operation, and the Relation messages that change its description."""

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


class SegmentContents(Struct, frozen=True):
    """The contents of a closed segment. Its xids and times include a transaction that began before it.

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
    """How many transactions begin in it."""
    messages: int
    """Logical messages, inside of transactions and outside."""
    ddl: int
    """Those that may be about schema changes: all of them, if it was written by a pgtail that did not count these."""
    xids: tuple[int, int] | None
    """The least and the greatest xid, unsigned; None if no message has one."""
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


def begin_time(frame: bytes) -> int | None:
    """The commit or prepare time of the transaction that a frame begins; None for other and damaged frames."""
    places = _BEGINS.get(frame[_TAG]) if len(frame) > _TAG else None
    if places is None or len(frame) < places.time + _TIME.size:
        return None
    return int(_TIME.unpack_from(frame, places.time)[0])


def read_contents(segment: Location, encoding: str = "utf-8") -> SegmentContents | None:
    """Read the contents of a closed segment from the end of its file. Names are in this encoding.

    None if the end has no contents or is damaged, or if the segment is not compressed (only members have checksums).
    Raises InputError if the file cannot be read.
    """
    contents: dict[str, str] = {}
    with segment.open() as file:
        for size in _TAILS:
            members = _last_members(file.pread(size, max(file.size - size, 0)))
            end, contents = (read_parameters(next(members, b"")) for _ in range(2))
            if [*end] == [END] and contents:
                break
    if [*contents] != [CONTENTS, POSITION]:
        return None
    try:
        return _parsed(json.loads(contents[CONTENTS]), parse_lsn(contents[POSITION]), encoding)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None  # reading the segment finds the damage


def _last_members(tail: bytes) -> Iterator[bytes]:
    """The content of the last members, the last one first, in the bytes at the end of a file that ends with one."""
    stop = at = len(tail)
    while (at := tail.rfind(MEMBER, 0, at)) >= 0:
        content = _whole_member(tail[at:stop])
        if content is not None:
            yield content
            stop = at


def _whole_member(data: bytes) -> bytes | None:
    """The content of a gzip member; None if the data is not exactly one member."""
    inflater = zlib.decompressobj(GZIP)
    try:
        content = inflater.decompress(data, 1 << 20)
    except zlib.error:
        return None
    return content if inflater.eof and not inflater.unused_data else None


def count_contents(segment: Location) -> SegmentContents:
    """Count the contents of a closed segment from its messages. Raises InputError, also if they cannot be known."""
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


def _parsed(fields: Any, position: int, encoding: str) -> SegmentContents:
    """Parse the contents. Raises ValueError, TypeError, LookupError if they are not as they were written."""

    def name(text: str) -> str:
        return text.encode("utf-8", "surrogateescape").decode(encoding, "backslashreplace")

    tables = fields["tables"]
    named = {
        "ddl": fields["messages"],  # of a pgtail that did not count these
        **fields,
        "position": position,
        "tables": tables and [(name(schema), name(table), *counts) for schema, table, *counts in tables],
        "prepared": [(xid, name(gid)) for xid, gid in fields["prepared"]],
        "outcomes": [(xid, name(gid)) for xid, gid in fields["outcomes"]],
    }
    return convert(named, SegmentContents)


class ContentsCounter:
    """Counts the contents of a stream's segments, one after another, from every recorded message."""

    def __init__(self) -> None:
        self._names: dict[int, tuple[bytes, bytes]] = {}
        self._descriptions: dict[int, bytes] = {}
        """Schema and name, and the last Relation message, of each table by OID."""
        self._open: tuple[int, int] | None = None
        """xid and time of the transaction that began last."""
        self.last_time: int | None = None
        """The time of the last transaction, which may not be complete, in microseconds since 2000-01-01 UTC."""
        self._before: dict[tuple[bytes, bytes], list[int]] = {}
        """The counts of each table in the segments before this one."""
        self._tables: dict[tuple[bytes, bytes], list[int]] = {}
        self._lock = threading.Lock()
        """Guards adding the counts of a segment to those before."""
        self.start_segment({}, inside=False)

    def start_segment(self, head: Mapping[str, str], *, inside: bool) -> None:
        """Begin a segment with these parameters, inside or outside of the transaction that began last."""
        self._head = head
        self._known = True
        with self._lock:
            self._before = _joined(self._before, self._tables)
            self._tables = {}
        self._transactions = self._messages = self._ddl = 0
        self._xids: tuple[int, int] | None = None
        self._times: tuple[int, int] | None = None
        self._prepared: dict[int, bytes] = {}
        self._outcomes: dict[int, bytes] = {}
        if inside and self._open is not None:
            self._widen(*self._open)

    def take_segment(self, frames: SegmentFrames, size: int) -> None:
        """Count the messages in the first `size` uncompressed bytes of a segment. Raises InputError."""
        own = False
        frames.read_head()
        for start, stop in frames:
            if frames.offset_of(stop) > size:
                break
            if frames.head.own and not own:
                own = True
                self.start_segment(frames.head.parameters, inside=frames.head.transaction is not None)
            self.take_frame(frames.buf[start:stop])

    def take_frame(self, frame: bytes) -> None:
        """Count a walsender frame with a message. A damaged one makes the contents of its segment unknown."""
        try:
            self._count_message(frame[_TAG], frame)
        except (struct.error, IndexError, ValueError):
            self._known = False

    def take_copied(self, copied: Copied) -> None:
        """Count rows, and transactions of rows."""
        for oid, *rows in copied.tables:
            counts = self._table_counts(oid)
            for place, count in enumerate(rows):
                counts[place] += count
        if copied.commits:
            self._transactions += copied.transactions
            for xid, time in zip(copied.xids, copied.times, strict=True):
                self._widen(xid, time)
            self.last_time = copied.times[1]

    def rows_by_table(self) -> list[TableRows]:
        """The rows of each table since the first segment. Any thread may call it."""
        with self._lock:
            totals = _joined(self._before, self._tables)
        return [
            TableRows(schema.decode("utf-8", "replace"), table.decode("utf-8", "replace"), *counts[:_DESCRIPTIONS])
            for (schema, table), counts in totals.items()
        ]

    def text(self) -> str | None:
        """The value of CONTENTS for the segment that began last; None if it is unknown or too long."""
        fields: dict[str, Any] = {
            "segment": self._head.get(SEGMENT, ""),
            "predecessor": self._head.get(PREDECESSOR, ""),
            "gap": self._head.get(GAP, ""),
            "transactions": self._transactions,
            "messages": self._messages,
            "ddl": self._ddl,
            "xids": self._xids,
            "times": self._times,
            "prepared": [(xid, _text(gid)) for xid, gid in self._prepared.items()],
            "outcomes": [(xid, _text(gid)) for xid, gid in self._outcomes.items()],
        }
        tables = [(_text(schema), _text(table), *counts) for (schema, table), counts in self._tables.items()]
        if not self._known:
            return None
        for listed in (tables, None):
            text = json.dumps(fields | {"tables": listed}, separators=(",", ":"))
            if len(text) <= _MOST:
                return text
        return None

    def _count_message(self, tag: int, frame: bytes) -> None:
        place = _ROWS.get(tag)
        if place is not None:
            self._table_counts(_OID.unpack_from(frame, _BODY)[0])[place] += 1
        elif tag in _BEGINS:
            self._open = _moment(frame, _BEGINS[tag])
            self._transactions += 1
            self._widen(*self._open)
            self.last_time = self._open[1]
        elif tag in _ENDS:
            self._count_end(tag, frame)
        elif tag == _RELATION:
            self._describe(_OID.unpack_from(frame, _BODY)[0], frame)
        elif tag == _TRUNCATE:
            for (oid,) in _OID.iter_unpack(frame[_TRUNCATED:]):
                self._table_counts(oid)[_TRUNCATES] += 1
        elif tag == _MESSAGE:
            self._messages += 1
            self._ddl += frame.startswith(_DDL, _PREFIX)

    def _count_end(self, tag: int, frame: bytes) -> None:
        """Count a Prepare, or the outcome of a prepared transaction."""
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
        self._table_counts(oid)[_DESCRIPTIONS] += 1

    def _table_counts(self, oid: int) -> list[int]:
        name = self._names.get(oid)
        if name is None:
            self._known = False
            return [0] * _COUNTS
        if name not in self._tables:
            self._tables[name] = [0] * _COUNTS
        return self._tables[name]

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
    """The sums for each table; tables beyond MOST_TABLES are counted as one."""
    totals = {name: [*counts] for name, counts in before.items()}
    for name, counts in list(tables.items()):  # in one step: the thread that counts may add a table
        known = name in totals or len(totals) < MOST_TABLES
        sums = totals.setdefault(name if known else _OTHER_TABLES, [0] * _COUNTS)
        for place, count in enumerate(counts):
            sums[place] += count
    return totals


def _text(name: bytes) -> str:
    """A name for JSON: bytes that are not UTF-8 become surrogates."""
    return name.decode("utf-8", "surrogateescape")
