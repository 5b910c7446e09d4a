"""Writes the segments of tables' snapshots, beside the chain of a capture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pgtail.capture.format import (
    FORMAT,
    NEWEST,
    PREDECESSOR,
    SEGMENT,
    SNAPSHOT,
    SNAPSHOT_CLOSED,
    SNAPSHOT_OPEN,
    TRANSACTION,
    SegmentName,
    SnapshotPart,
    transaction_text,
)
from pgtail.capture.recorder import Rotation
from pgtail.capture.segment import digest_of
from pgtail.capture.state import SnapshotFile
from pgtail.capture.upload import Uploader
from pgtail.capture.writer import SegmentWriter
from pgtail.errors import InputError, OutputError
from pgtail.storage.local import LocalLocation


class SnapshotWriter:
    """Writes the segments of one part of a table's snapshot; several may write side by side, each in its thread.

    `head` has the parameters that describe the frames, `repeated` are the walsender frames with the Types, the Relation
    and the Begin. `first` is the ordinal of the part's first row in the whole snapshot, from 1: the part's block of
    ordinals begins there, and no other part has one of them. `uploader` takes the segments of a capture in an object
    store, one after another as they are closed. Methods raise OutputError.
    """

    def __init__(
        self,
        directory: Path,
        head: Mapping[str, str],
        part: SnapshotPart,
        repeated: Sequence[bytes],
        *,
        first: int,
        rotation: Rotation,
        compress: bool = True,
        uploader: Uploader | None = None,
    ) -> None:
        self._directory = directory
        self._head = head
        self._part = part
        self._repeated = list(repeated)
        self._next = first
        self._rotation = rotation
        self._compress = compress
        self._uploader = uploader
        self._segment: SegmentWriter | None = None
        self._written: list[SnapshotFile] = []
        self.rows = 0

    def add_rows(self, messages: list[bytes], rows: int) -> None:
        """Add Inserts, as the parts of CopyData messages that contain walsender frames."""
        if not rows:
            return
        if self._segment is not None and self._segment.size >= self._rotation.size:
            self._finish()
        segment = self._open()
        if sum(map(len, messages)) >= self._rotation.sync_size:
            segment.flush()  # joined with earlier bytes, large messages would be in memory twice
        segment.add_frames(messages, rows)
        self._next += rows
        self.rows += rows
        if segment.pending >= self._rotation.sync_size:
            segment.flush()

    def finish(self, commit: bytes | None = None) -> tuple[SnapshotFile, ...]:
        """Close the last segment. Returns all segments, in order; none for a part without rows.

        `commit` is the walsender frame that ends the table, for the writer of its last part.
        """
        if commit is not None:
            self._open().add_frame(commit)
        if self._segment is not None:
            self._finish()
        return tuple(self._written)

    def abandon(self) -> None:
        """Remove the segments of the part, open, closed or uploaded, so that another writer can write it again."""
        if self._segment is not None:
            self._segment.abandon()
            self._segment = None
        written, self._written = self._written, []
        for file in written:
            path = self._directory / f"{file.name}{SNAPSHOT_CLOSED}"
            LocalLocation(path).delete()
            if self._uploader is not None:
                self._uploader.remove_snapshot(path.name)

    def _open(self) -> SegmentWriter:
        """The open segment, or the next one."""
        if self._segment is None:
            name = SegmentName(self._part.lsn - 1, self._next)
            segment = SegmentWriter(
                self._directory, name, compress=self._compress, ending=SNAPSHOT_OPEN, closed=SNAPSHOT_CLOSED
            )
            head = {FORMAT: NEWEST, **self._head, SEGMENT: str(name), PREDECESSOR: "", SNAPSHOT: str(self._part)}
            before = self._next - 1
            if before:
                head[TRANSACTION] = transaction_text(before, 0, before)
            segment.start(head, self._repeated)
            self._segment = segment
        return self._segment

    def _finish(self) -> None:
        segment, self._segment = self._segment, None
        assert segment is not None
        segment.finish(self._part.lsn)
        segment.close()
        self._written.append(_described(segment))
        if self._uploader is not None:
            self._uploader.put_snapshot(segment.path)


def _described(segment: SegmentWriter) -> SnapshotFile:
    """A closed segment as capture.json lists it. Raises OutputError."""
    try:
        return SnapshotFile(segment.name, segment.path.stat().st_size, digest_of(LocalLocation(segment.path)))
    except (OSError, InputError) as error:
        raise OutputError(f"cannot read {segment.path} again: {error}") from error
