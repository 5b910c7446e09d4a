"""PostgreSQL's text as typed Arrow columns: every value is the server's own, or is rescued with its text."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgtail.arrow.typed import arrays, arrow_types, casts
from pgtail.arrow.typed.arrays import texts_by_name
from pgtail.arrow.typed.casts import retyped, texts_of
from pgtail.arrow.typed.columns import columns_of
from pgtail.arrow.typed.versions import Version, VersionColumn
from pgtail.demo.server import EmbeddedServer
from pgtail.native import compiled
from pgtail.values.format_type import builtin_type_name
from pgtail.values.oids import OIDS
from tests.support.randoms import RANDOM
from tests.support.samples import SAMPLES, SINCE
from tests.support.servers import fresh_database
from tests.support.truth import Connection, cast, pin

NO_SPARK_VALUE = re.compile(r"NaN|Infinity|infinity| BC|(?<!\d)\d{5,}-\d\d-\d\d|^\[")
"""The texts that may be rescued: nothing else."""


@pytest.fixture(scope="module")
def connection(newest_server: EmbeddedServer) -> Iterator[Connection]:
    with fresh_database(newest_server) as database, database.connect() as opened:
        pin(opened)
        yield opened


def declared(name: str, typmod: int = -1) -> Any:
    return arrow_types.Declared(OIDS[name], typmod, builtin_type_name(OIDS[name], typmod))


def holding(types: Sequence[Any]) -> Any:
    """The column of a table that had these types one after another."""
    return columns_of([Version("f", "s", "t", "default", (), (VersionColumn("c", one),)) for one in types])[0]


def maps(*rows: dict[str, str | None] | None) -> Any:
    return pa.array([None if row is None else list(row.items()) for row in rows], arrow_types.RESCUED)


def one_column(texts: Sequence[str | None], column: Any) -> tuple[list[Any], list[str | None]]:
    """The typed values, and what was rescued of each."""
    [array], rescued = casts.typed([pa.array(texts, pa.string())], [column])
    assert array.type == column.kind
    return array.to_pylist(), [None if row is None else dict(row)["c"] for row in rescued.to_pylist()]


def sql(value: Any, delimiter: str = ",") -> str:
    """A value of Python's as text that a server reads."""
    match value:
        case bool():
            return "t" if value else "f"
        case bytes():
            return f"\\x{value.hex()}"
        case datetime.datetime() | datetime.date():
            return value.isoformat()
        case Decimal():
            return f"{value:f}"
        case list():
            quoted = [None if one is None else sql(one).replace("\\", "\\\\").replace('"', '\\"') for one in value]
            items = delimiter.join("NULL" if one is None else f'"{one}"' for one in quoted)
            return f"{{{items}}}"
        case _:
            return str(value)


def check(connection: Connection, type_name: str, column: Any, texts: list[str]) -> list[Any]:
    """Each value, given back to the server, has the text it was made of; the others may have been rescued."""
    values, rescued = one_column(texts, column)
    for text, value, kept in zip(texts, values, rescued, strict=True):
        if value is None:
            assert kept == text, text
            assert NO_SPARK_VALUE.search(text), f"{text} was rescued"
        else:
            assert kept is None, text
    known = [
        (text, sql(value, column.delimiter)) for text, value in zip(texts, values, strict=True) if value is not None
    ]
    back = [text.decode() for text, _ in cast(connection, type_name, [given for _, given in known])]
    assert back == [text for text, _ in known]
    typed = pa.array([value for value in values if value is not None], column.kind)
    assert texts_of(typed, column.delimiter).to_pylist() == back
    return values


def listed(connection: Connection, name: str) -> list[str]:
    newer = SINCE.get(name, {})
    version = connection.info.server_version // 10000
    if name == "xml":
        pytest.skip("not every server has libxml")
    if connection.execute("SELECT to_regtype(%s)", [f"pg_catalog.{name}"]).fetchone() == (None,):
        pytest.skip(f"this server has no {name}")
    given = [value for value in SAMPLES[name] if version >= newer.get(value, 0)]
    return [text.decode() for text, _ in cast(connection, f'pg_catalog."{name}"', given)]


@pytest.mark.parametrize("name", SAMPLES)
def test_values_of_every_type(connection: Connection, name: str) -> None:
    column = holding([declared(name)])
    assert check(connection, f'pg_catalog."{name}"', column, listed(connection, name))


@pytest.mark.parametrize("name", [name for name in SAMPLES if f"_{name}" in OIDS and not name.endswith("vector")])
def test_arrays_of_every_type(connection: Connection, name: str) -> None:
    column = holding([declared(f"_{name}")])
    texts = [text for text in listed(connection, name) if column.kind.value_type != pa.string() or len(text) < 1000]
    element = f'pg_catalog."{name}"'
    rows = ", ".join(f"($_x_${text}$_x_$)" for text in texts)
    queries = [
        f"SELECT array_agg(v::{element}) FROM (VALUES {rows}) AS given(v)",
        f"SELECT ARRAY[v::{element}, NULL] FROM (VALUES {rows}) AS given(v)",
        f"SELECT '{{}}'::{element}[]",
    ]
    arrays = [str(row[0]) for query in queries for row in queried(connection, query)]
    check(connection, f"{element}[]", column, arrays)


def queried(connection: Connection, query: str) -> list[tuple[object, ...]]:
    return connection.execute(f"SELECT found::text FROM ({query}) AS x(found)".encode()).fetchall()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{1,2},{3,4}}", None),
        ("[0:1]={1,2}", None),
        ("{1,2147483648}", None),
        ("{1,NULL}", [1, None]),
        ("{}", []),
        ("{", None),
        ("1", None),
    ],
)
def test_an_array_is_whole_or_rescued(text: str, expected: list[int | None] | None) -> None:
    column = holding([declared("_int4")])
    # The others of the batch are what they are, whatever becomes of this one.
    values, rescued = one_column(["{7}", text, None, "{8,9}"], column)
    assert values == [[7], expected, None, [8, 9]]
    assert rescued == [None, None if expected is not None else text, None, None]


@pytest.mark.parametrize("precision", [(10, 2), (38, 0), (38, 38), (3, 5), (4, -2), (39, 0), (30, 10)])
def test_numeric_of_every_shape(connection: Connection, precision: tuple[int, int]) -> None:
    name = f"numeric({precision[0]},{precision[1]})"
    with connection.transaction(force_rollback=True):
        connection.execute(f"CREATE TABLE public.n (c {name})".encode())
        [(typmod,)] = connection.execute("SELECT atttypmod FROM pg_attribute WHERE attname = 'c'").fetchall()
    assert isinstance(typmod, int)
    column = holding([declared("numeric", typmod)])
    whole, scale = precision[0] - precision[1], precision[1]
    assert column.kind == (
        pa.string() if precision[0] > 38 else pa.decimal128(max(whole, 0) + max(scale, 0), max(scale, 0))
    )
    largest = f"{'9' * precision[0]}e{-precision[1]}"
    texts = [text.decode() for text, _ in cast(connection, name, [largest, f"-{largest}", "0", "NaN"])]
    check(connection, name, column, texts)


TYPED = ["bytea", "date", "float4", "float8", "int8", "timestamp", "timestamptz", "numeric"]


@pytest.mark.parametrize("name", TYPED)
def test_random_values(connection: Connection, name: str) -> None:
    source = Random(name)
    given = [RANDOM[name](source) for _ in range(200)]
    texts = [text.decode() for text, _ in cast(connection, f'pg_catalog."{name}"', given)]
    check(connection, f'pg_catalog."{name}"', holding([declared(name)]), texts)


JUNK = st.text(st.sampled_from("0123456789-+.:eE xXnaNInfity\\{},\"' BCtf"), max_size=14)
GOOD = st.sampled_from(
    ["1", "-7", "1.10", "t", "2020-02-29", "2020-02-29 10:00:00.5", "2020-02-29 10:00:00+00", "\\xff", "{1,2}", "NaN"]
)
KINDS = ["bool", "int2", "int8", "float4", "float8", "date", "timestamp", "timestamptz", "bytea", "_int4", "_bool"]


@given(st.lists(st.none() | JUNK | GOOD, max_size=12), st.sampled_from(KINDS))
@settings(max_examples=300)
def test_a_column_is_typed_as_its_values_are(texts: list[str | None], name: str) -> None:
    """Whatever stands beside it in its batch, a value is the same; and it is there, NULL, or rescued with its text."""
    column = holding([declared(name)])
    values, rescued = one_column(texts, column)
    for index, text in enumerate(texts):
        [alone], [kept] = one_column([text], column)
        assert repr(values[index]) == repr(alone)
        assert rescued[index] == kept == (text if alone is None else None)


@given(st.lists(st.none() | JUNK, min_size=1, max_size=8))
@settings(max_examples=200)
def test_only_digits_are_a_number(texts: list[str | None]) -> None:
    for kind, pattern in ((pa.int64(), r"-?\d{1,18}"), (pa.decimal128(30, 12), r"-?\d{1,14}(\.\d{1,12})?")):
        values = casts.cast(pa.array(texts, pa.string()), kind).to_pylist()
        for text, value in zip(texts, values, strict=True):
            if text is not None and re.fullmatch(pattern, text, re.ASCII):
                assert value == Decimal(text)
            elif value is not None:
                assert text is not None
                assert re.fullmatch(r"-?\d+(\.\d+)?", text, re.ASCII)


def of(one: Any) -> Any:
    """The type of this name, or of a numeric's name, precision and scale."""
    return declared(one) if isinstance(one, str) else declared(one[0], ((one[1] << 16) | one[2]) + 4)


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        (["int2", "int4"], "int32"),
        (["int4", "int8"], "int64"),
        (["int8", "int2"], "int64"),
        (["int4", ("numeric", 10, 2)], "decimal128(12, 2)"),
        ([("numeric", 10, 2), ("numeric", 12, 4)], "decimal128(12, 4)"),
        ([("numeric", 38, 0), ("numeric", 10, 4)], "string"),
        (["int8", "numeric"], "string"),
        (["int8", "text"], "string"),
        (["float4", "float8"], "double"),
        (["int4", "float4"], "double"),
        (["int8", "float8"], "string"),
        (["date", "timestamp"], "string"),
        (["_int2", "_int8"], "list<item: int64>"),
        (["_int4", "_text"], "list<item: string>"),
        (["_int4", "int4"], "string"),
        (["_box", "_text"], "string"),
        (["json", "jsonb"], "string"),
        (["bool", "bool"], "bool"),
    ],
)
def test_a_retyped_column_holds_all_versions(versions: list[Any], expected: str) -> None:
    known = [of(one) for one in versions]
    assert str(holding(known).kind) == expected
    assert str(holding(known[::-1]).kind) == expected


@pytest.mark.parametrize(
    ("before", "now", "values"),
    [
        ("int2", "int8", ["-32768", "7", None]),
        ("int4", "text", ["-7", None]),
        ("int4", ("numeric", 10, 2), ["-7", None]),
        ("int4", "float8", ["2147483647"]),
        ("float4", "float8", ["0.1", "-0", "1e+20", "NaN", "Infinity"]),
        ("float4", "numeric", ["0.1", "1e+20"]),
        (("numeric", 10, 2), "text", ["0.10", "-12345678.90"]),
        ("timestamptz", "text", ["2020-02-29 10:00:00.5+00"]),
        ("_float4", "_float8", ["{0.1,NULL}", "{}", None]),
        ("_int4", "_text", ["{1,NULL}", "{}", None]),
        ("_bool", "text", ["{t,f}"]),
    ],
)
def test_what_is_widened_is_as_if_it_had_been_so_from_the_beginning(before: Any, now: Any, values: list[str]) -> None:
    types = [of(before), of(now)]
    old, both = holding(types[:1]), holding(types)
    [array], rescued = casts.typed([pa.array(values, pa.string())], [old])
    assert rescued.null_count == len(values)
    [expected], _ = casts.typed([pa.array(values, pa.string())], [both])
    found = retyped(array, both.kind)
    assert repr(found.to_pylist()) == repr(expected.to_pylist())
    assert repr(retyped(found, old.kind).to_pylist()) == repr(array.to_pylist())


def test_a_domain_is_its_base_type_and_a_users_array_an_array_of_text() -> None:
    assert arrow_types.arrow_type(arrow_types.Declared(99999, -1, "integer")) == pa.int32()
    assert arrow_types.arrow_type(arrow_types.Declared(99999, -1, "timestamp with time zone")) == pa.timestamp(
        "us", "UTC"
    )
    assert arrow_types.arrow_type(arrow_types.Declared(99999, -1, "public.mood")) == pa.string()
    assert arrow_types.arrow_type(arrow_types.Declared(99999, -1, "public.mood[]")) == pa.list_(pa.string())


def test_what_was_not_decoded_is_rescued_and_what_is_absent_is_null() -> None:
    columns = [casts.TableColumn(name, name, pa.int32()) for name in ("a", "b")]
    rows = maps({"a": "1", "b": "2"}, {"b": "3"}, None, {"a": None, "b": "4"})
    texts = texts_by_name(rows, ["a", "b"])
    arrays, rescued = casts.typed(texts, columns, pa.array([["b"], None, [], []], pa.list_(pa.string())))
    assert [array.to_pylist() for array in arrays] == [[1, None, None, None], [None, 3, None, 4]]
    assert rescued.to_pylist() == [[("b", "2")], None, None, None]


def in_both_ways(function: Callable[[], Any]) -> tuple[Any, Any]:
    """What the compiled code makes, and what Python makes."""
    if compiled() is None:
        pytest.skip("the scanner was not built")
    fast = function()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "compiled", lambda: None)
        return fast, function()


def sliced(values: list[Any], kind: Any) -> Any:
    """An array that does not begin where its buffers do."""
    return pa.array([values[-1], *values], kind)[1:] if values else pa.array(values, kind)


NAMES = ["a", "bb", "é", "", "cc"]
ROW_TEXTS = st.dictionaries(st.sampled_from(NAMES), st.none() | st.text(max_size=3))


@given(rows=st.lists(ROW_TEXTS | st.none() | st.permutations(NAMES).map(lambda names: dict.fromkeys(names, "x"))))
def test_texts_of_maps_are_the_same_in_compiled_code(rows: list[dict[str, str | None] | None]) -> None:
    of_rows = sliced([None if row is None else list(row.items()) for row in rows], arrow_types.RESCUED)
    fast, plain = in_both_ways(lambda: texts_by_name(of_rows, NAMES[:-1]))
    for column, same in zip(fast, plain, strict=True):
        column.validate(full=True)
        assert column.equals(same)


HEX = st.binary(max_size=4).map(lambda data: f"\\x{data.hex()}")


@given(
    texts=st.lists(st.none() | HEX),
    other=st.lists(st.sampled_from(["", "\\x0", "\\x0g", "\\x00 0", "ab", "\\000", "\\xé", "x"])),
)
def test_bytes_in_hex_are_read_and_nothing_else(texts: list[str | None], other: list[str]) -> None:
    for given_texts in (texts, [*texts, *other, "\\xAB", *texts]):
        array = casts.cast(sliced(given_texts, pa.string()), pa.binary())
        array.validate(full=True)
        expected = [
            bytes.fromhex(text[2:]) if text is not None and re.fullmatch(r"\\x([0-9a-fA-F]{2})*", text) else None
            for text in given_texts
        ]
        assert array.to_pylist() == expected
