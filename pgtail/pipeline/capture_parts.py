"""Divides captures into parts that can be decoded independently of each other, if the tables before them are known.

A part is whole segments. What these say that they contain (capture/contents.py) tells which prepared transactions have
no outcome yet, and which segments describe tables.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from pgtail.capture.contents import SegmentContents, read_contents
from pgtail.capture.format import PREDECESSOR, SEGMENT, SegmentName
from pgtail.capture.reader import SegmentFile
from pgtail.capture.segment import Head, SegmentFrames
from pgtail.capture.verify import SegmentsToRead, segments_to_read
from pgtail.changes.assembler import Assembler
from pgtail.changes.events import Transaction
from pgtail.errors import InputError
from pgtail.inputs.recognition import open_input
from pgtail.inputs.source.file import Source
from pgtail.pgoutput.decoder import Continued, Decoder
from pgtail.pgoutput.scalars import Point
from pgtail.pgoutput.schema import Relation
from pgtail.pipeline.parts import Described, Part, Walk, described_by
from pgtail.storage import Location
from pgtail.values import Types

SIZE = 1 << 20
"""Bytes of the files of a part, at least, except for the first part."""
KEPT = 256
"""How many segments have their contents kept until they are read: a part may have any number of segments."""
_DEFAULT_SCHEMA: Final = "pg_catalog"
"""The schema of a Relation message without a namespace."""


class _Beginning(NamedTuple):
    """What a segment has before its own messages."""

    head: Head
    descriptions: list[Described]
    inside: Transaction | None
    """The transaction in which it begins, as it is there."""


_NOTHING: Final = _Beginning(Head(), [], None)


class CaptureWalk:
    """One pass over what the segments of a capture, or these segments, say that they contain.

    The parts count segments. A part begins outside of transactions, or with `divides` also inside of one that is not
    prepared. At anything unusual the walk ends: `why` is then what it is, and the rest is one part.
    """

    def __init__(self, places: Sequence[Location], since: Point | None, encoding: str) -> None:
        self.descriptions: list[Described] = []
        """The messages on which the tables depend, in the order of the stream."""
        self.why: str | None = None
        self._found = SegmentsToRead(None, ())
        self.ends: Sequence[int] = ()
        """Bytes of the files up to the end of each one."""
        self._places, self._since, self._encoding = places, since, encoding
        self._prepared: set[str] = set()
        """The gids of the prepared transactions that have no outcome yet."""
        self._transactions = 1
        """How many began, with one in which the first segment may begin."""
        self._contents: dict[int, SegmentContents] = {}
        """The contents of segments in parts that are not being read yet, by index."""
        self._before: SegmentContents | None = None
        """The contents of the last segment of the stream."""
        self._before_parts = {0: ""}
        """The segment of the stream that comes before each part, by where the part begins."""
        self._described: dict[tuple[str, str], int] = {}
        """How often each table was described since the last part began, by schema and name."""
        self._describing: list[SegmentFile] = []
        """The segments that did it."""

    def parts(self, *, divides: bool) -> Iterator[Part | None]:
        """Yield the parts in order, and None after every other step, so that the caller can do something else."""
        start = before = size = 0
        alone, inside = False, None
        try:
            self._list()
            for index, file in enumerate(self._found.segments):
                enough = size >= (SIZE if start else 1) or (size > 0 and file.snapshot is not None)
                found = self._part_begins(index, divides=divides) if enough else None
                if found is not None:
                    places = start, index, before, len(self.descriptions)
                    ended = self._transactions - (found.inside is not None)
                    yield Part(*places, alone, inside, found.inside, ended=ended)
                    start, before, size, alone, inside = index, len(self.descriptions), 0, False, found.inside
                    self._before_parts[index] = "" if self._before is None else self._before.segment
                if not self._take(index, file):
                    break
                alone = alone or file.snapshot is not None
                size += file.size
                yield None
        except InputError:  # its part reports it
            self.why = "damage"
        yield Part(start, None, before, len(self.descriptions), alone or self.why is not None, inside)

    def segments_of(self, part: Part) -> SegmentsToRead | None:
        """What is to be read for a part; None: all that was given."""
        found = self._found
        if part.start == 0 and part.stop is None:
            return None
        stop = len(found.segments) if part.stop is None else part.stop
        known = [(found.segments[index], self._contents.pop(index, None)) for index in range(part.start, stop)]
        found = found._replace(segments=[file._replace(contents=contents) for file, contents in known])
        if part.stop is not None:
            found = found.and_more()
        before = self._before_parts[part.start]
        return found if not part.start else found._replace(before=before or found.before, begun=bool(before), note=None)

    def _list(self) -> None:
        if len(self._places) > 1:
            self._found = SegmentsToRead(None, [_named(place) for place in self._places])
        elif self._places[0].is_folder():
            self._found = segments_to_read(self._places[0], self._since)
        else:
            self.why = f"{self._places[0]}, which is no capture"
        self.ends = [*accumulate([one.size for one in self._found.segments])]

    def _take(self, index: int, file: SegmentFile) -> bool:
        """Learn what a segment contains; returns whether it says that."""
        if file.snapshot is not None:
            if file.begins_snapshot and any(
                not one.there and one.snapshot == file.snapshot for one in self._found.segments
            ):
                self.why = f"{file.location}, of a snapshot that lacks a segment"
                return False
            if file.there and (file.begins_snapshot or not index):
                self.descriptions += self._beginning(file).descriptions
            return True
        contents = None if file.open else read_contents(file.location, self._encoding)
        if contents is None or contents.tables is None:
            self.why = f"{file.location}, which does not say what it contains"
            return False
        if self._before is not None and contents.predecessor != self._before.segment:
            self.why = f"{file.location}, which does not follow the segment before it"
            return False
        if self._before is None and contents.predecessor:  # else nothing came before it that it could repeat
            self.descriptions += self._beginning(file).descriptions
        self._before = contents
        if len(self._contents) < KEPT:
            self._contents[index] = contents
        self._transactions += contents.transactions
        self._prepared.update([one.gid for one in contents.prepared])
        self._prepared.difference_update([one.gid for one in contents.outcomes])
        described = {(one.schema, one.table): one.descriptions for one in contents.tables if one.descriptions}
        for name, count in described.items():
            self._described[name] = self._described.get(name, 0) + count
        if described:
            self._describing.append(file)
        return True

    def _part_begins(self, index: int, *, divides: bool) -> _Beginning | None:
        """What is before a segment's own messages, if a part may begin with it: what was described is then known."""
        file, last, found = self._found.segments[index], self._found.segments[index - 1], _NOTHING
        if self._prepared or last.snapshot is not None:
            return None
        if file.snapshot is None:
            if file.name.ordinal > 1 and not divides:
                return None  # inside a transaction, as a rule: its parameters would say that
            found = self._beginning(file)
            if not self._follows(file, found, divides=divides):
                return None
        names = {
            (message.namespace or _DEFAULT_SCHEMA, message.name)
            for message, _ in found.descriptions
            if isinstance(message, Relation)
        }
        if not all(count == 1 and name in names for name, count in self._described.items()):
            for one in self._describing:
                self.descriptions += self._read(one)
        self.descriptions += found.descriptions
        self._described, self._describing = {}, []
        return found

    def _follows(self, file: SegmentFile, beginning: _Beginning, *, divides: bool) -> bool:
        """Whether a segment begins right after the last one, and outside of transactions unless one may be divided."""
        before, head, inside = self._before, beginning.head, beginning.inside
        if before is None or head.snapshot is not None:
            return False
        if head.transaction is not None and not (divides and inside and inside.state is None and inside.changes):
            return False
        if self._found.capture is not None and head.parameters.get(SEGMENT) != str(file.name):
            return False
        return bool(before.segment) and head.parameters.get(PREDECESSOR) == before.segment

    def _beginning(self, file: SegmentFile) -> _Beginning:
        """What is before a segment's own messages. Raises InputError."""
        decoder, described = Decoder(encoding=self._encoding), list[Described]()
        with (
            file.location.open() as reader,
            contextlib.closing(Assembler(Types(encoding=self._encoding))) as assembler,
        ):
            frames = SegmentFrames(reader, str(file.location))
            for start, stop in frames:
                if frames.head.own:
                    break
                message, lsn, _ = decoder.frame(frames.buf, start, stop)
                described += described_by(assembler, message, lsn)
                deque(assembler.feed(message, lsn), maxlen=0)
            if frames.head.transaction is not None:
                deque(assembler.feed(Continued(*frames.head.transaction[:2]), None), maxlen=0)
            return _Beginning(frames.head, described, assembler.open_transaction)

    def _read(self, file: SegmentFile) -> list[Described]:
        """The descriptions in a segment, of which no row is decoded. Raises InputError."""
        with Source(file.location) as source:
            walk = Walk(open_input(source, Decoder(encoding=self._encoding)), Types(encoding=self._encoding))
            deque(walk.parts(), maxlen=0)
        if walk.why is not None:
            raise InputError(walk.why, source=str(file.location))
        return walk.descriptions


def _named(place: Location) -> SegmentFile:
    """A segment that is read by its name. Raises InputError."""
    entry, name = place.head(), SegmentName.of_file(place.name)
    if entry is None:
        raise InputError("is missing", source=str(place))
    return SegmentFile(place, name or SegmentName(0, 0), False, entry.size)
