"""Finds the segment of a capture with which to start for what was committed from a point on."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from pgtail.capture.reader import SegmentFile
from pgtail.capture.segment import SegmentFrames
from pgtail.changes.commit_range import MARGIN
from pgtail.errors import InputError
from pgtail.pgoutput.decoder import XLOG_HEADER_SIZE
from pgtail.pgoutput.kinds import TAGS
from pgtail.pgoutput.scalars import Point
from pgtail.pgoutput.transaction import Begin
from pgtail.pgoutput.two_phase import BeginPrepare
from pgtail.storage import Location

_TIMES: Final = {TAGS[Begin]: struct.Struct(">34xq"), TAGS[BeginPrepare]: struct.Struct(">42xq")}
"""The time in a frame with Begin or Begin Prepare."""
_TAG: Final = XLOG_HEADER_SIZE
"""The offset of a message's tag in its frame."""


def first_segment(listed: Sequence[SegmentFile], since: Point) -> int:
    """The index of a segment that no segment with such transactions comes before.

    For a time it opens about log2 of the number of segments. The first transaction of that segment was committed at
    least MARGIN before `since`, so all before it were committed before `since`.
    """
    if since.lsn is not None:
        earlier = [index for index, found in enumerate(listed) if found.name.position < since.lsn]
        return earlier[-1] if earlier else 0
    if since.time is None:
        return 0
    low, high = 0, len(listed)
    while high - low > 1:
        middle = place = (low + high) // 2
        while place < high and (time := first_time(listed[place].location)) is None:
            place += 1
        if place < high and time is not None and time < since.time - MARGIN:
            low = place
        else:
            high = middle
    return low


def first_time(segment: Location) -> int | None:
    """The commit time of a segment's first transaction; None if it has none, or if it is damaged before that."""
    try:
        with segment.open() as file:
            frames = SegmentFrames(file, str(segment))
            for start, stop in frames:
                layout = _TIMES.get(frames.buf[start + _TAG]) if stop > start + _TAG else None
                if layout is not None and stop - start >= layout.size:
                    return int(layout.unpack_from(frames.buf, start)[0])
    except InputError:
        pass
    return None
