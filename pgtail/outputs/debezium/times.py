"""Dates and times as Debezium's PostgreSQL connector writes them under time.precision.mode=adaptive.

The functions convert PostgreSQL's ISO text to numbers or to Java's ISO text. They raise ValueError for other text and
for values out of range. Python's datetime has neither BC nor years after 9999.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from pgtail.pgoutput.scalars import civil_from_days, days_from_civil

POSITIVE_INFINITY: Final = 9_223_372_036_825_200_000
NEGATIVE_INFINITY: Final = -9_223_372_036_832_400_000
"""The connector's values of infinite timestamps (its documentation, TIMESTAMP type)."""

_DAY: Final = 86_400_000_000
_MONTH: Final = 2_629_800_000_000
"""Microseconds of 365.25 / 12 days."""
_UTC: Final = ["+", "00", None, None]
"""The groups of _ZONE."""
_DATE: Final = r"([0-9]{4,7})-([0-9]{2})-([0-9]{2})"
_CLOCK: Final = r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?"
_ZONE: Final = r"([-+])([0-9]{2})(?::([0-9]{2})(?::([0-9]{2}))?)?"
_is_date = re.compile(rf"{_DATE}( BC)?").fullmatch
_is_time = re.compile(_CLOCK).fullmatch
_is_timetz = re.compile(_CLOCK + _ZONE).fullmatch
_is_timestamp = re.compile(rf"{_DATE} {_CLOCK}( BC)?").fullmatch
_is_timestamptz = re.compile(rf"{_DATE} {_CLOCK}{_ZONE}( BC)?").fullmatch
_is_interval = re.compile(
    r"(?:([-+]?[0-9]+) years?)? ?(?:([-+]?[0-9]+) mons?)? ?(?:([-+]?[0-9]+) days?)? ?"
    r"(?:([-+]?)([0-9]+):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?)?"
).fullmatch


def date_days(text: str) -> int:
    """Days since 1970-01-01."""
    match = _is_date(text)
    if match is None:
        raise ValueError("not a date")
    return _fits(_days(match[1], match[2], match[3], match[4]), 32)


def time_micros(text: str) -> int:
    """Microseconds since midnight."""
    match = _is_time(text)
    if match is None:
        raise ValueError("not a time")
    return _clock(*match.groups())


def timestamp_micros(text: str) -> int:
    """Microseconds since 1970-01-01 00:00:00, of a timestamp without a zone."""
    if text in ("infinity", "-infinity"):
        return POSITIVE_INFINITY if text == "infinity" else NEGATIVE_INFINITY
    match = _is_timestamp(text)
    if match is None:
        raise ValueError("not a timestamp")
    return _fits(_days(match[1], match[2], match[3], match[8]) * _DAY + _clock(*match.group(4, 5, 6, 7)), 64)


def timestamptz_text(text: str, digits: int) -> str:
    """An instant as Java's ISO text in UTC, with `digits` digits of the fraction; 0: as many as needed."""
    if text in ("infinity", "-infinity"):
        return text
    match = _is_timestamptz(text)
    if match is None:
        raise ValueError("not a timestamp with time zone")
    year, month, day, hours, minutes, seconds, fraction, *zone, before_christ = match.groups()
    local = _days(year, month, day, before_christ) * _DAY + _clock(hours, minutes, seconds, fraction)
    days, micros = divmod(local - (0 if zone == _UTC else _offset(*zone)), _DAY)
    return f"{_java_date(days)}T{_java_clock(micros, digits)}Z"


def timetz_text(text: str) -> str:
    """A time of day as Java's ISO text in UTC."""
    match = _is_timetz(text)
    if match is None:
        raise ValueError("not a time with time zone")
    micros = _clock(*match.group(1, 2, 3, 4)) - _offset(*match.group(5, 6, 7, 8))
    return f"{_java_clock(micros if micros == _DAY else micros % _DAY, 0)}Z"


def interval_micros(text: str) -> int:
    """An interval in microseconds, with months of 365.25 / 12 days."""
    match = _is_interval(text)
    if match is None or not text:
        raise ValueError("not an interval")
    years, months, days = (int(part or 0) for part in match.group(1, 2, 3))
    clock = 0
    if match[5] is not None:
        hours, minutes, seconds, fraction = match.group(5, 6, 7, 8)
        clock = _clock(hours, minutes, seconds, fraction) * (-1 if match[4] == "-" else 1)
    return _fits((12 * years + months) * _MONTH + days * _DAY + clock, 64)


def _fits(value: int, bits: int) -> int:
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(f"not in {bits} bits")
    return value


@lru_cache(maxsize=8)
def _days(year: str, month: str, day: str, before_christ: str | None) -> int:
    years = 1 - int(year) if before_christ else int(year)
    return days_from_civil(years, int(month), int(day))


def _clock(hours: str, minutes: str, seconds: str, fraction: str | None) -> int:
    micros = int((fraction or "").ljust(6, "0"))
    return ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1_000_000 + micros


def _offset(sign: str, hours: str, minutes: str | None, seconds: str | None) -> int:
    micros = _clock(hours, minutes or "0", seconds or "0", None)
    return -micros if sign == "-" else micros


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
