"""Divides a capture into parts that decode independently of each other, if the tables before them are known.

A part is whole segments. It begins outside of transactions, with a segment that follows the one before it and repeats
descriptions of tables. The contents of segments (capture/contents.py) list prepared transactions without an outcome,
and show which segments describe tables.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

from pgtail.capture.contents import SegmentContents, read_contents
from pgtail.capture.format import PREDECESSOR, SEGMENT
from pgtail.capture.reader import SegmentFile
from pgtail.capture.segment import Head, SegmentFrames
from pgtail.capture.verify import SegmentsToRead
from pgtail.changes.relations import Relations
from pgtail.errors import InputError
from pgtail.pgoutput.decoder import XLOG_HEADER_SIZE, AnyFrame, Decoder
from pgtail.pgoutput.kinds import Role, tags
from pgtail.pgoutput.schema import Relation
from pgtail.values import Types

SIZE: Final = 1 << 20
"""Bytes of the segments of a part, at least: to begin a part takes milliseconds."""
_DEFAULT_SCHEMA: Final = "pg_catalog"
"""The schema of a Relation message without a namespace."""
_DESCRIPTIONS: Final = frozenset([bytes((tag,)) for tag in tags(Role.DESCRIPTION)])

Described: TypeAlias = tuple[AnyFrame, int | None]
"""A message that describes a table or a type, and its LSN; or what one says of a partition."""


class Part(NamedTuple):
    """The segments of a capture from the index `start` to `stop` (None: to the end), which one process decodes."""

    start: int
    stop: int | None
    segments: SegmentsToRead
    known: tuple[Described, ...]
    """The descriptions before it."""


class CaptureParts:
    """The parts of these segments, each of at least `size` bytes; names in them are in `encoding`."""

    def __init__(self, capture: SegmentsToRead, encoding: str, size: int = SIZE) -> None:
        self._capture, self._encoding, self._size = capture, encoding, size
        self._known: list[Described] = []
        self._repeated: list[Described] = []
        """What a part repeated last at its beginning."""
        self._contents: dict[int, SegmentContents] = {}
        """The contents of the segments since the last part began, by index."""
        self._before: SegmentContents | None = None
        """The contents of the last segment of the stream."""
        self._prepared: set[str] = set()
        """The gids of the prepared transactions that have no outcome yet."""
        self._has_ddl = False
        """Whether there were schema changes in logical messages: later ones are compared with them."""

    def __iter__(self) -> Iterator[Part]:
        """Yield the parts in order. The last one has all that cannot be divided."""
        files, part, size = self._capture.segments, self.rest(0), 0
        with contextlib.suppress(InputError):  # who reads the segment reports it
            for index, file in enumerate(files):
                if size >= self._size and self._may_begin(index):
                    found = part.segments._replace(segments=files[part.start : index]).and_more()
                    yield part._replace(stop=index, segments=found)
                    part, size, self._contents = self.rest(index), 0, {}
                if not self._take_segment(index, file):
                    break
                size += file.size
        yield part

    def rest(self, start: int) -> Part:
        """All from the segment `start` on."""
        rest, files = self._capture, self._capture.segments
        if start:
            earlier = (str(files[at].name) for at in range(start - 1, -1, -1) if files[at].snapshot is None)
            name = next(earlier, "")
            rest = rest._replace(segments=files[start:], before=name or rest.before, begun=bool(name), note=None)
        return Part(start, None, rest, tuple(self._known))

    def _take_segment(self, index: int, file: SegmentFile) -> bool:
        """Learn the contents of a segment; returns whether it lists them."""
        if file.snapshot is not None:
            if file.there and (file.begins_snapshot or not index):
                self._known += self._descriptions(file)[1]
            return file.there
        contents = None if file.open else read_contents(file.location, self._encoding)
        if contents is None or contents.tables is None:
            return False
        if self._before is None and contents.predecessor:
            self._known += self._descriptions(file)[1]
        elif self._before is not None and contents.predecessor != self._before.segment:
            return False
        self._has_ddl = self._has_ddl or contents.ddl > 0
        self._before = self._contents[index] = contents
        self._prepared.update([one.gid for one in contents.prepared])
        self._prepared.difference_update([one.gid for one in contents.outcomes])
        return True

    def _may_begin(self, index: int) -> bool:
        """Whether a part may begin with a segment of the stream: earlier descriptions are then known."""
        files, before = self._capture.segments, self._before
        if self._prepared or self._has_ddl or before is None or files[index].snapshot or files[index - 1].snapshot:
            return False
        head, repeated = self._descriptions(files[index])
        if not repeated or head.transaction is not None or head.snapshot is not None:
            return False
        if (head.parameters.get(SEGMENT), head.parameters.get(PREDECESSOR)) != (str(files[index].name), before.segment):
            return False
        # These are enough if they have all tables that the last part has described, and it has described each once.
        names = {(one.namespace or _DEFAULT_SCHEMA, one.name) for one, _ in repeated if isinstance(one, Relation)}
        counts = Counter[tuple[str, str]]()
        for contents in self._contents.values():
            counts.update({(table.schema, table.table): table.descriptions for table in contents.tables or ()})
        if not all(count == 0 or (count == 1 and name in names) for name, count in counts.items()):
            for at, contents in self._contents.items():
                if any(table.descriptions for table in contents.tables or ()):
                    self._known += self._descriptions(files[at], own=True)[1]
        if repeated != self._repeated:
            self._known += repeated
            self._repeated = repeated
        return True

    def _descriptions(self, file: SegmentFile, *, own: bool = False) -> tuple[Head, list[Described]]:
        """The parameters of a segment, and its descriptions: at its beginning, or (`own`) in all of it."""
        decoder, relations = Decoder(encoding=self._encoding), Relations(Types(encoding=self._encoding))
        described = list[Described]()
        with file.location.open() as reader:
            frames = SegmentFrames(reader, str(file.location))
            for start, stop in frames:
                if frames.head.own and not own:
                    break
                describes = frames.buf[start + XLOG_HEADER_SIZE : start + XLOG_HEADER_SIZE + 1] in _DESCRIPTIONS
                if not describes and not relations.expects_row:
                    relations.adjacent = None
                    continue
                message, lsn, _ = decoder.frame(frames.buf, start, stop)
                partition = relations.partition_of(message)
                described += [(message, lsn)] if describes else []
                described += [] if partition is None else [(partition, None)]
                relations.follow(message)
                if isinstance(message, Relation):
                    relations.see(message)
            return frames.head, described
