"""PostgreSQL's text to Python's values: exact, or the text itself."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, Final, Literal, TypeAlias
from uuid import UUID

from pgtail.changes.relations import Column
from pgtail.pgoutput.cells import Binary
from pgtail.values import Undecoded, ValueKind
from pgtail.values.arraytext import NotAnArray, reader
from pgtail.values.extensions import DELIMITERS
from pgtail.values.format_type import builtin_oids
from pgtail.values.jsonsyntax import NUMBER
from pgtail.values.oids import BUILTIN
from pgtail.values.render import string

Form: TypeAlias = Literal["python", "text"]
"""What values become: Python's own where these are exact, or PostgreSQL's text."""
Load: TypeAlias = Callable[[bytes], object]
"""A cell -> its value. Raises Undecoded."""

_is_number = re.compile(rf"{NUMBER}|NaN|-?Infinity", re.ASCII).fullmatch
_interval = re.compile(r"(?:(-?\d+) days?(?: |$))?(?:([-+]?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?", re.ASCII).fullmatch


class Text(str):
    """PostgreSQL's text of a value that Python cannot hold exactly, or has no type for."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Text({super().__repr__()})"


def _number(convert: Callable[[str], object]) -> Callable[[str], object]:
    """What converts a number, of which Python also takes other forms, such as with underscores."""

    def converted(text: str) -> object:
        if not _is_number(text):
            raise ValueError("not a number")
        return convert(text)

    return converted


def _bool(text: str) -> bool:
    if text not in ("t", "f"):
        raise ValueError("not a boolean")
    return text == "t"


def _or_text(convert: Callable[[str], object]) -> Callable[[str], object]:
    """For a type of which Python holds most values: any other is a Text."""

    def converted(text: str) -> object:
        try:
            return convert(text)
        except (ValueError, OverflowError):
            return Text(text)

    return converted


def _bytes(text: str) -> bytes:
    r"""The hex form alone: with bytea_output escape, which a dump may have, the text is no certain value."""
    if not text.startswith("\\x"):
        raise ValueError("not the hex form")
    return bytes.fromhex(text[2:])


def _time(text: str) -> time:
    if text.startswith("24"):  # some versions of Python take it for midnight
        raise ValueError("no time of Python")
    return time.fromisoformat(text)


def _timestamp(text: str, *, zoned: bool = False) -> datetime:
    moment = datetime.fromisoformat(text)
    if (moment.tzinfo is not None) is not zoned:
        raise ValueError("a time zone too many, or none")
    return moment


def _timedelta(text: str) -> timedelta:
    found = _interval(text)
    if found is None or not text:
        raise ValueError("months, infinity or another IntervalStyle")
    days, sign, hours, minutes, seconds, fraction = found.groups("0")
    clock = timedelta(0, int(seconds), int(fraction.ljust(6, "0")), 0, int(minutes), int(hours))
    return timedelta(int(days)) + (-clock if sign == "-" else clock)


def _inet(text: str) -> object:
    return ipaddress.ip_interface(text) if "/" in text else ipaddress.ip_address(text)


def _reject(text: str) -> object:
    raise json.JSONDecodeError("no JSON", text, 0)


_DECODER: Final = json.JSONDecoder(parse_float=Decimal, parse_constant=_reject)


def _json(text: str) -> object:
    """The document; JSON's null is a Text, as None is NULL."""
    try:
        value: object = _DECODER.decode(text)
    except json.JSONDecodeError:
        raise
    except (ValueError, ArithmeticError, RecursionError):  # an integer of thousands of digits, a deep document
        return Text(text)
    return Text(text) if value is None else value


def context_of(content: bytes) -> dict[str, Any] | str | bytes:
    """The content of a message that gives the context: a JSON object, another text, or bytes that are none."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return content
    try:
        value = _json(text)
    except json.JSONDecodeError:
        return text
    return value if isinstance(value, dict) else text


_OF_TYPE: Final[dict[str, Callable[[str], object]]] = {
    **dict.fromkeys(("text", "varchar", "bpchar", "name", "char", "xml"), str),
    **dict.fromkeys(("int2", "int4", "int8", "oid", "xid", "cid", "xid8", "oid8"), _number(int)),
    **dict.fromkeys(("float4", "float8"), _number(float)),
    **dict.fromkeys(("json", "jsonb"), _json),
    **dict.fromkeys(("time", "timetz"), _or_text(_time)),
    "bool": _bool,
    "bytea": _or_text(_bytes),
    "cidr": _or_text(ipaddress.ip_network),
    "date": _or_text(date.fromisoformat),
    "inet": _or_text(_inet),
    "interval": _or_text(_timedelta),
    "numeric": _number(Decimal),
    "timestamp": _or_text(_timestamp),
    "timestamptz": _or_text(partial(_timestamp, zoned=True)),
    "uuid": _or_text(UUID),
}
"""The types that Python has values for, by their names in pg_type; others are Text."""


def _converter(column: Column) -> Callable[[str], object]:
    """PostgreSQL's text -> the value of a column. Raises ValueError for a text that its type cannot have."""
    if column.codec.masks:
        return str
    name = re.sub(r"\([\d,-]+\)", "", column.type_name)
    oid = column.type_oid if column.type_oid in BUILTIN else builtin_oids().get(name, 0)  # of a domain: its base type
    if column.codec.kind is not ValueKind.ARRAY:
        return _OF_TYPE.get(BUILTIN[oid].name, Text) if oid else Text
    element = BUILTIN[oid].element if oid else 0
    delimiter = BUILTIN[element].delimiter if element else DELIMITERS.get(name.rpartition(".")[2].rstrip("[]"), ",")
    return _list_of(_OF_TYPE.get(BUILTIN[element].name, Text) if element else Text, delimiter)


def _list_of(element: Callable[[str], object], delimiter: str) -> Callable[[str], object]:
    read = reader(ValueKind.TEXT, string, delimiter)

    def convert(text: str) -> object:
        try:
            items = json.loads(read(text))
        except NotAnArray:
            if element is not Text:
                raise ValueError("not an array") from None
            return Text(text)  # a type that only has the name of one
        return converted(items) if isinstance(items, list) else Text(text)  # a list has no lower bounds

    def converted(items: list[Any]) -> list[object]:
        return [
            None if item is None else converted(item) if isinstance(item, list) else element(item) for item in items
        ]

    return convert


def loader_of(column: Column, form: Form) -> Load:
    """The function that reads the cells of a column."""
    codec = column.codec
    of_text, of_binary = codec.text_text, codec.text_binary
    if form == "text":
        return codec.text
    convert = _converter(column)

    def load(cell: bytes) -> object:
        text = of_binary(cell) if cell.__class__ is Binary else of_text(cell)
        try:
            return convert(text)
        except ValueError:
            raise Undecoded(text) from None

    return load
