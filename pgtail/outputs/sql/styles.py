"""Texts of dates, times, intervals and money that mean something else under the settings of the script's HEAD.

A dump in text form has the settings of its own session: 01/02/2026 may be a day in January or in February. pgtail's own
sessions, and values in binary form, have those of HEAD.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from pgtail.changes.relations import Column
from pgtail.native.plan import Form
from pgtail.values.format_type import builtin_type_name
from pgtail.values.oids import BUILTIN

BUILTIN_NAMES: Final = frozenset(map(builtin_type_name, BUILTIN))
"""The type names of built-in types, and of domains over them."""
_FIRST_USER_OID: Final = 16384
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
_AROUND_QUOTED: Final = re.compile(r'[][(){}"\\]+')
_AROUND: Final = re.compile(r'[][(){},"\\]+')
"""What surrounds the elements of an array and the bounds of a range, which themselves contain none of this."""
_ELEMENT: Final = re.compile(r'"((?:[^"\\]|\\.)*)"|([^",{}]+)')
"""An element of an array of a scalar type, in quotes or not."""

_FOREIGN_MOMENT: Final = re.compile(
    r"[0-9]{2}([-/.])[0-9]{2}\1[0-9]{4,}(?: .*)?"
    r"|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (?:[0-9]{2} [A-Z][a-z]{2}|[A-Z][a-z]{2} [0-9]{2}) [0-9]{2}:.*",
    re.DOTALL,
).fullmatch
"""A date or timestamp of the DateStyles SQL, German and Postgres."""
_FOREIGN_INTERVAL: Final = re.compile(r"-[0-9]+ [0-9]+:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?").fullmatch
"""The intervals of sql_standard that mean something else under IntervalStyle postgres."""
_SIGN: Final = r"[$\xa2-\xa5\u20a0-\u20cf\uff04\uffe0-\uffe6]"
_AMOUNT: Final = re.compile(
    rf"(?=.*{_SIGN})[-(]*\w{{0,2}}{_SIGN}?[-\s]*[0-9][0-9.,'\s]*(?:\w{{0,2}}{_SIGN})?[-)]*"
).fullmatch
"""An amount of money with the sign of a currency."""
_SURROUNDED: Final = re.compile(r"[({\[]")
"""How the values of composite types, ranges and arrays begin."""
_NO_ELEMENT: Final = frozenset(("", "NULL", "empty"))


class Style(NamedTuple):
    """How to check the texts of a column: `fits` for decoded ones, `form` in compiled code, None if it cannot."""

    fits: _Match
    form: Form | None
    setting: str
    """The session setting under which the server must have written the text."""


def styles_of(column: Column) -> tuple[Style, ...]:
    """The checks for a column; none if its text does not depend on settings, or these are known."""
    if column.codec.own_session:
        return ()
    if column.type_oid >= _FIRST_USER_OID and column.type_name not in BUILTIN_NAMES:
        return _IN_USER_TYPES
    name = _NAME.fullmatch(column.type_name)
    if name is None:
        return ()
    scalar, array = name.groups()
    if scalar == "money":
        return (Style(_all_amounts_fit if array else _MONEY, None, "lc_monetary=C"),)
    element, setting = (_INTERVAL, "IntervalStyle=postgres") if scalar == "interval" else (_MOMENT, "DateStyle=ISO")
    if scalar is None or array:
        return (Style(lambda text: _all_fit(text, element), None, setting),)
    return (Style(element, Form("sql_date") if element is _MOMENT else None, setting),)


def _all_fit(text: str, element: _Match) -> bool:
    """Whether every element or bound fits."""
    return all(part in _NO_ELEMENT or element(part) for part in _AROUND.split(_BOUNDS.sub("", text)))


def _all_amounts_fit(text: str) -> bool:
    """Whether every amount of an array fits; one may contain commas."""
    elements = [quoted or bare for quoted, bare in _ELEMENT.findall(_BOUNDS.sub("", text))]
    return all(element == "NULL" or _MONEY(element) for element in elements)


def _no_part(foreign: _Match) -> _Match:
    """A check of the values of types that are not known: no part of them looks like this."""

    def fits(text: str) -> bool:
        return not (_SURROUNDED.match(text) and any(map(foreign, _parts(text))))

    return fits


def _parts(text: str) -> Iterator[str]:
    """Possible attributes, bounds and elements; in quotes they may contain commas."""
    for part in _AROUND_QUOTED.split(_BOUNDS.sub("", text)):
        yield part
        if not _MONEY(part):
            yield from part.split(",")


def _foreign_amount(part: str) -> bool:
    return bool(_AMOUNT(part)) and not _MONEY(part)


_IN_USER_TYPES: Final = (
    Style(_no_part(_FOREIGN_MOMENT), None, "DateStyle=ISO"),
    Style(_no_part(_FOREIGN_INTERVAL), None, "IntervalStyle=postgres"),
    Style(_no_part(_foreign_amount), None, "lc_monetary=C"),
)
"""The stream does not say what user-defined types are made of."""
