"""Dates and times as Debezium's PostgreSQL connector writes them under time.precision.mode=adaptive.

The functions convert PostgreSQL's ISO text to numbers or to Java's ISO text. They raise ValueError for other text and
for values out of range. Python's datetime has neither BC nor years after 9999.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from pgtail.pgoutput.scalars import UNIX_EPOCH_OFFSET, civil_from_days
from pgtail.values.moments import DAY, moment

POSITIVE_INFINITY: Final = 9_223_372_036_825_200_000
NEGATIVE_INFINITY: Final = -9_223_372_036_832_400_000
"""The connector's values of infinite timestamps (its documentation, TIMESTAMP type)."""

_MONTH: Final = 2_629_800_000_000
"""Microseconds of 365.25 / 12 days."""
_is_interval = re.compile(
    r"(?:([-+]?[0-9]+) years?)? ?(?:([-+]?[0-9]+) mons?)? ?(?:([-+]?[0-9]+) days?)? ?"
    r"(?:([-+]?)([0-9]+):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?)?"
).fullmatch


def date_days(text: str) -> int:
    """Days since 1970-01-01."""
    return _fits(_micros(text) // DAY, 32)


def time_micros(text: str) -> int:
    """Microseconds since midnight."""
    return int(moment(f"2000-01-01 {text}").micros)


def timestamp_micros(text: str) -> int:
    """Microseconds since 1970-01-01 00:00:00, of a timestamp without a zone."""
    if text in ("infinity", "-infinity"):
        return POSITIVE_INFINITY if text == "infinity" else NEGATIVE_INFINITY
    return _fits(_micros(text), 64)


def timestamptz_text(text: str, digits: int) -> str:
    """An instant as Java's ISO text in UTC, with `digits` digits of the fraction; 0: as many as needed."""
    if text in ("infinity", "-infinity"):
        return text
    days, micros = divmod(_micros(text), DAY)
    return f"{_java_date(days)}T{_java_clock(micros, digits)}Z"


def timetz_text(text: str) -> str:
    """A time of day as Java's ISO text in UTC."""
    micros = time_micros(text)
    return f"{_java_clock(micros if micros == DAY else micros % DAY, 0)}Z"


def interval_micros(text: str) -> int:
    """An interval in microseconds, with months of 365.25 / 12 days."""
    match = _is_interval(text)
    if match is None or not text:
        raise ValueError("not an interval")
    years, months, days, hours, minutes, seconds = (int(part or 0) for part in match.group(1, 2, 3, 5, 6, 7))
    clock = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + int((match[8] or "").ljust(6, "0"))
    return _fits((12 * years + months) * _MONTH + days * DAY + (-clock if match[4] == "-" else clock), 64)


def _micros(text: str) -> int:
    """Microseconds since 1970-01-01 00:00:00."""
    if text.endswith("infinity"):
        raise ValueError("infinite")
    return int(moment(text).micros) + UNIX_EPOCH_OFFSET


def _fits(value: int, bits: int) -> int:
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(f"not in {bits} bits")
    return value


@lru_cache(maxsize=8)
def _java_date(days: int) -> str:
    """Java's ISO_LOCAL_DATE: year 0 is 1 BC, years of more than four digits have a sign."""
    year, month, day = civil_from_days(days)
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{month:02d}-{day:02d}"


def _java_clock(micros: int, digits: int) -> str:
    seconds, fraction = divmod(micros, 1_000_000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    text = f"{hour:02d}:{minute:02d}:{second:02d}"
    if digits:
        return f"{text}.{fraction:06d}"[: 9 + digits]
    return f"{text}.{fraction:06d}".rstrip("0") if fraction else text
