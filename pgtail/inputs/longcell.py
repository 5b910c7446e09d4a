"""Floor 4, a value of a text form that is too long for one line held at a time: decoded piece by piece into a spool."""

from __future__ import annotations

import bisect
import os
import tempfile
from array import array
from typing import Final

from pgtail.errors import DecodeError, InputError, Malformed, Truncated
from pgtail.inputs.bytea import BadText, Codec
from pgtail.inputs.skim import ahead, skimmer
from pgtail.wire.decoder import Decoder

_IN_MEMORY: Final = 8 << 20
_FIRST_LOOK: Final = 1 << 20
_NO_END: Final = 1 << 62


class LongCell:
    """Takes the text of one value in pieces; the message it holds is looked over before it is held whole.

    Errors have offsets in the source.
    """

    live = False
    """As a source that is skimmed has it."""

    def __init__(self, codec: Codec, decoder: Decoder, lsn: int | None, offset: int) -> None:
        self.lsn = lsn
        self.offset = offset
        """Where the value starts in the source."""
        self._codec = codec
        self._decoder = decoder
        self._spool = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY, prefix="pgtail-")  # noqa: SIM115 - close()
        self._rest = b""
        self._rest_at = offset
        self._size = 0
        self._starts = array("Q")
        self._offsets = array("Q")
        self._look_at = _FIRST_LOOK

    def close(self) -> None:
        """Let go of the spool."""
        self._spool.close()

    def feed(self, text: bytes, offset: int) -> None:
        """More text, from this place in the source. Raises Malformed if it cannot be part of a message."""
        if self._rest and offset == self._rest_at + len(self._rest):
            text, offset = self._rest + text, self._rest_at
        elif self._rest:
            self._decode(self._rest, self._rest_at)
        safe = self._codec.safe(text)
        self._rest, self._rest_at = text[safe:], offset + safe
        self._decode(text[:safe], offset)
        if self._size >= self._look_at:
            self._look_at = 2 * self._size
            self._look()

    def finish(self) -> bytes:
        """The whole value. Raises Malformed or Truncated if it is no message."""
        self._decode(self._rest, self._rest_at)
        self._rest = b""
        if self._size >= _FIRST_LOOK:
            skim = skimmer(self._decoder)
            try:
                skim.message(ahead(self), 0, self._size)
            except DecodeError as error:
                raise self.located(error) from None
        self._spool.seek(0)
        return self._spool.read()

    def located(self, error: DecodeError) -> DecodeError:
        """Put an error in the value at its place in the source."""
        return error.located(None, self._place(error.offset))

    def reaches(self, distance: int) -> bool:
        """Whether so much was decoded (for skim.py)."""
        return distance <= self._size

    def ahead(self, distance: int, size: int) -> bytes:
        """A part of what was decoded (for skim.py)."""
        self._spool.seek(distance)
        return self._spool.read(size)

    def _decode(self, text: bytes, offset: int) -> None:
        if not text:
            return
        try:
            data = self._codec.decode(text)
        except BadText as bad:
            raise Malformed(bad.reason, offset=offset + bad.index) from None
        self._starts.append(self._size)
        self._offsets.append(offset)
        self._size += len(data)
        try:
            self._spool.seek(0, os.SEEK_END)
            self._spool.write(data)
        except OSError as error:
            raise InputError(f"no room for a long value in {tempfile.gettempdir()}: {error.strerror}") from None

    def _look(self) -> None:
        """Whether what was decoded so far can be the beginning of a message."""
        skim = skimmer(self._decoder)
        skim.separator = b""
        try:
            skim.next_message(ahead(self), 0, _NO_END, final=False)
        except Truncated:
            return
        except Malformed as error:
            raise self.located(error) from None
        if skim.cursor.pos < self._size:
            raise Malformed("more follows than the message holds", offset=self._place(skim.cursor.pos))

    def _place(self, position: int) -> int:
        piece = bisect.bisect_right(self._starts, position) - 1
        if piece < 0:
            return self.offset
        start = self._starts[piece]
        return self._offsets[piece] + self._codec.width(self.ahead(start, position - start))
