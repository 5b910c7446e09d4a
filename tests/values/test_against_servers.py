"""The binary form of every type, read as exactly the text that real servers print: listed values and random ones."""

from __future__ import annotations

import json
import random

import pytest

from pgtail.values import Types, Undecoded, ValueKind
from pgtail.values.oids import BUILTIN
from tests.support.randoms import RANDOM
from tests.support.samples import EXTENSION_SAMPLES, SAMPLES, SINCE, USER_SAMPLES
from tests.support.truth import both_forms, cast, unpadded
from tests.values.conftest import World

PG_CATALOG = "pg_catalog"
FLOATING = ("float4", "float8", "point", "line", "lseg", "box", "path", "polygon", "circle")


def check(types: Types, oid: int, cells: list[tuple[bytes, bytes]]) -> None:
    """Both forms give the same text and the same JSON, and that is JSON."""
    codec = types.codec(oid)
    for text, binary in cells:
        alike = unpadded(text) if oid in (builtin("pg_lsn"), builtin("_pg_lsn")) else text
        assert codec.text_text(text) == text.decode()
        assert codec.text_binary(binary) == alike.decode()
        token = codec.json_text(text)
        assert codec.json_binary(binary) == codec.json_text(alike)
        assert b"\n" not in token
        json.loads(token, parse_int=str, parse_float=str)


def builtin(name: str) -> int:
    """The OID of a built-in type."""
    return next(oid for oid, row in BUILTIN.items() if row.name == name)


def sql_name(name: str) -> str:
    return f'{PG_CATALOG}."{name}"'


def samples(world: World, name: str) -> list[str]:
    """The listed values of a type that this server's version knows. Skips the test if it does not know the type."""
    need_type(world, name)
    if name == "xml" and not world.has_xml:
        pytest.skip("this server was built without libxml")
    if world.version < 12 and name in FLOATING:
        pytest.skip("PostgreSQL before 12 writes floating point numbers with 17 digits, also where fewer suffice")
    newer = SINCE.get(name, {})
    return [value for value in SAMPLES[name] if world.version >= newer.get(value, 0)]


def need_type(world: World, name: str) -> None:
    row = world.connection.execute(b"SELECT pg_catalog.to_regtype(%s) IS NULL", [sql_name(name)]).fetchone()
    if row == (True,):
        pytest.skip(f"PostgreSQL {world.version} has no {name}")


@pytest.mark.parametrize("name", SAMPLES)
def test_listed_values(world: World, name: str) -> None:
    cells = cast(world.connection, sql_name(name), list(samples(world, name)))
    assert cells
    check(Types(), builtin(name), cells)


@pytest.mark.parametrize("name", [name for name in SAMPLES if not name.endswith("vector") or name == "tsvector"])
def test_arrays_of_listed_values(world: World, name: str) -> None:
    values = [*samples(world, name), None]
    rows = ", ".join(f"(${number}::{sql_name(name)})" for number in range(1, len(values) + 1))
    one = f"SELECT array_agg(v) FROM (VALUES {rows}) AS given(v)"
    two = f"SELECT array_agg(a) FROM (SELECT ({one}) UNION ALL SELECT ({one})) AS twice(a)"
    empty = f"SELECT '{{}}'::{sql_name(name)}[]"
    bounds = f"SELECT array_fill(v, ARRAY[1, 2], ARRAY[-1, 5]) FROM (VALUES {rows}) AS given(v)"
    for query, parameters in ((one, values), (two, values), (empty, []), (bounds, values)):
        cells = both_forms(world.connection, query, *parameters)
        assert cells
        check(Types(), builtin(f"_{name}"), cells)


@pytest.mark.parametrize("name", ["int2vector", "oidvector"])
def test_arrays_of_vectors(world: World, name: str) -> None:
    literal = '{"1 2","",NULL,3}'
    check(Types(), builtin(f"_{name}"), both_forms(world.connection, f"SELECT '{literal}'::{sql_name(name)}[]"))


@pytest.mark.parametrize("name", RANDOM)
def test_random_values(world: World, name: str) -> None:
    need_type(world, name)
    source = random.Random(f"{name} {world.version}")
    values = [RANDOM[name](source) for _ in range(1000)]
    cells = cast(world.connection, sql_name(name), values)
    assert len(cells) == len(values)
    check(Types(), builtin(name), cells)


@pytest.mark.parametrize("name", USER_SAMPLES)
def test_user_types(world: World, name: str) -> None:
    expressions = USER_SAMPLES[name]
    cells = [cell for expression in expressions for cell in both_forms(world.connection, f"SELECT {expression}")]
    assert len(cells) == len(expressions)
    check(world.types(), world.oid(f"public.{name}"), cells)


@pytest.mark.parametrize("name", EXTENSION_SAMPLES)
def test_types_of_extensions(world: World, name: str) -> None:
    extension, values = EXTENSION_SAMPLES[name]
    if extension not in world.extensions:
        pytest.skip(f"this server has no {extension}")
    if world.version < 14:
        pytest.skip("not every one of these types had a binary form before")
    oid = world.oid(f"public.{name}")
    types = Types()
    types.declare(oid, "public", name)
    check(types, oid, cast(world.connection, f"public.{name}", list(values)))
    array_oid = world.oid(f"public.{name}[]")
    types = Types()
    types.declare(array_oid, "public", f"_{name}")
    rows = ", ".join(f"(${number}::public.{name})" for number in range(1, len(values) + 1))
    cells = both_forms(world.connection, f"SELECT array_agg(v) FROM (VALUES {rows}, (NULL)) AS given(v)", *values)
    check(types, array_oid, cells)


def test_rows_of_a_catalog(world: World) -> None:
    """A composite type with many fields, of types that the stream never declares."""
    cells = both_forms(world.connection, "SELECT s FROM pg_catalog.pg_auth_members s")
    check(Types(), builtin("pg_auth_members"), cells)
    cells = both_forms(
        world.connection,
        "SELECT ROW(1, 'a b', NULL, ARRAY[ROW(2, '\"')::public.pair], 1.50, now())::record WHERE false",
    )
    assert cells == []


@pytest.mark.parametrize(
    "expression",
    [
        "'pg_catalog.pg_class'::regclass",
        "'int4'::regtype",
        "ARRAY['int4'::regtype]",
        "'[0.1,0.3)'::public.float8_r",
        "'{[0.1,0.3)}'::public.float8_mr",
        "ARRAY['[0.1,0.3)'::public.float8_r]",
    ],
)
def test_types_without_a_decodable_binary_form(world: World, expression: str) -> None:
    if "_mr" in expression and world.version < 14:
        pytest.skip("PostgreSQL 14 has multiranges first")
    [(text, binary)] = both_forms(world.connection, f"SELECT {expression}")
    row = world.connection.execute(f"SELECT pg_typeof({expression})::oid::int8".encode()).fetchone()
    assert row is not None
    assert isinstance(row[0], int)
    codec = world.types().codec(row[0])
    assert codec.text_text(text) == text.decode()
    for read in (codec.text_binary, codec.json_binary):
        with pytest.raises(Undecoded) as undecoded:
            read(binary)
        assert undecoded.value.text == "\\x" + binary.hex()


def test_arrays_equal_to_json(world: World) -> None:
    source = random.Random("to_json")
    types = Types()
    arrays = [_random_text_array(source) for _ in range(500)]
    rows = ", ".join(f"(${number}::text[])" for number in range(1, len(arrays) + 1))
    both = both_forms(world.connection, f"SELECT v FROM (VALUES {rows}) AS given(v)", *arrays)
    truth = both_forms(world.connection, f"SELECT to_json(v) FROM (VALUES {rows}) AS given(v)", *arrays)
    codec = types.codec(builtin("_text"))
    assert codec.kind is ValueKind.ARRAY
    for (text, _), (said, _) in zip(both, truth, strict=True):
        assert json.loads(codec.json_text(text)) == json.loads(said)


def _random_text_array(source: random.Random) -> str:
    def element() -> str:
        text = "".join(source.choices('ab{}",\\ \n\t\vé😀NUL', k=source.randrange(5)))
        return source.choice(["NULL", "x", '"{}"'.format(text.replace("\\", "\\\\").replace('"', '\\"'))])

    def level(sizes: list[int]) -> str:
        if not sizes:
            return element()
        return "{" + ",".join(level(sizes[1:]) for _ in range(sizes[0])) + "}"

    return level([source.randint(1, 3) for _ in range(source.randint(1, 4))])
