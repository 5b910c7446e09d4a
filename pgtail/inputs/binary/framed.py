"""Base class of copydata, lengths and pgcopy: messages preceded by their length."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable
from typing import Final, TypeAlias

from pgtail.errors import DecodeError, Malformed, Truncated
from pgtail.humanize import plural
from pgtail.inputs.base import Chunk
from pgtail.inputs.binary.base import BinaryInput
from pgtail.inputs.binary.detect import ENOUGH, Run, best_run
from pgtail.inputs.source.window import LARGE, Window
from pgtail.pgoutput.cursor import Buffer
from pgtail.pgoutput.decoder import AnyFrame, Decoded, Decoder, Unknown
from pgtail.pgoutput.walsender import UnknownFrame

NOTHING: Final = -1
"""The payload's start if a frame has nothing to decode."""

FrameBounds: TypeAlias = tuple[int, int, int | None]
"""Start of the payload (NOTHING: skip the frame), end of the frame, and the LSN if the framing has one."""

Decode: TypeAlias = Callable[[Buffer, int, int], tuple[AnyFrame, int | None, int | None]]


class Framed(BinaryInput):
    """Frames one after another."""

    def __init__(self, window: Window, decoder: Decoder) -> None:
        super().__init__(window, decoder)
        decoder.separator = None

    @classmethod
    @abstractmethod
    def bounds(cls, buf: bytes, pos: int, end: int) -> FrameBounds:
        """Bounds of the frame at `pos`. The frame's end is beyond `end` if bytes are missing. Raises Malformed."""

    @classmethod
    def _decode(cls, decoder: Decoder) -> Decode:
        """The function that decodes a payload."""
        return decoder.frame

    def _decode_from_here(self) -> Decode:
        """As _decode(), for the remaining payloads of this source; may know more about them."""
        return self._decode(self._decoder)

    def _passed(self, buf: bytes, pos: int) -> None:
        """Called for a frame with nothing to decode."""

    def _interleaved(self, start: int, end: int) -> Iterable[Decoded]:
        """Messages from elsewhere that came before the frame between these positions of the source."""
        return ()

    @classmethod
    def sniff(cls, head: bytes, decoder: Decoder, *, final: bool) -> bool | None:
        run, _ = cls._best_run(head, decoder, 0)
        if run.weight:
            return run.ended or run.short or run.messages > 1
        if run.messages >= ENOUGH or (run.messages and run.ended and final):
            return True  # their lengths are right as well
        return None if run.ended or run.short else False

    def items(self) -> Generator[Decoded | Chunk]:
        window, place = self._window, self.bounds
        self._find_stream_state()
        decode, interleaved = self._decode_from_here(), self._interleaved
        while True:
            buf, pos, base = window.buf, window.pos, window.base
            end, stop = len(buf), pos
            try:
                while (pos := (yield from self._offer(buf, pos, end))) < end:
                    start, stop, lsn = place(buf, pos, end)
                    if stop > end:
                        break
                    yield from interleaved(base + pos, base + stop)
                    if start >= 0:
                        message, frame_lsn, clock = decode(buf, start, stop)
                        yield message, frame_lsn or lsn, base + start, clock
                    else:
                        self._passed(buf, pos)
                    pos = stop
            except DecodeError as error:
                raise self._located(error, base) from None
            finally:
                window.pos = pos
            if stop > end:
                large = self._complete(start, stop)
                if large is not None:
                    yield large
            elif window.final:
                self._check_end()
                return
            else:
                window.more()

    def _find_stream_state(self) -> None:
        """Find out whether the source continues inside a stream segment, if the next message can be read both ways."""
        window, decoder = self._window, self._decoder
        while True:
            if window.pos < len(window.buf):
                run, inside = self._best_run(window.buf, decoder, window.pos)
                if run.messages:
                    decoder.in_stream = inside
                if run.messages or not run.short or len(window.buf) - window.pos > LARGE:
                    return
            if window.final or not window.more():
                return

    def _complete(self, start: int, stop: int) -> Decoded | None:
        """Handle a frame that ends beyond `buf`: read it, or decode it if it is large. Raises Truncated."""
        window = self._window
        missing = stop - len(window.buf)
        left = self.source.left()
        if window.final or (left is not None and missing > left):
            raise self._cut(start, missing)
        if start == NOTHING or stop - window.pos <= LARGE:
            window.more(missing)
            return None
        return self._large(start - window.pos, stop - window.pos)

    def _cut(self, start: int, missing: int) -> Exception:
        """The error for a source that ends inside a frame: that of the message if it is cut off too."""
        window = self._window
        try:
            if NOTHING < start < len(window.buf):
                cursor = self._decoder.cursor
                scratch = Decoder(encoding=cursor.encoding, cursor=cursor)
                scratch.in_stream = self._decoder.in_stream
                self._decode(scratch)(window.buf, start, len(window.buf))
        except Truncated as error:
            return self._located(error, window.base)
        except Malformed:
            pass
        reason = f"{missing} more {plural(missing, 'byte')} needed by the length of the frame"
        return self._located(Truncated(reason, offset=window.pos), window.base)

    def _large(self, start: int, stop: int) -> Decoded:
        """Decode a message longer than LARGE, whose payload begins and ends here after the window's position."""
        lsn = self.bounds(self._window.buf, self._window.pos, len(self._window.buf))[2]

        def check(decoder: Decoder, buf: Buffer) -> int:
            if isinstance(self._decode(decoder)(buf, start, stop)[0], Unknown | UnknownFrame):
                raise Malformed(f"a message of {stop - start} bytes of an unknown kind", offset=start)
            return stop

        decoded, base = self._read_large(check, lambda buf: self._decode(self._decoder)(buf, start, stop))
        message, frame_lsn, clock = decoded
        return message, frame_lsn or lsn, base + start, clock

    def _skip_one(self) -> bool:
        """Go to the end of the damaged frame by its own length, if another frame starts there."""
        window = self._window
        try:
            _, stop, _ = self.bounds(window.buf, window.pos, len(window.buf))
        except DecodeError:
            return False
        if stop >= len(window.buf):
            return False
        run, inside = self._best_run(window.buf, self._decoder, stop)
        if run.messages or run.short:
            window.pos, self._decoder.in_stream = stop, inside if run.messages else None
            return True
        return False

    @classmethod
    def _best_run(cls, buf: bytes, decoder: Decoder, pos: int, *, final: bool = False) -> tuple[Run, bool]:
        end = len(buf)

        def unit(scratch: Decoder, pos: int) -> tuple[AnyFrame, int]:
            while True:
                start, stop, _ = cls.bounds(buf, pos, end)
                if start != NOTHING and start < end:
                    message = cls._decode(scratch)(buf, start, min(stop, end))[0]
                    if stop > end:
                        raise Malformed("the frame is longer than its message", offset=pos)
                    return message, stop
                if stop >= end:
                    raise Truncated("the frame is incomplete", offset=pos)
                pos = stop

        return best_run(unit, decoder, pos, end)
