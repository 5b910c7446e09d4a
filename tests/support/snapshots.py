"""Makes snapshots of tables in captures, of rows that a test knows."""

from __future__ import annotations

import contextlib
import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pgtail.capture.format import SnapshotPart, copy_data
from pgtail.capture.reader import segments
from pgtail.capture.recorder import Rotation
from pgtail.capture.segment import SegmentFrames
from pgtail.capture.snapshot_writer import SnapshotWriter
from pgtail.capture.state import SnapshotFile, TableSnapshot
from pgtail.capture.upload import Uploader
from pgtail.errors import DecodeError
from pgtail.storage import Location
from tests.support import encode

HEAD = {"pgtail.slot": "s", "pgtail.timeline": "1", "client_encoding": "UTF8"}
TINY = Rotation(size=600, sync_size=200)
"""So small that a few rows fill a segment."""


def frame(message: bytes, lsn: int) -> bytes:
    """A frame of a snapshot at an LSN."""
    return b"w" + struct.pack(">QQq", lsn - 1, lsn, 0) + message


_ROOM = 3
"""Ordinals of each part's block that no row has."""


@dataclass
class Table:
    """A table, and the rows in each part of its copy."""

    relid: int
    name: str
    parts: list[list[tuple[str, str]]]

    @classmethod
    def random(cls, rng: random.Random, number: int) -> Table:
        """A table with up to four parts, of which some have no row."""
        keys = iter(range(1000))
        parts = [
            [(str(next(keys)), rng.choice("ab") * rng.randrange(90)) for _ in range(rng.choice([0, 1, 5, 25]))]
            for _ in range(rng.randrange(1, 5))
        ]
        return cls(16384 + number, f"t{number}", parts)

    @property
    def rows(self) -> list[tuple[str, str]]:
        return [row for part in self.parts for row in part]

    def repeated(self, lsn: int) -> list[bytes]:
        """The frames at the beginning of each segment."""
        relation = encode.relation(self.relid, self.name)
        return [frame(message, lsn) for message in (relation, encode.begin(0, lsn - 1))]

    def write(
        self, directory: Path, lsn: int, first: int, rotation: Rotation = TINY, uploader: Uploader | None = None
    ) -> tuple[TableSnapshot, int]:
        """Write its segments; returns what lists them, and the first ordinal of the next table."""
        found: list[SnapshotFile] = []
        for number, rows in enumerate(self.parts):
            part = SnapshotPart(lsn, self.relid, number)
            repeated = self.repeated(lsn)
            writer = SnapshotWriter(directory, HEAD, part, repeated, first=first, rotation=rotation, uploader=uploader)
            for row in rows:
                writer.add_rows([copy_data(frame(encode.insert(*row, oid=self.relid), lsn))], 1)
            last = number == len(self.parts) - 1
            found += writer.finish(frame(encode.commit(lsn - 1, lsn), lsn) if last else None)
            first += len(rows) + _ROOM
        return TableSnapshot(lsn, 1, self.relid, "public", self.name, len(self.rows), tuple(found)), first


def write_all(
    directory: Path, tables: Sequence[Table], lsn: int, rotation: Rotation = TINY, uploader: Uploader | None = None
) -> list[TableSnapshot]:
    """Write the segments of several tables at an LSN."""
    found: list[TableSnapshot] = []
    first = 1
    for table in tables:
        snapshot, first = table.write(directory, lsn, first, rotation, uploader)
        found.append(snapshot)
    return found


def ordinals(tables: Sequence[Table]) -> list[int]:
    """The ordinal of each row that write_all() gives it."""
    found: list[int] = []
    first = 1
    for rows in (rows for table in tables for rows in table.parts):
        found += range(first, first + len(rows))
        first += len(rows) + _ROOM
    return found


def transaction(lsn: int, *rows: tuple[str, str], described: bool = True) -> list[bytes]:
    """The frames of a transaction of the stream that inserts these rows; its commit ends 8 bytes after `lsn`.

    `described`: it has the Relation of their table, as the first one does.
    """
    relation = [encode.relation(100, "stream")] if described else []
    inserts = [encode.insert(*row) for row in rows]
    messages = encode.begin(lsn, lsn), *relation, *inserts, encode.commit(lsn, lsn + 8)
    return [encode.frame(message, lsn) for message in messages]


def contents(capture: Location) -> list[tuple[int, bytes]]:
    """The changes that a reader gets of a capture: the commit LSN of each and its message, in order."""
    found: list[tuple[int, bytes]] = []
    commit_lsn = 0
    for segment in segments(capture):
        with segment.location.open() as file, contextlib.suppress(*[DecodeError] * segment.open):
            frames = SegmentFrames(file, str(segment.location), closed=not segment.open)
            for start, stop in frames:
                message = frames.buf[start + 25 : stop]
                if message[:1] == b"B":
                    (commit_lsn,) = struct.unpack_from(">Q", message, 1)
                elif message[:1] == b"I" and frames.head.own:
                    found.append((commit_lsn, message))
    return found


def expected(tables: Sequence[Table], lsn: int) -> list[tuple[int, bytes]]:
    """What contents() has of the snapshots of these tables."""
    return [(lsn - 1, encode.insert(*row, oid=table.relid)) for table in tables for row in table.rows]
