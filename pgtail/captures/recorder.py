"""Floor 4, walsender frames -> segments of a directory; knows when one is full, not where frames come from."""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pgtail.captures.framing import FORMAT, GAP, PREDECESSOR, SEGMENT, TRANSACTION
from pgtail.captures.names import SegmentName
from pgtail.captures.position import Gap, Remembered, remember, remembered
from pgtail.captures.recovery import recover
from pgtail.captures.segment import Segment
from pgtail.captures.stream import Stream
from pgtail.errors import Malformed

_REMEMBER_PAUSE: Final = 10.0
"""Seconds between two notes of how far an idle server has come."""


@dataclass(frozen=True, slots=True)
class Rotation:
    """When a segment is full, and when what was taken is brought to the disk: raw bytes, seconds."""

    size: int = 64 << 20
    age: float = 60.0
    sync_size: int = 1 << 20
    sync_interval: float = 1.0


class Recorder:
    """Writes segments into a directory, behind what recover() found there.

    `head` says how the frames are made; `gap` are the LSNs of one that is gone over, between what is there and what
    comes: the next segment tells it. `whole` is the end LSN of the last transaction that was taken whole (or a
    position up to which the server has nothing), `safe` what of it is on the disk. Methods raise OutputError.
    """

    def __init__(
        self,
        directory: Path,
        head: Mapping[str, str],
        *,
        rotation: Rotation,
        compress: bool = True,
        gap: tuple[int, int] | None = None,
    ) -> None:
        self._directory = directory
        self._head = {FORMAT: "1", **head}
        self._rotation = rotation
        self._compress = compress
        self._stream = Stream()
        self._segment: Segment | None = None
        self._waiting: list[Segment] = []
        """Finished ones whose last transaction is not whole."""
        found = recover(directory, compress=compress)
        self._predecessor = found.last
        self._gap = self._gap_behind(found.last, gap)
        self._stream.whole = self._idle = self.safe = found.position
        self._synced = time.monotonic()
        self.messages = self.bytes = self.transactions = 0
        self._remember()

    @property
    def inside(self) -> bool:
        """Whether a transaction is under way."""
        return self._stream.inside

    @property
    def whole(self) -> int:
        """Up to where everything was taken."""
        return max(self._stream.whole, self._idle)

    @property
    def name(self) -> str:
        """The segment that is being written; empty where there is none."""
        return "" if self._segment is None else str(self._segment.name)

    def begins_at(self, frame: bytes) -> int:
        """The position of what a frame begins, where no transaction is under way."""
        try:
            return self._stream.name_before(frame).position
        except (IndexError, struct.error):
            return 0

    def take(self, frame: bytes) -> None:
        """Take a frame with a message. Raises Malformed where it is none."""
        inside = self._stream.inside
        try:
            segment = self._segment_for(frame)
            boundary = self._stream.take(frame)
        except (IndexError, struct.error) as error:
            raise Malformed("the message is cut off", offset=len(frame)) from error
        segment.add(frame)
        self.messages += 1
        self.bytes += len(frame)
        if boundary and inside:
            self.transactions += 1
        if segment.pending >= self._rotation.sync_size or (boundary and self._waiting):
            self.sync()

    def reached(self, position: int) -> None:
        """The server has nothing more up to this position."""
        if not self._stream.inside:
            self._idle = max(self._idle, position)

    def tick(self) -> None:
        """Do what is due by the clock: bring to the disk what was taken, close a segment that is old."""
        now = time.monotonic()
        if now >= self._synced + self._rotation.sync_interval:
            self.sync()
        segment = self._segment
        if segment is not None and not self._stream.inside and now >= segment.begun + self._rotation.age:
            self._finish(segment)
        idle = not (self._stream.inside or self._dirty)
        if idle and self.whole > self.safe and now >= self._told + _REMEMBER_PAUSE:
            self._remember()

    def sync(self) -> None:
        """Bring everything that was taken to the disk."""
        self._synced = time.monotonic()
        if self._segment is not None:
            self._segment.sync()
        self.safe = max(self.safe, self._stream.whole)
        if not self._stream.inside:
            for segment in self._waiting:
                segment.close()
            self._waiting.clear()

    @property
    def rows(self) -> int:
        """Row changes and truncated tables that were taken."""
        return self._stream.rows

    def restart(self) -> None:
        """The server begins to send anew, behind the last whole transaction: what is not whole is dropped."""
        self.close()
        self._stream.restart()

    def close(self) -> None:
        """End here: what is whole is closed, what is not is dropped."""
        self.sync()
        if self._segment is not None and not self._stream.inside:
            self._finish(self._segment)
        elif self._segment is not None:
            self._segment.leave()
            self._segment = None
            self._waiting.clear()
            self._predecessor = recover(self._directory, compress=self._compress).last
        if self.whole > self.safe:
            self._remember()

    @property
    def _dirty(self) -> bool:
        """Whether something was taken that is not on the disk."""
        return self._segment is not None and self._segment.pending > 0

    def _segment_for(self, frame: bytes) -> Segment:
        """The segment that a frame goes to: another one where this one is full."""
        segment = self._segment
        if segment is not None and segment.size < self._rotation.size:
            return segment
        name = self._stream.name_before(frame)
        if segment is not None and name == segment.name:
            return segment  # nothing in it is numbered yet: another one would have the same name
        if segment is not None:
            self._finish(segment)
        self._segment = self._begin(name)
        return self._segment

    def _begin(self, name: SegmentName) -> Segment:
        stream = self._stream
        segment = Segment(self._directory, name, compress=self._compress)
        head = {**self._head, SEGMENT: str(name), PREDECESSOR: self._predecessor}
        if self._untold is not None:
            head[GAP] = str(self._untold)
        if stream.inside:
            head[TRANSACTION] = f"{stream.changes} {stream.messages} {stream.ordinal}"
        segment.start(head, stream.repeated())
        self._predecessor = str(name)
        return segment

    def _gap_behind(self, last: str, now: tuple[int, int] | None) -> Gap | None:
        """The gap before the next segment: `now`, and what an earlier run went over that wrote no segment."""
        known = remembered(self._directory)
        before = None if known is None or known.gap is None or known.gap.behind != last else known.gap
        if now is None:
            return before
        return Gap(last, now[0] if before is None else before.start, now[1])

    @property
    def _untold(self) -> Gap | None:
        """The gap, until there is a segment behind it."""
        return self._gap if self._gap is not None and self._gap.behind == self._predecessor else None

    def _finish(self, segment: Segment) -> None:
        segment.finish(self.whole)
        self._segment = None
        self._waiting.append(segment)
        self.sync()
        if not self._stream.inside:
            self._remember()

    def _remember(self) -> None:
        """Note up to where the server has nothing that is not here: before that is acknowledged."""
        messages = 0 if self._segment is None else self._segment.messages
        remember(self._directory, Remembered(self.whole, self._predecessor, messages, self._head, self._untold))
        self.safe = self.whole
        self._told = time.monotonic()
