"""Floor 4, what recvlogical and raw share: messages that end where their own lengths say, and the search for them."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Container, Iterator
from typing import ClassVar, Final

from pgtail.errors import DecodeError, Malformed, Truncated
from pgtail.inputs.base import Input
from pgtail.inputs.probe import MESSAGE_START, Run, best_run
from pgtail.inputs.skim import ahead, let_go, skimmer
from pgtail.inputs.window import LARGE, Window
from pgtail.wire.decoder import MESSAGES, SEPARATED, AnyFrame, Decoded, Decoder
from pgtail.wire.stream import StreamCommit, StreamStart, StreamStop
from pgtail.wire.transaction import Begin, Commit

_HORIZON: Final = 4 << 20
"""How far ahead the search after damage looks."""

_SEARCHED: Final = 256 * 1024
"""How much of an unknown source's beginning is searched for messages."""

_START_SIZE: Final = 16
"""More than a match of _start can have."""

_NO_END: Final = 1 << 62

_BOTH_SIDES: Final = b"RYIUDTMO"
"""The first bytes of messages that may stand inside and outside of a stream segment."""

_FIXED_SIZE: Final = Begin | Commit | StreamStart | StreamStop | StreamCommit
"""Messages of one size only: no damage of a length can have cut them short."""


class Unframed(Input):
    """Messages one after another, with `separator` behind each of them."""

    separator: ClassVar[bytes]
    _follows: ClassVar[Container[int]]
    """What may stand behind a message."""

    _start: ClassVar[re.Pattern[bytes]]
    """How a message may begin, with what must stand before it; the message begins where the match ends."""

    def __init__(self, window: Window, decoder: Decoder) -> None:
        super().__init__(window, decoder)
        decoder.separator = self.separator

    @classmethod
    def sniff(cls, head: bytes, decoder: Decoder, *, final: bool) -> bool | None:
        found, _ = cls._best_run(head, cls._model(decoder), 0, final)
        if found.ended:
            # A single message without a separator may be one whose separator is still to come.
            told = final or cls.separator or found.messages > 1
            return True if found.weight and told else None
        if found.short:
            return True if found.weight else None if MESSAGE_START.match(head) else False
        return found.weight > 1

    @classmethod
    def search(cls, head: bytes, decoder: Decoder, *, final: bool) -> bool:
        model = cls._model(decoder)
        candidates = cls._start.finditer(head, 0, _SEARCHED)
        return any(cls._best_run(head, model, match.end(), final)[0].credible(final=final) for match in candidates)

    def messages(self) -> Iterator[Decoded]:
        window, decoder = self._window, self._decoder
        next_message, cursor = decoder.next_message, decoder.cursor
        follows, width = self._follows, len(self.separator)
        patient = width > 0 or not self.source.live
        self._settle()
        while True:
            buf, pos, base, final = window.buf, window.pos, window.base, window.final
            end = len(buf)
            missing = 1
            try:
                while (pos := self._after_rows(buf, pos, end)) < end:
                    message = next_message(buf, pos, end, final=final)
                    stop = cursor.pos
                    if stop < end:
                        if buf[stop] not in follows:
                            missing = 0
                            break
                    elif patient and not final:
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
                yield from self._astray()
            elif final:
                self._check_end()
                return
            elif end - window.pos + missing > LARGE:
                yield self._large()
            else:
                window.more(missing)

    def _after_rows(self, buf: bytes, pos: int, end: int) -> int:
        """Where the first message starts that the decoder's short way does not take."""
        return self._decoder.take_rows(buf, pos, end, SEPARATED) if self.separator else pos

    def _settle(self) -> None:
        """Find out whether the source goes on inside a stream segment, where its next message may be read both ways."""
        window, decoder = self._window, self._decoder
        while True:
            buf, pos, final = window.buf, window.pos, window.final
            if pos < len(buf):
                if buf[pos] not in _BOTH_SIDES:
                    return
                found, inside = self._best_run(buf, decoder, pos, final)
                if found.messages or not found.short or final or len(buf) - pos > LARGE:
                    decoder.in_stream = inside
                    return
            if not window.more():
                return

    def _large(self) -> Decoded:
        """The next message, which is longer than what is held: followed to its end before it is read."""
        window, decoder, source = self._window, self._decoder, self.source
        window.give_back()
        start = source.position
        skim = skimmer(decoder)
        try:
            message = skim.next_message(ahead(source), 0, _NO_END, final=True)
            size = skim.cursor.pos
            after = source.ahead(size, 1)
            if after and after[0] not in self._follows:
                raise self._not_followed(message, after[0], size)
            payload = source.read_all(size + len(self.separator) * len(after))
            window.restart()
            message = decoder.next_message(payload, 0, len(payload), final=not after)
        except DecodeError as error:
            if isinstance(error, Truncated) and source.damage is not None:
                raise source.damage from None
            raise error.located(source.name, start + error.offset) from None
        let_go(decoder.cursor)
        return message, None, start, None

    def _astray(self) -> Iterator[Decoded]:
        """Behind the next message stands what cannot stand there: raises Malformed.

        Either a length in the message is damaged, and it ends too early, or only the byte behind it is: then it is
        right all the same, because what comes after that byte decodes.
        """
        window, decoder = self._window, self._decoder
        window.hold(LARGE + _SEARCHED)
        buf, pos, base, final = window.buf, window.pos, window.base, window.final
        message = decoder.next_message(buf, pos, len(buf), final=final)
        stop = decoder.cursor.pos
        if isinstance(message, _FIXED_SIZE) or self._follows_anew(buf, stop, final):
            yield message, None, base + pos, None
            window.pos = stop
        raise self._not_followed(message, buf[stop], stop).located(self.source.name, base + stop)

    def _follows_anew(self, buf: bytes, stop: int, final: bool) -> bool:
        """Whether messages go on if the byte at `stop` were another one."""
        if self.separator:
            return self._best_run(buf, self._decoder, stop + 1, final)[0].credible(final=final)
        rest = buf[stop + 1 : stop + _SEARCHED]
        whole = final and stop + _SEARCHED >= len(buf)
        runs = (self._best_run(bytes([tag]) + rest, self._decoder, 0, whole)[0] for tag in MESSAGES)
        return any(found.credible(final=whole) for found in runs)

    @abstractmethod
    def _not_followed(self, message: AnyFrame, value: int, offset: int) -> Malformed:
        """The error that another byte than what may follow stands behind a message."""

    def _seek(self) -> bool:
        window = self._window
        window.hold(2 * _HORIZON)
        if window.pos < len(window.buf):
            window.pos += 1
            if self._go_on_at(window.pos):
                return True
            window.pos -= 1
        while True:
            limit = len(window.buf) if window.final else len(window.buf) - _HORIZON
            for match in self._start.finditer(window.buf, window.pos, limit):
                if match.end() > window.pos and self._go_on_at(match.end()):
                    return True
            if window.final:
                window.pos = limit
                if not self.source.skip_damage():
                    return False
                window.restart()
            else:
                window.pos = max(limit - _START_SIZE, window.pos)
            window.hold(2 * _HORIZON)

    def _go_on_at(self, pos: int) -> bool:
        """Go on here if messages decode from here on."""
        window, decoder = self._window, self._decoder
        found, inside = self._best_run(window.buf, decoder, pos, window.final)
        if found.credible(final=window.final):
            window.pos, decoder.in_stream = pos, inside
            return True
        return False

    @classmethod
    def _model(cls, decoder: Decoder) -> Decoder:
        """A decoder as this form needs it, in the same state."""
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
