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
    TRANSACTION,
    parameter,
    read_parameter,
)
from pgtail.errors import InputError
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
        self._name = ""
        self._begins_at = 0
        self._continued: Continued | None = None
        self._follows = self._in_head = False
        self._ended = True

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
        for item in super().items():
            if isinstance(item, Chunk):
                yield item
                continue
            if self._in_head:
                if not self._follows:
                    yield item
                continue
            if self._continued is not None:
                if not self._follows:
                    yield self._continued, None, item[2], None
                self._continued = None
            yield item

    def _passed(self, buf: bytes, pos: int) -> None:
        if buf[pos] != PARAMETER_STATUS:
            return
        name, value = read_parameter(buf[pos + HEAD.size : pos + 1 + HEAD.unpack_from(buf, pos)[1]])
        if name == FORMAT:
            self._check_ended()
            self._begins_at = self._window.base + pos
            self._in_head, self._ended, self._continued = True, False, None
        elif name == SEGMENT:
            self._name = value
        elif name == PREDECESSOR:
            self._follows = bool(value) and value == self._decoder.segment
        elif name == TRANSACTION:
            self._continued = self._parse_transaction(value, pos)
        elif name == START:
            self._in_head = False
        elif name == END:
            self._end(value, self._window.base + pos)

    def _parse_transaction(self, value: str, pos: int) -> Continued:
        words = value.split(" ")
        if len(words) < 2 or not all(word.isdecimal() and len(word) < 19 for word in words):
            raise InputError(f"{TRANSACTION} is damaged", source=self.source.name, offset=self._window.base + pos)
        return Continued(int(words[0]), int(words[1]))

    def _end(self, value: str, at: int) -> None:
        """Compare the size in the end parameter with the bytes before it."""
        size = at - self._begins_at
        if value.split(" ")[1:2] != [str(size)]:
            reason = f"a part of the segment is missing: its end follows {size} bytes and says {value!r}"
            raise InputError(reason, source=self.source.name, offset=at)
        self._ended = True
        self._decoder.segment = self._name

    def _check_end(self) -> None:
        super()._check_end()
        self._check_ended()

    def _check_ended(self) -> None:
        if not self._ended:
            self._ended = True  # report it once
            reason = "the segment has no end: it was cut off, or is still being written"
            raise InputError(reason, source=self.source.name, offset=self.position)
