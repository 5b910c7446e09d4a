"""Streaming gzip decompression of any number of members, which reports damage and its offset."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

MAGIC: Final = b"\x1f\x8b"
_MEMBER: Final = MAGIC + b"\x08"
"""How a member begins (RFC 1952): the only method, deflate, is 8."""

_WBITS: Final = 31
"""zlib's code for gzip only."""

_PIECE: Final = 256 * 1024
_TRIAL: Final = 64 * 1024


class Gunzip:
    """Decompresses what `read_raw` returns (at most the given number of bytes, b"" at the end).

    Returns everything before damage, up to the last byte. Then `damage` says what is wrong, and at which offset of the
    compressed bytes.
    """

    def __init__(self, read_raw: Callable[[int], bytes]) -> None:
        self.damage: str | None = None
        self._read_raw = read_raw
        self._waiting = b""
        self._offset = 0
        """Offset of `_waiting` in the compressed bytes."""
        self._member = zlib.decompressobj(_WBITS)
        self._between = True
        self._full = False
        self._feed = _PIECE

    def read(self, limit: int) -> bytes:
        """The next bytes, at most `limit`; b"" at the end and after damage."""
        while self.damage is None:
            if self._between and not self._begin_member():
                return b""
            if not self._waiting and not self._full:
                self._waiting = self._read_raw(_PIECE)
                if not self._waiting:
                    self.damage = f"the gzip data ends inside a member, after {self._offset} bytes of it"
                    return b""
            data = self._step(limit)
            if data:
                return data
        return b""

    def skip_damage(self) -> bool:
        """Continue with the next member that can be decompressed. Returns whether there is one."""
        start = 1
        while True:
            found = self._waiting.find(_MEMBER, start)
            if found < 0:
                keep = max(len(self._waiting) - len(_MEMBER) + 1, 0)
                more = self._read_raw(_PIECE)
                if not more:
                    return False
                self._advance(keep)
                self._waiting += more
                start = 0 if keep else start
            elif self._unwraps(found):
                self._advance(found)
                self.damage, self._between, self._feed = None, True, _PIECE
                return True
            else:
                start = found + 1

    def _begin_member(self) -> bool:
        while len(self._waiting) < len(MAGIC):
            more = self._read_raw(_PIECE)
            if not more:
                break
            self._waiting += more
        if not self._waiting:
            return False
        if not self._waiting.startswith(MAGIC):
            self.damage = f"the gzip data is followed by something else at byte {self._offset}"
            return False
        self._member = zlib.decompressobj(_WBITS)
        self._between = False
        return True

    def _step(self, limit: int) -> bytes:
        """Decompress some of what waits. zlib does not return what precedes an error: retry with smaller pieces."""
        before = self._member.copy()
        given = self._waiting[: self._feed]
        try:
            data = self._member.decompress(given, limit)
        except zlib.error as error:
            self._member = before
            if len(given) <= 1:
                self.damage = f"the gzip data is damaged at byte {self._offset} ({_reason(error)})"
            self._feed = max(len(given) // 16, 1)
            return b""
        self._full = len(data) == limit
        rest = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
        self._advance(len(given) - len(rest))
        if self._member.eof:
            self._between, self._full = True, False
        return data

    def _unwraps(self, position: int) -> bool:
        try:
            return bool(zlib.decompressobj(_WBITS).decompress(self._waiting[position : position + _TRIAL]))
        except zlib.error:
            return False

    def _advance(self, size: int) -> None:
        self._waiting = self._waiting[size:]
        self._offset += size


def _reason(error: zlib.error) -> str:
    return str(error).rpartition(": ")[2]
