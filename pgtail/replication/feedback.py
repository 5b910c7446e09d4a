"""Standby status updates: their contents and times.

A status carries the last position received, which lets the server shut down. It carries a flush position only if that
advances: repeating one can prevent a shutdown, and 0/0 never moves a slot
(src/backend/replication/walsender.c, ProcessStandbyReplyMessage and WalSndDone).
"""

from __future__ import annotations

import struct
from typing import Final

from pgtail.local_time import clock
from pgtail.native import compiled
from pgtail.pgoutput.decoder import XLOG_HEADER_SIZE
from pgtail.pgoutput.frames import LENGTH
from pgtail.pgoutput.walsender import KEEPALIVE, StandbyStatusUpdate

LONGEST_SILENCE: Final = 10.0
"""Maximum seconds between two statuses, as in pg_recvlogical; half of wal_sender_timeout if that is less."""
_ACK_PAUSE: Final = 0.1
_WRITE_PAUSE: Final = 1.0

_DATA, _KEEPALIVE = b"wk"
_KEEPALIVE_SIZE: Final = 1 + KEEPALIVE.size
_HEAD = struct.Struct(">IBQ")
"""Length, tag and position: the same for both kinds of frame."""


class Feedback:
    """The positions of one session. `acknowledge`: report the flush position during the session, not only at its end.

    `received` is the last position received, `delivered` the position flushed by the output (set by the owner),
    `flushed` the last flush position sent. Times are from time.monotonic, in seconds.
    """

    def __init__(self, *, acknowledge: bool, flushed: int, sender_timeout: float, now: float) -> None:
        self._acknowledge = acknowledge
        self._interval = min(LONGEST_SILENCE, sender_timeout / 2) if sender_timeout else LONGEST_SILENCE
        self.received = 0
        self.delivered = 0
        self.flushed = flushed
        self.last_data = now
        self.last_frame = now
        self._written = 0
        self._asked = False
        self._sent = now - self._interval

    def take_frames(self, frames: bytes, now: float, since: int | None = None) -> int | None:
        """Note received frames, each preceded by its length. Incomplete ones are skipped; the decoder reports them.

        Returns the end of the first keepalive that the server sent after the time `since` (on its clock).
        """
        module = compiled()
        received, has_data, asked, end = (_headers if module is None else module.headers)(frames, since)
        self.received = max(self.received, received)
        self._asked = self._asked or asked
        self.last_frame = now
        if has_data:
            self.last_data = now
        return end

    def next(self) -> float:
        if self._asked:
            return self._sent
        due = self._sent + self._interval
        if self._acknowledge and self.delivered > self.flushed:
            due = min(due, self._sent + _ACK_PAUSE)
        if self.received > self._written:
            due = min(due, self._sent + _WRITE_PAUSE)
        return due

    def status(self, *, last: bool = False, reply: bool = False) -> StandbyStatusUpdate:
        """The status to send now. The `last` one always acknowledges `delivered`; `reply` asks for an answer."""
        advance = (self._acknowledge or last) and self.delivered > self.flushed
        flush = self.delivered if advance else 0
        return StandbyStatusUpdate(max(self.received, flush), flush, 0, clock(), int(reply))

    def sent(self, status: StandbyStatusUpdate, now: float) -> None:
        self._sent = now
        self._asked = False
        self._written = status.write_lsn
        if status.flush_lsn:
            self.flushed = status.flush_lsn


def _headers(frames: bytes, since: int | None) -> tuple[int, bool, bool, int | None]:
    """The highest position in the frames or 0, whether one is data, whether one asks for an answer, and the end of the
    first keepalive that was sent after `since`."""
    highest, has_data, asks, end = 0, False, False, None
    pos, last = 0, len(frames) - _HEAD.size
    while pos <= last:
        size, tag, lsn = _HEAD.unpack_from(frames, pos)
        start = pos + LENGTH.size
        pos = start + size
        if tag == _DATA and size >= XLOG_HEADER_SIZE:
            has_data = True
        elif tag == _KEEPALIVE and size >= _KEEPALIVE_SIZE and pos <= len(frames):
            _, sent, asked = KEEPALIVE.unpack_from(frames, start + 1)
            asks = asks or asked != 0
            if since is not None and sent > since and end is None:
                end = lsn
        else:
            continue
        highest = max(highest, lsn)
    return highest, has_data, asks, end
