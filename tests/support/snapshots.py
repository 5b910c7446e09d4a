"""Makes snapshots of tables in captures, of rows that a test knows."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pgtail.capture.format import SnapshotPart, copy_data
from pgtail.capture.recorder import Rotation
from pgtail.capture.snapshot_writer import SnapshotWriter
from pgtail.capture.state import SnapshotFile, TableSnapshot
from pgtail.capture.upload import Uploader
from tests.support import encode

HEAD = {"pgtail.slot": "s", "pgtail.timeline": "1", "client_encoding": "UTF8"}
TINY = Rotation(size=600, sync_size=200)
"""So small that a few rows fill a segment."""


def frame(message: bytes, lsn: int) -> bytes:
    """A frame of a snapshot at an LSN."""
    return b"w" + struct.pack(">QQq", lsn - 1, lsn, 0) + message


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
                writer.add([copy_data(frame(encode.insert(*row, oid=self.relid), lsn))], 1)
            last = number == len(self.parts) - 1
            found += writer.finish(frame(encode.commit(lsn - 1, lsn), lsn) if last else None)
            first += len(rows) + 3  # a block may be larger than its part
        return TableSnapshot(lsn, 1, self.relid, "public", self.name, len(self.rows), tuple(found)), first


def write_all(
    directory: Path, tables: Sequence[Table], lsn: int, rotation: Rotation = TINY, uploader: Uploader | None = None
) -> list[TableSnapshot]:
    """Write the segments of several tables at an LSN."""
    found, first = [], 1
    for table in tables:
        snapshot, first = table.write(directory, lsn, first, rotation, uploader)
        found.append(snapshot)
    return found


def transaction(lsn: int, *rows: tuple[str, str], relid: int = 100, name: str = "stream") -> list[bytes]:
    """The frames of a transaction of the stream that inserts these rows; its commit ends 8 bytes after `lsn`."""
    inserts = [encode.insert(*row, oid=relid) for row in rows]
    messages = encode.begin(lsn, lsn), encode.relation(relid, name), *inserts, encode.commit(lsn, lsn + 8)
    return [encode.frame(message, lsn) for message in messages]
