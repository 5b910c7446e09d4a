"""An int32 length that does not include itself, then a walsender frame or a bare message."""

from __future__ import annotations

import re
from struct import Struct
from typing import Final

from pgtail.errors import Malformed
from pgtail.inputs.binary.detect import MESSAGE_START
from pgtail.inputs.binary.framed import NOTHING, Decode, FrameBounds, Framed
from pgtail.pgoutput.cursor import Buffer
from pgtail.pgoutput.decoder import AnyFrame, Decoder
from pgtail.pgoutput.frames import LENGTHS, MOST
from pgtail.pgoutput.kinds import MESSAGES

_length: Final = Struct(">i").unpack_from
_SIZE: Final = 4

_STATUS_TAG: Final = ord("r")
_STATUS_SIZE: Final = 34
"""Rollback Prepared also begins with r, and is longer."""


class Lengths(Framed):
    """Frames after their lengths."""

    name = "lengths"
    framing = LENGTHS
    _start = re.compile(rb"(?=[\0-\x3f].{3}(?:[wk]|" + MESSAGE_START.pattern + rb"))", re.DOTALL)

    @classmethod
    def bounds(cls, buf: bytes, pos: int, end: int) -> FrameBounds:
        start = pos + _SIZE
        if start > end:
            return NOTHING, start, None
        (size,) = _length(buf, pos)
        if not 0 < size <= MOST:
            raise Malformed(f"a frame of {size} bytes", offset=pos, field="length")
        return start, start + size, None

    @classmethod
    def _decode(cls, decoder: Decoder) -> Decode:
        frame, message = decoder.frame, decoder.message

        def decode(buf: Buffer, start: int, stop: int) -> tuple[AnyFrame, int | None, int | None]:
            tag = buf[start]
            if tag in MESSAGES and (tag != _STATUS_TAG or stop - start != _STATUS_SIZE):
                return message(buf, start, stop), None, None
            return frame(buf, start, stop)

        return decode

    def _decode_from_here(self) -> Decode:
        window = self._window
        if window.buf[window.pos + _SIZE : window.pos + _SIZE + 1] in (b"w", b"k"):
            return self._decoder.frame
        return self._decode(self._decoder)
