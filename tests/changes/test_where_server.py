"""Conditions mean what the server takes them to mean: it evaluates the same WHERE on the same rows."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable
from typing import Any

import psycopg
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pgtail.changes.filters import Filter
from pgtail.native import compiled
from tests.support.render import WAYS, render
from tests.support.servers import Database
from tests.support.workload import make_slots, pgoutput, pinned

JSON = ['{"k": "x", "n": 5, "a": [1, "z", null], "o": {"k": "Y\\u00e9"}}', '{"k": null, "n": "5"}', '["k", 7]', '"k"']
DUPLICATES = '{"k" : "a b", "k":{ "z" : [ 1 ]}, "\\u006b": "late"}'
VALUES: dict[str, tuple[str, list[str]]] = {
    "i": ("int4", ["0", "1", "-5", "100"]),
    "n": ("numeric", ["0", "1.5", "1.50", "-2.25", "NaN", "12345678901234567890.123", "0.00", "1e30"]),
    "f": ("float8", ["1.5", "1e20", "NaN", "-0", "0.1", "-Infinity"]),
    "t": ('text COLLATE "C"', ["", "a", "A", "ab%", "a_b", "a\\b", "ünï", "10", "it's", " a ", "aab", "b\nb", "null"]),
    "s": ('text COLLATE "C"', ["a", "ab%", "b", "", "ünï"]),
    "c": ("char(4)", ["ab", "abc", "", "a b"]),
    "b": ("bool", ["t", "f"]),
    "ts": (
        "timestamp",
        [
            "2024-01-02 03:04:05",
            "2024-01-02 03:04:05.5",
            "2024-01-02",
            "infinity",
            "0044-03-15 12:00:00 BC",
            "12024-01-01",
        ],
    ),
    "tz": (
        "timestamptz",
        ["2024-01-02 03:04:05+00", "2024-01-02 05:04:05+02", "-infinity", "2024-01-02 03:04:04.999999"],
    ),
    "d": ("date", ["2024-01-02", "0044-03-15 BC", "12024-01-01", "infinity", "1999-12-31"]),
    "u": ("uuid", ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A12"]),
    "l": ("pg_lsn", ["0/0", "0/1949A30", "0/01949a30", "A/9", "10/1", "FFFFFFFF/FFFFFFFF"]),
    "j": ("jsonb", JSON),
    "js": ("json", [*JSON, DUPLICATES]),
    "ia": ("int4[]", ["{}", "{1,2}", "{10}", "{NULL,-3}", "{{1,2},{3,4}}", "[0:1]={7,8}"]),
    "ta": ("text[]", ['{a,"b c"}', '{NULL,"NULL",""}', '{"it\'s","\\"q\\"","\\\\"}', "{ünï}", '{{a,"x,y"},{"{","}"}}']),
    "na": ("numeric[]", ["{1.50,NaN}", "{-0.00}"]),
    "da": ("date[]", ["{2024-01-02,infinity}", '{"0044-03-15 BC"}']),
}
DOCUMENTS = ("j", "js")
ARRAYS = [name for name, (type_, _) in VALUES.items() if type_.endswith("[]")]
ORDERED = [name for name in VALUES if name not in (*DOCUMENTS, *ARRAYS)]
ROWS = 60

Pair = tuple[str, str]
"""A condition for pgtail, and for the server."""


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def operands(names: list[str]) -> st.SearchStrategy[tuple[Pair, str]]:
    """A column in either row, with its name."""
    prefixes = st.sampled_from([("", "new."), ("new.", "new."), ("old.", "old.")])
    return st.builds(lambda name, way: ((way[0] + name, way[1] + name), name), st.sampled_from(names), prefixes)


@st.composite
def comparisons(draw: st.DrawFn) -> Pair:
    (ours, theirs), name = draw(operands(ORDERED))
    value = st.sampled_from(VALUES[name][1]).map(quoted)
    low = draw(value)
    if name in "inf" and draw(st.booleans()) and re.fullmatch(r"'-?[\d.]+'", low):
        low = low.strip("'")
    tests = st.one_of(
        st.sampled_from(["=", "!=", "<>", "<", "<=", ">", ">="]).map(lambda op: f"{op} {low}"),
        st.lists(value, min_size=1, max_size=4).map(lambda values: f"IN ({', '.join(values)})"),
        st.lists(value, min_size=1, max_size=2).map(lambda values: f"not in ({','.join(values)})"),
        st.just(f"between {low} and {draw(value)}"),
        st.just(f"NOT BETWEEN {low} AND {draw(value)}"),
        st.sampled_from(["is null", "IS NOT NULL"]),
        st.sampled_from([f"is distinct from {low}", f"is not distinct from {low}"]),
    )
    test = draw(tests)
    return f"{ours} {test}", f"{theirs} {test}"


@st.composite
def patterns(draw: st.DrawFn) -> Pair:
    (ours, theirs), _ = draw(operands(["t", "s", "c", "t"]))
    text = draw(st.text(st.sampled_from("aAb%_ü'1\n"), max_size=5))
    escapes = draw(st.sampled_from(["", "\\%", "\\_", "\\\\", "\\a"]))
    like = draw(st.sampled_from(["like", "not like", "ilike", "NOT ILIKE"])) + " " + quoted(text + escapes + text[:1])
    search = (
        draw(st.sampled_from(["~", "!~", "~*", "!~*"]))
        + " '"
        + draw(st.sampled_from(["a", "^a", "b$", "[0-9]+", "a.b"]))
        + "'"
    )
    test = draw(st.sampled_from([like, search]))
    return f"{ours} {test}", f"{theirs} {test}"


@st.composite
def members(draw: st.DrawFn) -> Pair:
    (ours, theirs), name = draw(operands([*DOCUMENTS]))
    paths = ["->>'k'", "->>'n'", "->>'none'", "->'o'->>'k'", "->'a'->>1", "->'a'->>-1", "->>'a'", "->>'o'"]
    if name == "js":
        paths.append("->>0")  # of a scalar in jsonb the server makes an array
    path = draw(st.sampled_from(paths))
    if draw(st.booleans()):
        return draw(numbers(f"{ours}{path}", f"{theirs}{path}"))
    test = draw(
        st.sampled_from(
            [
                "= 'x'",
                "is distinct from old.js->>'k'",
                "= new.j->'a'->>-2",
                "<> old.j->>'k'",
                "<> '5'",
                "in ('5', 'z')",
                "> '6'",
                "<= 'x'",
                "between '5' and 'Z'",
                "not between 'a' and 'y'",
                "not ilike '%Z%'",
                "like '%z%'",
                "is null",
                "is not null",
                "~ '[0-9]'",
                "= '{ \"z\" : [ 1 ]}'",
            ]
        )
    )
    return f"{ours}{path} {test}", f"{theirs}{path} {test}"


def numbers(ours: str, theirs: str) -> st.SearchStrategy[Pair]:
    """A member compared with numbers: one that is none is NULL."""
    number = f"(CASE WHEN {theirs} ~ '^[0-9]+$' THEN ({theirs})::numeric END)"
    tests = ["= 5", "<> 5", "> 4.5", "<= 7", "in (1, 5.0)", "not in (7)", "between 1 and 6", "is distinct from 5"]
    return st.sampled_from(tests).map(lambda test: (f"{ours} {test}", f"{number} {test}"))


@st.composite
def arrays(draw: st.DrawFn) -> Pair:
    """An array is compared by its text, not by its elements."""
    (ours, theirs), name = draw(operands(ARRAYS))
    value = st.sampled_from(VALUES[name][1]).map(quoted)
    low = draw(value)
    tests = [
        *[f"{op} {low}" for op in ("=", "<>", "<", ">=", "is distinct from", "is not distinct from")],
        f"in ({low}, {draw(value)})",
        f"between {low} and {draw(value)}",
        "is null",
        "like '%\\\\%'",
        "ilike '%B C%'",
        "~ '[0-9],'",
    ]
    test = draw(st.sampled_from(tests))
    return f"{ours} {test}", f'({theirs}::text COLLATE "C") {test}'


@st.composite
def columns(draw: st.DrawFn) -> Pair:
    """A column compared with the same one in the other row, or with another of its type."""
    name = draw(st.sampled_from(ORDERED))
    op = draw(st.sampled_from(["=", "<>", "<", ">=", "is distinct from", "is not distinct from"]))
    left, right = draw(
        st.sampled_from([(f"old.{name}", f"new.{name}"), (f"new.{name}", f"old.{name}"), ("old.t", "new.s")])
    )
    return f"{left} {op} {right}", f"{left} {op} {right}"


def simple() -> st.SearchStrategy[Pair]:
    booleans = st.builds(
        lambda row, words: (f"{row}b is {words}", f"{row}b is {words}"),
        st.sampled_from(["old.", "new."]),
        st.sampled_from(["true", "not true", "FALSE", "not false", "unknown", "not unknown"]),
    )
    changed = st.sampled_from(list(VALUES)).map(
        lambda name: (f"changed({name})", f"old.{name}::text IS DISTINCT FROM new.{name}::text")
    )
    return st.one_of(comparisons(), comparisons(), patterns(), members(), arrays(), columns(), booleans, changed)


def joined(parts: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    def join(word: str, many: list[Pair]) -> Pair:
        return word.join(one for one, _ in many), word.join(other for _, other in many)

    def wrap(before: str, pair: Pair) -> Pair:
        return f"{before}({pair[0]})", f"{before}({pair[1]})"

    return st.one_of(
        st.builds(join, st.sampled_from([" and ", " OR ", "\nAND not "]), st.lists(parts, min_size=2, max_size=3)),
        st.builds(wrap, st.sampled_from(["", "not ", "NOT NOT "]), parts),
    )


CONDITIONS = st.recursive(simple(), joined, max_leaves=6)


def test_the_server_selects_the_same_rows(newest_database: Database) -> None:
    captures = updated_rows(newest_database)
    with pinned(newest_database) as session:

        @settings(max_examples=25, suppress_health_check=list(HealthCheck))
        @given(CONDITIONS)
        def check(pair: Pair) -> None:
            for ours, theirs in (pair, (f"not ({pair[0]})", f"not ({pair[1]})")):
                expected = selected(session, theirs)
                for messages in captures:
                    for way in WAYS if compiled() is not None else WAYS[:1]:
                        filter_ = Filter(where=[ours])
                        shown = render(*messages, filter_=filter_, way=way).lines
                        assert [json.loads(line)["new"]["id"] for line in shown] == expected
                        assert filter_.not_sent == 0

        check()


def selected(session: psycopg.Connection[tuple[Any, ...]], where: str) -> list[int]:
    query = f"SELECT new.id FROM public.now AS new JOIN public.was AS old ON old.id = new.id WHERE {where} ORDER BY 1"
    return [number for (number,) in session.execute(query.encode()).fetchall()]


def updated_rows(database: Database) -> list[list[bytes]]:
    """One update of every row of a table, in text and in binary form; tables `was` and `now` have both rows of each."""
    listed = ", ".join(f"{name} {type_}" for name, (type_, _) in VALUES.items())
    pick = picker()
    database.execute(
        f"CREATE TABLE t (id int PRIMARY KEY, {listed})",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "CREATE PUBLICATION pub FOR TABLE t",
        *[f"INSERT INTO t VALUES ({number}, {', '.join(map(pick, VALUES))})" for number in range(ROWS)],
        "CREATE TABLE was AS TABLE t",
    )
    make_slots(database, [("s", "pgoutput", False)])
    assignments = [", ".join(f"{name} = {pick(name)}" for name in VALUES if pick("i") != "'0'") for _ in range(ROWS)]
    with contextlib.closing(database.connect()) as session:
        for number, assignment in enumerate(assignments):
            session.execute(f"UPDATE t SET {assignment or 'i = i'} WHERE id = {number}".encode())
    database.execute("CREATE TABLE now AS TABLE t")
    forms: list[dict[str, str]] = [{}, {"binary": "true"}]
    return [[data for _, data in pgoutput(database, "s", **options)] for options in forms]


def picker() -> Callable[[str], str]:
    """Values of the columns in turn, and NULL, each as an SQL literal."""
    turns = dict.fromkeys(VALUES, 0)

    def pick(name: str) -> str:
        values = VALUES[name][1]
        turns[name] += 1
        place = (turns[name] * 7 + turns[name] // 5) % (len(values) + 1)
        return "NULL" if place == len(values) else quoted(values[place])

    return pick
