"""Computes the checksum of a segment's uncompressed bytes, which its last message contains."""

from __future__ import annotations

import hashlib
from typing import Final

from pgtail.capture.format import BEGINNING, WITH_SHA256
from pgtail.files.deflate import crc32

_ENOUGH: Final = len(BEGINNING) + 2
"""Bytes needed to read the format: its number has one digit, and a zero byte follows."""


class Checksum:
    """CRC-32, or SHA-256 in formats 1 and 2; the first bytes contain the format.

    Each gzip member has a CRC-32 of its own. That of the whole also shows that a member is missing or moved, and costs
    a fiftieth of SHA-256 with isal, half of it with zlib.
    """

    def __init__(self) -> None:
        self.format: str | None = None
        """The number of the format; None before enough bytes were added, or if they do not begin a segment."""
        self._beginning = b""
        """The first `_ENOUGH` bytes, or fewer."""
        self._crc = 0
        self._sha256: hashlib._Hash | None = hashlib.sha256()
        """None once the format is known to have a CRC-32."""

    def update(self, data: bytes | memoryview) -> None:
        missing = _ENOUGH - len(self._beginning)
        if missing:
            self._beginning += data[:missing]
            if len(self._beginning) == _ENOUGH:
                if self._beginning.startswith(BEGINNING):
                    self.format = self._beginning[len(BEGINNING) : -1].decode("latin-1")
                if self.format not in WITH_SHA256:
                    self._sha256 = None
        if self._sha256 is not None:
            self._sha256.update(data)
        if self.format not in WITH_SHA256:
            self._crc = crc32(data, self._crc)

    def copy(self) -> Checksum:
        checksum = Checksum()
        checksum.format, checksum._beginning, checksum._crc = self.format, self._beginning, self._crc
        checksum._sha256 = None if self._sha256 is None else self._sha256.copy()
        return checksum

    def hexdigest(self) -> str:
        """8 hexadecimal digits of a CRC-32, 64 of SHA-256."""
        if self._sha256 is None or self.format is None:
            return f"{self._crc:08x}"
        return self._sha256.hexdigest()
