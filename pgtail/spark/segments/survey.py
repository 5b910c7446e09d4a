"""One segment's bytes -> what is needed before it is decoded: its first and last place, its tables.

Looks at the first bytes of each message, and decodes those that describe tables and types alone.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from pgtail.capture.format import CLOSED, PREDECESSOR, SEGMENT, SegmentName, gap_in, is_gap
from pgtail.capture.segment import MARK, ByteFile, Head, SegmentFrames
from pgtail.changes.relations import Relations
from pgtail.errors import InputError
from pgtail.pgoutput.decoder import XLOG_DATA, XLOG_HEADER_SIZE, Decoder
from pgtail.pgoutput.kinds import Role, tags
from pgtail.pgoutput.schema import Relation, Type
from pgtail.spark.decoding.tables import described, fingerprint
from pgtail.spark.segments.extent import Extent
from pgtail.spark.segments.ranges import Place, Range
from pgtail.values import Types

_TAG: Final = XLOG_HEADER_SIZE
_LSN: Final = struct.Struct(">Q").unpack_from
_TRANSACTIONAL: Final = 1
_COUNTED: Final = tags(Role.ROW, Role.TRUNCATE)
_BEGINS: Final = tags(Role.BEGIN)
_ENDS: Final = tags(Role.END)
_DESCRIBE: Final = tags(Role.DESCRIPTION)
_OUTCOMES: Final = tags(Role.OUTCOME)
_BEGIN_PREPARE, _LOGICAL = b"bM"

_SERVER: Final = ("pgtail.system_identifier", "pgtail.database")
TWO_PHASE: Final = "pgtail.two_phase"
_SAME: Final = (*_SERVER, "pgtail.timeline", TWO_PHASE, "pgtail.publications", "pgtail.options")
_OF_NO_MATTER: Final = frozenset(["binary", "proto_version", "publication_names", "streaming"])
"""Options that do not change what the changes are."""


@dataclass(slots=True)
class Survey:
    """What was found in a segment; `places` is None if it has no change."""

    path: str = ""
    places: Range | None = None
    stream: str = ""
    """Where it comes from, in words: two segments with other words do not number their changes alike."""
    server: str = ""
    """The server's system identifier and the database; '' if the capture does not have them."""
    predecessor: str = ""
    """The name of the segment before it; the gap as text if there is one between them."""
    open: bool = False
    """Whether it ends inside a transaction."""
    late: tuple[Range, ...] = ()
    """Prepared transactions that may have been sent late: see Extent."""
    relations: list[dict[str, Any]] = field(default_factory=list)
    """Rows of `relations`, each version of a table at the first place in this segment."""

    @property
    def name(self) -> str:
        """What its successor calls it."""
        return name_of(self.path)


def name_of(path: str) -> str:
    """The name of the segment at this path."""
    return path.rpartition("/")[2].removesuffix(CLOSED)


def folder_of(path: str) -> str:
    """The directory of the segment at this path: each is one capture."""
    return path.rpartition("/")[0]


def survey(file: ByteFile, name: str) -> Survey:
    """Look through a closed segment. Raises InputError if it is not closed or damaged."""
    frames, surveyor = SegmentFrames(file, name), Surveyor(name)
    try:
        surveyor.begin(frames.read_head())
        for start, stop in frames:
            surveyor.look(frames.buf, start, stop)
    except InputError as error:
        raise frames.located(error) from None
    return surveyor.end()


class Surveyor:
    """Is given the messages of one segment. Raises InputError if one is cut off or cannot be decoded."""

    def __init__(self, name: str) -> None:
        self._found = Survey(name)
        self._known: set[str] = set()
        self._position = self._ordinal = 0
        self._prepared = False
        """Whether the transaction at hand is prepared."""
        self._first = 0
        """The number of the first change that _seen does not have yet; 0 if it has all."""
        self._seen, self._decoded = Extent(), Extent()

    @property
    def relations(self) -> list[dict[str, Any]]:
        """The rows of `relations` so far."""
        return self._found.relations

    def begin(self, head: Head) -> None:
        """The segment's head was read."""
        self._head(head)
        self._decoder = Decoder(encoding=head.encoding)
        self._relations = Relations(Types(encoding=head.encoding))
        self._transaction = head.transaction

    def look(self, buf: bytes, start: int, stop: int) -> None:
        """The next message, or the MARK."""
        if start == MARK:
            self._go_on()
        elif stop > start + _TAG and buf[start] == XLOG_DATA:
            self._look(buf, start, stop)

    def skip(self, position: int | None, ordinal: int) -> None:
        """Messages were left out that describe nothing; the next one is in this transaction, or in none (None)."""
        self._found.open = position is not None
        if position is not None:
            self._position, self._ordinal = position, ordinal

    def rows(self, rows: pa.RecordBatch) -> None:
        """Rows were decoded, some of them from messages that were left out: all rows have to be given."""
        self._decoded.add_rows(rows)

    def end(self) -> Survey:
        """What was found."""
        self._add_seen()
        extent = self._decoded if self._decoded.places or self._decoded.late else self._seen
        self._found.places, self._found.late = extent.places, tuple(extent.late)
        self._found.open = self._found.open and not extent.ends_late
        self._place_repeated()
        return self._found

    def _place_repeated(self) -> None:
        """Tables that are only repeated here were described in an earlier segment, or at the start of this one."""
        found = self._found
        places = found.places or next(iter(found.late), None)
        seen = [row for row in found.relations if row["position"]]
        repeated = [row for row in found.relations if not row["position"]]
        if places is not None:
            seen += [row | places.first._asdict() for row in repeated]
        found.relations = seen

    def _head(self, head: Head) -> None:
        found, parameters = self._found, head.parameters
        found.server = " ".join(parameters.get(name, "") for name in _SERVER).strip()
        found.predecessor = parameters.get(PREDECESSOR, "")
        if found.predecessor:
            found.predecessor = gap_in(parameters) or found.predecessor
        name = SegmentName.parse(parameters.get(SEGMENT, ""))
        doubtful = found.predecessor == "" or is_gap(found.predecessor) or head.transaction is not None
        for extent in (self._seen, self._decoded):
            extent.start, extent.doubtful = 0 if name is None else name.position, doubtful
        found.stream = "; ".join(f"{name} {_comparable(parameters.get(name, ''))}" for name in _SAME)

    def _go_on(self) -> None:
        if self._transaction is not None:
            self._ordinal = self._transaction[2]
            self._found.open = True

    def _look(self, buf: bytes, start: int, stop: int) -> None:
        at = start + _TAG
        tag = buf[at]
        if tag in _COUNTED:
            self._ordinal += 1
            self._first = self._first or self._ordinal
        elif tag in _BEGINS:
            self._add_seen()
            self._position, self._ordinal = _lsn(buf, at + 1, stop), 0
            self._prepared = tag == _BEGIN_PREPARE
            self._found.open = True
        elif tag in _ENDS:
            self._found.open = False
        elif tag in _DESCRIBE:
            self._describe(buf, start, stop)
        elif tag == _LOGICAL:
            if buf[at + 1 : at + 2] == bytes([_TRANSACTIONAL]):
                self._ordinal += 1
                self._first = self._first or self._ordinal
            else:
                self._alone(_lsn(buf, at + 2, stop))
        elif tag in _OUTCOMES:
            self._alone(_lsn(buf, at + 10, stop))

    def _alone(self, position: int) -> None:
        """Here is a change of no transaction."""
        self._add_seen()
        place = Place(position, 0)
        self._seen.add(place, place, prepared=False)

    def _add_seen(self) -> None:
        """Add the changes of the transaction at hand."""
        if self._first:
            first, last = Place(self._position, self._first), Place(self._position, self._ordinal)
            self._seen.add(first, last, prepared=self._prepared)
            self._first = 0

    def _describe(self, buf: bytes, start: int, stop: int) -> None:
        message = self._decoder.frame(buf, start, stop)[0]
        if isinstance(message, Type):
            self._relations.see_type(message)
        elif isinstance(message, Relation):
            relation = self._relations.see(message)[1]
            print_ = fingerprint(relation)
            if print_ not in self._known:
                self._known.add(print_)
                place = {"position": self._position, "ordinal": self._ordinal + 1}
                self._found.relations.append(described(relation) | place)


def _lsn(buf: bytes, at: int, stop: int) -> int:
    if at + 8 > stop:
        raise InputError("a message is cut off")
    lsn: int = _LSN(buf, at)[0]
    return lsn


def _comparable(text: str) -> str:
    """Options without those that make no difference."""
    words = [word.strip() for word in text.split(",")]
    return ", ".join(word for word in words if word.split(" ")[0].strip("\"'") not in _OF_NO_MATTER)
