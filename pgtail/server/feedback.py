"""Floor 5, what the server is told and when: never a word too much, for it takes each one seriously; opens nothing.

A status carries the last position received, so that the server may shut down, and a flush position only where that
advances: a repeated one keeps a server from shutting down for ever, and 0/0 never moves a slot
(src/backend/replication/walsender.c, ProcessStandbyReplyMessage and WalSndDone).
"""

from __future__ import annotations

import struct
import time
from typing import Final

from pgtail.server.framing import LENGTH
from pgtail.wire.scalars import UNIX_EPOCH_OFFSET
from pgtail.wire.walsender import StandbyStatusUpdate

LONGEST_SILENCE: Final = 10.0
"""Seconds between two statuses at most, as pg_recvlogical has it, or half the server's timeout if that is less."""
_ACK_PAUSE: Final = 0.1
_WRITE_PAUSE: Final = 1.0

_DATA, _KEEPALIVE = b"wk"
_DATA_HEADER, _KEEPALIVE_SIZE = 25, 18
_HEAD = struct.Struct(">IBQ")
"""The length, the tag and the position of either."""


class Feedback:
    """The positions of one session. `acknowledge` says whether deliveries are told while it runs.

    `received` is the last position that came, `delivered` what the output has taken for good (set by the owner),
    `told` the last flush position that was sent. Times are of time.monotonic, in seconds.
    """

    def __init__(self, *, acknowledge: bool, told: int, sender_timeout: float, now: float) -> None:
        self._acknowledge = acknowledge
        self._interval = min(LONGEST_SILENCE, sender_timeout / 2) if sender_timeout else LONGEST_SILENCE
        self.received = 0
        self.delivered = 0
        self.told = told
        self.last_data = now
        self.last_frame = now
        self._written = 0
        self._asked = False
        self._sent = now - self._interval

    def take(self, frames: bytes, now: float) -> None:
        """Frames have arrived, each behind its length. The decoder complains about what is no whole one."""
        received, pos, last = self.received, 0, len(frames) - _HEAD.size
        while pos <= last:
            size, tag, lsn = _HEAD.unpack_from(frames, pos)
            pos += LENGTH.size + size
            if tag == _DATA and size >= _DATA_HEADER:
                self.last_data = now
            elif tag == _KEEPALIVE and size >= _KEEPALIVE_SIZE:
                self._asked = self._asked or frames[pos - size + _KEEPALIVE_SIZE - 1] != 0
            else:
                continue
            if lsn > received:
                received = lsn
        self.received = received
        self.last_frame = now

    def next(self) -> float:
        """When the next status is due."""
        if self._asked:
            return self._sent
        due = self._sent + self._interval
        if self._acknowledge and self.delivered > self.told:
            due = min(due, self._sent + _ACK_PAUSE)
        if self.received > self._written:
            due = min(due, self._sent + _WRITE_PAUSE)
        return due

    def status(self, *, last: bool = False, reply: bool = False) -> StandbyStatusUpdate:
        """The status to send now; `last` tells what was delivered also where that was to wait for the end."""
        advance = (self._acknowledge or last) and self.delivered > self.told
        flush = self.delivered if advance else 0
        clock = time.time_ns() // 1000 - UNIX_EPOCH_OFFSET
        return StandbyStatusUpdate(max(self.received, flush), flush, 0, clock, int(reply))

    def sent(self, status: StandbyStatusUpdate, now: float) -> None:
        """This status was sent."""
        self._sent = now
        self._asked = False
        self._written = status.write_lsn
        if status.flush_lsn:
            self.told = status.flush_lsn
