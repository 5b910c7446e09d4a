"""Convert columns as Debezium's PostgreSQL connector does: their Kafka Connect schemas, and their values as JSON.

The connector's defaults: decimal.handling.mode=precise (string on request), time.precision.mode=adaptive,
binary.handling.mode=bytes, hstore.handling.mode=json, interval.handling.mode=numeric, money.fraction.digits=2. Sources:
the documentation of Debezium 3.6, "Data type mappings", PostgresValueConverter.java, Vectors.java, PostgisGeometry.java
and UnchangedToastedPlaceholder.java. Types that the connector omits (or that only later versions support, such as box
and circle) are PostgreSQL's text.
"""

from __future__ import annotations

import re
import struct
from base64 import b64encode
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, Literal

from msgspec import Struct

from pgtail._orjson import orjson
from pgtail.changes.relations import Column
from pgtail.outputs.debezium import times
from pgtail.values.arraytext import NotAnArray, bounds, reader
from pgtail.values.codec import Undecoded, ValueKind
from pgtail.values.extensions import DELIMITERS, hstore_pairs
from pgtail.values.format_type import builtin_oids, numeric_modifier
from pgtail.values.jsonsyntax import NUMBER
from pgtail.values.oids import BUILTIN

UNAVAILABLE: Final = "__debezium_unavailable_value"
"""The connector's unavailable.value.placeholder, in place of an unsent TOASTed value."""

_dumps = orjson.dumps
_is_number = re.compile(NUMBER).fullmatch
_is_integer = re.compile(r"-?(?:0|[1-9][0-9]*)").fullmatch
_is_decimal = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?").fullmatch
_is_money = re.compile(r"(-?)\$([0-9,]+)\.([0-9][0-9])").fullmatch
_is_bits = re.compile(r"[01]*").fullmatch
_is_point = re.compile(r"\(([^,()]+),([^,()]+)\)").fullmatch
_is_ewkb = re.compile(r"0[01][0-9A-Fa-f]{16,}").fullmatch
_is_vector = re.compile(rf"\[{NUMBER}(?:,{NUMBER})*\]").fullmatch
_PAIR: Final = rf"[1-9][0-9]{{0,4}}:{NUMBER}"
_is_sparse_vector = re.compile(rf"\{{((?:{_PAIR}(?:,{_PAIR})*)?)\}}/([1-9][0-9]{{0,4}})").fullmatch
_SPECIAL: Final = {"NaN": "NAN", "Infinity": "POSITIVE_INFINITY", "-Infinity": "NEGATIVE_INFINITY"}


class Converter(Struct, frozen=True):
    """The conversion of one column. `schema` is Kafka Connect's, without the keys of the field.

    `json` converts PostgreSQL's text to JSON; it raises ValueError or NotAnArray for text without a JSON form.
    `placeholder` is the JSON of an unsent TOASTed value, None if the type has none. `partly` replaces `json` for text
    without a JSON form: it is null, or an array in which the elements without a form are null.
    """

    schema: dict[str, Any]
    json: Callable[[str], bytes]
    placeholder: bytes | None = None
    partly: Callable[[str], bytes] = lambda _: b"null"

    def encode(self, text: str) -> bytes:
        """`json`, but raises Undecoded for text without a JSON form."""
        try:
            return self.json(text)
        except (ValueError, NotAnArray):
            raise Undecoded(text) from None


def converter(column: Column, numbers: Literal["exact", "string"]) -> Converter:
    """The converter of a column. Types of extensions are known by their names in any schema, as by the connector."""
    oid = column.type_oid if column.type_oid in BUILTIN else builtin_oids().get(column.type_name, 0)
    if oid:
        builtin = BUILTIN[oid]
        if not builtin.element or builtin.name in ("int2vector", "oidvector"):
            return _scalar(oid, column.typmod, numbers)
        return _array(_scalar(builtin.element, column.typmod, numbers), BUILTIN[builtin.element].delimiter)
    name = column.type_name.rpartition(".")[2]
    element = name.removesuffix("[]")
    known = _EXTENSIONS.get(element, _STRING)
    return known if element == name else _array(known, DELIMITERS.get(element, ","))


def _scalar(oid: int, typmod: int, numbers: Literal["exact", "string"]) -> Converter:
    name = BUILTIN[oid].name
    if name == "numeric":
        return _numeric(typmod, numbers)
    if name == "money":
        return _money(numbers)
    if name in ("bit", "varbit"):
        return _bits(typmod)
    if name in ("time", "timestamp"):
        return _temporal(name, typmod)
    if name == "timestamptz":
        digits = 6 if typmod < 0 else typmod
        read = times.timestamptz_text
        return _named("string", "io.debezium.time.ZonedTimestamp", lambda text: _dumps(read(text, digits)))
    return _SCALARS.get(name, _STRING)


def _named(type_: str, name: str, json: Callable[[str], bytes], placeholder: bytes | None = None) -> Converter:
    return Converter({"type": type_, "name": name, "version": 1}, json, placeholder)


def _struct(name: str, doc: str, fields: list[dict[str, Any]], json: Callable[[str], bytes]) -> Converter:
    return Converter({"type": "struct", "fields": fields, "name": name, "version": 1, "doc": doc}, json)


def _text(name: str) -> Converter:
    """A type with a name of its own whose values are PostgreSQL's text."""
    return _named("string", name, _dumps, _TEXT)


def _array(items: Converter, delimiter: str) -> Converter:
    """The converter of an array of one dimension: Connect has no others. Bounds are left out, as by the connector."""

    def item_or_null(text: str) -> bytes:
        try:
            return items.json(text)
        except ValueError:
            return b"null"

    def elements(item: Callable[[str], bytes]) -> Callable[[str], bytes]:
        read = reader(ValueKind.JSON, item, delimiter)

        def json(text: str) -> bytes:
            bounded = bounds(text)
            start = bounded.end() - 1 if bounded else 0
            if text.startswith("{{", start):
                raise ValueError("an array of more than one dimension")
            return read(text[start:])

        return json

    known = elements(item_or_null)

    def partly(text: str) -> bytes:
        try:
            return known(text)
        except (ValueError, NotAnArray):
            return b"null"

    placeholder = items.placeholder and b"[%b]" % items.placeholder
    if items.schema["type"] in ("int16", "int32", "int64") and items.schema.get("name") in (None, _DATE):
        placeholder = _dumps(list(UNAVAILABLE.encode()))
    schema = {"type": "array", "items": {**items.schema, "optional": True}}
    return Converter(schema, elements(items.json), placeholder, partly)


def _integer(text: str) -> bytes:
    if not _is_integer(text):
        raise ValueError("not an integer")
    return text.encode()


def _float(text: str) -> bytes:
    """A number with all its digits; NaN and infinities are strings, as Kafka's converter writes them."""
    if text in _SPECIAL:
        return _dumps(text)
    if not _is_number(text):
        raise ValueError("not a number")
    return text.encode()


def _boolean(true: str, false: str) -> Callable[[str], bytes]:
    def json(text: str) -> bytes:
        if text not in (true, false):
            raise ValueError(f"neither {true} nor {false}")
        return b"true" if text == true else b"false"

    return json


def _bytea(text: str) -> bytes:
    if not text.startswith("\\x"):
        raise ValueError("not bytea in hex")
    return _bytes(bytes.fromhex(text[2:]))


def _bytes(data: bytes) -> bytes:
    return b'"%b"' % b64encode(data)


def _numeric(typmod: int, numbers: Literal["exact", "string"]) -> Converter:
    if numbers == "string":
        return Converter({"type": "string"}, _numeric_text)
    modifier = numeric_modifier(typmod)
    if modifier is None:
        fields = [
            {"type": "int32", "optional": False, "field": "scale"},
            {"type": "bytes", "optional": False, "field": "value"},
        ]
        return _struct("io.debezium.data.VariableScaleDecimal", "Variable scaled decimal", fields, _variable_scale)
    precision, scale = modifier
    return _decimal(scale, {"connect.decimal.precision": str(precision)}, _is_decimal)


def _numeric_text(text: str) -> bytes:
    if text not in _SPECIAL and not _is_decimal(text):
        raise ValueError("not a decimal")
    return _dumps(_SPECIAL.get(text, text))


def _decimal(scale: int, parameters: dict[str, str], is_decimal: Callable[[str], re.Match[str] | None]) -> Converter:
    """Kafka Connect's Decimal: the unscaled value as bytes in base64."""

    def json(text: str) -> bytes:
        match = is_decimal(text)
        if match is None:
            raise ValueError("not a decimal")
        digits, fraction = match[2].replace(",", ""), match[3] or ""
        if len(fraction) > scale and (digits + fraction)[len(digits) + scale :].strip("0"):
            raise ValueError("digits beyond the scale")
        shifted = (digits + fraction.ljust(max(scale, 0), "0"))[: len(digits) + scale] or "0"
        return _bytes(_two_complement(match[1] + shifted))

    name = "org.apache.kafka.connect.data.Decimal"
    schema = {"type": "bytes", "name": name, "version": 1, "parameters": {"scale": str(scale), **parameters}}
    return Converter(schema, json)


def _two_complement(digits: str) -> bytes:
    """An integer as Java's BigInteger.toByteArray() gives it."""
    value = int(digits) if len(digits) < 100 else int(Decimal(digits))  # int() is limited to 4300 digits
    return value.to_bytes((value if value >= 0 else ~value).bit_length() // 8 + 1, signed=True)


def _variable_scale(text: str) -> bytes:
    match = _is_decimal(text)
    if match is None:
        raise ValueError("not a decimal")
    fraction = (match[3] or "").rstrip("0")
    return b'{"scale":%d,"value":%b}' % (len(fraction), _bytes(_two_complement(match[1] + match[2] + fraction)))


def _money(numbers: Literal["exact", "string"]) -> Converter:
    if numbers == "exact":
        return _decimal(2, {}, _is_money)

    def json(text: str) -> bytes:
        match = _is_money(text)
        if match is None:
            raise ValueError("not money in the C locale")
        return _dumps(f"{match[1]}{match[2].replace(',', '')}.{match[3]}")

    return Converter({"type": "string"}, json)


def _bits(typmod: int) -> Converter:
    """Bits as bytes, the last bit first, without leading zero bytes. bit(1) and varbit(1) are booleans."""

    def json(text: str) -> bytes:
        if not _is_bits(text):
            raise ValueError("not a bit string")
        value = int(f"0{text}", 2)
        return _bytes(value.to_bytes((value.bit_length() + 7) // 8, "little"))

    if typmod == 1:
        return Converter({"type": "boolean"}, _boolean("1", "0"))
    length = str(typmod if typmod > 0 else 2**31 - 1)
    name = "io.debezium.data.Bits"
    return Converter({"type": "bytes", "name": name, "version": 1, "parameters": {"length": length}}, json)


def _temporal(name: str, typmod: int) -> Converter:
    """time and timestamp: milliseconds if the column has at most three fractional digits, else microseconds."""
    read = times.time_micros if name == "time" else times.timestamp_micros
    word = name.capitalize()
    if 0 <= typmod <= 3:
        infinite = (times.POSITIVE_INFINITY, times.NEGATIVE_INFINITY)

        def millis(text: str) -> bytes:
            micros = read(text)
            return b"%d" % (micros if micros in infinite else micros // 1000)

        return _named("int32" if name == "time" else "int64", f"io.debezium.time.{word}", millis)
    return _named("int64", f"io.debezium.time.Micro{word}", lambda text: b"%d" % read(text))


def _point(text: str) -> bytes:
    """x and y, and the point in WKB (little endian)."""
    match = _is_point(text)
    if match is None:
        raise ValueError("not a point")
    wkb = struct.pack("<BIdd", 1, 1, float(match[1]), float(match[2]))
    return b'{"x":%b,"y":%b,"wkb":%b,"srid":null}' % (_float(match[1]), _float(match[2]), _bytes(wkb))


def _geometry(text: str) -> bytes:
    """PostGIS' EWKB in hexadecimal: all of it, and its SRID."""
    if not _is_ewkb(text):
        raise ValueError("not EWKB")
    data = bytes.fromhex(text)
    flags, srid = struct.unpack_from("<Ii" if data[0] else ">Ii", data, 1)
    return b'{"wkb":%b,"srid":%b}' % (_bytes(data), b"%d" % srid if flags & 0x20000000 else b"null")


def _vector(text: str) -> bytes:
    if not _is_vector(text):
        raise ValueError("not a vector")
    return text.encode()


def _vector_of(element: str, name: str) -> Converter:
    items = {"type": element, "optional": False}
    return Converter({"type": "array", "items": items, "name": name, "version": 1}, _vector)


def _sparse_vector(text: str) -> bytes:
    """The map has 16-bit keys, which JsonConverter writes as an array of pairs."""
    match = _is_sparse_vector(text)
    if match is None or int(match[2]) >= 1 << 15:
        raise ValueError("not a sparse vector of at most 32767 dimensions")
    pairs = f"[{match[1].replace(',', '],[').replace(':', ',')}]" if match[1] else ""
    return f'{{"dimensions":{match[2]},"vector":[{pairs}]}}'.encode()


def _hstore(text: str) -> bytes:
    """A JSON object, as a string."""
    return _dumps(_dumps(hstore_pairs(text)).decode())


_TEXT: Final = _dumps(UNAVAILABLE)
_STRING: Final = Converter({"type": "string"}, _dumps, _TEXT)
_JSON: Final = "io.debezium.data.Json"
_DATE: Final = "io.debezium.time.Date"
_POINT_FIELDS: Final = [
    {"type": "double", "optional": False, "field": "x"},
    {"type": "double", "optional": False, "field": "y"},
    {"type": "bytes", "optional": True, "field": "wkb"},
    {"type": "int32", "optional": True, "field": "srid"},
]
_GEOMETRY_FIELDS: Final = [
    {"type": "bytes", "optional": False, "field": "wkb"},
    {"type": "int32", "optional": True, "field": "srid"},
]
_SPARSE_VECTOR_FIELDS: Final = [
    {"type": "int16", "optional": False, "field": "dimensions"},
    {
        "type": "map",
        "keys": {"type": "int16", "optional": False},
        "values": {"type": "double", "optional": False},
        "optional": False,
        "field": "vector",
    },
]
_SCALARS: Final = {
    "bool": Converter({"type": "boolean"}, _boolean("t", "f")),
    "int2": Converter({"type": "int16"}, _integer),
    "int4": Converter({"type": "int32"}, _integer),
    "int8": Converter({"type": "int64"}, _integer),
    "oid": Converter({"type": "int64"}, _integer),
    "float4": Converter({"type": "float"}, _float),
    "float8": Converter({"type": "double"}, _float),
    "bytea": Converter({"type": "bytes"}, _bytea, _bytes(UNAVAILABLE.encode())),
    "date": _named("int32", _DATE, lambda text: b"%d" % times.date_days(text)),
    "timetz": _named("string", "io.debezium.time.ZonedTime", lambda text: _dumps(times.timetz_text(text))),
    "interval": _named("int64", "io.debezium.time.MicroDuration", lambda text: b"%d" % times.interval_micros(text)),
    "json": _text(_JSON),
    "jsonb": _text(_JSON),
    "xml": _text("io.debezium.data.Xml"),
    # Java's UUID.nameUUIDFromBytes() of the placeholder, for arrays.
    "uuid": _named("string", "io.debezium.data.Uuid", _dumps, _dumps("b68a35a7-17ad-35b3-af2a-ae46edb4545a")),
    "tsvector": _text("io.debezium.data.Tsvector"),
    "point": _struct("io.debezium.data.geometry.Point", "Geometry (POINT)", _POINT_FIELDS, _point),
}
_EXTENSIONS: Final = {
    "hstore": _named("string", _JSON, _hstore, _dumps(_dumps({UNAVAILABLE: UNAVAILABLE}).decode())),
    "ltree": _text("io.debezium.data.Ltree"),
    "geometry": _struct("io.debezium.data.geometry.Geometry", "Geometry", _GEOMETRY_FIELDS, _geometry),
    "geography": _struct("io.debezium.data.geometry.Geography", "Geography", _GEOMETRY_FIELDS, _geometry),
    "vector": _vector_of("double", "io.debezium.data.DoubleVector"),
    "halfvec": _vector_of("float", "io.debezium.data.FloatVector"),
    "sparsevec": _struct(
        "io.debezium.data.SparseDoubleVector", "Sparse double vector", _SPARSE_VECTOR_FIELDS, _sparse_vector
    ),
}
