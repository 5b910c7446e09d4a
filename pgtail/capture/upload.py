"""Uploads the closed segments of a local directory, the spool, to a capture in an object store."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec import Struct

from pgtail.capture.format import CLOSED, OPEN, PREDECESSOR, SegmentName
from pgtail.capture.recorder import Recorder
from pgtail.capture.recovery import Recovered, recover
from pgtail.capture.segment import SegmentBytes, SegmentCheck, digest_of, read_head
from pgtail.capture.snapshots import complete, unlisted
from pgtail.capture.state import FILE, NO_STATE, CaptureState, read_state, write_state
from pgtail.capture.store_state import StoreState
from pgtail.errors import InputError, OptionError, OutputError
from pgtail.humanize import counted
from pgtail.log import event, log_trouble, logger
from pgtail.service.progress import Progress
from pgtail.storage import UNAVAILABLE, Conflict, Location
from pgtail.storage.local import LocalLocation

PAUSES: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds between two attempts while the store is not available."""


class Work(Struct, frozen=True):
    """Segments to upload, by name, and the LSN up to which nothing more is to be recorded, if no segment is open."""

    segments: dict[str, Path]
    idle: int | None


class Uploader:
    """Continues a capture at `target` from what the spool and the target have. `position` is what the target has.

    Failures of the target are noted in `progress`. The spool must be locked. Raises OptionError if the spool does
    not continue the capture, OutputError. With `takes_over` a spool of this target that does not continue it is
    emptied: another recorder has taken over, and nothing in the spool that was not uploaded was acknowledged.
    """

    def __init__(
        self,
        spool: Path,
        target: Location,
        *,
        compress: bool,
        progress: Progress | None = None,
        takes_over: bool = False,
        pauses: Sequence[float] = PAUSES,
    ) -> None:
        self._spool = spool
        self._pauses = pauses
        self._store = StoreState(target, spool)
        self._claimed = False
        self._closed = -1
        self._reported = ""
        self._progress = progress or Progress()
        self.uploaded = self.failures = 0
        """Segments of the stream that are in the store, and attempts that failed, since the start."""
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        """Guards `_store`: snapshots are uploaded by other threads than the stream."""
        recovered = recover(spool, compress=compress)
        for warning in recovered.warnings:
            logger.warning(warning)
        try:
            with _as_output(target):
                self._store.read()
                self._begin_spool(recovered, takes_over=takes_over)
        except UNAVAILABLE as error:
            raise OutputError(str(error)) from None

    @property
    def position(self) -> int:
        """The LSN up to which the target has everything."""
        return self._store.position

    def stop(self) -> None:
        """Stop trying again."""
        self._stopping.set()

    def work(self, recorder: Recorder) -> Work | None:
        """The work to publish now, or None. Not to be called while another thread uses the recorder."""
        idle = None if recorder.name or recorder.safe <= self._store.position else recorder.safe
        if self._claimed and idle is None and self._closed == recorder.closed:
            return None
        self._closed = recorder.closed
        closed = self._pending()
        following = [*closed.values(), *self._segments(OPEN).values(), None][1:]
        count = 0
        for number, path in enumerate(following[: len(closed)], 1):
            if path is None or read_head(LocalLocation(path)).transaction is None:  # it does not continue a transaction
                count = number
        return Work(dict(islice(closed.items(), count)), idle)

    def claim(self) -> None:
        """Become the only writer, once, before the stream begins at `position`; delete the files that another one left.

        Deletes only files that nobody else will list: discarded names, and parts of earlier snapshots. Raises
        TakenOver, OutputError.
        """
        with self._lock, _as_output(self._store.target):
            if self._claimed:
                return
            left = unlisted(self._store.target, read_state(LocalLocation(self._spool)).snapshots)
            self._store.write()
            before = min(self._store.discarded, default=self._store.uploaded)
            there = [entry.name for entry in self._store.target.list(before)]
            left += [self._store.target / name for name in there if name.removesuffix(CLOSED) in self._store.discarded]
            for file in left:
                file.delete()
            self._claimed = True

    def publish(self, work: Work) -> None:
        """Upload segments, and record how far the capture goes. While the store is not available, tries again.

        Returns early after stop(). Raises OutputError.
        """
        self._try(lambda: self._upload(work))

    def put_snapshot(self, path: Path) -> None:
        """Upload a closed segment of a snapshot, and remove it from the spool. Several threads may do so at a time.

        While the store is not available, tries again. Raises OutputError, also after stop().
        """
        self._try_to_end(lambda: self._put_segment(path))
        path.unlink(missing_ok=True)

    def remove_snapshot(self, name: str) -> None:
        """Delete a segment that put_snapshot() has uploaded, and no state lists; as put_snapshot()."""
        self._try_to_end((self._store.target / name).delete)

    def list_snapshots(self) -> None:
        """Record in the store which snapshots the spool's state lists; as put_snapshot()."""

        def write() -> None:
            with self._lock:
                self._store.write()

        self._try_to_end(write)

    def _try_to_end(self, attempt: Callable[[], object]) -> None:
        if not self._try(attempt):
            raise OutputError(f"stopped before the snapshot was in {self._store.target}")

    def _try(self, attempt: Callable[[], object]) -> bool:
        """As the only writer, try until the store is available. Returns False if stop() was called first."""
        number = 0
        while True:
            try:
                self.claim()
                with _as_output(self._store.target):
                    attempt()
                self._reported = ""
                self._progress.target = None
                return True
            except UNAVAILABLE as error:
                self._report(str(error))
            if self._stopping.wait(self._pauses[min(number, len(self._pauses) - 1)]):
                return False
            number += 1

    @property
    def waiting(self) -> int:
        """Segments in the spool that are closed and not uploaded."""
        return len(self._pending())

    @property
    def spool(self) -> list[int]:
        """The sizes in bytes of the files in the spool, as far as they are still there. Any thread may call it."""
        sizes = []
        with contextlib.suppress(OSError):
            for entry in os.scandir(self._spool):
                with contextlib.suppress(OSError):
                    sizes.append(entry.stat().st_size)
        return sizes

    # -- the start ---------------------------------------------------------------------------------------------

    def _discard(self) -> None:
        """Discard what was announced or uploaded and does not count, unless the spool has the same. Raises InputError.

        Recorders of older versions announce nothing.
        """
        store, state = self._store, self._store.stored
        if state.uploaded is None:
            return
        digests: dict[str, str | None] = {name: own for name, own in state.announced.items() if name > store.uploaded}
        for entry in store.target.list(f"{store.uploaded}{CLOSED}"):
            name = SegmentName.of_file(entry.name)
            if name is not None and str(name) not in digests and str(name) not in state.discarded:
                digests[str(name)] = _digest(store.target / entry.name)
        own = self._pending()
        store.announced = {
            name: digest
            for name, digest in digests.items()
            if name in own and digest == digest_of(LocalLocation(own[name]))
        }
        store.discarded = state.discarded | (digests.keys() - store.announced.keys())

    def _begin_spool(self, recovered: Recovered, *, takes_over: bool) -> None:
        """Start an empty spool with what the store has, or check that the spool continues it."""
        self._discard()
        if not (recovered.last or recovered.position):
            self._start_spool()
            return
        try:
            self._continue_spool(recovered)
        except OptionError:
            if not takes_over or read_state(LocalLocation(self._spool)).target != str(self._store.target):
                raise
            logger.info(f"another recorder has gone on in {self._store.target}: {self._spool} is emptied")
            for path in [*self._spool.glob("*.pgcap*"), self._spool / FILE]:
                path.unlink(missing_ok=True)
            self._discard()
            self._start_spool()

    def _start_spool(self) -> None:
        stored, last = self._store.stored, self._store.uploaded
        head = stored.head
        if last and not head:
            head = read_head(self._store.target / f"{last}{CLOSED}").parameters
        self._write_spool(CaptureState(self._store.position, last, 0, head, stored.gap))

    def _continue_spool(self, recovered: Recovered) -> None:
        """Check that the spool continues what the store has. Raises OptionError."""
        last, pruned = self._store.uploaded, self._store.stored.pruned_segment
        for name, path in self._pending().items():
            if name in self._store.discarded:
                raise self._does_not_continue()
            if name <= last:
                uploaded = self._store.target / path.name
                if name > pruned and (uploaded.head() is None or digest_of(uploaded) != digest_of(LocalLocation(path))):
                    raise self._does_not_continue()
                path.unlink()
                continue
            if read_head(LocalLocation(path)).parameters.get(PREDECESSOR) != last:
                raise self._does_not_continue()
            last = name
        known = read_state(LocalLocation(self._spool))
        if known is NO_STATE or recovered.last != last:
            raise self._does_not_continue()
        if self._store.position > recovered.position:
            known = known._replace(position=self._store.position, last=last, messages=0)
        self._write_spool(known)

    def _write_spool(self, state: CaptureState) -> None:
        """Write the spool's state, with the snapshots that the store lists and that lack no segment."""
        store = self._store
        kept = complete(store.target, store.stored.snapshots)
        for snapshot in store.stored.snapshots:
            if snapshot not in kept:
                logger.warning(f"{snapshot} does not count, and is removed: segments of it are missing")
        state = state._replace(snapshots=tuple(kept), target=str(store.target), discarded=store.discarded)
        write_state(self._spool, state)

    def _does_not_continue(self) -> OptionError:
        return OptionError(
            f"the spool {self._spool} does not continue the capture in {self._store.target}: another recorder has"
            " written there, or the spool is another capture's. Nothing in the spool that is not uploaded was"
            " acknowledged: name an empty directory with --spool to continue from what is uploaded"
        )

    # -- one attempt -------------------------------------------------------------------------------------------

    def _upload(self, work: Work) -> None:
        with self._lock:
            store = self._store
            if work.segments:
                store.check_owner()
            left = {name: path for name, path in work.segments.items() if name > store.uploaded}
            if left:
                digests = {name: digest_of(LocalLocation(path)) for name, path in left.items()}
                if not digests.items() <= store.announced.items():
                    store.write(announced={**store.announced, **digests})
                position = max([self._put_segment(path) for path in left.values()])
                store.write(position=max(position, store.position), uploaded=max(left), announced={})
                self.uploaded += len(left)
            for path in work.segments.values():
                path.unlink(missing_ok=True)
            if work.idle is not None and work.idle > store.position:
                store.write(position=work.idle)

    def _put_segment(self, path: Path) -> int:
        """Upload a segment and read it back; returns its position."""
        data, target = path.read_bytes(), self._store.target / path.name
        raw, check = SegmentBytes(io.BytesIO(data)), SegmentCheck()
        problem = check.feed_all(raw)
        problem, position = raw.damage or problem, check.position()
        if problem is not None or position is None:
            raise OutputError(f"{path} is damaged, and was not uploaded: {problem}")
        try:
            target.create(data)
        except Conflict:
            pass  # by an earlier attempt whose answer was lost
        if _digest(target) != hashlib.sha256(data).hexdigest():
            self._store.check_owner()
            raise OutputError(f"{target} is not what was uploaded: another program may have written it")
        return position

    def _pending(self) -> dict[str, Path]:
        return self._segments(CLOSED)

    def _segments(self, ending: str) -> dict[str, Path]:
        """The segments of the stream in the spool, by name and in order; not those of snapshots."""
        named = [(SegmentName.of_file(path.name, ending), path) for path in sorted(self._spool.glob(f"*{ending}"))]
        return {str(name): path for name, path in named if name is not None}

    def _report(self, why: str) -> None:
        before = self._progress.target
        self.failures += 1
        self._progress.target = self._progress.failed(time.monotonic() if before is None else before.since, why)
        if why != self._reported:
            self._reported = why
            waiting = self.waiting
            log_trouble(
                f"{why}; trying again. {counted(waiting, 'segment')} in {self._spool} not uploaded yet",
                extra=event("upload_failed", waiting=waiting),
            )


def _digest(place: Location) -> str | None:
    """The SHA-256 of a file; None if another recorder has deleted it. Raises InputError if the store is unavailable."""
    try:
        return digest_of(place)
    except UNAVAILABLE:
        raise
    except InputError:
        return None


@contextlib.contextmanager
def _as_output(target: Location) -> Iterator[None]:
    """Raise OutputError for an InputError that is not temporary: a target must be readable."""
    try:
        yield
    except UNAVAILABLE:
        raise
    except InputError as error:
        raise OutputError(f"cannot record into {target}: {error}") from None
