"""Floor 4, segments as they lie in a directory: bytes, heads, whether they are whole and follow each other."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from pgtail.captures.framing import END, PREDECESSOR, Messages, head_of, read_parameter
from pgtail.captures.names import CLOSED, OPEN, SegmentName
from pgtail.captures.position import remembered
from pgtail.errors import InputError
from pgtail.inputs.gunzip import MAGIC, Gunzip

PIECE: Final = 256 * 1024
"""Bytes that are held at a time."""
_TAIL: Final = 512
"""More than the last message of a segment has."""


class Unwrapped:
    """The raw bytes of a segment, from a binary file; `damage` says why they ended early, None where they did not."""

    def __init__(self, file: BinaryIO) -> None:
        start = file.read(len(MAGIC))
        first = [start]

        def read(size: int) -> bytes:
            return first.pop() + file.read(size - len(start)) if first else file.read(size)

        self._gunzip = Gunzip(read) if start == MAGIC else None
        self._read: Callable[[int], bytes] = read if self._gunzip is None else self._gunzip.read

    def __iter__(self) -> Iterator[bytes]:
        while piece := self._read(PIECE):
            yield piece

    @property
    def damage(self) -> str | None:
        return None if self._gunzip is None else self._gunzip.damage


@dataclass(frozen=True, slots=True)
class Found:
    """One segment of a directory, in the order of the stream. `open` where it is not closed."""

    path: Path
    name: SegmentName
    open: bool
    missing: str = field(default="")
    """The segment that should stand before it and is not there."""


def segments(directory: Path) -> list[Found]:
    """The segments of a capture. Raises InputError where the directory holds none or cannot be read."""
    try:
        paths = sorted(directory.iterdir())
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(directory)) from None
    named = [
        (name, path, path.name.endswith(OPEN))
        for path in paths
        if (name := SegmentName.parse(path.name.removesuffix(OPEN).removesuffix(CLOSED))) is not None
        and path.name.endswith((OPEN, CLOSED))
    ]
    if not named:
        raise InputError("holds no capture: there is no segment (*.pgcap) in it", source=str(directory))
    found: list[Found] = []
    before = None
    for name, path, is_open in sorted(named):
        predecessor = head(path).get(PREDECESSOR, "")
        missing = predecessor if before is not None and predecessor != before else ""
        found.append(Found(path, name, is_open, missing))
        before = str(name)
    return found


def lost_end(directory: Path, found: list[Found]) -> str | None:
    """What is missing behind the last segment: its name, or None."""
    last = remembered(directory).last
    return last if last and last > str(found[-1].name) else None


def walk(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """(raw offset behind it, type byte, body) of each whole message of a segment, as far as it is not damaged.

    Raises InputError where it cannot be read, Malformed where what stands there is no message.
    """
    cut = Messages()
    try:
        with open(path, "rb") as file:
            for piece in Unwrapped(file):
                for kind, body in cut.feed(piece):
                    yield cut.position, kind, body
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(path)) from None


def head(path: Path) -> dict[str, str]:
    """The parameters at the beginning of a segment; those that can be read where it is damaged there."""
    try:
        with open(path, "rb") as file:
            return read_head(file)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(path)) from None


def last_head(directory: Path) -> dict[str, str]:
    """The head of a directory's last closed segment; empty where there is none."""
    paths = sorted(directory.glob(f"*{CLOSED}"))
    return head(paths[-1]) if paths else {}


def read_head(file: BinaryIO) -> dict[str, str]:
    """The same of an open file."""
    cut = Messages()
    try:
        return head_of(message for piece in Unwrapped(file) for message in cut.feed(piece))
    except InputError:
        return {}


def check(path: Path) -> str | None:
    """What is wrong with a closed segment: None where every byte of it is as it was written."""
    try:
        with open(path, "rb") as file:
            return check_file(file)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(path)) from None


def check_file(file: BinaryIO) -> str | None:
    """The same of an open file: every byte before the end is counted and hashed, as the end says."""
    raw = Unwrapped(file)
    digest, size, tail = hashlib.sha256(), 0, b""
    for piece in raw:
        tail += piece
        if len(tail) > _TAIL:
            digest.update(tail[:-_TAIL])
            size += len(tail) - _TAIL
            tail = tail[-_TAIL:]
    if raw.damage is not None:
        return raw.damage
    start = tail.rfind(END.encode() + b"\0")
    if start < 0:
        return "the end is missing: it was cut off, or is still being written"
    _, value = read_parameter(tail[start:])
    digest.update(tail[: start - _HEAD])
    size += start - _HEAD
    words = value.split(" ")
    if words[1:] != [str(size), digest.hexdigest()]:
        return "its bytes are not those that were written: a part is missing, damaged or moved"
    return None


_HEAD: Final = 5
"""The type byte and the length before a message's body."""
