"""What a service knows of itself: the one source of its status line, metrics, health and notifications.

The thread that learns something sets the field; any thread may read it. Times are from time.monotonic(), in seconds,
unless a name says otherwise.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple, Protocol

from pgtail.humanize import size_text
from pgtail.pgoutput.scalars import UNIX_EPOCH_OFFSET, lsn_text

SILENCE: Final = 3.0
"""Seconds without a frame after which the server counts as silent: it is asked for one every second."""
BLOCKED: Final = 5.0
"""Seconds that the output may take for a piece before it counts as blocked."""
_NOT_STARTED: Final = "the stream has not started yet"
SLOW_UPLOAD: Final = 30.0
"""Seconds that an upload may take before something counts as wrong."""
_FRESH: Final = 15.0
"""Seconds for which the server's position counts as its present one."""
_APART: Final = 1.0
"""Seconds between two commit times that are remembered."""
_BACKLOG: Final = 1 << 16
"""Bytes that wait for the output, from which on the status line says so."""


MOST_TABLES: Final = 1000
"""Tables whose rows are counted; those of the others are counted together."""


class Trouble(NamedTuple):
    """Why a service does not do its work, and since when."""

    since: float
    reason: str


class TableRows(NamedTuple):
    """How many rows of a table there were, by operation. Without names: of all tables beyond MOST_TABLES."""

    schema: str
    table: str
    inserts: int
    updates: int
    deletes: int
    truncates: int
    snapshots: int = 0
    """Rows that were read for a snapshot."""


class Counts(NamedTuple):
    """What an output has counted since the start. None: it does not count that."""

    transactions: int
    rows: int
    selected: int | None = None
    """The rows that the filters let pass."""
    tables: Iterable[TableRows] | None = None
    recorded: int | None = None
    """Bytes of frames in segments."""
    segments: int | None = None
    """Closed segments."""


class Output(Protocol):
    """The thread that writes."""

    busy_since: float | None
    """When it began with the piece it is at; None while it waits for one."""
    uploading_since: float | None
    """When it began to upload, which may take long and is tried again; it is not busy then."""
    commit_time: int | None
    """The commit time of the last transaction that was written: microseconds since 2000-01-01 UTC."""

    @property
    def delivered(self) -> int: ...
    @property
    def acknowledged(self) -> int: ...
    def counts(self) -> Counts: ...
    def status_words(self) -> list[str]:
        """Its part of the status line."""


class Queue(Protocol):
    """What waits for the output, in bytes."""

    @property
    def waiting(self) -> int: ...
    @property
    def spilled(self) -> int: ...


class Uploads(Protocol):
    """The local directory from which segments are uploaded."""

    uploaded: int
    failures: int

    @property
    def spool(self) -> Sequence[int]: ...


class CommitTimes:
    """The commit times of positions that are not written yet, thinned to one a second. Of one thread."""

    def __init__(self) -> None:
        self._times: deque[tuple[int, int, float]] = deque()
        self._last: int | None = None

    def reached(self, position: int, commit_time: int | None) -> None:
        """The last transaction up to `position` was committed at this time."""
        times, now = self._times, time.monotonic()
        if commit_time is None or (times and position <= times[-1][0]):
            return
        if len(times) > 1 and now - times[-2][2] < _APART:
            times.pop()
        times.append((position, commit_time, now))

    def written(self, position: int) -> int | None:
        """The time of the last transaction up to `position`; None if it is not known."""
        while self._times and self._times[0][0] <= position:
            self._last = self._times.popleft()[1]
        return self._last


class Progress:
    """Common to all services. `watched` says that somebody reads this, so that the server is to be asked more often."""

    def __init__(self) -> None:
        self.watched = False
        self.ready = False
        """Whether it has begun to do its work."""
        self.stopping = False
        self.task: Sequence[str] = ()
        """What it does now, as parts of the status line, where that is not what it always does."""
        self.target: Trouble | None = None
        """What is wrong with where it writes."""
        self.last_error: float | None = None
        """Unix time."""

    def failed(self, since: float, reason: str) -> Trouble:
        self.last_error = time.time()
        return Trouble(since, reason)

    def ended(self, reason: str) -> None:
        """The service ended, for this reason."""
        self.target = self.failed(time.monotonic(), reason)

    def status(self, now: float) -> Sequence[str]:
        """The parts of the status line."""
        return self.task

    def trouble(self, now: float) -> Trouble | None:
        """Why it does not do its work at present; None if it does."""
        return self.target

    def is_stuck(self, now: float, limit: float) -> bool:
        """Whether a thread has not gone on for `limit` seconds, although nothing that it tries again failed."""
        return False

    @property
    def lag_bytes(self) -> int | None:
        """How much is not written yet; None if that is not known."""
        return None

    def lag_seconds(self, now: float) -> float | None:
        """How old what is written is: 0 if nothing is missing at present; None if it is not known."""
        return None


class LakeProgress(Progress):
    """The progress of a program that brings tables up to date with captures."""

    def __init__(self) -> None:
        super().__init__()
        self.batch = 0
        """The number of the last one."""
        self.pending = 0
        """Segments that were found and are not applied yet."""
        self.segments = self.snapshots = 0
        """Segments and snapshots that were applied since the start."""
        self.changes: dict[str, int] = {}
        """Changes that were applied since the start, by dataset."""
        self.seconds: float | None = None
        """How long the last update took."""
        self._complete: float | None = None
        """When the last update began."""

    def updated(self, began: float) -> None:
        """Everything that was in the captures at this time is applied."""
        self.seconds, self._complete, self.ready = time.monotonic() - began, began, True

    def lag_seconds(self, now: float) -> float | None:
        return None if self._complete is None else now - self._complete


class SlotProgress(Progress):
    """The progress of a program that follows a slot. Positions are LSNs, 0 if there is none yet."""

    def __init__(self) -> None:
        super().__init__()
        self.source: Trouble | None = Trouble(time.monotonic(), _NOT_STARTED)
        """Why there is no session."""
        self.copying = False
        """Whether tables are copied before the stream."""
        self.beat = time.monotonic()
        """When the main thread last went on."""
        self.heard = 0.0
        """When the last frame came."""
        self.received = self.flushed = self.received_bytes = 0
        """`flushed` is the last position that was acknowledged to the server."""
        self.reconnections = self.gaps = 0
        self.timeline: int | None = None
        """The timeline of the server; another one after a promotion."""
        self.server: int | None = None
        """The server's position, as of `asked`."""
        self.asked = 0.0
        self._complete: float | None = None
        """Unix time at which everything on the server was known to be written."""
        self.output: Output | None = None
        self.queue: Queue | None = None
        self.uploads: Uploads | None = None

    def followed(self, now: float) -> None:
        """A session streams."""
        self.source, self.heard, self.ready = None, now, True

    @contextmanager
    def copying_tables(self) -> Iterator[None]:
        """Tables are copied while the body runs: nothing else is to be expected."""
        self.copying, self.task = True, ["copying tables"]
        try:
            yield
        finally:
            self.copying, self.task, self.source = False, (), Trouble(time.monotonic(), _NOT_STARTED)

    def lost(self, reason: str) -> None:
        """There is no session, for this reason."""
        self.source = self.failed(time.monotonic() if self.source is None else self.source.since, reason)

    def server_at(self, position: int, asked: float) -> None:
        """The server was at this position; tell it again when more was written."""
        self.server, self.asked = position, asked
        if self.written >= position:
            self._complete = time.time() - (time.monotonic() - asked)

    def status(self, now: float) -> Sequence[str]:
        """As in Progress: the position, the lag if it is known, what the output says, and what waits for that."""
        output, queue = self.output, self.queue
        if self.task or output is None:
            return self.task
        words = [lsn_text(self.received or output.delivered)]
        if self.server is not None and now - self.asked < _FRESH:
            words.append(f"lag {size_text(max(0, self.server - self.received))}")
        words += output.status_words()
        if queue is not None and queue.waiting >= _BACKLOG:
            words.append(f"{size_text(queue.waiting)} queued for the output")
        return words

    @property
    def written(self) -> int:
        """The position up to which everything is written safely."""
        return 0 if self.output is None else self.output.acknowledged

    @property
    def busy_since(self) -> float | None:
        """When the output began with the piece it is at; None while it waits or uploads."""
        return None if self.output is None else self.output.busy_since

    def is_stuck(self, now: float, limit: float) -> bool:
        busy = self.busy_since
        return (self.ready and now - self.beat >= limit) or (busy is not None and now - busy >= limit)

    @property
    def lag_bytes(self) -> int | None:
        """How far the server's last known position is past `written`; None if it is not known."""
        return None if self.server is None else max(0, max(self.server, self.received) - self.written)

    @property
    def commit_time(self) -> float | None:
        """Unix time of the last written commit; None if there was none."""
        found = None if self.output is None else self.output.commit_time
        return None if found is None else (found + UNIX_EPOCH_OFFSET) / 1e6

    def lag_seconds(self, now: float) -> float | None:
        """As in Progress: since the last commit that was written, or since nothing was missing, if that is later."""
        follows = self.source is None and now - self.heard <= SILENCE
        if follows and self.lag_bytes == 0 and now - self.asked < _FRESH:
            return 0.0
        times = [one for one in (self.commit_time, self._complete) if one is not None]
        return max(0.0, time.time() - max(times)) if times else None

    def trouble(self, now: float) -> Trouble | None:
        if self.copying:
            return self.target
        if self.source is not None:
            return self.source
        if now - self.heard > SILENCE:
            return Trouble(self.heard, "the server is silent")
        if self.target is not None:
            return self.target
        busy = self.busy_since
        if busy is not None and now - busy > BLOCKED:
            return Trouble(busy, "the output is blocked")
        uploading = None if self.output is None else self.output.uploading_since
        if uploading is not None and now - uploading > SLOW_UPLOAD:
            return Trouble(uploading, "the upload takes long")
        return None
