"""Scanner and decoder agree about what no recording has: values, times and messages at the limits of what they know."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.encode import (
    UNCHANGED,
    begin,
    commit,
    delete,
    insert,
    lengths,
    relation,
    update,
)
from tests.support.render import WAYS, rows_by
from tests.support.run import decode
from tests.support.same import same

TABLE = relation(columns=[("id", 23), ("v", 25), ("f", 701), ("p", 1042)], identity="f")
ROWS = [
    insert("1", "éb", "-0", "t  "),
    insert("2", "ab", "0", "t"),
    insert("3", "xéb", "-0.0", None),
    insert("4", "É", "1", " t "),
    insert("5", "", "-1", "t\t"),
    update(("6", UNCHANGED, "2", "t "), ("5", "ab", "2", "x"), "O"),
    insert("7", "#", "7", "").replace(b"#", b"\xff"),
    update(("8", "t", "8", None), ("8", "t", b"no number", None), "O"),
]
LONG_AGO, TOO_EARLY = -(1 << 57), -(1 << 62)
"""Commit times before Christ, and before the first that PostgreSQL knows."""


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("v like '_b'", "126"),
        ("v like '_%'", "123468"),
        ("v like '%_b'", "1236"),
        ("v like '%é_'", "13"),
        ("table = new.v", "8"),
        ("f = 0", "123"),
        ("f < 0.0", "5"),
        ("f <> -0.00", "45678"),
        ("p = 't'", "126"),
        ("v ilike 'A_'", "26"),
        ("xid is null", ""),
        ("xid is not null", "12345678"),
        ("xid ~ '^7$'", "12345678"),
        ("commit_ts < '2020-01-01'", "12345678"),
        ("commit_ts is null", ""),
    ],
)
@pytest.mark.parametrize("time", [0, LONG_AGO, TOO_EARLY])
def test_conditions(condition: str, ids: str, time: int) -> None:
    rows = [insert("0", None, None, None), *ROWS]
    messages = [begin(), *rows, commit(), begin(time=time), *rows, commit(time=time)]
    written = same(TABLE, *messages, filters={"where": [condition]})
    shown = "".join(chr(line.split(b'"new":{"id":')[1][0]) for line in written.splitlines()).replace("0", "")
    assert shown == ids * (1 if time == TOO_EARLY and "commit_ts" in condition else 2)


def test_times_before_christ() -> None:
    assert same(TABLE, begin(), *ROWS, commit(), begin(time=LONG_AGO), *ROWS, commit(time=LONG_AGO)).count(b" BC") == 8


def test_more_lists_of_unchanged_columns_than_are_kept() -> None:
    columns = 11
    rows = [
        update([UNCHANGED if number >> place & 1 else str(place) for place in range(columns)])
        for number in range(1 << columns)
    ]
    same(relation(columns=[(f"c{place}", 23) for place in range(columns)]), begin(), *rows, *rows[::-1], commit())


@pytest.mark.parametrize(
    ("output", "options"),
    [
        ("debezium", {}),
        ("debezium", {"transactions": True}),
        ("line", {}),
        ("json", {"filters": {"where": ["xid = 7 or commit_ts > '2020-01-01' or id > 2"]}}),
    ],
)
def test_rows_without_a_begin(output: str, options: dict[str, Any]) -> None:
    """Their transaction has no time, and no xid."""
    same(TABLE, *ROWS, *ROWS, commit(), output=output, **options)


def test_a_stream_that_starts_again() -> None:
    """Old rows of what came before are not those of now."""
    first = [begin(lsn=9), insert("1", "x"), insert("2", "y"), commit(lsn=9)]
    again = [begin(lsn=5), insert("1", "z"), insert("3", "w"), update(("3", "w"), ("3", "w"), "O"), commit(lsn=5)]
    data, found = lengths(relation(), *first, *again, begin(), delete("2", None), delete("1", None), commit()), []
    for way in WAYS:
        with rows_by(way):
            found.append(decode("--old-values", "seen", input=data).stdout)
    assert found[0] == found[1]
    assert [found[0].count(b'"v":"%c"' % value) for value in b"xyz"] == [1, 1, 2]
