"""The file `capture.json`: a capture's parameters, the position it has reached, and the snapshots of tables that count.

It has the format of new segments: versions that do not know that format refuse the capture, and do not record more of
it.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from pgtail.capture.format import FORMAT, NEWEST, SegmentName
from pgtail.capture.segment import check_format
from pgtail.errors import InputError, OutputError
from pgtail.files.atomic import replace_file
from pgtail.files.small import MOST
from pgtail.log import logger
from pgtail.pgoutput.scalars import lsn_text, parse_lsn
from pgtail.storage import Location
from pgtail.storage.local import LocalLocation

FILE: Final = "capture.json"
_PLAIN: Final = "1"
"""The format of the oldest files, without snapshots of tables. In it parameters are `head`."""
_SHA256: Final = re.compile("[0-9a-f]{64}")
_MOST_NUMBER: Final = 1 << 64


class Gap(NamedTuple):
    """The capture lacks what was committed between these LSNs, after the segment named `after`."""

    after: str
    start: int
    end: int

    def __str__(self) -> str:
        return f"{lsn_text(self.start)} {lsn_text(self.end)}"


class Pruned(NamedTuple):
    """The capture was pruned: `segment` is the last one that was removed, `position` the LSN up to which it went."""

    segment: str
    position: int

    def shown(self) -> dict[str, str]:
        return {"segment": self.segment, "position": lsn_text(self.position)}


class SnapshotFile(NamedTuple):
    """A closed segment of a snapshot: its name, and the size and SHA-256 (64 hexadecimal digits) of the file."""

    name: SegmentName
    bytes: int
    sha256: str


class TableSnapshot(NamedTuple):
    """The whole copy of a table at the consistent point `lsn` of a slot, made on this timeline.

    `rows` is the number of rows; `segments` has at least one, in the order of names.
    """

    lsn: int
    timeline: int
    relid: int
    schema: str
    table: str
    rows: int
    segments: tuple[SnapshotFile, ...]

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.segments)

    def __str__(self) -> str:
        return f"the snapshot of {self.schema}.{self.table} at {lsn_text(self.lsn)}"


class CaptureState(NamedTuple):
    """Everything up to the LSN `position` is in the capture. `last` is its last segment, empty if there is none.

    `messages` counts the messages of that segment if it was open, without repeated ones. `head` has the parameters of
    segments. `gap` is one that no segment records yet. `snapshots` are in the order of their segments' names. `pruned`
    says where the capture begins, if segments were removed from its start.

    Only in an object store: `uploaded` is the last segment that counts, `writer` identifies the recorder, and
    `announced` are the names and the SHA-256 of the segments that it uploads before they count. Only in a spool:
    `target` is the place that it is uploaded to. In both, `discarded` are names of segments that never count: the
    recorder that announced them may still write them.
    """

    position: int
    last: str
    messages: int
    head: Mapping[str, str]
    gap: Gap | None = None
    uploaded: str | None = None
    writer: str | None = None
    snapshots: tuple[TableSnapshot, ...] = ()
    pruned: Pruned | None = None
    target: str | None = None
    announced: Mapping[str, str] = {}
    discarded: frozenset[str] = frozenset()

    def has(self, segment: str) -> bool:
        """Whether a closed segment of the stream counts if there is a file with this name."""
        if segment <= self.pruned_segment:
            return False
        return (self.uploaded is None or segment <= self.uploaded) and segment not in self.discarded

    @property
    def pruned_segment(self) -> str:
        """The last segment that was removed from its start; empty if none was."""
        return "" if self.pruned is None else self.pruned.segment

    @property
    def counting(self) -> tuple[TableSnapshot, ...]:
        """The snapshots that count: the capture has reached their place."""
        return tuple(one for one in self.snapshots if one.lsn <= self.position)

    def with_snapshots(self, snapshots: Iterable[TableSnapshot]) -> CaptureState:
        """The same with these snapshots, in order. Raises ValueError if they overlap."""
        ordered = tuple(sorted(snapshots, key=lambda one: one.segments[0].name))
        _check_order(ordered)
        return self._replace(snapshots=ordered)

    def with_pruned(self, pruned: Pruned | None) -> CaptureState:
        """The state after pruning: without the snapshots and the names before that point."""
        if pruned is None:
            return self
        kept = tuple(one for one in self.snapshots if str(one.segments[0].name) > pruned.segment)
        discarded = frozenset(name for name in self.discarded if name > pruned.segment)
        return self._replace(snapshots=kept, pruned=pruned, discarded=discarded)


NO_STATE: Final = CaptureState(0, "", 0, {})
"""That of a folder without the file."""


def state_json(now: CaptureState) -> bytes:
    """The content of the file."""
    fields = {name: value for name, value in now._asdict().items() if value is not None}
    fields["position"] = lsn_text(now.position)
    if now.gap is not None:
        fields["gap"] = [now.gap.after, lsn_text(now.gap.start), lsn_text(now.gap.end)]
    if now.pruned is not None:
        fields["pruned"] = now.pruned.shown()
    del fields["snapshots"], fields["discarded"]
    if now.discarded:
        fields["discarded"] = sorted(now.discarded)
    if not now.announced:
        del fields["announced"]
    parameters, snapshots = fields.pop("head"), [_snapshot_json(snapshot) for snapshot in now.snapshots]
    fields = {"format": int(NEWEST), **fields, "parameters": parameters, "snapshots": snapshots}
    return (json.dumps(fields, indent=1) + "\n").encode()


def _snapshot_json(one: TableSnapshot) -> dict[str, Any]:
    segments = [{**segment._asdict(), "name": str(segment.name)} for segment in one.segments]
    return {**one._asdict(), "lsn": lsn_text(one.lsn), "segments": segments}


def write_state(directory: Path, now: CaptureState) -> None:
    """Replace the state, synced. Raises OutputError."""
    path, data = directory / FILE, state_json(now)
    if len(data) > MOST:
        raise OutputError(
            f"cannot write {path}: it would have {len(data)} bytes, more than {MOST}: choose larger segments"
        )
    try:
        replace_file(path, data)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from error


@contextlib.contextmanager
def locked_state(directory: Path) -> Iterator[None]:
    """Lock the state of a local directory: a recorder and `pgtail capture prune` change it.

    Does nothing if there is no file yet: only a recorder creates it. Raises OutputError.
    """
    path = directory / FILE
    try:
        fd = _locked(path)
    except OSError as error:
        raise OutputError(f"cannot lock {path}: {error.strerror}") from error
    try:
        yield
    finally:
        if fd is not None:
            os.close(fd)


def _locked(path: Path) -> int | None:
    """A descriptor of this file, with a lock that others wait for; None if there is no file. Raises OSError."""
    while True:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)  # NFS needs write access for an exclusive lock
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(fd), os.stat(path)):
                return fd
        except FileNotFoundError:
            pass
        except OSError:
            os.close(fd)
            raise
        os.close(fd)  # the owner of the lock has replaced the file


class StateFile:
    """The `capture.json` of a local directory, which this process and `pgtail capture prune` write.

    `now` is the state that was read or written last. The directory must be locked. Threads take turns. With `dry_run`
    changes stay in memory. Methods raise OutputError, reading the file InputError.
    """

    def __init__(self, directory: Path, *, dry_run: bool = False) -> None:
        self._directory = directory
        self._dry_run = dry_run
        self._lock = threading.Lock()
        self.now = read_state(LocalLocation(directory))
        self._note_places()

    def write(self, now: CaptureState) -> None:
        """Replace the state, except for the fields that a Recorder does not set."""
        with self._changing() as known:
            self._replace(
                now._replace(
                    snapshots=known.snapshots, pruned=known.pruned, target=known.target, discarded=known.discarded
                )
            )

    def list_snapshot(self, table: TableSnapshot, head: Mapping[str, str]) -> None:
        """List the copy of a table, which counts when the capture has reached its LSN. Its segments must be synced.

        `head` describes the frames of a capture that has no state yet. The capture must not have reached the LSN, and
        no Recorder may write. Raises OutputError also if the file would be too large, or if the table has ordinals of
        another one.
        """
        with self._changing() as known:
            head = head if known is NO_STATE else known.head
            now = known._replace(head={**head, FORMAT: NEWEST})  # its segments have it, and no older recorder runs
            try:
                listed = now.with_snapshots([*now.snapshots, table])
            except ValueError as error:
                raise OutputError(f"cannot list {table}: {error}") from None
            self._replace(listed)

    def drop(self, why: str, dropped: Callable[[TableSnapshot], bool]) -> None:
        """Unlist the snapshots for which `dropped` returns True, with a warning."""
        if not any(map(dropped, self.now.snapshots)):
            return
        with self._changing() as known:
            removed = "would be removed" if self._dry_run else "is removed"
            for one in filter(dropped, known.snapshots):
                logger.warning(f"{one} does not count, and {removed}: {why}")
            self._replace(known.with_snapshots(one for one in known.snapshots if not dropped(one)))

    @contextlib.contextmanager
    def _changing(self) -> Iterator[CaptureState]:
        """Lock the file, and yield its present state."""
        if self._dry_run:
            yield self.now
            return
        with self._lock, locked_state(self._directory):
            try:
                known = read_state(LocalLocation(self._directory))
            except InputError as error:
                raise OutputError(f"cannot write {self._directory / FILE}: it {error.reason}") from None
            yield self.now if known is NO_STATE else known

    def _replace(self, now: CaptureState) -> None:
        if not self._dry_run:
            write_state(self._directory, now)
        self.now = now
        self._note_places()

    def _note_places(self) -> None:
        self.places = tuple(sorted({one.lsn for one in self.now.snapshots}))
        """The LSNs at which snapshots are listed, each once."""


def read_state(directory: Location) -> CaptureState:
    """The state, NO_STATE if there is no file. Raises InputError if it is damaged."""
    content = (directory / FILE).read()
    return NO_STATE if content is None else parse_state(content[0], str(directory / FILE))


def not_recorded(capture: Location) -> InputError:
    """The error for a capture that has no state."""
    return InputError(f"has no {FILE}: it is not a capture that pgtail record wrote", source=str(capture))


def parse_state(data: bytes, source: str) -> CaptureState:
    """The state in a file's content. Raises InputError if it is damaged, or of an unknown format."""
    try:
        fields = json.loads(data)
        format_ = str(fields.get("format", _PLAIN))
        check_format(format_, source)
        described = fields["head" if format_ == _PLAIN else "parameters"]
        head = {str(name): str(value) for name, value in described.items()}
        gap, pruned = fields.get("gap"), fields.get("pruned")
        return CaptureState(
            parse_lsn(fields["position"]),
            _segment_name(fields["last"]),
            _number(fields["messages"]),
            head,
            None if gap is None else Gap(_segment_name(gap[0]), parse_lsn(gap[1]), parse_lsn(gap[2])),
            None if fields.get("uploaded") is None else _segment_name(fields["uploaded"]),
            None if fields.get("writer") is None else str(fields["writer"]),
            () if format_ == _PLAIN else _parse_snapshots(fields["snapshots"]),
            None if pruned is None else Pruned(_segment_name(pruned["segment"]), parse_lsn(pruned["position"])),
            None if fields.get("target") is None else str(fields["target"]),
            _parse_announced(fields.get("announced", {})),
            frozenset(map(_segment_name, fields.get("discarded", ()))),
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise InputError(
            "is damaged: name the segments (*.pgcap) to read them without it; pgtail record continues if it is removed,"
            " and the capture's slot still has everything since the last segment",
            source=source,
        ) from None


def _parse_snapshots(items: Any) -> tuple[TableSnapshot, ...]:
    """The listed snapshots. Raises ValueError, LookupError, TypeError if they are not as they were written."""
    if not isinstance(items, list):
        raise TypeError(items)
    snapshots = tuple(_parse_snapshot(one) for one in items)
    _check_order(snapshots)
    return snapshots


def _check_order(snapshots: Iterable[TableSnapshot]) -> None:
    """Raise ValueError if the segments of several tables are mixed."""
    names = [segment.name for one in snapshots for segment in one.segments]
    if any(name >= after for name, after in itertools.pairwise(names)):
        raise ValueError("its segments are not in the order of tables")


def _parse_snapshot(fields: Mapping[str, Any]) -> TableSnapshot:
    segments = tuple(_parse_segment(one) for one in fields["segments"])
    lsn = parse_lsn(fields["lsn"])
    if not segments or any(one.name.position != lsn - 1 for one in segments):
        raise ValueError(segments)
    timeline, relid, rows = (_number(fields[name]) for name in ("timeline", "relid", "rows"))
    return TableSnapshot(lsn, timeline, relid, _text(fields["schema"]), _text(fields["table"]), rows, segments)


def _parse_segment(fields: Mapping[str, Any]) -> SnapshotFile:
    name = SegmentName.parse(fields["name"])
    if name is None or _SHA256.fullmatch(fields["sha256"]) is None:
        raise ValueError(fields)
    return SnapshotFile(name, _number(fields["bytes"]), fields["sha256"])


def _parse_announced(digests: Mapping[str, Any]) -> dict[str, str]:
    if not all(isinstance(digest, str) and _SHA256.fullmatch(digest) for digest in digests.values()):
        raise ValueError(digests)
    return {_segment_name(name): digest for name, digest in digests.items()}


def _segment_name(value: Any) -> str:
    """The name of a segment, or an empty text. Raises ValueError for anything else, such as a path."""
    if value != "" and SegmentName.parse(value) is None:
        raise ValueError(value)
    return str(value)


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _MOST_NUMBER:
        raise ValueError(value)
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value
