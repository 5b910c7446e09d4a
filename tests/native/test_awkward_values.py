"""Decoder and scanner write the same of values that no server sends: with a NUL, or of another type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pgtail.values.oids import OIDS
from tests.support.encode import INT4, begin, commit, delete, insert, relation, update
from tests.support.same import OUTPUTS, same

TYPES = (
    *(
        "json",
        "jsonb",
        "text",
        "varchar",
        "int4",
        "numeric",
        "bool",
        "bytea",
        "date",
        "timestamp",
        "timestamptz",
        "uuid",
    ),
    *(
        "float4",
        "xml",
        "inet",
        "interval",
        "money",
        "point",
        "int4range",
        "_text",
        "_int4",
        "_bool",
        "_json",
        "_numeric",
    ),
)
VALUES = (
    *(
        "",
        "\0",
        "a\0b",
        "12\0",
        "1.5\0",
        "t\0",
        "2020-01-01\0",
        '"\0"',
        '{"a":1}\0',
        '{"a\0":1}',
        "[1,1\x000e2]",
        "{1,2\0}",
    ),
    *(
        "{a,b\0c}",
        "(1,2\0)",
        "x'\0y",
        "\\\0",
        "\x01",
        "\x7f",
        "\\x0",
        "nul",
        "[1 2]",
        "{1,}",
        "2020-01-01x",
        "1e",
        "- 1",
    ),
)


def rows(oid: int) -> Iterator[bytes]:
    yield insert("1", "1", oid=oid)
    for value in VALUES:
        yield insert("1", value, oid=oid)
        yield update(("1", value), oid=oid)
        yield update(("1", "1"), ("2", value), "O", oid=oid)
        yield delete("1", value, kind="O", oid=oid)


@pytest.mark.parametrize(("output", "options"), OUTPUTS)
def test_awkward_values(output: str, options: dict[str, Any]) -> None:
    messages = [begin()]
    for oid, name in enumerate(TYPES, 100):
        messages += [relation(oid, f"of_{name}", columns=[("id", INT4), ("a", OIDS[name])]), *rows(oid)]
    same(*messages, commit(), output=output, **options)
