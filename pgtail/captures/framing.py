"""Floor 4, the bytes of a segment: CopyData and ParameterStatus messages (manual: message formats)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from pgtail.errors import Malformed, Truncated

COPY_DATA: Final = ord("d")
PARAMETER_STATUS: Final = ord("S")
HEAD: Final = struct.Struct(">BI")
"""The type byte and the length, which counts itself and not the type byte."""

FORMAT: Final = "pgtail.format"
SEGMENT: Final = "pgtail.segment"
PREDECESSOR: Final = "pgtail.predecessor"
GAP: Final = "pgtail.gap"
"""In the first segment behind a gap: what was committed between these two LSNs is not in the capture."""
TRANSACTION: Final = "pgtail.transaction"
START: Final = "pgtail.start"
POSITION: Final = "pgtail.position"
END: Final = "pgtail.end"
DUMPS: Final = "pgtail.from"
"""Stands in place of slot and server where a capture was made of dumps."""

_MOST_PARAMETER: Final = 64 * 1024
_LENGTH_SIZE: Final = 4


def copy_data(frame: bytes) -> bytes:
    """A walsender frame as a CopyData message."""
    return HEAD.pack(COPY_DATA, len(frame) + _LENGTH_SIZE) + frame


def parameter(name: str, value: str) -> bytes:
    """A ParameterStatus message; in both strings a NUL is left out."""
    body = b"".join([part.replace("\0", "").encode("utf-8", "surrogateescape") + b"\0" for part in (name, value)])
    return HEAD.pack(PARAMETER_STATUS, len(body) + _LENGTH_SIZE) + body


def parameters(pairs: Mapping[str, str]) -> bytes:
    """Several, in order."""
    return b"".join([parameter(name, value) for name, value in pairs.items()])


def read_parameter(body: bytes) -> tuple[str, str]:
    """Name and value of a ParameterStatus message."""
    name, _, rest = body.partition(b"\0")
    value = rest.partition(b"\0")[0]
    return name.decode("utf-8", "surrogateescape"), value.decode("utf-8", "surrogateescape")


class Messages:
    """Cuts bytes, fed piece by piece, into messages; holds no more than one of them and a piece."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._held = self._needed = 0
        self.position = 0
        """Where the next message starts."""

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """(type byte, body) of each message that is whole now. Raises Malformed."""
        self._rest.append(data)
        self._held += len(data)
        if self._held < self._needed:
            return
        buf = b"".join(self._rest)
        pos, end = 0, len(buf)
        self._needed = 0
        try:
            while end - pos >= HEAD.size:
                kind, size = HEAD.unpack_from(buf, pos)
                if size < _LENGTH_SIZE or (kind != COPY_DATA and size > _MOST_PARAMETER):
                    raise Malformed(f"a message of {size} bytes", offset=self.position + 1, field="length")
                stop = pos + 1 + size
                if stop > end:
                    self._needed = stop - pos
                    break
                body = buf[pos + HEAD.size : stop]
                self.position += stop - pos
                pos = stop
                yield kind, body
        finally:
            self._rest, self._held = [buf[pos:]], end - pos

    def finish(self) -> None:
        """There is no more. Raises Truncated where a message is not whole."""
        if self._held:
            raise Truncated("the last message is not whole", offset=self.position)


def gap_in(head: Mapping[str, str]) -> str:
    """Between which LSNs there is a gap before a segment, in words; empty where there is none."""
    start, _, end = head.get(GAP, "").partition(" ")
    return f"between {start} and {end}" if end else ""


def is_gap(words: str) -> bool:
    """Whether that is what gap_in() says, and no segment's name."""
    return " " in words


def head_of(messages: Iterable[tuple[int, bytes]]) -> dict[str, str]:
    """The parameters at the beginning of a segment."""
    found: dict[str, str] = {}
    for kind, body in messages:
        if kind != PARAMETER_STATUS:
            break
        name, value = read_parameter(body)
        if name in found or name == START:
            break
        found[name] = value
    return found
