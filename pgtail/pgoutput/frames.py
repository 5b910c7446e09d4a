"""Where frames start and end in a buffer, for each framing."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from pgtail.pgoutput.cursor import MAX_LENGTH, Buffer

SEPARATED: Final = 0
"""Framing: bare messages, each followed by a newline."""
LENGTHS: Final = 4
"""Framing: walsender frames, each after an int32 length that does not count itself."""
COPY_DATA: Final = 5
"""Framing: walsender frames in CopyData, each after a byte `d` and an int32 length that counts itself."""

LENGTH: Final = struct.Struct(">I")

MOST: Final = MAX_LENGTH + 1024
"""The longest frame in bytes: the server builds it in one buffer of at most MaxAllocSize bytes."""


def bounds(buf: Buffer, pos: int, framing: int = LENGTHS) -> tuple[int, int]:
    """Where the frame whose head is at `pos` starts and ends; for LENGTHS and COPY_DATA. Raises struct.error."""
    start = pos + framing
    size: int = LENGTH.unpack_from(buf, start - LENGTH.size)[0]
    return start, start + size - (LENGTH.size if framing == COPY_DATA else 0)


def head(size: int, framing: int) -> bytes:
    """The bytes before a frame of `size` bytes; for LENGTHS and COPY_DATA."""
    return LENGTH.pack(size) if framing == LENGTHS else b"d" + LENGTH.pack(size + LENGTH.size)


def walk(buf: Buffer, pos: int = 0, framing: int = LENGTHS) -> Iterator[tuple[int, int]]:
    """The bounds of every frame from `pos` to the end of the buffer."""
    end = len(buf)
    while pos < end:
        start, pos = bounds(buf, pos, framing)
        yield start, pos


def each(frames: bytes) -> Iterator[bytes]:
    """The frames of a buffer with framing LENGTHS."""
    for start, stop in walk(frames):
        yield frames[start:stop]
