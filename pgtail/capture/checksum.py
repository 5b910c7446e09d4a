"""The checksum of a segment's uncompressed bytes, which its last message has."""

from __future__ import annotations

import hashlib
from typing import Final

from pgtail.capture.format import BEGINNING, WITH_SHA256
from pgtail.files.deflate import crc32

_ENOUGH: Final = len(BEGINNING) + 2
"""How many bytes tell the format: its number has one digit, and a zero byte follows."""


class Checksum:
    """CRC-32, and SHA-256 in formats 1 and 2: the first bytes say which.

    Each gzip member has a CRC-32 of its own. That of the whole also shows that a member is missing or moved, and costs
    a fiftieth of SHA-256 with isal, half of it with zlib.
    """

    def __init__(self) -> None:
        self.format: str | None = None
        """The number of the format; None until enough bytes were given, or if they are not the first of a segment."""
        self._beginning: bytes | None = b""
        """What was given so far, as long as that is too short to tell the format."""
        self._crc = 0
        self._sha256: hashlib._Hash | None = None

    def update(self, data: bytes | memoryview) -> None:
        """Add the next bytes."""
        if self._beginning is not None:
            data = self._beginning + bytes(data) if self._beginning or len(data) < _ENOUGH else data
            if len(data) < _ENOUGH:
                self._beginning = bytes(data)
                return
            self._beginning, first = None, bytes(data[:_ENOUGH])
            if first.startswith(BEGINNING):
                self.format = first[len(BEGINNING) : -1].decode("latin-1")
            if self.format in WITH_SHA256:
                self._sha256 = hashlib.sha256()
        if self._sha256 is None:
            self._crc = crc32(data, self._crc)
        else:
            self._sha256.update(data)

    def copy(self) -> Checksum:
        """Another one of the same bytes."""
        found = Checksum()
        found.format, found._beginning, found._crc = self.format, self._beginning, self._crc
        found._sha256 = None if self._sha256 is None else self._sha256.copy()
        return found

    def hexdigest(self) -> str:
        """8 hexadecimal digits of a CRC-32, 64 of SHA-256."""
        if self._sha256 is None:
            return f"{crc32(self._beginning or b'', self._crc):08x}"
        return self._sha256.hexdigest()
