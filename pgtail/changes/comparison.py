"""How --where compares values, by the type of the column."""

from __future__ import annotations

import itertools
import operator
import re
import struct
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, Final, Literal, NamedTuple

from pgtail.changes.relations import Column
from pgtail.pgoutput.scalars import lsn_text, parse_lsn
from pgtail.values import ValueKind
from pgtail.values.datetime import date_text, timestamp_text, timestamptz_text
from pgtail.values.moments import DAY, moment

COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_BOOLS: Final = {
    **dict.fromkeys(("true", "t", "yes", "on", "1"), "t"),
    **dict.fromkeys(("false", "f", "no", "off", "0"), "f"),
}
_is_uuid = re.compile(r"(\{)?((?:[0-9a-f]{4}-?){7}[0-9a-f]{4})(?(1)\})", re.IGNORECASE).fullmatch


class Comparison(NamedTuple):
    """How values of a type compare with each other.

    `key` makes an object of a value's text that compares as the value does, `literal` that text of what the user wrote;
    both raise ValueError. `native` says what compiled code compares: text, plain decimal numbers, text without the
    blanks at its end, or nothing. `ordered`: the order is PostgreSQL's, apart from collations.
    """

    what: str
    native: Literal["text", "number", "padded"] | None
    key: Callable[[str], Any]
    literal: Callable[[str], str]
    ordered: bool = True


def comparison_of(column: Column) -> Comparison:
    """How the values of a column compare."""
    if column.codec.kind is ValueKind.NUMBER or column.type_name in ("xid8", "oid8"):
        return NUMBER
    if column.codec.kind is ValueKind.BOOL:
        return _BOOL
    name = re.sub(r"\(\d+\)", "", column.type_name)
    return _BY_NAME.get(name, TEXT if name in _TEXTS else _UNORDERED)


def _number(text: str) -> tuple[bool, Decimal]:
    """A number as PostgreSQL sorts it: NaN equals NaN and is greater than all others."""
    try:
        value = Decimal(text.strip())
    except InvalidOperation:
        raise ValueError("not a number") from None
    return (True, Decimal(0)) if value.is_nan() else (False, value)


def _number_literal(text: str) -> str:
    """A number without an exponent, which compiled code compares, unless it is very long."""
    special, value = _number(text)
    ordinary = not special and value.is_finite() and -40 < value.adjusted() < 40
    return f"{value:f}" if ordinary else text.strip()


def _bool(text: str) -> str:
    """PostgreSQL's text of a boolean as people write it."""
    if text.lower() not in _BOOLS:
        raise ValueError("not a boolean")
    return _BOOLS[text.lower()]


def _micros(text: str) -> float:
    return moment(text).micros


def _date(text: str) -> str:
    found = moment(text)
    if found.clock or found.zone:
        raise ValueError("more than a date")
    return text if text.endswith("infinity") else date_text(struct.pack(">i", int(found.micros) // DAY))


def _timestamp(text: str) -> str:
    found = moment(text)
    if found.zone:
        raise ValueError("a time zone too many")
    return text if text.endswith("infinity") else timestamp_text(struct.pack(">q", found.micros))


def timestamptz(text: str) -> str:
    """PostgreSQL's text of a moment; UTC if it has no zone. Raises ValueError."""
    found = moment(text)
    return text if text.endswith("infinity") else timestamptz_text(struct.pack(">q", found.micros))


def has_zone(text: str) -> bool:
    """Whether a time says its zone, or needs none. Raises ValueError."""
    return text.endswith("infinity") or moment(text).zone


def _uuid(text: str) -> str:
    """A uuid as PostgreSQL prints it (src/backend/utils/adt/uuid.c: a hyphen may follow any four digits)."""
    found = _is_uuid(text)
    if found is None:
        raise ValueError("not a uuid")
    digits = found[2].replace("-", "").lower()
    return "-".join([digits[start:end] for start, end in itertools.pairwise((0, 8, 12, 16, 20, 32))])


TEXT: Final = Comparison("text", "text", str, str)
NUMBER: Final = Comparison("a number", "number", _number, _number_literal)
TIMESTAMPTZ: Final = Comparison("a timestamp with time zone", None, _micros, timestamptz)
_BOOL: Final = Comparison("a boolean", "text", str, _bool)
_without_padding: Final = operator.methodcaller("rstrip", " ")
_PADDED: Final = Comparison("text", "padded", _without_padding, _without_padding)
_UNORDERED: Final = Comparison("text", "text", str, str, ordered=False)
_TEXTS: Final = {
    *("text", "character varying", "name", '"char"', "bytea", "bit", "bit varying", "time without time zone"),
    *("json", "xml"),  # which PostgreSQL does not compare
}
_BY_NAME: Final = {
    "character": _PADDED,
    "bpchar": _PADDED,
    "date": Comparison("a date", None, _micros, _date),
    "timestamp without time zone": Comparison("a timestamp without time zone", None, _micros, _timestamp),
    "timestamp with time zone": TIMESTAMPTZ,
    "uuid": Comparison("a uuid", "text", str, _uuid),
    # Servers since PostgreSQL 19 print leading zeros. It is no plain number, so compiled code leaves it to Python.
    "pg_lsn": Comparison("a log position", "number", parse_lsn, lambda text: lsn_text(parse_lsn(text))),
}
