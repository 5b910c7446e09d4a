"""Reads segments: their bytes, their parameters, their checksums, and their order in a directory."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final

from pgtail.capture.format import (
    CLOSED,
    END,
    HEAD,
    OPEN,
    PREDECESSOR,
    SEGMENT,
    MessageSplitter,
    SegmentName,
    gap_in,
    read_parameter,
)
from pgtail.capture.segment import SegmentBytes, SegmentFrames
from pgtail.capture.state import read_state
from pgtail.errors import InputError

_TAIL: Final = 512
"""More bytes than the last message of a segment has."""


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """One segment of a directory. `open`: it is not closed yet."""

    path: Path
    name: SegmentName
    open: bool
    predecessor: str | None = None
    """Name of the segment before it, as its parameters say: empty for a capture's first, None if they are damaged or
    were not read."""
    called: str = ""
    """Its own name, as its parameters say."""
    gap: str = ""
    """The gap before it as text (gap_in)."""


def segments(directory: Path) -> list[SegmentFile]:
    """The segments of a capture in the order of the stream; none if nothing was recorded yet.

    Raises InputError if the directory contains no capture or cannot be read.
    """
    try:
        paths = sorted(directory.iterdir())
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(directory)) from None
    named: dict[SegmentName, SegmentFile] = {}
    for path in paths:  # NAME.pgcap sorts before a leftover NAME.pgcap.part
        ending = OPEN if path.name.endswith(OPEN) else CLOSED
        name = SegmentName.parse(path.name.removesuffix(ending))
        if name is not None and path.name.endswith(ending):
            named.setdefault(name, SegmentFile(path, name, ending == OPEN))
    if not named and read_state(directory) is None:
        raise InputError("holds no capture: there is no segment (*.pgcap) in it", source=str(directory))
    return [listed for _, listed in sorted(named.items())]


def refreshed(found: SegmentFile) -> SegmentFile | None:
    """The segment under its present name: a recorder may have closed it, or recovery removed it (None)."""
    if not found.open or found.path.exists():
        return found
    closed = found.path.with_name(f"{found.name}{CLOSED}")
    return replace(found, path=closed, open=False) if closed.exists() else None


def with_head(found: SegmentFile) -> SegmentFile:
    """The segment with what its parameters say."""
    parameters = head(found.path)
    return replace(
        found, predecessor=parameters.get(PREDECESSOR), called=parameters.get(SEGMENT, ""), gap=gap_in(parameters)
    )


def read_messages(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Yield (uncompressed end offset, type byte, body) of each complete message, up to damage of the compression.

    Raises InputError if the file cannot be read, Malformed at bytes that are no message.
    """
    cut = MessageSplitter()
    try:
        with open(path, "rb") as file:
            for piece in SegmentBytes(file):
                for kind, body in cut.feed(piece):
                    yield cut.position, kind, body
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(path)) from None


def head(path: Path) -> dict[str, str]:
    """The parameters at the beginning of a segment; if that is damaged, those that can be read."""
    try:
        with open(path, "rb") as file:
            frames = SegmentFrames(file, str(path))
            with contextlib.suppress(InputError):
                frames.read_head()
            return frames.head.parameters
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(path)) from None


def last_head(directory: Path) -> Mapping[str, str]:
    """The parameters of a capture's last segment; empty if there is none."""
    known = read_state(directory)
    if known is not None:
        return known.head
    paths = sorted(directory.glob(f"*{CLOSED}"))
    return head(paths[-1]) if paths else {}


def check(path: Path) -> str | None:
    """What is wrong with a closed segment; None if every byte is as it was written."""
    try:
        with open(path, "rb") as file:
            return check_file(file)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(path)) from None


def check_file(file: BinaryIO) -> str | None:
    """As check(), of an open file."""
    raw, found = SegmentBytes(file), SegmentCheck()
    for piece in raw:
        found.feed(piece, found.size)
    return raw.damage or found.problem()


class SegmentCheck:
    """Checks the uncompressed bytes of a closed segment: its last message has the size and SHA-256 of all before it."""

    def __init__(self) -> None:
        self.size = 0
        """How many bytes were given."""
        self._digest = hashlib.sha256()
        self._tail = b""
        """The last bytes, which are not in the digest."""

    def feed(self, data: bytes, offset: int) -> None:
        """The bytes at an offset; what was given before is left out."""
        if offset < self.size:
            data = data[self.size - offset :]
        self.size += len(data)
        if len(data) < _TAIL:
            data = self._tail + data
        else:
            self._digest.update(self._tail)
        self._digest.update(memoryview(data)[:-_TAIL])
        self._tail = data[-_TAIL:]

    def problem(self) -> str | None:
        """What is wrong; None if every byte is as it was written."""
        tail, digest = self._tail, self._digest.copy()
        start = tail.rfind(END.encode() + b"\0")
        if start < 0:
            return "the end is missing: it was cut off, or is still being written"
        _, value = read_parameter(tail[start:])
        message = start - HEAD.size
        digest.update(tail[:message])
        if value.split(" ")[1:] != [str(self.size - len(tail) + message), digest.hexdigest()]:
            return "its checksum is wrong: a part is missing, damaged or moved"
        return None
