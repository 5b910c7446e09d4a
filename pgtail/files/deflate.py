"""One gzip member, compressed and decompressed, and CRC-32: with isal where it is installed, else with zlib.

isal is faster, most of all for CRC-32.
"""

from __future__ import annotations

import zlib
from typing import Any, Final, Protocol, cast

try:
    from isal import igzip_lib as _igzip_lib
    from isal import isal_zlib
except ImportError:  # there are not wheels for every platform
    igzip_lib: Any = None
    crc32 = zlib.crc32
else:
    igzip_lib, crc32 = _igzip_lib, isal_zlib.crc32

GZIP: Final = 31
"""zlib's code for the gzip format."""


class Inflater(Protocol):
    """Decompresses one member, given piece by piece.

    `needs_input`: the next call must bring more bytes. `unused_data` is the end of what was given and not used: give it
    again, or after `eof` to the next one.
    """

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes | memoryview, max_length: int, /) -> bytes: ...


class ExactInflater:
    """An Inflater that returns everything before damage, and finds its first byte; uses zlib.

    If decompress() raises zlib.error, it may be called again, with less.
    """

    def __init__(self) -> None:
        self.needs_input = True
        self._zlib = zlib.decompressobj(GZIP)

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data if self._zlib.eof else self._zlib.unconsumed_tail

    def decompress(self, data: bytes | memoryview, max_length: int, /) -> bytes:
        before = self._zlib.copy()  # zlib does not return what precedes an error
        try:
            output = self._zlib.decompress(data, max_length)
        except zlib.error:
            self._zlib = before
            raise
        self.needs_input = len(output) < max_length
        return output


InflateErrors: Final[tuple[type[Exception], ...]] = (
    (zlib.error,) if igzip_lib is None else (zlib.error, igzip_lib.error)
)
"""What decompress() raises."""


def fast_inflater() -> Inflater | None:
    """An Inflater that does not return what precedes damage; None where isal is missing."""
    return None if igzip_lib is None else cast(Inflater, igzip_lib.IgzipDecompressor(igzip_lib.DECOMP_GZIP))


def compress(data: bytes | memoryview) -> bytes:
    """One member. Both ways give the same size within a few percent; higher levels are slower than a server sends."""
    return zlib.compress(data, 1, GZIP) if igzip_lib is None else igzip_lib.compress(data, 2, igzip_lib.COMP_GZIP)
