"""Messages without frames: `raw`, and `recvlogical` with a newline after each. Their own fields say where they end."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Container, Iterator
from typing import ClassVar, Final

from pgtail.errors import DecodeError, Malformed, Truncated
from pgtail.inputs.base import Chunk, Input
from pgtail.inputs.binary.detect import ENOUGH, MESSAGE_START, Run, best_run
from pgtail.inputs.source.lookahead import lookahead, release_buffer, skim_decoder
from pgtail.inputs.source.window import LARGE, Window
from pgtail.pgoutput.decoder import AnyFrame, Decoded, Decoder
from pgtail.pgoutput.frames import SEPARATED
from pgtail.pgoutput.kinds import IN_STREAM, MESSAGES
from pgtail.pgoutput.streaming import StreamCommit, StreamStart, StreamStop
from pgtail.pgoutput.transaction import Begin, Commit

_HORIZON: Final = 4 << 20
"""Bytes to have ahead in the search after damage."""

_SEARCHED: Final = 256 * 1024
"""Bytes at the beginning of an unknown source to search for messages."""

_START_SIZE: Final = 16
"""More bytes than a match of _start has."""

_NO_TEXT: Final = re.compile(rb"[\0-\x08]")
"""Bytes that messages contain and text does not."""

_NO_END: Final = 1 << 62

_FIXED_SIZE: Final = Begin | Commit | StreamStart | StreamStop | StreamCommit
"""Messages of fixed size: no damaged length can cut them short."""


class Unframed(Input):
    """Messages one after another, with `separator` after each."""

    separator: ClassVar[bytes]
    _follows: ClassVar[Container[int]]
    """Bytes that may follow a message."""

    _start: ClassVar[re.Pattern[bytes]]
    """How a message may begin, with what must precede it; the message begins where the match ends."""

    def __init__(self, window: Window, decoder: Decoder) -> None:
        super().__init__(window, decoder)
        decoder.separator = self.separator

    @classmethod
    def sniff(cls, head: bytes, decoder: Decoder, *, final: bool) -> bool | None:
        found, _ = cls._best_run(head, cls._model(decoder), 0, final)
        no_text = _NO_TEXT.search(head) is not None
        if found.ended:
            # The separator of a single message may still come, or never.
            alone = found.messages == 1 and not head.endswith(cls.separator or b"\n")
            known = final != bool(cls.separator) if alone else final or cls.separator or found.messages > 1
            return True if known and (found.weight or (final and no_text)) else None
        if found.short:
            return True if found.weight else None if MESSAGE_START.match(head) else False
        return found.weight > 1 or (found.messages >= ENOUGH and no_text)

    @classmethod
    def search(cls, head: bytes, decoder: Decoder, *, final: bool) -> bool:
        model = cls._model(decoder)
        candidates = cls._start.finditer(head, 0, _SEARCHED)
        return any(cls._best_run(head, model, match.end(), final)[0].credible(final=final) for match in candidates)

    def items(self) -> Iterator[Decoded | Chunk]:
        window, decoder = self._window, self._decoder
        next_message, cursor = decoder.next_message, decoder.cursor
        follows, width = self._follows, len(self.separator)
        may_wait = width > 0 or not self.source.live
        self._find_stream_state()
        while True:
            buf, pos, base, final = window.buf, window.pos, window.base, window.final
            end = len(buf)
            missing = 1
            try:
                while (pos := (yield from self._offer(buf, pos, end))) < end:
                    message = next_message(buf, pos, end, final=final)
                    stop = cursor.pos
                    if stop < end:
                        if buf[stop] not in follows:
                            missing = 0
                            break
                    elif may_wait and not final:
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
                found, inside = self._best_run(buf, decoder, pos, final)
                if found.messages or not found.short or final or len(buf) - pos > LARGE:
                    decoder.in_stream = inside
                    return
            if not window.more():
                return

    def _large(self) -> Decoded:
        """Decode a message longer than LARGE, after checking all its lengths."""
        window, decoder, source = self._window, self._decoder, self.source
        window.give_back()
        start = source.position
        skim = skim_decoder(decoder)
        try:
            message = skim.next_message(lookahead(source), 0, _NO_END, final=True)
            size = skim.cursor.pos
            after = source.peek(size, 1)
            if after and after[0] not in self._follows:
                raise self._not_followed(message, after[0], size)
            payload = source.read_all(size + len(self.separator) * len(after))
            window.restart()
            message = decoder.next_message(payload, 0, len(payload), final=not after)
        except DecodeError as error:
            if isinstance(error, Truncated) and source.damage is not None:
                raise source.damage from None
            raise error.located(source.name, start + error.offset) from None
        release_buffer(decoder.cursor)
        return message, None, start, None

    def _unexpected_byte(self) -> Iterator[Decoded]:
        """Handle a message that is followed by a byte that cannot follow it: raises Malformed.

        If what follows that byte decodes, only the byte is damaged: yields the message first. Otherwise a length in
        the message is damaged.
        """
        window, decoder = self._window, self._decoder
        window.hold(LARGE + _SEARCHED)
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
            return self._best_run(buf, self._decoder, stop + 1, final)[0].credible(final=final)
        rest = buf[stop + 1 : stop + _SEARCHED]
        whole = final and stop + _SEARCHED >= len(buf)
        runs = (self._best_run(bytes([tag]) + rest, self._decoder, 0, whole)[0] for tag in MESSAGES)
        return any(found.credible(final=whole) for found in runs)

    @abstractmethod
    def _not_followed(self, message: AnyFrame, value: int, offset: int) -> Malformed:
        """The error for a byte that cannot follow a message."""

    def _seek(self) -> bool:
        window = self._window
        window.hold(2 * _HORIZON)
        if window.pos < len(window.buf):
            window.pos += 1
            if self._resume_at(window.pos):
                return True
            window.pos -= 1
        while True:
            limit = len(window.buf) if window.final else len(window.buf) - _HORIZON
            for match in self._start.finditer(window.buf, window.pos, limit):
                if match.end() > window.pos and self._resume_at(match.end()):
                    return True
            if window.final:
                window.pos = limit
                if not self.source.skip_damage():
                    return False
                window.restart()
            else:
                window.pos = max(limit - _START_SIZE, window.pos)
            window.hold(2 * _HORIZON)

    def _resume_at(self, pos: int) -> bool:
        """Continue at `pos` if messages decode there."""
        window, decoder = self._window, self._decoder
        found, inside = self._best_run(window.buf, decoder, pos, window.final)
        if found.credible(final=window.final):
            window.pos, decoder.in_stream = pos, inside
            return True
        return False

    @classmethod
    def _model(cls, decoder: Decoder) -> Decoder:
        """A decoder in the same state with this form's separator."""
        model = Decoder(assume=decoder.assume)
        model.separator, model.in_stream = cls.separator, decoder.in_stream
        return model

    @classmethod
    def _best_run(cls, buf: bytes, decoder: Decoder, pos: int, final: bool) -> tuple[Run, bool]:
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

        return best_run(unit, decoder, pos, end)


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
