"""Texts of dates, times, intervals and money that mean something else under the settings of the script's HEAD.

A dump in text form has the settings of its own session: 01/02/2026 may be a day in January or in February. pgtail's own
sessions, and values in binary form, have those of HEAD.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from pgtail.changes.relations import Column
from pgtail.native.plan import Form

_Match = Callable[[str], object]

_NAME: Final = re.compile(r"(?:(date|timestamp|interval|money)\b|(?:date|ts|tstz)(?:multi)?range\b)[^\[]*(\[\])?")
_MOMENT: Final = re.compile(r"[0-9]{4,}-[0-9]{2}-.*|-?infinity", re.DOTALL).fullmatch
"""DateStyle ISO; the other styles begin with a day, a month or a weekday."""
_INTERVAL: Final = re.compile(
    r"(?=.)(?:[-+]?[0-9]+ years? ?)?(?:[-+]?[0-9]+ mons? ?)?(?:[-+]?[0-9]+ days? ?)?"
    r"(?:[-+]?[0-9]{2,}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?)?"
    r"|[P@].*|-?infinity"
).fullmatch
"""IntervalStyle postgres, or iso_8601 and postgres_verbose, which are read under any. In sql_standard a sign before the
days applies to the hours as well."""
_MONEY: Final = re.compile(r"-?\$[0-9]{1,3}(?:,[0-9]{3})*\.[0-9]{2}").fullmatch
"""lc_monetary C; elsewhere the comma may be the decimal sign."""
_BOUNDS: Final = re.compile(r"^(?:\[-?[0-9]+:-?[0-9]+\])+=")
_AROUND: Final = re.compile(r'[][(){},"\\]+')
"""What surrounds the elements of an array and the bounds of a range, which themselves contain none of this."""
_NO_ELEMENT: Final = frozenset(("", "NULL", "empty"))


class Style(NamedTuple):
    """How to check the texts of a column: `fits` for decoded ones, `form` in the scanner, None if it cannot."""

    fits: _Match
    form: Form | None
    setting: str
    """What the text must have been written under, as an option of a session."""


def style_of(column: Column) -> Style | None:
    """The check for a column; None if its text does not depend on settings."""
    name = _NAME.fullmatch(column.type_name)
    if name is None:
        return None
    scalar, array = name.groups()
    if scalar == "money":
        return None if array else Style(_MONEY, None, "lc_monetary=C")
    element, setting = (_INTERVAL, "IntervalStyle=postgres") if scalar == "interval" else (_MOMENT, "DateStyle=ISO")
    if scalar is None or array:
        return Style(lambda text: _all_fit(text, element), None, setting)
    return Style(element, Form("sql_date") if element is _MOMENT else None, setting)


def _all_fit(text: str, element: _Match) -> bool:
    """Whether every element or bound fits."""
    return all(part in _NO_ELEMENT or element(part) for part in _AROUND.split(_BOUNDS.sub("", text)))
