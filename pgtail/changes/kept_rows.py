"""Undecoded row messages of stream segments, buffered until their transaction ends."""

from __future__ import annotations

from typing import Final, NamedTuple

from pgtail.native import compiled
from pgtail.pgoutput.cursor import Buffer

_CHUNK: Final = 256 * 1024
"""The approximate number of bytes in one KeptRows."""


class KeptRows(NamedTuple):
    """Row messages of one (sub)transaction, as walsender frames with framing LENGTHS.

    `tables` are the OIDs of their tables, each with the version at that point (Relation.version).
    """

    frames: bytes
    tables: tuple[tuple[int, int], ...]


def rows_of_one(buf: Buffer, pos: int, end: int, framing: int) -> tuple[int, bytes, int, tuple[int, ...], int]:
    """Collect the row messages from `pos` on that belong to one (sub)transaction, inside a stream segment.

    Returns where the first other message starts, the frames of the rows, their xid, the OIDs of their tables,
    and their number.
    Incomplete, large and unusual messages are not collected, and none without the compiled scanner: they must be
    decoded.
    """
    fast = compiled()
    if fast is None:
        return pos, b"", 0, (), 0
    found: tuple[int, bytes, int, tuple[int, ...], int] = fast.rows_of_one(buf, pos, end, framing, _CHUNK)
    return found
