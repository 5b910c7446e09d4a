"""Where a gzip file can be continued: after its last whole member."""

from __future__ import annotations

import io
from typing import BinaryIO, Final, NamedTuple

from pgtail.files.gunzip import MAGIC, MEMBER, Gunzip

_TAIL: Final = 8 << 20
"""Bytes at the end of a file in which a member is expected to begin."""
_PIECE: Final = 1 << 20


class GzipEnd(NamedTuple):
    """The offset after the last whole member, the last byte of the content up to there (empty: there is none).

    `problem` says why the file cannot be continued: it is not gzip, or has damage other than an unfinished member.
    """

    offset: int
    last: bytes
    problem: str | None


def gzip_end(file: BinaryIO) -> GzipEnd:
    """Find the end of a file that may end inside a member. Reads its last members only, where they are small."""
    size = file.seek(0, io.SEEK_END)
    start = _member_near(file, max(size - _TAIL, 0))
    file.seek(start)
    gunzip = Gunzip(file.read, lambda offset: file.seek(start + offset))
    total, last, checked = 0, b"", b""
    while True:
        data = gunzip.read(_PIECE)
        if gunzip.checked == total:
            checked = last
        if not data:
            break
        total, last = total + len(data), data[-1:]
    gunzip.close()
    if gunzip.damage is None:
        return GzipEnd(size, checked, None)
    offset = start + gunzip.member_at
    file.seek(offset)
    torn = gunzip.cut_off or file.read(len(MAGIC)) == MAGIC[: size - offset] != MAGIC
    return GzipEnd(offset, checked, None if torn else gunzip.damage if offset else "it is not gzip")


def _member_near(file: BinaryIO, offset: int) -> int:
    """Where the first whole member after an offset begins; 0 if there is none."""
    if offset == 0:
        return 0
    file.seek(offset)
    tail = file.read()
    at = tail.find(MEMBER)
    while at >= 0:
        rest = io.BytesIO(tail[at:])
        gunzip = Gunzip(rest.read, rest.seek)
        while not gunzip.checked and gunzip.read(_PIECE):
            pass
        if gunzip.checked:
            return offset + at
        at = tail.find(MEMBER, at + 1)
    return 0
