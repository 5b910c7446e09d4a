"""Floor 4, what a server sent on one connection: recognised as replication or as something else, and kept until read.

Knows the protocol up to CopyBothResponse (manual: message flow); what comes behind it is copydata.py's.
"""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Callable
from typing import Final

from pgtail.errors import DecodeError, InputError
from pgtail.inputs.copydata import CopyDataFrames
from pgtail.inputs.supply import Supply, reason_of
from pgtail.inputs.tcp import Flow, Missing, Piece
from pgtail.inputs.window import LARGE
from pgtail.wire.decoder import Decoder

_SEARCHED: Final = 512 * 1024
"""How much of a connection whose beginning was not captured is searched for messages."""
_IN_MEMORY: Final = 4 << 20
"""How much of a waiting stream stays in memory."""

_COPY_BOTH: Final = ord("W")
_OF_A_LENGTH: Final = 0
"""The first byte of every length there is: behind a message's type, and of what a client sends first."""

TLS, OTHER_PLUGIN, NO_SERVER = "TLS", "another plugin", "no server"
"""Why a direction of a connection is not read."""


class Talk(Supply):
    """What a server sent on one connection, from some message on; `pull` gets more packets, False: there are none."""

    def __init__(self, name: str, pull: Callable[[], bool], *, whole: bool) -> None:
        super().__init__(name, live=True)
        self.whole = whole
        """Whether it is there from its first message on."""
        self.over = False
        """Whether no more will come."""
        self.broken: InputError | None = None
        """Why that is so, where the capture broke off."""
        self._pull = pull
        self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY, prefix="pgtail-")  # noqa: SIM115 - see close()
        self._read = self._written = 0
        self._gaps: deque[tuple[int, int]] = deque()
        self._gap: int | None = None

    def put(self, piece: Piece) -> None:
        """More of it came. Raises InputError where it cannot be kept."""
        if self._file.closed:
            return
        if isinstance(piece, Missing):
            self._gaps.append((self._written, piece.size))
            return
        try:
            self._file.seek(self._written)
            self._file.write(piece)
        except OSError as error:
            reason = (
                f"no room for waiting packets in {tempfile.gettempdir()}: {reason_of(error)} (TMPDIR names another)"
            )
            raise InputError(reason, source=self.name) from None
        self._written += len(piece)

    def close(self) -> None:
        super().close()
        self._file.close()

    @property
    def damage(self) -> InputError | None:
        if self._gap is None:
            return self.broken if self.over and self._read == self._written else None
        return InputError(f"{self._gap} bytes are missing in the capture", source=self.name, offset=self.position)

    def skip_damage(self) -> bool:
        found, self._gap = self._gap is not None, None
        return found

    def _fetch(self, limit: int) -> bytes:
        while self._gap is None:
            up_to = self._gaps[0][0] if self._gaps else self._written
            if up_to > self._read:
                return self._next(min(limit, up_to - self._read))
            if self._gaps:
                self._gap = self._gaps.popleft()[1]
            elif self.over:
                break
            elif not self._pull():
                self.over = True  # and what waited for other packets has come now
        return b""

    def _next(self, size: int) -> bytes:
        self._file.seek(self._read)
        data = self._file.read(size)
        self._read += len(data)
        if self._read == self._written and not self._gaps:
            self._read = self._written = 0
            self._file.seek(0)
            self._file.truncate()
        return data


class Direction:
    """One direction of a connection: put together, and looked at until it is known what it is.

    `talk` is what is to be read of it, once that is known; `other` says why nothing is.
    """

    def __init__(self, first: int, make: Callable[[bool], Talk], decoder: Decoder, *, whole: bool) -> None:
        self.first = first
        self.flow = Flow(first)
        self.over = False
        self.talk: Talk | None = None
        self.other: str | None = None
        self._make = make
        self._decoder = decoder
        self._whole = whole
        self._head = b""
        self._skip = 0
        self._at = 0
        self._look_at = 1
        self._look = self._greeting if whole else self._middle

    def take(self, piece: Piece) -> None:
        """More of it."""
        if self.talk is not None:
            self.talk.put(piece)
        elif isinstance(piece, Missing):
            self._head, self._whole, self._look, self._look_at = b"", False, self._middle, 1
        elif self.other is None:
            self._head += piece
            self._look()

    def end(self) -> None:
        """No more will come."""
        self.over = True
        for piece in self.flow.end():
            self.take(piece)
        if self.talk is None and self.other is None and self._look == self._middle:
            self._search(final=True)
        if self.talk is not None:
            self.talk.over = True

    def _is(self, other: str) -> None:
        self.other, self._head = other, b""

    def _reads_from(self, place: int) -> None:
        self.talk = self._make(self._whole)
        self.talk.put(self._head[place:])
        self._head = b""

    def _greeting(self) -> None:
        """The first bytes: the answer to a request for encryption is a single byte."""
        while len(self._head) > 1:
            first, second = self._head[0], self._head[1]
            if _is_tls(self._head) or (first in b"SG" and second != _OF_A_LENGTH):
                self._is(TLS)
                return
            if first != ord("N") or second == _OF_A_LENGTH:
                self._look = self._walk
                self._walk()
                return
            self._head = self._head[1:]

    def _walk(self) -> None:
        """Everything before the server turns to replication."""
        pos = 0
        while True:
            if self._skip:
                step = min(self._skip, len(self._head) - pos)
                pos, self._skip = pos + step, self._skip - step
            if pos + 5 > len(self._head):
                break
            kind = self._head[pos]
            try:
                _, stop, _ = CopyDataFrames.place(self._head, pos, len(self._head))
            except DecodeError:
                self._is(NO_SERVER)
                return
            if kind == _COPY_BOTH and stop > len(self._head):
                break
            self._skip = stop - pos
            if kind == _COPY_BOTH:
                self._head, self._skip, self._look = self._head[stop:], 0, self._probe
                self._probe()
                return
        self._head = self._head[pos:]

    def _probe(self) -> None:
        """The beginning of replication: the first data tells whether it is pgoutput's."""
        verdict, self._at = CopyDataFrames.is_pgoutput(self._head, self._at, self._decoder)
        if verdict or len(self._head) > LARGE:
            self._reads_from(0)
        elif verdict is False:
            self._is(OTHER_PLUGIN)

    def _middle(self) -> None:
        """The beginning was not captured."""
        if _is_tls(self._head):
            self._is(TLS)
        elif len(self._head) >= self._look_at:
            self._look_at = 2 * len(self._head)
            self._search(final=False)

    def _search(self, *, final: bool) -> None:
        place = CopyDataFrames.first_data(self._head, self._decoder, final=final)
        if place is not None:
            self._reads_from(place)
        elif len(self._head) > _SEARCHED:
            self._is(NO_SERVER)


def _is_tls(head: bytes) -> bool:
    """Whether bytes are a TLS record (RFC 8446, section 5.1)."""
    return len(head) > 2 and 20 <= head[0] <= 23 and head[1] == 3 and head[2] <= 4
