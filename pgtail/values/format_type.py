"""The names of types as PostgreSQL's format_type() writes them (src/backend/utils/adt/format_type.c)."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Final

from pgtail.values.oids import BUILTIN

_VARHDRSZ: Final = 4
"""Added to the type modifiers of character types and numeric (src/include/c.h)."""

_SPELLED = {
    "bool": "boolean",
    "char": '"char"',
    "float4": "real",
    "float8": "double precision",
    "int2": "smallint",
    "int4": "integer",
    "int8": "bigint",
}
_INTERVAL_FIELDS = {
    1 << 2: " year",
    1 << 1: " month",
    1 << 3: " day",
    1 << 10: " hour",
    1 << 11: " minute",
    1 << 12: " second",
    1 << 2 | 1 << 1: " year to month",
    1 << 3 | 1 << 10: " day to hour",
    1 << 3 | 1 << 10 | 1 << 11: " day to minute",
    1 << 3 | 1 << 10 | 1 << 11 | 1 << 12: " day to second",
    1 << 10 | 1 << 11: " hour to minute",
    1 << 10 | 1 << 11 | 1 << 12: " hour to second",
    1 << 11 | 1 << 12: " minute to second",
}
_NO_PRECISION = 0xFFFF
_PLAIN: Final = r"[a-z_][a-z0-9_$]*"


def builtin_type_name(oid: int, typmod: int = -1) -> str:
    """The name of a built-in type, with its modifier if it has one."""
    builtin = BUILTIN[oid]
    if builtin.element:
        return builtin_type_name(builtin.element, typmod) + "[]"
    with_modifier = _MODIFIED.get(builtin.name)
    if with_modifier is not None:
        return with_modifier(typmod)
    return _SPELLED.get(builtin.name, builtin.name)


@functools.cache
def builtin_oids() -> dict[str, int]:
    """The OIDs of the built-in types by builtin_type_name()."""
    return {builtin_type_name(oid): oid for oid in BUILTIN}


def numeric_modifier(typmod: int) -> tuple[int, int] | None:
    """Precision and scale of numeric; None without them (src/backend/utils/adt/numeric.c, make_numeric_typmod)."""
    if typmod < _VARHDRSZ:
        return None
    return (typmod - _VARHDRSZ) >> 16, (((typmod - _VARHDRSZ) & 0x7FF) ^ 1024) - 1024


def declared_type_name(namespace: str, name: str) -> str:
    """The name of a user's type: schema-qualified, in double quotes if necessary."""
    if name.startswith("_"):
        return declared_type_name(namespace, name[1:]) + "[]"
    return f"{quote_ident(namespace)}.{quote_ident(name)}" if namespace else quote_ident(name)


def quote_ident(name: str) -> str:
    """A name as SQL writes it: in double quotes if necessary, apart from keywords."""
    return name if re.fullmatch(_PLAIN, name) else '"{}"'.format(name.replace('"', '""'))


def _sized(name: str, without: str, extra: int) -> Callable[[int], str]:
    return lambda typmod: f"{name}({typmod - extra})" if typmod >= extra else without


def _timed(name: str, zone: str) -> Callable[[int], str]:
    return lambda typmod: f"{name}({typmod}) {zone} time zone" if typmod >= 0 else f"{name} {zone} time zone"


def _numeric(typmod: int) -> str:
    modifier = numeric_modifier(typmod)
    return "numeric" if modifier is None else "numeric({},{})".format(*modifier)


def _interval(typmod: int) -> str:
    if typmod < 0:
        return "interval"
    precision = typmod & 0xFFFF
    fields = _INTERVAL_FIELDS.get(typmod >> 16, "")
    return f"interval{fields}" if precision == _NO_PRECISION else f"interval{fields}({precision})"


_MODIFIED: Final[dict[str, Callable[[int], str]]] = {
    "bit": _sized("bit", '"bit"', 0),
    "bpchar": _sized("character", "bpchar", _VARHDRSZ),
    "interval": _interval,
    "numeric": _numeric,
    "time": _timed("time", "without"),
    "timestamp": _timed("timestamp", "without"),
    "timestamptz": _timed("timestamp", "with"),
    "timetz": _timed("time", "with"),
    "varbit": _sized("bit varying", "bit varying", 0),
    "varchar": _sized("character varying", "character varying", _VARHDRSZ),
}
