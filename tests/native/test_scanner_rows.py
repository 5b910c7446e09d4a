"""The scanner writes made-up rows as the decoder does, and stops at damage where it does."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pgtail.changes.commit_range import CommitRange
from pgtail.pgoutput.cursor import MAX_COLUMNS
from pgtail.pgoutput.scalars import Point
from pgtail.values.oids import BUILTIN, OIDS
from tests.support.encode import (
    UNCHANGED,
    Cell,
    begin,
    commit,
    delete,
    frame,
    insert,
    lengths,
    origin,
    recvlogical,
    relation,
    update,
)
from tests.support.render import WAYS, rows_by
from tests.support.run import decode
from tests.support.same import OUTPUTS, same
from tests.support.samples import SAMPLES
from tests.support.typed_rows import BINARY, TYPES

COLUMNS = st.sampled_from(["a", "b", "old.a", "old.b", "new.c", "c"])
VALUES = st.sampled_from(["1", "-0.50", "t", "'a'", "'2024-01-01'", "'%a_'"])
TESTS = st.one_of(
    st.sampled_from(["is null", "is not null", "~ '[0-9]'", "!~* a", "is true", "is distinct from old.a"]),
    st.sampled_from(["->>'a' = '1'", "->'a'->>'b' is null", "->>1 > 0", "->>'a' like '%1%'", "->>'a' <> 2"]),
    st.builds(
        "{} {}".format, st.sampled_from(["=", "<>", "<", "<=", ">=", "like", "ilike", "is distinct from"]), VALUES
    ),
    st.builds("in ({}, {}, 7)".format, VALUES, VALUES),
    st.builds("between {} and {}".format, VALUES, VALUES),
    st.builds(
        "{} {}".format, st.sampled_from(["=", "<>", "<", "is not distinct from"]), COLUMNS.filter(lambda c: "." in c)
    ),
)
CONDITIONS = st.one_of(
    st.builds("{} {}".format, COLUMNS, TESTS),
    st.sampled_from(["op = 'update'", "xid in (0, 2)", "commit_ts > '1990-01-01'", "commit_ts is null", "xid < 1.5"]),
    st.sampled_from(["changed(a)", "changed(b)", "table = t", "op in (insert, delete)"]),
)
FILTERS = st.one_of(
    st.none(),
    st.sampled_from([{"ops": ["insert"]}, {"ops": ["update", "delete"]}, {"xids": [0, 2]}, {"tables": ["t"]}]),
    st.builds(lambda one: {"where": [one]}, CONDITIONS),
    st.builds(
        lambda since, until: {"commits": CommitRange(Point(time=since), Point(lsn=until))},
        st.sampled_from([None, 0, 10**18, 2**63 - 1]),
        st.sampled_from([None, 0x1_2345_6789, 0x1_2345_678A]),
    ),
    st.builds(
        lambda left, word, right: {"where": [f"{left} {word} ({right})"]},
        CONDITIONS,
        st.sampled_from(["and", "or", "and not", "or not"]),
        CONDITIONS,
    ),
)
"""Filters of rows: conditions, tables, operations, transactions, ranges of commits."""

COMMON_TYPES = [OIDS[name] for name in ("bool", "int4", "text", "numeric", "bpchar", "date", "timestamptz", "jsonb")]

CELLS = st.one_of(
    st.none(),
    st.just(UNCHANGED),
    st.text(max_size=30),
    st.text(st.sampled_from('{},"\\ NULabt01-.e+\n\t\0\x1f\x7fé😀'), max_size=20),
    st.sampled_from(
        ["t", "f", "0", "-1", "007", "1.50", "NaN", "-Infinity", "1e5", '{"a": [1,\n2]}', "{1,2}", '{"a b"}']
    ),
    st.binary(max_size=40),
    st.integers(0, 2**64 - 1).map(lambda bits: bits.to_bytes(8, "big")),
    st.integers(0, 2**32 - 1).map(lambda bits: bits.to_bytes(4, "big")),
)


@st.composite
def cells_of(draw: st.DrawFn, oid: int) -> Cell:
    """A cell of this type, valid or not."""
    own: list[Cell] = [*SAMPLES.get(BUILTIN[oid].name, []), *BINARY.get(oid, [])]
    return draw(st.one_of(st.sampled_from(own), CELLS)) if own else draw(CELLS)


@st.composite
def transactions(draw: st.DrawFn) -> list[bytes]:
    """Messages about one table with columns of any types."""
    types = draw(st.lists(st.one_of(st.sampled_from(TYPES), st.sampled_from(COMMON_TYPES)), max_size=6))
    name = st.one_of(st.sampled_from("abc"), st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=5))
    columns = [(draw(name), oid) for oid in types]
    key = draw(st.sets(st.sampled_from(range(6)), max_size=3))
    identity = draw(st.sampled_from("dnfi"))
    table = draw(st.sampled_from(["t", 'q"%d\\', "é"]))
    messages = [relation(name=table, columns=columns, key=sorted(key), identity=identity)]
    row = st.tuples(*[cells_of(oid) for oid in types])
    old_row = row.map(lambda cells: tuple(cell if index in key else None for index, cell in enumerate(cells)))
    old = st.one_of(st.tuples(st.just("K"), old_row), st.tuples(st.sampled_from("KO"), row))
    for xid in range(draw(st.integers(1, 3))):
        time = draw(st.integers(-(2**63), 2**63 - 1))
        messages.append(begin(xid=xid, lsn=0x1_2345_6789 + xid, time=time))
        if draw(st.booleans()):
            messages.append(origin('or"i'))
        for _ in range(draw(st.integers(0, 4))):
            kind = draw(st.sampled_from("IUUUD"))
            if kind == "I":
                messages.append(insert(*draw(row)))
            elif kind == "U":
                tuple_kind, before = draw(st.one_of(st.just(("", None)), old))
                messages.append(update(draw(row), before, tuple_kind))
            else:
                tuple_kind, before = draw(old)
                messages.append(delete(*before, kind=tuple_kind))
        messages.append(commit(lsn=0x1_2345_6789 + xid, time=time, flags=draw(st.sampled_from([0, 0, 0, 1]))))
    return messages


@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(
    transactions(),
    st.sampled_from([0, 1, 0xFFFF_FFFF, 0x1_0000_0000, 2**64 - 1]),
    st.sampled_from(["exact", "string"]),
    st.sampled_from(OUTPUTS),
    FILTERS,
    st.sampled_from([None, ["*"], ["t.*a*,c1"]]),
)
def test_made_up_rows(
    messages: list[bytes],
    lsn: int,
    numbers: str,
    output: tuple[str, dict[str, Any]],
    filters: dict[str, Any] | None,
    redact: list[str] | None,
) -> None:
    name, options = output
    if name == "sql":
        redact = None
    same(*messages, output=name, lsn=lsn, filters=filters, redact=redact, **{"numbers": numbers, **options})


@pytest.mark.parametrize("binary", [False, True])
def test_every_value_of_every_type(binary: bool) -> None:
    for oid in TYPES:
        values: Sequence[Cell] = BINARY.get(oid, []) if binary else SAMPLES.get(BUILTIN[oid].name, [])
        rows = [insert(value) for value in values] + [delete(value) for value in values]
        for output, options in OUTPUTS:
            same(relation(columns=[("v", oid)]), begin(), *rows, commit(), output=output, **options)
        same(relation(columns=[("v", oid)]), begin(), *rows, commit(), numbers="string")


def test_many_patterns_of_nulls() -> None:
    choose = random.Random(0)
    columns = [(f"c{index}", (25, 23, 16, 1700)[index % 4]) for index in range(12)]
    rows = []
    for _ in range(300):
        row: list[Cell] = [choose.choice((None, ("a,b", "7", "t", "1.50")[index % 4])) for index in range(12)]
        if choose.random() < 0.05:
            row[choose.choice((1, 3))] = choose.choice(("no number", UNCHANGED))
        rows.append(choose.choice((insert(*row), update(row, row, "O"), delete(*row, kind="O"))))
    for output, options in OUTPUTS:
        same(relation(columns=columns, identity="f"), begin(), *rows, commit(), output=output, **options)


@pytest.mark.parametrize(("oid", "size"), [(700, 4), (701, 8), (1114, 8), (1184, 8), (1082, 4), (20, 8), (21, 2)])
def test_any_bits_of_a_fixed_size(oid: int, size: int) -> None:
    choose = random.Random(oid)
    cells = [choose.randbytes(size) for _ in range(3000)]
    # Usual numbers, too: exponents around zero, days around now.
    cells += [
        (0x3F80_0000 + choose.randrange(-(1 << 27), 1 << 27)).to_bytes(4, "big").ljust(size, b"\x5a")[:size]
        for _ in range(3000)
    ]
    cells += [choose.randrange(1 << 50).to_bytes(8, "big")[-size:] for _ in range(1000)]
    same(relation(columns=[("v", oid)]), begin(), *[insert(cell) for cell in cells], commit())


def test_any_numeric() -> None:
    choose = random.Random(1700)
    cells = []
    for _ in range(5000):
        digits = [choose.choice((0, 1, 10, 1000, 9999, choose.randrange(10_100))) for _ in range(choose.randrange(6))]
        head = (
            len(digits),
            choose.randrange(-4, 5) & 0xFFFF,
            choose.choice((0, 0, 0x4000, 0xC000)),
            choose.randrange(20),
        )
        cells.append(b"".join(value.to_bytes(2, "big") for value in (*head, *digits)))
    same(relation(columns=[("v", 1700)]), begin(), *[insert(cell) for cell in cells], commit())


@pytest.mark.parametrize("columns", [0, 1, MAX_COLUMNS])
def test_any_number_of_columns(columns: int) -> None:
    described = relation(columns=[(f"c{number}", 23) for number in range(columns)])
    row = [str(number) for number in range(columns)]
    rows = [insert(*row), update(row), update(row, row), delete(*row), insert(*row[1:])]
    if columns < MAX_COLUMNS:
        rows.append(insert(*row, "1"))
    same(described, begin(), *rows, commit())


@pytest.mark.parametrize("size", [7, 8, 9, 4096, 1 << 20, (1 << 20) + 1, 3 << 20])
@pytest.mark.parametrize("char", ["x", '"', "\x01", "é", "😀"])
def test_values_of_any_size(size: int, char: str) -> None:
    same(relation(), begin(), insert("1", char * (size // len(char.encode()))), insert("2", "next"), commit())


def test_table_whose_columns_change() -> None:
    other = relation(columns=[("n", 25), ("w", 23)])
    messages = [
        relation(),
        begin(),
        insert("1", "2"),
        other,
        insert("1", "2"),
        relation(oid=101),
        insert("1", "2"),
        commit(),
    ]
    written = same(*messages, begin(), insert("1", "2"), insert("3", "4", oid=101), commit())
    assert written.count(b'"id":1,"v":"2"') == 1
    assert written.count(b'"n":"1","w":2') == 3


def test_invalid_utf8() -> None:
    choose = random.Random("utf-8")
    cells = [choose.randbytes(choose.randrange(1, 5)) for _ in range(2000)]
    cells += [
        bytes([choose.randrange(0xC0, 0xF8)] + [choose.randrange(0x7E, 0xC2) for _ in range(3)]) for _ in range(4000)
    ]
    rows = [b"I\0\0\0\x64N\0\1t" + len(cell).to_bytes(4, "big") + cell for cell in cells]
    same(relation(columns=[("v", 25)]), begin(), *rows, commit())


FRAMINGS: dict[str, Callable[[Sequence[bytes]], bytes]] = {
    "recvlogical": lambda messages: recvlogical(*messages),
    "lengths": lambda messages: lengths(*messages, lsn=0x1_0000_0001),
    "copydata": lambda messages: b"".join(
        b"d" + (4 + len(framed)).to_bytes(4, "big") + framed for framed in [frame(data) for data in messages]
    ),
}


@pytest.mark.parametrize("form", FRAMINGS)
def test_damaged_files(form: str) -> None:
    """The same output, exit status and messages with and without the scanner."""
    choose = random.Random(form)
    messages = [relation(), begin()]
    messages += [insert("1", "one"), update(("1", None), ("2", None)), update(("1", UNCHANGED)), delete("1", None)] * 4
    data = FRAMINGS[form]([*messages, commit(), begin(), *messages[2:], commit()])
    for _ in range(150):
        damaged = bytearray(data)
        for _ in range(choose.randrange(1, 4)):
            damaged[choose.randrange(len(data))] = choose.choice((0, 0xFF, choose.randrange(256)))
        if choose.random() < 0.2:
            del damaged[choose.randrange(len(data)) :]
        options = ("--input-format", form, *(("--resync",) if choose.random() < 0.5 else ()))
        results = []
        for way in WAYS:
            with rows_by(way):
                done = decode(*options, input=bytes(damaged))
            results.append((done.status, done.stdout, re.sub(r"/\S+/input", "input", done.stderr)))
        assert results[0] == results[1]
