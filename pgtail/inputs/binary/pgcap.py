"""Segments of a capture: CopyData framing, with parameters at the beginning and a check of the size at the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pgtail.capture.format import (
    END,
    FORMAT,
    HEAD,
    PARAMETER_STATUS,
    PREDECESSOR,
    SEGMENT,
    START,
    parameter,
    read_parameter,
)
from pgtail.capture.segment import Head
from pgtail.errors import InputError, Malformed
from pgtail.inputs.base import Chunk
from pgtail.inputs.binary.copydata import CopyDataFrames
from pgtail.inputs.source.window import Window
from pgtail.pgoutput.decoder import Continued, Decoded, Decoder

_BEGINNING: Final = FORMAT.encode() + b"\0"
_ANY: Final = parameter(FORMAT, "")


class Segments(CopyDataFrames):
    """One segment, or several one after another.

    Skips what a segment repeats at its beginning if the same decoder has read its predecessor.
    """

    name = "pgcap"

    def __init__(self, window: Window, decoder: Decoder) -> None:
        super().__init__(window, decoder)
        self._head = Head()
        self._begins_at = 0
        self._continued: Continued | None = None
        self._in_head = False
        self._ended = True
        self._refused = False
        """Whether the last error was a wrong checksum of the whole."""

    @classmethod
    def sniff(cls, head: bytes, decoder: Decoder, *, final: bool) -> bool | None:
        if len(head) < HEAD.size + len(_BEGINNING):
            same = head[:1] == _ANY[:1] and head[HEAD.size :] == _BEGINNING[: max(len(head) - HEAD.size, 0)]
            return None if same and head and not final else False
        return head[0] == PARAMETER_STATUS and head.startswith(_BEGINNING, HEAD.size)

    @classmethod
    def search(cls, head: bytes, decoder: Decoder, *, final: bool) -> bool:
        return False

    def items(self) -> Iterator[Decoded | Chunk]:
        source = self.source
        if source.problem is not None:
            problem, source.problem = source.problem, None
            self._refused = True
            raise InputError(f"{problem}; nothing of it was read", source=source.name, offset=self.position)
        if source.checked is None and not source.verified:
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
            if self._in_head:
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
        return refused or super()._seek()

    @property
    def _follows(self) -> bool:
        """Whether the decoder has read the segment before this one."""
        predecessor = self._head.parameters.get(PREDECESSOR)
        return bool(predecessor) and predecessor == self._decoder.segment

    def _passed(self, buf: bytes, pos: int) -> None:
        if buf[pos] != PARAMETER_STATUS:
            return
        name, value = read_parameter(buf[pos + HEAD.size : pos + 1 + HEAD.unpack_from(buf, pos)[1]])
        at = self._window.base + pos
        if name == FORMAT:
            self._check_ended()
            self._head, self._begins_at, self._continued = Head(), at, None
            self._in_head, self._ended = True, False
        elif name == START:
            self._begin_own(at)
        elif name == END:
            self._end(value, at)
        if self._in_head:
            self._head.parameters[name] = value

    def _begin_own(self, at: int) -> None:
        """The segment's own messages follow."""
        self._in_head = False
        try:
            transaction = self._head.transaction
        except InputError as error:
            error.source, error.offset = self.source.name, at
            raise
        if transaction is not None and not self._follows:
            self._continued = Continued(*transaction[:2])

    def _end(self, value: str, at: int) -> None:
        """Compare the size in the end parameter with the bytes before it. Raises Malformed."""
        size = at - self._begins_at
        if value.split(" ")[1:2] != [str(size)]:
            reason = f"a part of the segment is missing: its end follows {size} bytes and says {value!r}"
            raise Malformed(reason, offset=at - self._window.base)
        self._ended = True
        self._decoder.segment = self._head.parameters.get(SEGMENT, "")

    def _check_end(self) -> None:
        super()._check_end()
        self._check_ended()

    def _check_ended(self) -> None:
        if not self._ended:
            self._ended = True  # report it once
            reason = "the segment has no end: it was cut off, or is still being written"
            raise InputError(reason, source=self.source.name, offset=self.position)
