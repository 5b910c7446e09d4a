"""Dates, times and intervals with DateStyle ISO, IntervalStyle postgres and TimeZone UTC.

Sources: src/backend/utils/adt/date.c, timestamp.c, datetime.c. Python's datetime does not
support years BC, years above 9999 and infinity.
"""

from __future__ import annotations

import functools
import struct
from typing import Final

from pgtail.pgoutput.scalars import days_text
from pgtail.values.codec import BinaryText, Loader, ValueKind, plain
from pgtail.values.render import strings

_DATE_END = 2_147_483_494 - 2_451_545
_DATE_FIRST = -2_451_545
_TIMESTAMP_FIRST = -211_813_488_000_000_000
_TIMESTAMP_END = 9_223_371_331_200_000_000
_DAY: Final = 86_400_000_000
_ZONE_END = 16 * 3600
_INT32 = (-(2**31), 2**31 - 1)
_INT64 = (-(2**63), 2**63 - 1)

_date = struct.Struct(">i").unpack
_micros = struct.Struct(">q").unpack
_timetz = struct.Struct(">qi").unpack
_interval = struct.Struct(">qii").unpack
_day = functools.lru_cache(4096)(days_text)


def date_text(cell: bytes) -> str:
    """Days since 2000-01-01."""
    (days,) = _date(cell)
    if days in _INT32:
        return _infinity(days)
    if not _DATE_FIRST <= days < _DATE_END:
        raise ValueError("date out of range")
    date, before_christ = _day(days)
    return f"{date} BC" if before_christ else date


def timetz_text(cell: bytes) -> str:
    """A time (microseconds since midnight; 24:00:00 is one), and seconds west of Greenwich."""
    micros, west = _timetz(cell)
    if abs(west) >= _ZONE_END:
        raise ValueError("time zone out of range")
    hours, seconds = divmod(abs(west), 3600)
    zone = f"{'-' if west > 0 else '+'}{hours:02d}"
    if seconds:
        zone += f":{seconds // 60:02d}"
    if seconds % 60:
        zone += f":{seconds % 60:02d}"
    return _time_of_day(micros) + zone


def _timestamp(zone: str) -> BinaryText:
    def text(cell: bytes) -> str:
        """Microseconds since 2000-01-01 00:00:00 (UTC)."""
        (micros,) = _micros(cell)
        if micros in _INT64:
            return _infinity(micros)
        if not _TIMESTAMP_FIRST <= micros < _TIMESTAMP_END:
            raise ValueError("timestamp out of range")
        days, rest = divmod(micros, _DAY)
        date, before_christ = _day(days)
        return f"{date} {_time_of_day(rest)}{zone}{' BC' if before_christ else ''}"

    return text


def interval_text(cell: bytes) -> str:
    """Microseconds, days and months, which are not converted into each other (datetime.c, EncodeInterval)."""
    micros, days, months = _interval(cell)
    for extreme in (0, 1):
        if (micros, days, months) == (_INT64[extreme], _INT32[extreme], _INT32[extreme]):
            return _infinity(micros)
    years, months = divmod(abs(months), 12) if months >= 0 else (-(-months // 12), -(-months % 12))
    parts: list[str] = []
    negative = False
    for value, unit in ((years, "year"), (months, "mon"), (days, "day")):
        if value:
            parts.append(f"{'+' if negative and value > 0 else ''}{value} {unit}{'' if value == 1 else 's'}")
            negative = value < 0
    if micros or not parts:
        sign = "-" if micros < 0 else "+" if negative else ""
        parts.append(sign + _clock(abs(micros)))
    return " ".join(parts)


def _time_of_day(micros: int) -> str:
    if not 0 <= micros <= _DAY:
        raise ValueError("time of day out of range")
    return _clock(micros)


def _clock(micros: int) -> str:
    seconds, fraction = divmod(micros, 1_000_000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    text = f"{hour:02d}:{minute:02d}:{second:02d}"
    return f"{text}.{fraction:06d}".rstrip("0") if fraction else text


def _infinity(value: int) -> str:
    return "infinity" if value > 0 else "-infinity"


timestamp_text: Final = _timestamp("")
timestamptz_text: Final = _timestamp("+00")

TYPES: Final = {
    "date": Loader(ValueKind.TEXT, strings, plain(date_text)),
    "time": Loader(ValueKind.TEXT, strings, plain(lambda cell: _time_of_day(*_micros(cell)))),
    "timetz": Loader(ValueKind.TEXT, strings, plain(timetz_text)),
    "timestamp": Loader(ValueKind.TEXT, strings, plain(timestamp_text)),
    "timestamptz": Loader(ValueKind.TEXT, strings, plain(timestamptz_text)),
    "interval": Loader(ValueKind.TEXT, strings, plain(interval_text)),
}
