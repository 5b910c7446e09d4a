"""The names of types against format_type() of real servers, and the table of built-in types against pg_type."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgtail.values import Types, oids
from pgtail.values.oids import BUILTIN
from tests.tools.make_oids import QUERY, rewritten
from tests.values.conftest import World

MODIFIED = [
    "numeric(10,2)",
    "numeric(38,0)",
    "numeric(10,2)[]",
    "varchar(20)",
    "varchar(20)[]",
    "character(5)",
    "bpchar",
    "bit(5)",
    "bit varying(7)",
    "time(3)",
    "time(0) with time zone",
    "timestamp(3)",
    "timestamp(3) with time zone",
    "timestamp with time zone[]",
    "interval(3)",
    "interval year to month",
    "interval day to second(3)",
    "interval hour",
    "interval minute to second",
    "text",
    '"char"',
    "name",
]


def test_builtin_types(world: World) -> None:
    types = Types()
    rows = world.connection.execute(
        b"SELECT oid::int8, format_type(oid, -1) FROM pg_catalog.pg_type WHERE oid = ANY(%s)", [list(BUILTIN)]
    ).fetchall()
    assert len(rows) > 140
    assert [(oid, types.type_name(oid)) for oid, _ in rows if isinstance(oid, int)] == rows


def test_modifiers(world: World) -> None:
    types = Types()
    for number, column in enumerate(MODIFIED):
        world.connection.execute(f"CREATE TEMPORARY TABLE named{number} (c {column})".encode())
        row = world.connection.execute(
            "SELECT atttypid::int8, atttypmod, format_type(atttypid, atttypmod) FROM pg_catalog.pg_attribute "
            f"WHERE attrelid = 'pg_temp.named{number}'::regclass AND attnum = 1".encode()
        ).fetchone()
        assert row is not None
        oid, typmod, name = row
        assert isinstance(oid, int)
        assert isinstance(typmod, int)
        assert types.type_name(oid, typmod) == name


def test_negative_scale() -> None:
    assert Types().type_name(1700, (3 << 16 | (-2 & 0x7FF)) + 4) == "numeric(3,-2)"


@pytest.mark.parametrize(
    ("namespace", "name", "shown"),
    [
        ("public", "mood", "public.mood"),
        ("public", "_mood", "public.mood[]"),
        ("My Schema", 'We"ird', '"My Schema"."We""ird"'),
        ("", "int4", "integer"),
        ("", "_text", "text[]"),
        ("", "something_new", "something_new"),
    ],
)
def test_declared_types(namespace: str, name: str, shown: str) -> None:
    types = Types()
    assert types.type_name(16400) == "type 16400"
    types.declare(16400, namespace, name)
    assert types.type_name(16400) == shown


def test_domains_over_modified_types() -> None:
    types = Types()
    types.declare(16400, "", "numeric")
    assert types.type_name(16400, (10 << 16 | 2) + 4) == "numeric(10,2)"


def test_table_equals_the_catalogs(world: World) -> None:
    if world.version < 14:
        pytest.skip("its catalog has no multiranges")
    rows = world.connection.execute(QUERY.encode()).fetchall()
    assert len(rows) > 150
    for oid, *columns in rows:
        assert isinstance(oid, int)
        assert BUILTIN[oid] == tuple(columns)


def test_table_is_as_the_tool_writes_it() -> None:
    source = Path(oids.__file__).read_text()
    assert rewritten(source, BUILTIN) == source
