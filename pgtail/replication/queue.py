"""The queue of frames between the socket and the output: in memory, and beyond a limit in temporary files.

One thread puts, another takes. Each frame is preceded by its length (pgtail.pgoutput.frames). The files have no names,
so no other process can open them.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Final

from pgtail.errors import OutputError
from pgtail.files.spool import SpoolFile
from pgtail.pgoutput.frames import LENGTH

MEMORY: Final = 16 * 1024 * 1024
"""Bytes of frames that the queue holds in memory."""
SEGMENT: Final = 64 * 1024 * 1024
"""Bytes after which a new file is started, so that the space of files already read is freed."""


class FrameQueue:
    """A queue of frames: up to `memory` bytes in memory, then up to `limit` bytes on disk."""

    def __init__(self, limit: int, *, memory: int = MEMORY, segment: int = SEGMENT) -> None:
        self._limit = limit
        self._memory = memory
        self._segment = min(segment, limit // 8)
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._queue: deque[bytes] = deque()
        """One element for each put()."""
        self._queued = 0
        self._files: deque[_File] = deque()
        self.spilled = 0
        """Bytes of the queue that are on disk."""
        self._closed = False
        self._busy = False

    def put(self, frames: bytes) -> bool:
        """Add frames; a closed queue drops them. Returns False if it is full now: put no more until it is empty.

        Raises OutputError if the files cannot be written; then no frame was added.
        """
        with self._lock:
            if self._closed:
                return True
            if self._files or (self._queued and self._queued + len(frames) > self._memory):
                self._spill(frames)
                self.spilled += len(frames)
            else:
                self._queue.append(frames)
                self._queued += len(frames)
            self._changed.notify_all()
            return self.spilled <= self._limit

    def take_frames(self, most: int, seconds: float | None = None) -> bytes | None:
        """Wait for the next frames: about `most` bytes, at least one frame. Returns b"" once the queue is closed.

        Returns None after this many seconds without a frame. The caller counts as busy until its next call.
        """
        with self._lock:
            self._busy = False
            self._changed.notify_all()
            while not (self._queue or self._files or self._closed):
                if not self._changed.wait(seconds):
                    self._busy = True
                    return None
            if self._closed:
                return b""
            self._busy = True
            return self._take_frames(most)

    def release(self) -> None:
        """The caller of take_frames() does not count as busy any more."""
        with self._lock:
            self._busy = False
            self._changed.notify_all()

    @property
    def paused(self) -> bool:
        """Whether the queue is empty."""
        return not (self._queue or self._files)

    @property
    def idle(self) -> bool:
        """Whether the queue is empty and the consumer has processed what it took."""
        with self._lock:
            return self.paused and not self._busy

    @property
    def waiting(self) -> int:
        """Bytes in the queue."""
        return self._queued + self.spilled

    def close(self) -> None:
        """Drop the contents, close the files, and wake the consumer."""
        with self._lock:
            self._closed = True
            self._queue.clear()
            while self._files:
                self._files.popleft().close()
            self._changed.notify_all()

    def _take_frames(self, most: int) -> bytes:
        taken: list[bytes] = []
        size = 0
        while self._queue and size < most:
            taken.append(self._queue.popleft())
            size += len(taken[-1])
        self._queued -= size
        if self._files and not taken:
            taken.append(self._files[0].next_frames(most))
            self.spilled -= len(taken[-1])
            if self._files[0].at_end:
                self._files.popleft().close()
        return b"".join(taken)

    def _spill(self, frames: bytes) -> None:
        if self._files and self._files[-1].size < self._segment:
            self._files[-1].write(frames)
        else:
            file = _File()
            file.write(frames)
            self._files.append(file)


class _File(SpoolFile):
    """One file of frames, each after its length, read from start to end."""

    def __init__(self) -> None:
        super().__init__("write queued data", error=_cannot_spill)
        self._position = 0

    @property
    def at_end(self) -> bool:
        return self._position >= self.size

    def next_frames(self, limit: int) -> bytes:
        """The next frames, about `limit` bytes but at least one."""
        data = self.read(self._position, limit)
        stop, next_ = 0, 0
        while next_ <= len(data):
            stop = next_
            if stop + LENGTH.size > len(data):
                break
            next_ = stop + LENGTH.size + LENGTH.unpack_from(data, stop)[0]
        if not stop:
            data, stop = self.read(self._position, next_), next_
        self._position += stop
        return data[:stop]


def _cannot_spill(reason: str) -> OutputError:
    return OutputError(f"{reason}, or with pgtail stream lower --spill-limit")
