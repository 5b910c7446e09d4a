"""Segments of a capture: CopyData framing, with parameters at the beginning and a check of the size at the end."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from pgtail.capture.format import (
    BEGINNING,
    END,
    FORMAT,
    HEAD,
    PARAMETER_STATUS,
    PREDECESSOR,
    SEGMENT,
    SNAPSHOT,
    START,
    read_parameter,
)
from pgtail.capture.segment import Head
from pgtail.errors import InputError, Malformed
from pgtail.inputs.base import Chunk, SegmentsRead
from pgtail.inputs.binary.copydata import CopyDataFrames
from pgtail.inputs.source.window import Window
from pgtail.pgoutput.decoder import Continued, Decoded, Decoder

_NAME: Final = BEGINNING[HEAD.size :]


class Segments(CopyDataFrames):
    """One segment, or several one after another.

    Skips what a segment repeats at its beginning if its predecessor was read before.
    """

    name = "pgcap"

    def __init__(self, window: Window, decoder: Decoder) -> None:
        super().__init__(window, decoder)
        self._head = Head(own=True, ended=True)  # no segment has begun
        self._begins_at = 0
        self._continued: Continued | None = None
        self._refused = False
        """Whether the last error was a wrong checksum of the whole."""
        self._sought = False
        """Whether bytes of this segment were skipped."""

    @classmethod
    def sniff(cls, head: bytes, decoder: Decoder, *, final: bool) -> bool | None:
        name = head[HEAD.size : HEAD.size + len(_NAME)]
        if not (head[:1] == BEGINNING[:1] and _NAME.startswith(name)):
            return False
        return name == _NAME or (False if final else None)

    @classmethod
    def search(cls, head: bytes, decoder: Decoder, *, final: bool) -> bool:
        return False

    def items(self) -> Generator[Decoded | Chunk]:
        source = self.source
        if source.problem is not None:
            problem, source.problem = source.problem, None
            self._refused = True
            raise InputError(f"{problem}; nothing of it was read", source=source.name, offset=self.position)
        window = self._window
        window.hold(1)  # a pipe knows then whether it is gzip
        if source.checked is None and not source.verified and window.pos < len(window.buf):
            source.unchecked = True
        if source.unchecked:
            self.notes = [
                f"{source.name} is not compressed, and was read without its checksum: nothing in it is checked"
            ]
        for item in super().items():
            if isinstance(item, Chunk):
                if self._continued is None:
                    yield item
                continue
            if not self._head.own:
                if not self._follows:
                    yield item
                continue
            if self._continued is not None:
                yield self._continued, None, item[2], None
                self._continued = None
            yield item

    def _seek(self) -> bool:
        """As in the base class; at a wrong checksum of the whole, continue with all of it."""
        refused, self._refused = self._refused, False
        self.read, self._sought = self.read._replace(snapshot=""), True
        return refused or super()._seek()

    @property
    def _follows(self) -> bool:
        """Whether the segment before this one was read."""
        snapshot, predecessor = self._snapshot, self._head.parameters.get(PREDECESSOR)
        if snapshot:
            return snapshot == self.read.snapshot
        return bool(predecessor) and predecessor == self.read.segment

    @property
    def _snapshot(self) -> str:
        """The consistent point and the table of a segment of a snapshot: one that has the same continues it."""
        return self._head.parameters.get(SNAPSHOT, "").rpartition(" ")[0]

    def _passed(self, buf: bytes, pos: int) -> None:
        if buf[pos] != PARAMETER_STATUS:
            return
        name, value = read_parameter(buf[pos + HEAD.size : pos + 1 + HEAD.unpack_from(buf, pos)[1]])
        at = self._window.base + pos
        if name == FORMAT:
            self._check_ended()
            self._head, self._begins_at, self._continued, self._sought = Head(), at, None, False
        elif name == END:
            self._check_size(value, at)
        try:
            self._head.take_parameter(name, value)
            if name == START:
                self._begin_own()
        except InputError as error:
            error.source, error.offset = self.source.name, at
            raise

    def _begin_own(self) -> None:
        """The segment's own messages follow."""
        transaction = self._head.transaction
        if transaction is not None and (self._snapshot or not self._follows):
            self._continued = Continued(*transaction[:2])
        self.read = self.read._replace(snapshot="")  # until its end was read

    def _check_size(self, value: str, at: int) -> None:
        """Compare the size in the end parameter with the bytes before it. Raises Malformed."""
        size = at - self._begins_at
        if value.split(" ")[1:2] != [str(size)]:
            reason = f"a part of the segment is missing: its end follows {size} bytes and says {value!r}"
            raise Malformed(reason, offset=at - self._window.base)
        if self._snapshot:
            self.read = self.read._replace(snapshot="" if self._sought else self._snapshot)
        else:
            self.read = SegmentsRead(self._head.parameters.get(SEGMENT, ""))

    def _check_end(self) -> None:
        super()._check_end()
        self._check_ended()

    def _check_ended(self) -> None:
        if not self._head.ended:
            self._head.ended = True  # report it once
            reason = "the segment has no end: it was cut off, or is still being written"
            raise InputError(reason, source=self.source.name, offset=self.position)
