"""Messages without frames: `raw`, and `recvlogical` with a newline after each. Their own fields say where they end."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Container, Generator, Iterator
from typing import ClassVar, Final

from pgtail.errors import DecodeError, Malformed, Truncated
from pgtail.inputs.base import Chunk
from pgtail.inputs.binary.base import SEARCHED, BinaryInput
from pgtail.inputs.binary.detect import ENOUGH, MESSAGE_START, Run, best_run
from pgtail.inputs.source.window import LARGE, Window
from pgtail.pgoutput.cursor import Buffer
from pgtail.pgoutput.decoder import AnyFrame, Decoded, Decoder
from pgtail.pgoutput.frames import SEPARATED
from pgtail.pgoutput.kinds import IN_STREAM, MESSAGES
from pgtail.pgoutput.streaming import StreamCommit, StreamStart, StreamStop
from pgtail.pgoutput.transaction import Begin, Commit

_NO_TEXT: Final = re.compile(rb"[\0-\x08]")
"""Bytes that messages contain and text does not."""

_NO_END: Final = 1 << 62

_LEFT: Final = 4096
"""So few bytes are not decoded before more of a file was read: they mostly are an incomplete message, and to find that
out takes longer than to read them again.
"""

_FIXED_SIZE: Final = Begin | Commit | StreamStart | StreamStop | StreamCommit
"""Messages of fixed size: no damaged length can cut them short."""


class Unframed(BinaryInput):
    """Messages one after another, with `separator` after each."""

    separator: ClassVar[bytes]
    _follows: ClassVar[Container[int]]
    """Bytes that may follow a message."""

    def __init__(self, window: Window, decoder: Decoder) -> None:
        super().__init__(window, decoder)
        decoder.separator = self.separator

    @classmethod
    def sniff(cls, head: bytes, decoder: Decoder, *, final: bool) -> bool | None:
        run, _ = cls._best_run(head, decoder, 0, final=final)
        no_text = _NO_TEXT.search(head) is not None
        if run.ended:
            # The separator of a single message may still come, or never.
            alone = run.messages == 1 and not head.endswith(cls.separator or b"\n")
            known = final != bool(cls.separator) if alone else final or cls.separator or run.messages > 1
            return True if known and (run.weight or (final and no_text)) else None
        if run.short:
            return True if run.weight else None if MESSAGE_START.match(head) else False
        return run.weight > 1 or (run.messages >= ENOUGH and no_text)

    def items(self) -> Generator[Decoded | Chunk]:
        window, decoder = self._window, self._decoder
        next_message, cursor = decoder.next_message, decoder.cursor
        follows, width = self._follows, len(self.separator)
        waits_for_next = width > 0 or not self.source.live
        self._find_stream_state()
        while True:
            buf, pos, base, final = window.buf, window.pos, window.base, window.final
            end = len(buf)
            left = 0 if final or not self.source.rereads else _LEFT
            missing = 1
            try:
                while (pos := (yield from self._offer(buf, pos, end))) < end - left:
                    message = next_message(buf, pos, end, final=final)
                    stop = cursor.pos
                    if stop < end:
                        if buf[stop] not in follows:
                            missing = 0
                            break
                    elif waits_for_next and not final:
                        break
                    yield message, None, base + pos, None
                    pos = stop + width
            except Truncated as error:
                if final:
                    raise self._located(error, base) from None
                missing = error.missing
            except DecodeError as error:
                raise self._located(error, base) from None
            finally:
                window.pos = min(pos, end)
            if not missing:
                yield from self._unexpected_byte()
            elif final:
                self._check_end()
                return
            elif end - window.pos + missing > LARGE:
                yield self._large()
            else:
                window.more(missing)

    def _find_stream_state(self) -> None:
        """Find out whether the source continues inside a stream segment, if the next message can be read both ways."""
        window, decoder = self._window, self._decoder
        while True:
            buf, pos, final = window.buf, window.pos, window.final
            if pos < len(buf):
                if buf[pos] not in IN_STREAM:
                    return
                run, inside = self._best_run(buf, decoder, pos, final=final)
                if run.messages or not run.short or final or len(buf) - pos > LARGE:
                    decoder.in_stream = inside
                    return
            if not window.more():
                return

    def _large(self) -> Decoded:
        """Decode a message longer than LARGE."""

        def check(decoder: Decoder, buf: Buffer) -> int:
            message = decoder.next_message(buf, 0, _NO_END, final=True)
            size = decoder.cursor.pos
            after = self.source.peek(size, 1)
            if after and after[0] not in self._follows:
                raise self._not_followed(message, after[0], size)
            return size + len(self.separator) * len(after)

        decoder = self._decoder
        message, start = self._read_large(check, lambda buf: decoder.next_message(buf, 0, len(buf), final=True))
        return message, None, start, None

    def _unexpected_byte(self) -> Iterator[Decoded]:
        """Handle a message that is followed by a byte that cannot follow it: raises Malformed.

        If what follows that byte decodes, only the byte is damaged: yields the message first. Otherwise a length in
        the message is damaged.
        """
        window, decoder = self._window, self._decoder
        window.hold(LARGE + SEARCHED)
        buf, pos, base, final = window.buf, window.pos, window.base, window.final
        message = decoder.next_message(buf, pos, len(buf), final=final)
        stop = decoder.cursor.pos
        if isinstance(message, _FIXED_SIZE) or self._resumes_after(buf, stop, final):
            yield message, None, base + pos, None
            window.pos = stop
        raise self._not_followed(message, buf[stop], stop).located(self.source.name, base + stop)

    def _resumes_after(self, buf: bytes, stop: int, final: bool) -> bool:
        """Whether messages would decode with another byte at `stop`."""
        if self.separator:
            return self._best_run(buf, self._decoder, stop + 1, final=final)[0].credible(final=final)
        rest = buf[stop + 1 : stop + SEARCHED]
        whole = final and stop + SEARCHED >= len(buf)
        runs = (self._best_run(bytes([tag]) + rest, self._decoder, 0, final=whole)[0] for tag in MESSAGES)
        return any(run.credible(final=whole) for run in runs)

    @abstractmethod
    def _not_followed(self, message: AnyFrame, value: int, offset: int) -> Malformed:
        """The error for a byte that cannot follow a message."""

    def _skip_one(self) -> bool:
        return self._resume_at(self._window.pos + 1)

    @classmethod
    def _best_run(cls, buf: bytes, decoder: Decoder, pos: int, *, final: bool = False) -> tuple[Run, bool]:
        end, width, follows = len(buf), len(cls.separator), cls._follows

        def unit(scratch: Decoder, pos: int) -> tuple[AnyFrame, int]:
            message = scratch.next_message(buf, pos, end, final=final)
            stop = scratch.cursor.pos
            if stop == end:
                if width and not final:
                    raise Truncated("the separator is missing", offset=stop)
            elif buf[stop] not in follows:
                raise Malformed("something else follows", offset=stop)
            return message, stop + width

        return best_run(unit, decoder, pos, end, separator=cls.separator)


class Raw(Unframed):
    """Messages without anything between them."""

    name = "raw"
    separator = b""
    _follows = frozenset(MESSAGES)
    _start = re.compile(rb"(?=" + MESSAGE_START.pattern + rb")", re.DOTALL)

    def _not_followed(self, message: AnyFrame, value: int, offset: int) -> Malformed:
        return Malformed(f"no message starts with byte 0x{value:02x}", offset=offset)


class Recvlogical(Unframed):
    """Messages with a newline after each; the last newline may be missing."""

    name = "recvlogical"
    separator = b"\n"
    framing = SEPARATED
    _follows = b"\n"
    _start = re.compile(rb"(?:\n|\A)(?=" + MESSAGE_START.pattern + rb")", re.DOTALL)

    def _not_followed(self, message: AnyFrame, value: int, offset: int) -> Malformed:
        reason = f"byte 0x{value:02x} instead of the newline after the message"
        return Malformed(reason, offset=offset, message=type(message).__name__)
