"""Floor 4, segments as they lie in a directory: bytes, heads, whether they are whole and follow each other."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final

from pgtail.captures.framing import END, PREDECESSOR, SEGMENT, Messages, gap_in, head_of, read_parameter
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
    predecessor: str | None = None
    """The segment that stands before it, by its own word: empty for a capture's first one, None where it is damaged."""
    called: str = ""
    """How it calls itself."""
    gap: str = ""
    """Between which LSNs there is a gap before it, in words."""


def segments(directory: Path) -> list[Found]:
    """The segments of a capture; none where nothing was recorded yet.

    Raises InputError where the directory holds no capture or cannot be read.
    """
    try:
        paths = sorted(directory.iterdir())
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(directory)) from None
    named: dict[SegmentName, Found] = {}
    for path in paths:  # a closed one comes before what is left of it while it was open
        ending = OPEN if path.name.endswith(OPEN) else CLOSED
        name = SegmentName.parse(path.name.removesuffix(ending))
        if name is not None and path.name.endswith(ending):
            named.setdefault(name, Found(path, name, ending == OPEN))
    if not named and remembered(directory) is None:
        raise InputError("holds no capture: there is no segment (*.pgcap) in it", source=str(directory))
    return [_with_head(found) for _, listed in sorted(named.items()) if (found := settled(listed)) is not None]


def settled(found: Found) -> Found | None:
    """The same segment, which may have been closed meanwhile; None where it was cut back to nothing."""
    if not found.open or found.path.exists():
        return found
    closed = found.path.with_name(f"{found.name}{CLOSED}")
    return replace(found, path=closed, open=False) if closed.exists() else None


def _with_head(found: Found) -> Found:
    parameters = head(found.path)
    return replace(
        found, predecessor=parameters.get(PREDECESSOR), called=parameters.get(SEGMENT, ""), gap=gap_in(parameters)
    )


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


def last_head(directory: Path) -> Mapping[str, str]:
    """How the frames of a capture are made; empty where nothing tells."""
    known = remembered(directory)
    if known is not None:
        return known.head
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
