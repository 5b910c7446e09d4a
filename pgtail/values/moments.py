"""Dates and times as people and PostgreSQL write them, as integers."""

from __future__ import annotations

import functools
import re
from typing import Final, NamedTuple

from pgtail.pgoutput.scalars import UNIX_EPOCH_DAYS, civil_from_days, days_from_civil

DAY: Final = 86_400_000_000
"""Microseconds."""

_MOMENT: Final = r"""([0-9]{4,7}) (?: -([0-9]{1,2}) (?: -([0-9]{1,2})
        (?: [ T] ([0-9]{1,2}) (?: :([0-9]{2}) (?: :([0-9]{2}) (?:\.([0-9]{1,6}))? )? )? )?
        \ ? (Z | [-+][0-9]{2} (?: :?[0-9]{2} (?: :[0-9]{2})? )? )? )? )? (\ BC)?"""


@functools.cache
def _pattern() -> re.Pattern[str]:
    """_MOMENT, compiled when the first text needs it."""
    return re.compile(_MOMENT, re.VERBOSE | re.IGNORECASE)


class Moment(NamedTuple):
    """Microseconds since 2000-01-01 00:00, in the zone that was given or else in that of the caller.

    `clock` and `zone`: whether the text has a time of day and a time zone.
    """

    micros: float
    clock: bool = False
    zone: bool = False


def moment(text: str) -> Moment:
    """YYYY[-MM[-DD[ HH[:MM[:SS[.ffffff]]]][ZONE]]][ BC], or infinity; missing parts are the first. Raises ValueError.

    ZONE is Z, +HH or +HH:MM. The result of another zone than UTC is converted to UTC.
    """
    if text in ("infinity", "-infinity"):
        return Moment(float(text))
    match = _pattern().fullmatch(text)
    if match is None:
        raise ValueError("not a date and time")
    year, month, day = int(match[1]), int(match[2] or 1), int(match[3] or 1)
    if match[9]:
        year = 1 - year
    days = days_from_civil(year, month, day)
    hour, minute, second = int(match[4] or 0), int(match[5] or 0), int(match[6] or 0)
    if (year, month, day) != civil_from_days(days) or hour > 24 or minute > 59 or second > 60:
        raise ValueError("no such date or time")
    clock = ((hour * 60 + minute) * 60 + second) * 1_000_000 + int((match[7] or "").ljust(6, "0"))
    if clock > DAY:
        raise ValueError("no such time of day")
    micros = (days + UNIX_EPOCH_DAYS) * DAY + clock - _offset(match[8] or "Z")
    return Moment(micros, match[4] is not None, match[8] is not None)


def _offset(zone: str) -> int:
    """Microseconds east of UTC."""
    if zone in "Zz":
        return 0
    hours, minutes, seconds = (int(zone.replace(":", "")[start : start + 2] or 0) for start in (1, 3, 5))
    if minutes > 59 or seconds > 59 or hours > 15:
        raise ValueError("no such time zone")
    value = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000
    return -value if zone[0] == "-" else value
