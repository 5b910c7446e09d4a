"""One line per frame sent or received, for -vv; decodes headers only."""

from __future__ import annotations

from pgtail.errors import DecodeError
from pgtail.pgoutput.cursor import Cursor
from pgtail.pgoutput.kinds import MESSAGES
from pgtail.pgoutput.scalars import lsn_text, time_text
from pgtail.pgoutput.walsender import Keepalive, StandbyStatusUpdate, XLogData


def received(frame: bytes) -> str:
    """A received frame: w and k with their fields, w with the kind of its message."""
    cursor = Cursor(frame, 1)
    try:
        if frame[:1] == b"w":
            data = XLogData.read(cursor)
            kind = MESSAGES.get(frame[cursor.pos]) if cursor.pos < len(frame) else None
            name = "?" if kind is None else kind.__name__
            size = len(frame) - cursor.pos
            return (
                f"w  start {lsn_text(data.start_lsn)}  end {lsn_text(data.end_lsn)}  clock {time_text(data.clock)}"
                f"  {name}, {size} bytes"
            )
        if frame[:1] == b"k":
            keepalive = Keepalive.read(cursor)
            return (
                f"k  end {lsn_text(keepalive.end_lsn)}  clock {time_text(keepalive.clock)}"
                f"  reply {keepalive.reply_requested}"
            )
    except DecodeError:
        pass
    return f"{frame[:1].decode('latin1')}  {len(frame)} bytes"


def sent(status: StandbyStatusUpdate) -> str:
    """A status update that was sent."""
    return (
        f"r  write {lsn_text(status.write_lsn)}  flush {lsn_text(status.flush_lsn)}  apply {lsn_text(status.apply_lsn)}"
        f"  clock {time_text(status.clock)}  reply {status.reply_requested}"
    )
