"""The end of a gzip file: its last members, and where it can be continued: after the last whole one."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from typing import BinaryIO, Final

from pgtail.files import MAGIC
from pgtail.files.deflate import GZIP
from pgtail.files.gunzip import MEMBER, Gunzip, members_to_end
from pgtail.records import NamedTuple

_TAIL: Final = 8 << 20
"""Bytes at the end of a file in which a member is expected to begin."""
_PIECE: Final = 1 << 20


class GzipEnd(NamedTuple):
    """The offset after the last whole member, the last byte of the content up to there (empty: there is none).

    `torn` is how many bytes of an unfinished member follow. `problem` says why the file cannot be continued: it is not
    gzip, or has other damage.
    """

    offset: int
    last: bytes
    torn: int
    problem: str | None


def gzip_end(file: BinaryIO) -> GzipEnd:
    """Find the end of a file that may end inside a member. Reads its last members only, where they are small."""
    size = file.seek(0, io.SEEK_END)
    start = members_to_end(file.read, file.seek, size - _TAIL) or 0 if size > _TAIL else 0
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
        return GzipEnd(size, checked, 0, None)
    offset = start + gunzip.member_at
    if gunzip.cut_off:
        return GzipEnd(offset, checked, size - offset, None)
    file.seek(0)
    is_gzip = file.read(len(MAGIC)) == MAGIC
    return GzipEnd(offset, checked, 0, gunzip.damage if is_gzip else "it is not gzip")


def last_members(tail: bytes) -> Iterator[bytes]:
    """The content of the last members, the last one first, in the bytes at the end of a file that ends with one."""
    stop = at = len(tail)
    while (at := tail.rfind(MEMBER, 0, at)) >= 0:
        content = _whole_member(tail[at:stop])
        if content is not None:
            yield content
            stop = at


def _whole_member(data: bytes) -> bytes | None:
    """The content of one member; None if this is another thing, or more, or less."""
    inflater = zlib.decompressobj(GZIP)
    try:
        content = inflater.decompress(data, _PIECE)
    except zlib.error:
        return None
    return content if inflater.eof and not inflater.unused_data else None
