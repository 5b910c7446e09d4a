"""Damaged, hostile and random cells raise only Undecoded, in bounded memory and time."""

from __future__ import annotations

import json
import random
import struct
import time
import tracemalloc

import pytest
from psycopg.pq import ExecStatus

from pgtail.values import Codec, Types, Undecoded
from pgtail.values.nested import MAX_DEPTH
from pgtail.values.oids import BUILTIN, OIDS
from tests.support.cells import TypesScenario, array, binary_cells, record
from tests.support.limits import within
from tests.support.truth import unpadded
from tests.values.conftest import World

NUMBERS = (0, 1, 2, 3, 16, 100, 0x10000, 0x7FFFFFFF, -1, -2, -0x80000000)

CANONICAL = ("box", "json", "tsvector", "int2vector", "oidvector")
"""Parts of the names of types whose receive function also sorts, merges or reformats its input; no server sends
bytes that it would change. The same holds for every range and multirange."""


def mutated(source: random.Random, cell: bytes) -> bytes:
    damaged = bytearray(cell)
    for _ in range(source.randint(1, 3)):
        place = source.randrange(len(damaged) + 1)
        match source.randrange(5):
            case 0 if place < len(damaged):
                damaged[place] = source.choice([0, 1, 255, damaged[place] ^ 1 << source.randrange(8)])
            case 1:
                damaged[place:place] = source.randbytes(source.randint(1, 4))
            case 2:
                del damaged[place : place + source.randint(1, 4)]
            case 3:
                damaged[place : place + 4] = source.choice(NUMBERS).to_bytes(4, signed=True)
            case _:
                del damaged[place:]
    return bytes(damaged)


def show(codec: Codec, cell: bytes) -> str | None:
    """The text of a binary cell, None if it has none. For all bytes the JSON must be valid."""
    for read in (codec.json_text, codec.json_binary):
        try:
            json.loads(read(cell), parse_int=str, parse_float=str)
        except Undecoded:
            pass
    try:
        codec.text_text(cell)
    except Undecoded:
        pass
    try:
        return codec.text_binary(cell)
    except Undecoded:
        return None


@pytest.fixture(scope="module")
def types() -> Types:
    return TypesScenario("pg16").types()


def test_every_cell_as_every_type(types: Types) -> None:
    cells = {cell for _, cell in binary_cells() if len(cell) < 200}
    for oid in {*BUILTIN, *(oid for oid, _ in binary_cells())}:
        codec = types.codec(oid)
        for cell in cells:
            show(codec, cell)


def test_cells_that_the_server_accepts_are_read_the_same(world: World) -> None:
    """A damaged cell is either refused or read as the server's own receive function reads it."""
    source = random.Random(f"damaged {world.version}")
    skipped = ("reg", "xml", "aclitem", "money")
    cells = [
        (oid, cell)
        for oid, cell in binary_cells()
        if oid in BUILTIN and not any(word in BUILTIN[oid].name for word in (*skipped, *CANONICAL, "range"))
    ]
    types = Types()
    compared = 0
    for _ in range(6_000):
        oid, cell = source.choice(cells)
        cell = mutated(source, cell)
        shown = show(types.codec(oid), cell)
        result = world.connection.pgconn.exec_params(
            b"SELECT $1", [cell], param_types=[oid], param_formats=[1], result_format=0
        )
        if shown is None or result.status != ExecStatus.TUPLES_OK:
            continue
        said = result.get_value(0, 0)
        assert said is not None
        if world.version < 17 and "infinity" in shown and "interval" in BUILTIN[oid].name:
            continue
        if world.version < 16 and "char" in BUILTIN[oid].name:
            continue
        if world.version < 14 and (shown, BUILTIN[oid].name) == ("NaN", "numeric"):
            continue  # no server sends a NaN with a weight, and these make 0 of it
        if "pg_lsn" in BUILTIN[oid].name:
            said = unpadded(said)
        assert shown == said.decode(), (BUILTIN[oid].name, cell.hex())
        compared += 1
    assert compared > 500


def nested(depth: int, innermost: bytes) -> bytes:
    cell = record((25, innermost))
    for _ in range(depth - 1):
        cell = record((16400, cell))
    return cell


def test_nesting_is_limited() -> None:
    codec = Types().codec(16400)
    assert codec.text_binary(nested(MAX_DEPTH, b"x")).count("(") == MAX_DEPTH
    for depth in (MAX_DEPTH + 1, 1_000, 20_000):
        with pytest.raises(Undecoded):
            codec.text_binary(nested(depth, b"x"))
    assert codec.text_binary(nested(2, b"x")) == '("(x)")'


HOSTILE = {
    "numerics of 131072 digits": ("_numeric", array(1700, *[bytes.fromhex("00017fff000000000001")] * 20_000)),
    "quotes doubled at every level": ("pg_class", nested(MAX_DEPTH, b'"' * 20_000)),
    "a query of many NOTs": ("tsquery", struct.pack(">i", 50_001) + b"\2\1" * 50_000 + b"\1\0\0a\0"),
    "a query of many ORs": ("tsquery", struct.pack(">i", 50_001) + b"\2\3" * 25_000 + b"\1\0\0a\0" * 25_001),
    "dimensions that multiply": ("_int4", struct.pack(">iiI", 6, 0, 23) + struct.pack(">ii", 0x7FFFFFFF, 1) * 6),
    "a huge array": ("_int4", struct.pack(">iiIii", 1, 0, 23, 0x7FFFFFFF, 1) + bytes(100)),
    "a huge bit string": ("varbit", struct.pack(">i", 0x7FFFFFFF) + bytes(100)),
    "a huge polygon": ("polygon", struct.pack(">i", 0x7FFFFFFF) + bytes(160)),
    "a huge tsvector": ("tsvector", struct.pack(">i", 0x7FFFFFFF) + b"a\0\0\0" * 100),
    "deep json": ("json", b"[" * 1_000_000),
    "deep json in an array": ("_json", array(114, b'{"a":' * 200_000)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_cells(name: str) -> None:
    type_name, cell = HOSTILE[name]
    codec = Types().codec(OIDS[type_name])
    started = time.process_time()
    tracemalloc.start()
    try:
        show(codec, cell)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 128 * 1024 * 1024 + 4 * len(cell)
    assert time.process_time() - started < within(30)


def test_hostile_text() -> None:
    types = Types()
    cells = [
        b"{" * 1_000_000,
        b"{" + b'"\\\\' * 300_000,
        b'{"' + b"\\a" * 1_000_000 + b'"}',
        b"{" + b"a," * 500_000 + b"a}",
    ]
    cells += [b"1" * 1_000_000 + b"x", b"-" * 1_000_000, b"[" * 1_000_000, b'"' + b"\\u00" * 300_000]
    for name in ("_text", "_int4", "_json", "json", "numeric", "text"):
        for cell in cells:
            started = time.process_time()
            show(types.codec(OIDS[name]), cell)
            assert time.process_time() - started < within(20)
