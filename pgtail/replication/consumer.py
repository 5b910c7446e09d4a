"""What takes frames from the queue: a thread that writes them, or a reader's own thread."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Final

from pgtail.errors import InputError, OptionError
from pgtail.replication.identity import Identity
from pgtail.replication.queue import FrameQueue
from pgtail.service.progress import CommitTimes, Counts

BATCH: Final = 256 * 1024
"""Bytes of frames that are processed between two writes."""


class Stopped(Exception):
    """Raised to abandon the output."""


class Consumer(ABC):
    """What takes frames from the queue, until that is closed, `reached` is set, or an error occurs.

    The thread of the session loop reads these attributes, and `wake` is called when one of them changes: `position`
    (everything up to it was processed), `delivered` (everything up to it was written and flushed), `reached` (whether
    no more frames are needed), `ended` and `error`. Others are for pgtail.service.progress, which describes them.
    """

    tracks_server: ClassVar[bool] = False
    """Whether the output stores which server it came from, so that server_changed() has an effect."""

    def __init__(self, queue: FrameQueue, wake: Callable[[], None], *, position: int) -> None:
        self._queue = queue
        self._wake = wake
        self.position = self.delivered = position
        self.reached = False
        self.error: BaseException | None = None
        self.ended = False
        self.busy_since: float | None = None
        self.uploading_since: float | None = None
        self.commit_time: int | None = None

    @abstractmethod
    def start(self) -> None:
        """Begin: frames come from now on."""

    @abstractmethod
    def stop(self, seconds: float) -> bool:
        """Drop what is not yet processed. Returns whether it ended within this many seconds."""

    @property
    def acknowledged(self) -> int:
        """The position to acknowledge to the server: `delivered`, unless the output must reach a later stage first."""
        return self.delivered

    @abstractmethod
    def counts(self) -> Counts:
        """The counts so far; any thread may ask."""

    @property
    @abstractmethod
    def last_commit(self) -> int | None:
        """The time of the last commit up to `position`, in microseconds since 2000-01-01 UTC; None if not known."""

    @property
    def commits_at(self) -> int | None:
        """The commit position of the open transaction; None if there is none or it is unknown."""
        return None

    @property
    @abstractmethod
    def status_always(self) -> bool:
        """Whether the status line is also shown while data arrives."""

    @abstractmethod
    def status_words(self) -> list[str]:
        """Its part of the status line."""

    def deliver_complete(self) -> None:
        """After a lost connection, deliver all complete transactions. Call only while the queue is idle."""
        return

    @abstractmethod
    def end_at(self, position: int) -> None:
        """End at this position. The main thread may call it at any time."""

    @abstractmethod
    def restart(self, *, gap: bool, position: int) -> None:
        """Prepare for a session from a position on, after a `gap` or not. Call only while the queue is idle."""

    def server_changed(self, identity: Identity) -> None:
        """The server or its timeline changed. Its history includes everything delivered."""
        return


class ConsumerThread(threading.Thread, Consumer):
    """A consumer that is a thread of its own, which alone waits for the output."""

    idle_timeout: ClassVar[float | None] = None
    """Seconds without a frame after which _tick() is called."""

    def __init__(self, queue: FrameQueue, wake: Callable[[], None], *, position: int) -> None:
        threading.Thread.__init__(self, name="output", daemon=True)
        Consumer.__init__(self, queue, wake, position=position)
        self._commit_times = CommitTimes()

    def run(self) -> None:
        try:
            try:
                while not self.reached and (frames := self._queue.take_frames(BATCH, self.idle_timeout)) != b"":
                    self.busy_since = time.monotonic()
                    if frames is None:
                        self._tick()
                    else:
                        self._batch(frames)
                    self._commit_times.reached(self.position, self.last_commit)
                    self.commit_time = self._commit_times.written(self.acknowledged)
                    self.busy_since = None
            except Stopped:
                pass
            except (InputError, OptionError) as error:
                self.error = error  # output from before the error is still written
            self._end()
        except Exception as error:  # noqa: BLE001 -- the main thread raises it
            self.error = self.error or error
        finally:
            self._queue.close()
            self.ended = True
            self._wake()

    def stop(self, seconds: float) -> bool:
        """Drop what is not yet written. Returns whether the thread ended within this many seconds."""
        self._queue.close()
        self.join(seconds)
        return not self.is_alive()

    @abstractmethod
    def _batch(self, frames: bytes) -> None:
        """Process frames, each preceded by its length."""

    def _tick(self) -> None:
        """Called after `idle_timeout` seconds without a frame."""

    @abstractmethod
    def _end(self) -> None:
        """Complete the output, however the stream ended."""
