"""Local time as date(1) and journalctl have it: the zone that TZ names, else the machine's.

Times are in microseconds since 2000-01-01, UTC unless they are called local.
"""

from __future__ import annotations

import os
import time
from typing import Final

_EPOCH: Final = 946_684_800
"""2000-01-01 in seconds since 1970-01-01."""
_SECOND: Final = 1_000_000
_DAY: Final = 86_400


def use_zone(name: str) -> None:
    """Make a zone such as Europe/Berlin that of this process and its children. Raises ValueError."""
    from zoneinfo import TZPATH, ZoneInfo

    try:
        ZoneInfo(name)
        known = any(os.path.isfile(os.path.join(folder, name)) for folder in TZPATH)  # as the C library finds it
    except (KeyError, OSError, ValueError):
        known = False
    if not known:
        raise ValueError(f"{name!r} is not a time zone that is installed, such as UTC or Europe/Berlin")
    os.environ["TZ"] = name
    time.tzset()


def clock() -> int:
    """This machine's time."""
    return time.time_ns() // 1000 - _EPOCH * _SECOND


def is_utc() -> bool:
    """Whether local time is always UTC."""
    return time.timezone == 0 and not time.daylight


def zone_text(moment: int) -> str:
    """The offset of local time from UTC at a time, as PostgreSQL writes it: +01, -03:30; Z for UTC."""
    return "Z" if is_utc() else _offset_text(_offset(moment // _SECOND))


def to_local(moment: int) -> int:
    """A time in UTC as local time."""
    return moment + _offset(moment // _SECOND) * _SECOND


def to_utc(local: int) -> int:
    """A local time in UTC. Raises ValueError if clocks show it twice, or never."""
    second, fraction = divmod(local, _SECOND)
    around = {_offset(second - _DAY), _offset(second + _DAY)}
    instants = [second - offset for offset in sorted(around, reverse=True) if _offset(second - offset) == offset]
    if len(instants) != 1:
        shown = "show it twice" if instants else "never show it"
        zones = " or ".join([_offset_text(offset) for offset in sorted(around, reverse=True)])
        raise ValueError(f"the clocks of this time zone {shown}; give its offset from UTC: {zones}")
    return instants[0] * _SECOND + fraction


def _offset(second: int) -> int:
    """Seconds east of UTC at a second; 0 where the C library knows none."""
    try:
        return time.localtime(second + _EPOCH).tm_gmtoff
    except (OverflowError, OSError, ValueError):
        return 0


def _offset_text(seconds: int) -> str:
    sign = "-" if seconds < 0 else "+"
    minutes, second = divmod(abs(seconds), 60)
    hour, minute = divmod(minutes, 60)
    text = f"{sign}{hour:02d}"
    if minute or second:
        text += f":{minute:02d}"
    return f"{text}:{second:02d}" if second else text
