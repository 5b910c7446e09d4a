"""Writes walsender frames into the segments of a directory, and rotates the segments."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import Struct

from pgtail.capture.contents import ContentsCounter, begin_time
from pgtail.capture.format import (
    COMPLETE,
    FORMAT,
    GAP,
    HEAD,
    NEWEST,
    PREDECESSOR,
    SEGMENT,
    TIMELINE,
    TRANSACTION,
    SegmentName,
    transaction_text,
)
from pgtail.capture.recovery import recover
from pgtail.capture.snapshots import drop_uncut, open_state
from pgtail.capture.state import CaptureState, Gap, StateFile, TableSnapshot
from pgtail.capture.tracker import Description, StreamTracker
from pgtail.capture.writer import SegmentWriter
from pgtail.errors import Malformed
from pgtail.log import event, logger
from pgtail.native import compiled
from pgtail.native.batch import Batches, Copied
from pgtail.pgoutput.cursor import Buffer
from pgtail.pgoutput.decoder import XLOG_HEADER_SIZE
from pgtail.pgoutput.scalars import lsn_text
from pgtail.pgoutput.walsender import with_lsn

_EARLY: Final = 16
"""If a transaction ends in the last part of a segment, one of this many, the segment ends with it."""


class Rotation(Struct, frozen=True):
    """When to start another segment and when to sync: uncompressed bytes, seconds.

    `state_interval` is between two writes of the state while the server is idle.
    """

    size: int = 64 << 20
    age: float = 60.0
    sync_size: int = 1 << 20
    sync_interval: float = 1.0
    state_interval: float = 10.0


class RunLimits(NamedTuple):
    """Where take_run() stops outside of transactions.

    Before the Begin of a transaction that commits at or before the LSN `after`, after the LSN `until` or after the time
    `latest`, and after a transaction that ends at `until`.
    """

    after: int = 0
    until: int = (1 << 64) - 1
    latest: int = (1 << 63) - 1


NO_LIMITS: Final = RunLimits()


class CopiedTable(NamedTuple):
    """A table that was copied at the consistent point `lsn`, and its Relation message there."""

    oid: int
    lsn: int
    relation: bytes


class Recorder:
    """Appends segments to a capture, after recover().

    `head` has the parameters that describe the frames. `gap` are the LSNs between the capture and the frames to come
    if changes between them are lost; the next segment records it. `start` is the LSN from which the server sends.
    `state` is that of open_state(), if snapshots of tables were listed in it; no segment spans the place of one.
    `copied` are the tables that this process has copied. `stream` follows the frames, `contents` counts them.
    `whole` is the end LSN of the last complete transaction (or a later position up to which the server had nothing),
    `safe` the part of it that is on disk. Methods raise OutputError.
    """

    def __init__(
        self,
        directory: Path,
        head: Mapping[str, str],
        *,
        rotation: Rotation,
        compress: bool = True,
        gap: tuple[int, int] | None = None,
        start: int = 0,
        state: StateFile | None = None,
        copied: Iterable[CopiedTable] = (),
    ) -> None:
        self._directory = directory
        self._copied = {table.oid: table for table in copied}
        self._head = {FORMAT: NEWEST, **head}
        self._next_head: dict[str, str] | None = None
        self._confirmed = 0
        """The stream's `repeats` when the server was last asked for COMPLETE."""
        self._rotation = rotation
        self._compress = compress
        self._module = compiled()
        self._batches = None if self._module is None else Batches(self._module.index)
        self.stream = StreamTracker(start)
        self.contents = ContentsCounter()
        self._segment: SegmentWriter | None = None
        self._finished: list[SegmentWriter] = []
        """Segments to close when their last transaction is complete."""
        recovered = recover(directory, compress=compress)
        self._state = open_state(directory, recovered.position) if state is None else state
        drop_uncut(self._state, directory, recovered.position)
        self._predecessor = recovered.last
        self._gap = self._gap_after(recovered.last, gap)
        self.stream.whole = self._idle = self.safe = recovered.position
        self._divided = recovered.position
        """The LSN up to which segments end at the places of snapshots."""
        self._drop_other_timelines()
        self._drop(f"the stream goes on at {lsn_text(start)}, after its place", lambda snapshot: snapshot.lsn < start)
        if start in self._state.places and not (recovered.last or recovered.position):
            self._idle = self._divided = start  # nothing comes before it in a new capture
        self._synced = time.monotonic()
        self.messages = self.bytes = self.transactions = 0
        self.closed = 0
        """Changes whenever segments were closed."""
        self.finished = 0
        """How many segments were closed with their end."""
        self._write_state()

    @property
    def whole(self) -> int:
        """The LSN up to which every transaction was recorded."""
        return max(self.stream.whole, self._idle)

    @property
    def name(self) -> str:
        """Name of the open segment, or empty."""
        return "" if self._segment is None else str(self._segment.name)

    def begins_at(self, frame: bytes) -> int:
        """The LSN of the transaction or message that a frame begins; 0 if the frame is damaged."""
        try:
            return self.stream.name_before(frame).position
        except (IndexError, struct.error):
            return 0

    def copied_at(self, described: Description) -> int | None:
        """The commit LSN of the table's snapshot if this process made it, with the same description, or None."""
        copied = self._copied.get(described.oid)
        if copied is None or described.message != copied.relation or copied.lsn > self._divided:
            return None
        is_listed = any((one.relid, one.lsn) == (described.oid, copied.lsn) for one in self._state.now.snapshots)
        return copied.lsn - 1 if is_listed else None

    def time_of(self, frame: bytes) -> int | None:
        """The commit time of the transaction that a Begin starts; None for other and damaged frames."""
        return begin_time(frame) if frame[XLOG_HEADER_SIZE : XLOG_HEADER_SIZE + 1] == b"B" else None

    def take_frame(self, frame: bytes, lsn: int | None = None) -> None:
        """Record a frame with a message; `lsn` replaces its own LSN. Raises Malformed if it is cut off."""
        complete = self.stream.complete
        try:
            if self._state.places and not self.stream.inside:
                self._divide_before(frame)
            segment = self._segment_for(frame)
            boundary = self.stream.take_frame(frame)
            self.contents.take_frame(frame)
        except (IndexError, struct.error) as error:
            raise Malformed("the message is cut off", offset=len(frame)) from error
        segment.add_frame(frame if lsn is None else with_lsn(frame, lsn))
        self.messages += 1
        self.bytes += len(frame)
        if boundary and not complete:
            self.transactions += 1
        if boundary and self._next_head is not None:
            self._apply_next_head()
        if segment.pending >= self._rotation.sync_size or (boundary and self._finished):
            self.sync()

    def take_run(
        self, buf: Buffer, pos: int, end: int, framing: int, limits: RunLimits = NO_LIMITS, *, dump: bool = False
    ) -> tuple[int, bytes]:
        """Record ordinary messages of buf[pos:end] as take_frame(), faster: whole transactions, or rows of an open one.

        `framing` is one of pgoutput/frames.py. Messages of a `dump` are checked, and have one LSN. Returns the
        offset of the first message that was not recorded, and the commit LSNs of whole transactions as in Copied.
        """
        segment, stream, place = self._segment, self.stream, self._next_place()
        if self._module is None or self._batches is None:
            return pos, b""
        if segment is None or self._next_head is not None or stream.expects_row:
            return pos, b""
        if self._finished and not stream.inside:
            return pos, b""
        room = min(self._most - segment.size, self._rotation.sync_size - segment.pending)
        limits = limits if place is None else limits._replace(until=min(limits.until, place - 1))
        batch = self._batches.at(buf, pos, end, framing)
        copied: Copied = self._module.copied_messages(batch, pos, dump, stream.inside, room, *limits)
        if copied.stop == pos:
            return pos, b""
        if stream.inside:
            stream.add_rows(copied.rows)
        elif copied.commits:
            stream.add_transactions(copied.rows, copied.end_lsn)
        self.contents.take_copied(copied)
        count = 2 * copied.transactions + copied.rows
        self.transactions += copied.transactions
        self.messages += count
        self.bytes += segment.add_frames([copied.messages], count) - count * HEAD.size
        if segment.pending >= self._rotation.sync_size or (self._finished and stream.complete):
            self.sync()
        return copied.stop, copied.commits

    def reached(self, position: int) -> None:
        """Note that the server has nothing more up to this position."""
        if self.stream.complete:
            while (place := self._next_place()) is not None and place <= position:
                self._divide(place)
            self._idle = max(self._idle, position)

    def tick(self) -> None:
        """Sync, close an old segment, and write the state, each when it is time. Call it about once a second."""
        now = time.monotonic()
        if now >= self._synced + self._rotation.sync_interval:
            self.sync()
        segment = self._segment
        if segment is not None and self.stream.complete and now >= segment.begun + self._rotation.age:
            self._finish(segment)
        idle = self.stream.complete and not (self._segment is not None and self._segment.pending)
        if idle and self.whole > self.safe and now >= self._state_written + self._rotation.state_interval:
            self._write_state()

    def sync(self) -> None:
        """Sync everything to disk; close finished segments."""
        self._synced = time.monotonic()
        if self._segment is not None:
            self._segment.sync()
        self.safe = max(self.safe, self.stream.whole)
        if self.stream.complete:
            for segment in self._finished:
                segment.close()
                self.closed += 1
                self.finished += 1
                facts = {"name": str(segment.name), "messages": segment.messages, "size": segment.size}
                logger.debug(f"segment {segment.name} closed", extra=event("segment_closed", **facts))
            self._finished.clear()

    def confirm(self, complete: str, repeats: int) -> None:
        """Set COMPLETE, for which the server was asked when the stream had so many `repeats`."""
        self._confirmed = max(self._confirmed, repeats)
        self.follow({COMPLETE: complete})

    def restart(self) -> None:
        """Drop an incomplete transaction: the server sends it again from its beginning."""
        self.close()
        self.stream.restart()

    def follow(self, head: Mapping[str, str]) -> None:
        """Change the parameters: start another segment after the current transaction."""
        self._next_head = {**self._head, **head}
        if self.stream.complete:
            self._apply_next_head()

    def leave(self) -> None:
        """Close the file of the open segment as it is: recovery decides how much of it counts."""
        if self._segment is not None:
            self._segment.leave()
            self._segment = None

    def close(self) -> None:
        """Close the open segment; drop an incomplete transaction."""
        self.sync()
        if self._segment is not None and self.stream.complete:
            self._finish(self._segment)
        elif self._segment is not None:
            self.leave()
            self._finished.clear()
            self._predecessor = recover(self._directory, compress=self._compress).last
            self.closed += 1
        self._apply_next_head()
        if self.whole > self.safe:
            self._write_state()

    @property
    def _most(self) -> int:
        """Bytes at which the next segment begins: fewer between transactions, where readers divide captures."""
        size = self._rotation.size
        return size if self.stream.inside else size - size // _EARLY

    def _segment_for(self, frame: bytes) -> SegmentWriter:
        """The segment for a frame: a new one if the current one is full."""
        segment = self._segment
        if segment is not None and (segment.size < self._most or self.stream.late):
            return segment
        name = self.stream.name_before(frame)
        if segment is not None and name == segment.name:
            return segment  # it has no change yet, so a new one would have the same name
        if segment is not None:
            self._finish(segment)
        name = name.after(SegmentName.parse(self._predecessor))
        while str(name) in self._state.now.discarded:
            name = name.after(name)
        self._segment = self._begin(name)
        return self._segment

    def _begin(self, name: SegmentName) -> SegmentWriter:
        stream = self.stream
        segment = SegmentWriter(self._directory, name, compress=self._compress)
        head = {**self._head, SEGMENT: str(name), PREDECESSOR: self._predecessor}
        if stream.repeats > self._confirmed:
            head.pop(COMPLETE, None)  # it is not known
        if self._pending_gap is not None:
            head[GAP] = str(self._pending_gap)
        if stream.inside:
            head[TRANSACTION] = transaction_text(stream.changes, stream.messages, stream.ordinal)
        segment.start(head, stream.repeated())
        self.contents.start_segment(head, inside=stream.inside)
        self._predecessor = str(name)
        return segment

    def _gap_after(self, last: str, now: tuple[int, int] | None) -> Gap | None:
        """The gap before the next segment: `now`, joined with one of an earlier run that wrote no segment."""
        known = self._state.now.gap
        before = None if known is None or known.after != last else known
        if now is None:
            return before
        return Gap(last, now[0] if before is None else before.start, now[1])

    @property
    def _pending_gap(self) -> Gap | None:
        """The gap, until a segment after it was started."""
        return self._gap if self._gap is not None and self._gap.after == self._predecessor else None

    def _apply_next_head(self) -> None:
        head, self._next_head = self._next_head, None
        if head is None or head == self._head:
            return
        self._head = head
        self._drop_other_timelines()
        self._end_segment()

    def _finish(self, segment: SegmentWriter) -> None:
        segment.finish(self.whole, self.contents.text())
        self._segment = None
        self._finished.append(segment)
        self.sync()
        if self.stream.complete:
            self._write_state()

    def _end_segment(self) -> None:
        if self._segment is not None:
            self._finish(self._segment)
        else:
            self._write_state()

    def _write_state(self) -> None:
        """Write the LSN up to which the capture is complete. Must come before this LSN is acknowledged."""
        messages = 0 if self._segment is None else self._segment.messages
        self._state.write(CaptureState(self.whole, self._predecessor, messages, self._head, self._pending_gap))
        self.safe = self.whole
        self._state_written = time.monotonic()

    # -- snapshots of tables -----------------------------------------------------------------------------------

    def _next_place(self) -> int | None:
        """The place of the next listed snapshot, an LSN that the capture has not reached."""
        return next((place for place in self._state.places if place > self._divided), None)

    def _divide_before(self, frame: bytes) -> None:
        """End the segment at the places of snapshots before the transaction or message that a frame begins."""
        begins_at = self.stream.name_before(frame).position
        while (place := self._next_place()) is not None and place <= begins_at:
            if self.stream.complete:
                self._divide(place)
            else:  # the outcome of a transaction that was sent late: its changes are in the segment already
                why = f"a prepared transaction before {lsn_text(place)} was sent after it"
                self._drop(why, lambda snapshot: snapshot.lsn <= begins_at)

    def _divide(self, place: int) -> None:
        """End the segment: everything before this LSN was recorded."""
        self.stream.whole = self._divided = place
        self._end_segment()

    def _drop(self, why: str, dropped: Callable[[TableSnapshot], bool]) -> None:
        """Drop the snapshots for which `dropped` returns True and which the capture has not reached."""
        self._state.drop(why, lambda snapshot: snapshot.lsn > self._divided and dropped(snapshot))

    def _drop_other_timelines(self) -> None:
        timeline = self._head.get(TIMELINE, "")
        if timeline.isdecimal():
            self._drop(f"the server is on timeline {timeline} now", lambda snapshot: snapshot.timeline != int(timeline))
