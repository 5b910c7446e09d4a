"""LSNs, dates and timestamps as integers and as text."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NewType

from msgspec import Struct

Lsn = NewType("Lsn", int)
"""A position in the write-ahead log: bytes from its start, unsigned 64 bits."""


class Point(Struct, frozen=True, eq=False):
    """An LSN, or a time of commit in microseconds since 2000-01-01 UTC. `local`: it was given as local time."""

    lsn: int | None = None
    time: int | None = None
    local: bool = False

    def __eq__(self, other: object) -> bool:
        return (self.lsn, self.time) == (other.lsn, other.time) if isinstance(other, Point) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.lsn, self.time))


UNIX_EPOCH_OFFSET = 946_684_800_000_000
"""Microseconds between the Unix epoch and PostgreSQL's."""
UNIX_EPOCH_DAYS: Final = -10_957
"""1970-01-01 as a day number counted from 2000-01-01."""

_LSN: Final = r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})"
_DAY = 86_400


def lsn_text(lsn: int) -> str:
    """An LSN as PostgreSQL prints it (`%X/%X`)."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> Lsn:
    """Parse `%X/%X`. Raises ValueError for anything else."""
    match = re.fullmatch(_LSN, text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a log position such as 0/1949A30")
    return Lsn(int(match[1], 16) << 32 | int(match[2], 16))


def days_text(days: int) -> tuple[str, bool]:
    """A day number (0 is 2000-01-01) as YYYY-MM-DD in the proleptic Gregorian calendar, and whether it is BC.

    `datetime` covers years 1 to 9999 only; PostgreSQL covers more (src/backend/utils/adt/datetime.c, j2date).
    """
    year, month, day = civil_from_days(days - UNIX_EPOCH_DAYS)
    before_christ = year <= 0
    return f"{1 - year if before_christ else year:04d}-{month:02d}-{day:02d}", before_christ


def civil_from_days(days: int) -> tuple[int, int, int]:
    """Days since 1970-01-01 as (year, month, day); year 0 is 1 BC. Howard Hinnant's algorithm of the same name."""
    # Eras of 400 years; years start in March, so the leap day is the last day of its year.
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_index = (5 * day_of_year + 2) // 153
    month = month_index + 3 if month_index < 10 else month_index - 9
    return year_of_era + era * 400 + (month <= 2), month, day_of_year - (153 * month_index + 2) // 5 + 1


def days_from_civil(year: int, month: int, day: int) -> int:
    """The inverse of civil_from_days()."""
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468


def time_text(time: int) -> str:
    """A timestamp as `YYYY-MM-DDTHH:MM:SS.ffffffZ`, followed by ` BC` for years before 1.

    `time` is in microseconds since 2000-01-01 UTC.
    """
    seconds, micros = divmod(time, 1_000_000)
    second, before_christ = _second_text(seconds)
    return f"{second}.{micros:06d}Z BC" if before_christ else f"{second}.{micros:06d}Z"


@lru_cache(maxsize=8)
def _second_text(time: int) -> tuple[str, bool]:
    """Seconds since 2000-01-01 as `YYYY-MM-DDTHH:MM:SS`. Cached: consecutive transactions often share a second."""
    days, rest = divmod(time, _DAY)
    date, before_christ = days_text(days)
    minutes, second = divmod(rest, 60)
    hour, minute = divmod(minutes, 60)
    return f"{date}T{hour:02d}:{minute:02d}:{second:02d}", before_christ
