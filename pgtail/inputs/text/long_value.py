"""A long value of a text form, decoded in pieces into a temporary file."""

from __future__ import annotations

import bisect
from array import array
from typing import Final

from pgtail.errors import DecodeError, InputError, Malformed, Truncated
from pgtail.files.spool import SpoolFile
from pgtail.inputs.source.lookahead import lookahead, skim_decoder
from pgtail.inputs.text.bytea import BadText, Codec
from pgtail.pgoutput.decoder import Decoder

_IN_MEMORY: Final = 8 << 20
FIRST_CHECK: Final = 1 << 20
_NO_END: Final = 1 << 62


class LongValue:
    """Decodes the text of one value in pieces, and checks the message before it is read into memory.

    Errors have source offsets.
    """

    live = False
    """For Peekable: reading never blocks."""

    def __init__(self, codec: Codec, decoder: Decoder, lsn: int | None, offset: int) -> None:
        self.lsn = lsn
        self.offset = offset
        """Source offset of the value."""
        self._codec = codec
        self._decoder = decoder
        self._spool = SpoolFile("keep a long value", memory=_IN_MEMORY, error=InputError)
        self._rest = b""
        self._rest_at = offset
        self._starts = array("Q")
        self._offsets = array("Q")
        self._check_at = FIRST_CHECK

    def close(self) -> None:
        """Close the temporary file."""
        self._spool.close()

    def feed(self, text: bytes, offset: int) -> None:
        """Add text from this source offset. Raises Malformed if it cannot be part of a message."""
        if self._rest and offset == self._rest_at + len(self._rest):
            text, offset = self._rest + text, self._rest_at
        elif self._rest:
            self._decode(self._rest, self._rest_at)
        safe = self._codec.safe(text)
        self._rest, self._rest_at = text[safe:], offset + safe
        self._decode(text[:safe], offset)
        if self._spool.size >= self._check_at:
            self._check_at = 2 * self._spool.size
            self._check_start()

    def finish(self) -> bytes:
        """The whole value. Raises Malformed or Truncated if its lengths are not those of a message."""
        self._decode(self._rest, self._rest_at)
        self._rest = b""
        if self._spool.size >= FIRST_CHECK:
            skim = skim_decoder(self._decoder)
            try:
                skim.message(lookahead(self), 0, self._spool.size)
            except DecodeError as error:
                raise self.located(error) from None
        return self._spool.read(0, self._spool.size)

    def located(self, error: DecodeError) -> DecodeError:
        """An error in the value, with its source offset."""
        return error.located(None, self._source_offset(error.offset))

    def reaches(self, distance: int) -> bool:
        """Whether this many bytes were decoded (for Peekable)."""
        return distance <= self._spool.size

    def peek(self, distance: int, size: int) -> bytes:
        """A part of the decoded bytes (for Peekable)."""
        return self._spool.read(distance, size)

    def _decode(self, text: bytes, offset: int) -> None:
        if not text:
            return
        try:
            data = self._codec.decode(text)
        except BadText as bad:
            raise Malformed(bad.reason, offset=offset + bad.index) from None
        self._starts.append(self._spool.write(data))
        self._offsets.append(offset)

    def _check_start(self) -> None:
        """Raise Malformed if the bytes so far cannot begin a message."""
        skim = skim_decoder(self._decoder)
        skim.separator = b""
        try:
            skim.next_message(lookahead(self), 0, _NO_END, final=False)
        except Truncated:
            return
        except Malformed as error:
            raise self.located(error) from None
        if skim.cursor.pos < self._spool.size:
            raise Malformed("the value is longer than its message", offset=self._source_offset(skim.cursor.pos))

    def _source_offset(self, position: int) -> int:
        piece = bisect.bisect_right(self._starts, position) - 1
        if piece < 0:
            return self.offset
        start = self._starts[piece]
        return self._offsets[piece] + self._codec.width(self.peek(start, position - start))
