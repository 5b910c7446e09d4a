"""The thread that writes frames to a capture. Frames are delivered once synced to disk.

They are acknowledged then, or once uploaded if the capture is in an object store.
"""

from __future__ import annotations

import struct
import threading
import time
from typing import Final

from pgtail.capture.recorder import NO_LIMITS, Recorder, RunLimits
from pgtail.capture.upload import Uploader
from pgtail.errors import DecodeError
from pgtail.humanize import size_text
from pgtail.log import event, logger
from pgtail.pgoutput.frames import LENGTHS, bounds
from pgtail.pgoutput.scalars import lsn_text
from pgtail.replication.consumer import ConsumerThread
from pgtail.replication.identity import Identity
from pgtail.replication.plan import Publisher
from pgtail.replication.probe import CompletenessProbe
from pgtail.replication.queue import FrameQueue
from pgtail.replication.record_plan import head_of_server
from pgtail.replication.same_tables import SameTables
from pgtail.service.progress import Counts

_LSN: Final = struct.Struct(">Q").unpack_from
_DATA, _KEEPALIVE = b"wk"
_CLOSING: Final = 10.0
"""Seconds that closing the last segment may take."""
_RATE_OVER: Final = 2.0
"""Seconds over which the rate in the status line is measured."""


class RecordThread(ConsumerThread):
    """Hands frames to a recorder, up to the plan's position `until` and the first commit after `until_time`."""

    idle_timeout = 0.25
    tracks_server = True

    def __init__(
        self,
        publisher: Publisher,
        queue: FrameQueue,
        recorder: Recorder,
        same_tables: SameTables,
        *,
        position: int,
        until_time: int | None,
        uploader: Uploader | None,
    ) -> None:
        super().__init__(queue, publisher.interrupt.wake, position=position)
        self._completeness = CompletenessProbe(publisher)
        self._recorder = recorder
        self._same_tables = same_tables
        self._until = NO_LIMITS.until if publisher.plan.until is None else publisher.plan.until
        self._latest = NO_LIMITS.latest if until_time is None else until_time
        self._uploader = uploader
        self._lock = threading.Lock()
        self._rate = 0.0
        self._counted = (time.monotonic(), 0)

    @property
    def status_always(self) -> bool:
        return True

    def status_words(self) -> list[str]:
        """Rows per second, bytes, and the current segment."""
        recorder, now = self._recorder, time.monotonic()
        since, count = self._counted
        if now - since >= _RATE_OVER:
            self._rate = (recorder.stream.rows - count) / (now - since)
            self._counted = (now, recorder.stream.rows)
        found = [f"{self._rate:.0f} rows/s", size_text(recorder.bytes)]
        return [*found, f"segment {recorder.name}"] if recorder.name else found

    def counts(self) -> Counts:
        recorder = self._recorder
        return Counts(
            recorder.transactions,
            recorder.stream.rows,
            tables=recorder.contents.rows_by_table(),
            recorded=recorder.bytes,
            segments=recorder.finished,
        )

    @property
    def last_commit(self) -> int | None:
        return None if self._recorder.stream.inside else self._recorder.contents.last_time

    def stop(self, seconds: float) -> bool:
        """Like ConsumerThread.stop(), but allows time to close the segment, and to upload it."""
        if self._uploader is not None:
            self._uploader.stop()
        return super().stop(max(seconds, _CLOSING))

    @property
    def acknowledged(self) -> int:
        return self.delivered if self._uploader is None else self._uploader.position

    def deliver_complete(self) -> None:
        with self._lock:
            if self._recorder.stream.inside:
                self._same_tables.forget()  # the capture loses the descriptions in that transaction
            self._recorder.restart()
            self._deliver()

    def end_at(self, position: int) -> None:
        self._until = position

    def restart(self, *, gap: bool, position: int) -> None:
        self._same_tables.restart()
        self.position = self.delivered = position

    def server_changed(self, identity: Identity) -> None:
        self._same_tables.begin(identity)
        with self._lock:
            self._recorder.follow(head_of_server(identity))
            self._deliver()

    def _batch(self, frames: bytes) -> None:
        with self._lock:
            pos, end, recorder = 0, len(frames), self._recorder
            while (pos := self._transactions(frames, pos)) < end and not self.reached:
                start, pos = bounds(frames, pos)
                kind = frames[start] if start < pos else 0
                if kind == _DATA:
                    self._record(frames[start:pos])
                elif kind == _KEEPALIVE:
                    recorder.reached(_LSN(frames, start + 1)[0])
                    self._check_until()
            self._tend()
        self._publish()

    def _tend(self) -> None:
        """Perform the timed work, and start another segment if the publications publish something else now."""
        recorder = self._recorder
        answer = self._completeness.poll(recorder.stream.repeats)
        if answer is not None:
            recorder.confirm("" if answer.complete is None else answer.complete.text(), answer.doubts)
        recorder.tick()
        self._deliver()

    def _transactions(self, frames: bytes, pos: int) -> int:
        """Record ordinary messages; returns the position of the first other message."""
        limits = RunLimits(until=self._until, latest=self._latest)
        pos, _ = self._recorder.take_run(frames, pos, len(frames), LENGTHS, limits)
        self._check_until()
        return pos

    def _record(self, frame: bytes) -> None:
        recorder = self._recorder
        if not recorder.stream.inside and self._is_past(frame):
            self.reached = True
            return
        lsn, found = None, recorder.stream.description(frame)
        if found is not None:
            copied_at = recorder.copied_at(found)
            if self._same_tables.is_same(found.oid, found.commits_at, seen=found.repeats, copied_at=copied_at):
                if found.repeats:
                    return  # it only comes because of a reconnection: readers need not forget the table's rows
                lsn = copied_at
        try:
            recorder.take_frame(frame, lsn)
        except DecodeError as error:
            raise error.located(f"the stream after {lsn_text(recorder.whole)}", error.offset) from None
        if not recorder.stream.inside:
            self._check_until()

    def _is_past(self, frame: bytes) -> bool:
        """Whether a frame outside of transactions begins something that is not to be recorded."""
        commit_time = self._recorder.time_of(frame)
        return self._recorder.begins_at(frame) > self._until or (commit_time is not None and commit_time > self._latest)

    def _check_until(self) -> None:
        """Set `reached` if the capture is complete up to `until`."""
        if not self._recorder.stream.inside and self._recorder.whole >= self._until:
            self.reached = True

    def _tick(self) -> None:
        with self._lock:
            self._tend()
        self._publish()

    def _deliver(self) -> None:
        recorder = self._recorder
        self.position = recorder.whole
        if recorder.safe > self.delivered:
            self.delivered = recorder.safe
            self._wake()

    def _end(self) -> None:
        with self._lock:
            self._recorder.close()
            self._deliver()
        self._publish()

    def _publish(self) -> None:
        """Upload closed segments. The lock is free meanwhile: the main thread must not wait for the store."""
        uploader = self._uploader
        if uploader is None:
            return
        with self._lock:
            work = uploader.work(self._recorder)
        if work is not None:
            before, self.busy_since, self.uploading_since = uploader.uploaded, None, time.monotonic()
            uploader.publish(work)
            self.uploading_since = None
            for name in work.segments if uploader.uploaded > before else ():
                logger.debug(f"segment {name} uploaded", extra=event("segment_uploaded", name=name))
            self._wake()
