"""Floor 5, frames on their way from the socket to the output: in one buffer, each behind its length.

This is the framing LENGTHS of wire/decoder.py, which decodes such buffers whole.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

LENGTH: Final = struct.Struct(">I")


def each(frames: bytes) -> Iterator[bytes]:
    """The frames one by one."""
    pos, end = 0, len(frames)
    while pos < end:
        start = pos + LENGTH.size
        pos = start + LENGTH.unpack_from(frames, pos)[0]
        yield frames[start:pos]
