"""Streaming gzip decompression of any number of members, which reports damage and its offset."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

from pgtail.files.deflate import ExactInflater, InflateErrors, Inflater, fast_inflater

MAGIC: Final = b"\x1f\x8b"
_MEMBER: Final = MAGIC + b"\x08"
"""How a member begins (RFC 1952): the only method, deflate, is 8."""

_PLAIN: Final = (_MEMBER + b"\0", _MEMBER + b"\x08")
"""The beginning of a member whose header has nothing more, or a file name: isal may misread others."""

_PIECE: Final = 1 << 20
_SMALL: Final = 8 * 1024
"""More bytes than a member's header has."""
_TRIAL: Final = 64 * 1024


class Gunzip:
    """Decompresses what `read_raw` returns (at most the given number of bytes, b"" at the end).

    Returns everything before damage, up to the last byte. Then `damage` says what is wrong, and at which offset of the
    compressed bytes. With `rewind`, which makes read_raw() continue at an offset, it uses the faster library and
    decompresses only a damaged member with zlib.
    """

    def __init__(self, read_raw: Callable[[int], bytes], rewind: Callable[[int], object] | None = None) -> None:
        self.damage: str | None = None
        self._read_raw = read_raw
        self._rewind = rewind
        self._waiting = b""
        self._base = 0
        """Offset of `_waiting` in the compressed bytes."""
        self._used = 0
        """Bytes of `_waiting` that were decompressed."""
        self._member: Inflater | None = None
        self._began = self._returned = self._skip = 0
        """Of the member: its offset, how many bytes of it were returned, and how many to skip."""
        self._feed = self._last = _PIECE
        """Compressed bytes to decompress at a time; the compressed size of the last member."""

    @property
    def _offset(self) -> int:
        return self._base + self._used

    def read(self, limit: int) -> bytes:
        """The next bytes, at most `limit`; b"" at the end and after damage."""
        while self.damage is None:
            member = self._member or self._begin_member()
            if member is None:
                return b""
            if member.needs_input and self._used == len(self._waiting) and not self._more():
                self._cut_off(member)
                continue
            data = self._step(member, limit)
            if data:
                return data
        return b""

    def skip_damage(self) -> bool:
        """Continue with the next member that can be decompressed. Returns whether there is one."""
        self._used += 1
        while True:
            found = self._waiting.find(_MEMBER, self._used)
            if found < 0:
                self._used = max(len(self._waiting) - len(_MEMBER) + 1, self._used)
                if not self._more():
                    return False
            else:
                self._used = found
                self._ahead(_TRIAL)
                if self._unwraps():
                    self._member = self.damage = None
                    return True
                self._used += 1

    def _ahead(self, size: int) -> None:
        """Have this many bytes that are not used yet, or all there are."""
        while len(self._waiting) - self._used < size and self._more():
            pass

    def _more(self) -> bool:
        """Read more, after what is not used yet. Returns whether there was any."""
        more = self._read_raw(_PIECE)
        self._base, rest = self._offset, self._waiting[self._used :]
        self._waiting, self._used = rest + more, 0
        return bool(more)

    def _begin_member(self) -> Inflater | None:
        self._ahead(len(MAGIC) if self._rewind is None else _SMALL)
        if self._used == len(self._waiting):
            return None
        if not self._waiting.startswith(MAGIC, self._used):
            self.damage = f"the gzip data is followed by something else at byte {self._offset}"
            return None
        # A library copies what it does not use: give it not much more than the last member needed.
        self._feed = min(max(2 * self._last, _SMALL), _PIECE)
        self._began, self._returned = self._offset, 0
        plain = self._rewind is not None and self._waiting[self._used : self._used + 4] in _PLAIN
        self._member = (fast_inflater() if plain else None) or ExactInflater()
        return self._member

    def _step(self, member: Inflater, limit: int) -> bytes:
        """Decompress some of what waits."""
        given = memoryview(self._waiting)[self._used : self._used + self._feed]
        try:
            data = member.decompress(given, limit)
        except InflateErrors as error:
            if not isinstance(member, ExactInflater):
                self._begin_again()
            elif len(given) > 1:
                self._feed = len(given) // 16 or 1
            else:
                self.damage = f"the gzip data is damaged at byte {self._offset} ({_reason(error)})"
            return b""
        self._used += len(given) - len(member.unused_data)
        if member.eof:
            self._member, self._last = None, self._offset - self._began
        if self._skip:
            data, self._skip = data[self._skip :], max(self._skip - len(data), 0)
        self._returned += len(data)
        return data

    def _cut_off(self, member: Inflater) -> None:
        if isinstance(member, ExactInflater):
            self.damage = f"the gzip data ends inside a member, after {self._offset} bytes of it"
        else:
            self._begin_again()  # isal may have kept the last byte

    def _begin_again(self) -> None:
        """Decompress the member exactly, and skip what was returned of it."""
        assert self._rewind is not None
        self._rewind(self._began)
        self._waiting, self._base, self._used = b"", self._began, 0
        self._member, self._skip = ExactInflater(), self._returned

    def _unwraps(self) -> bool:
        try:
            return bool(ExactInflater().decompress(self._waiting[self._used : self._used + _TRIAL], _TRIAL))
        except zlib.error:
            return False


def _reason(error: Exception) -> str:
    return str(error).rpartition(": ")[2]
