"""Base class of binary dumps: the search for messages after damage, and messages that are too large for the window."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar, Final, TypeVar

from pgtail.errors import DecodeError, Truncated
from pgtail.inputs.base import Input
from pgtail.inputs.binary.detect import Run
from pgtail.inputs.source.lookahead import lookahead, release_buffer, skim_decoder
from pgtail.pgoutput.cursor import Buffer
from pgtail.pgoutput.decoder import Decoder

_HORIZON: Final = 4 << 20
"""Bytes to have ahead in the search after damage."""

SEARCHED: Final = 256 * 1024
"""Bytes at the beginning of an unknown source to search for messages."""

_START_SIZE: Final = 32
"""More bytes than a match of _start has."""

Message = TypeVar("Message")


class BinaryInput(Input):
    """Messages as bytes, with separators or frames that allow to find them again after damage."""

    _start: ClassVar[re.Pattern[bytes]]
    """How a message may begin, with what must precede it; the message, or its frame, begins where the match ends."""

    @classmethod
    @abstractmethod
    def _best_run(cls, buf: bytes, decoder: Decoder, pos: int, *, final: bool = False) -> tuple[Run, bool]:
        """As best_run() of detect.py, from a position of `buf`; `final`: nothing follows `buf`."""

    @abstractmethod
    def _skip_one(self) -> bool:
        """After damage, continue right after the damaged message if messages decode there."""

    @classmethod
    def search(cls, head: bytes, decoder: Decoder, *, final: bool) -> bool:
        candidates = cls._start.finditer(head, 0, SEARCHED)
        return any(
            cls._best_run(head, decoder, match.end(), final=final)[0].credible(final=final) for match in candidates
        )

    def _read_large(
        self, check: Callable[[Decoder, Buffer], int], decode: Callable[[bytes], Message]
    ) -> tuple[Message, int]:
        """Decode a message longer than LARGE; returns it and where it started in the source.

        `check` follows its lengths, with a decoder for the bytes ahead, and returns how many of them `decode` needs.
        """
        window, source = self._window, self.source
        window.give_back()
        start = source.position
        try:
            payload = source.read_all(check(skim_decoder(self._decoder), lookahead(source)))
            window.restart()
            message = decode(payload)
        except DecodeError as error:
            if isinstance(error, Truncated) and source.damage is not None:
                raise source.damage from None
            raise error.located(source.name, start + error.offset) from None
        release_buffer(self._decoder.cursor)
        return message, start

    def _seek(self) -> bool:
        window = self._window
        window.hold(2 * _HORIZON)
        if window.pos < len(window.buf) and self._skip_one():
            return True
        step = 1
        while True:
            limit = len(window.buf) if window.final else len(window.buf) - _HORIZON
            for match in self._start.finditer(window.buf, window.pos, limit):
                if match.end() >= window.pos + step and self._resume_at(match.end()):
                    return True
            if window.final:
                window.pos = len(window.buf)
                if not self.source.skip_damage():
                    return False
                window.restart()
                step = 0
            else:
                window.pos = max(limit - _START_SIZE, window.pos)
                step = 1
            window.hold(2 * _HORIZON)

    def _resume_at(self, pos: int) -> bool:
        """Continue at `pos` if messages decode there."""
        window, decoder = self._window, self._decoder
        found, inside = self._best_run(window.buf, decoder, pos, final=window.final)
        if found.credible(final=window.final):
            window.pos, decoder.in_stream = pos, inside
            return True
        return False
