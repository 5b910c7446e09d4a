"""Floor 1, the protocol's scalars: log positions and timestamps, and their text; knows nothing of messages."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NewType

Lsn = NewType("Lsn", int)
"""A position in the write-ahead log: bytes from its start, unsigned 64 bits."""

PgTime = NewType("PgTime", int)
"""Microseconds since 2000-01-01 00:00:00 UTC, signed 64 bits (manual: logical replication message formats)."""

Xid = NewType("Xid", int)
"""A transaction id, unsigned 32 bits."""

Oid = NewType("Oid", int)
"""An object id, unsigned 32 bits."""

NO_LSN = Lsn(0)
UNIX_EPOCH_OFFSET = 946_684_800_000_000
"""Microseconds between the Unix epoch and PostgreSQL's."""

_LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")
_DAY = 86_400


def lsn_text(lsn: int) -> str:
    """A log position as PostgreSQL prints it (`%X/%X`)."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> Lsn:
    """Read `%X/%X`. Raises ValueError for anything else."""
    match = _LSN.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a log position such as 0/1949A30")
    return Lsn(int(match[1], 16) << 32 | int(match[2], 16))


def days_text(days: int) -> tuple[str, bool]:
    """A day number (0 is 2000-01-01) as YYYY-MM-DD in the proleptic Gregorian calendar, and whether it is BC.

    `datetime` ends at the years 1 and 9999, PostgreSQL does not (src/backend/utils/adt/datetime.c j2date).
    """
    # Howard Hinnant's civil_from_days: eras of 400 years, years that begin in March.
    days += 730_425
    era, day_of_era = divmod(days, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_index = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month_index + 2) // 5 + 1
    month = month_index + 3 if month_index < 10 else month_index - 9
    year = year_of_era + era * 400 + (month <= 2)
    before_christ = year <= 0
    if before_christ:
        year = 1 - year
    return f"{year:04d}-{month:02d}-{day:02d}", before_christ


def time_text(time: int) -> str:
    """A timestamp in UTC as `YYYY-MM-DDTHH:MM:SS.ffffffZ` (with ` BC` after it where it is)."""
    seconds, micros = divmod(time, 1_000_000)
    second, before_christ = _second_text(seconds)
    return f"{second}.{micros:06d}Z BC" if before_christ else f"{second}.{micros:06d}Z"


@lru_cache(maxsize=8)
def _second_text(time: int) -> tuple[str, bool]:
    """Seconds since 2000 as a date and a time of day; transactions that follow each other share them."""
    days, rest = divmod(time, _DAY)
    date, before_christ = days_text(days)
    minutes, second = divmod(rest, 60)
    hour, minute = divmod(minutes, 60)
    return f"{date}T{hour:02d}:{minute:02d}:{second:02d}", before_christ


def unix_micros(time: int) -> int:
    """A timestamp as microseconds since 1970-01-01 UTC."""
    return time + UNIX_EPOCH_OFFSET
