"""Floor 5, frames between the socket and the output: in memory, and past a limit in private temporary files.

One thread puts, another takes. Everywhere each frame lies behind its length (framing.py). Nothing but this process
ever reads the files; they have no names.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections import deque
from typing import IO, Final

from pgtail.errors import OutputError
from pgtail.server.framing import LENGTH

MEMORY: Final = 16 * 1024 * 1024
"""Bytes of frames that wait in memory."""
SEGMENT: Final = 64 * 1024 * 1024
"""Bytes after which another file is begun, so that what was read is given back to the disk."""


class Spool:
    """A queue of frames that `limit` bytes on disk may wait in, after `memory` bytes in memory."""

    def __init__(self, limit: int, *, memory: int = MEMORY, segment: int = SEGMENT) -> None:
        self._limit = limit
        self._memory = memory
        self._segment = segment
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._queue: deque[bytes] = deque()
        """What was put at a time."""
        self._queued = 0
        self._files: deque[_File] = deque()
        self._spilled = 0
        self._closed = False
        self._busy = self._nudged = False

    def put(self, frames: bytes) -> bool:
        """Take frames; False where the spool is full by them: nothing more may be put until it is empty.

        Raises OutputError where the files cannot be written: then none of them was taken.
        """
        with self._lock:
            if self._files or (self._queued and self._queued + len(frames) > self._memory):
                self._spill(frames)
                self._spilled += len(frames)
            else:
                self._queue.append(frames)
                self._queued += len(frames)
            self._changed.notify_all()
            return self._spilled <= self._limit

    def take(self, most: int, seconds: float | None = None) -> bytes | None:
        """The next frames, about `most` bytes of them but at least one; waits for it. b"" once closed.

        None where nothing came for so many seconds. Whoever takes counts as busy with what he took until he takes
        again.
        """
        with self._lock:
            self._busy = False
            self._changed.notify_all()
            while not (self._queue or self._files or self._closed):
                if self._nudged or not self._changed.wait(seconds):
                    self._nudged, self._busy = False, True
                    return None
            if self._closed:
                return b""
            self._busy = True
            return self._take(most)

    @property
    def quiet(self) -> bool:
        """Whether nothing waits, and whoever takes waits for more.

        For the thread that puts: it stays so until that puts or nudges, for nothing else lets him go.
        """
        return not (self._queue or self._files or self._busy or self._nudged or self._closed)

    def nudge(self) -> None:
        """Let his take() return None, as if nothing had come for a while."""
        with self._lock:
            self._nudged = True
            self._changed.notify_all()

    @property
    def paused(self) -> bool:
        """Whether nothing is waiting."""
        return not (self._queue or self._files)

    @property
    def idle(self) -> bool:
        """Whether nothing is waiting and nobody is busy with what was taken."""
        with self._lock:
            return self.paused and not (self._busy or self._nudged)

    @property
    def waiting(self) -> int:
        """Bytes that wait."""
        return self._queued + self._spilled

    def close(self) -> None:
        """Drop what waits, give the files back, and let go whoever waits."""
        with self._lock:
            self._closed = True
            self._queue.clear()
            while self._files:
                self._files.popleft().close()
            self._changed.notify_all()

    def _take(self, most: int) -> bytes:
        taken: list[bytes] = []
        size = 0
        while self._queue and size < most:
            taken.append(self._queue.popleft())
            size += len(taken[-1])
        self._queued -= size
        if self._files and not taken:
            taken.append(self._files[0].read(most))
            self._spilled -= len(taken[-1])
            if self._files[0].at_end:
                self._files.popleft().close()
        return b"".join(taken)

    def _spill(self, frames: bytes) -> None:
        try:
            if self._files and self._files[-1].size < self._segment:
                self._files[-1].append(frames)
            else:
                file = _File()
                file.append(frames)
                self._files.append(file)
        except OSError as error:
            raise OutputError(
                f"cannot keep what waits for the output in {tempfile.gettempdir()}: {error.strerror}; set TMPDIR to a"
                " folder with room, or a lower --spill-limit"
            ) from error


class _File:
    """One file of frames, each behind its length."""

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="pgtail-", buffering=0)  # noqa: SIM115
        self._read = 0
        self.size = 0

    @property
    def at_end(self) -> bool:
        return self._read >= self.size

    def append(self, frames: bytes) -> None:
        data = memoryview(frames)
        written = 0
        while written < len(data):
            written += os.pwrite(self._file.fileno(), data[written:], self.size + written)
        self.size += written

    def read(self, most: int) -> bytes:
        """The next frames, about `most` bytes of them but at least one."""
        data = self._bytes(most)
        stop, next_ = 0, 0
        while next_ <= len(data):
            stop = next_
            if stop + LENGTH.size > len(data):
                break
            next_ = stop + LENGTH.size + LENGTH.unpack_from(data, stop)[0]
        if not stop:
            data, stop = self._bytes(next_), next_
        self._read += stop
        return data[:stop]

    def _bytes(self, size: int) -> bytes:
        """So many of the next bytes, or all there are."""
        pieces: list[bytes] = []
        start, end = self._read, min(self._read + size, self.size)
        while start < end:
            piece = os.pread(self._file.fileno(), end - start, start)
            assert piece  # it was written
            pieces.append(piece)
            start += len(piece)
        return b"".join(pieces)

    def close(self) -> None:
        self._file.close()
