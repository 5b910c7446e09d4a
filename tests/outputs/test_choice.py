"""--columns and --changed: which columns are shown, in JSON and CSV."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support.encode import UNCHANGED, begin, commit, delete, insert, lengths, relation, truncate, update
from tests.support.render import WAYS, Way, render
from tests.support.run import command, decode
from tests.support.servers import Database

COLUMNS = [("id", 23), ("a", 25), ("b", 25), ("Doc", 25)]
KEYED = relation(columns=COLUMNS)
FULL = relation(oid=200, name="full", columns=COLUMNS, identity="f", key=(0, 1, 2, 3))
ROWS = [
    insert("1", "x", None, ""),
    update(("1", "x", "y", UNCHANGED)),
    update(("2", "x", None, UNCHANGED), ("1", None, None, None)),
    delete("2", None, None, None),
    update(("1", "x", "y", UNCHANGED), ("1", "x", None, "d"), "O", oid=200),
    update(("1", "x", "y", "d"), ("1", "x", "y", "d"), "O", oid=200),
    update(("2", "x", None, "d"), ("1", "x", "y", "d"), "O", oid=200),
    delete("2", "x", None, "d", kind="O", oid=200),
]
STREAM = [KEYED, FULL, begin(), *ROWS, truncate(100), commit()]


NAMES = ("old", "new", "changed", "maybe_changed", "unchanged")


def shown(way: Way, **options: Any) -> list[tuple[Any, ...]]:
    """What JSON has of each row's tuples."""
    return [tuple(row.get(name) for name in NAMES) for row in render(*STREAM, way=way, **options).objects[:-1]]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("output", ["json", "json-tx"])
def test_changed_shows_the_key_and_what_differs_or_cannot_be_compared(output: str, way: Way) -> None:
    if output == "json":
        found = shown(way, changed=True)
    else:
        changes = render(*STREAM, way=way, output=output, changed=True).objects[0]["changes"][:-1]
        found = [tuple(row.get(name) for name in NAMES) for row in changes]
    expected: list[tuple[Any, ...]] = [
        (None, {"id": 1, "a": "x", "b": None, "Doc": ""}, None, None, None),
        (None, {"id": 1, "a": "x", "b": "y"}, ["a", "b"], ["a", "b"], None),
        ({"id": 1}, {"id": 2, "a": "x", "b": None}, ["id", "a", "b"], ["a", "b"], None),
        ({"id": 2}, None, None, None, None),
        ({"id": 1, "b": None}, {"id": 1, "b": "y"}, ["b"], None, None),
        ({"id": 1}, {"id": 1}, [], None, None),
        ({"id": 1, "b": "y"}, {"id": 2, "b": None}, ["id", "b"], None, None),
        ({"id": 2, "a": "x", "b": None, "Doc": "d"}, None, None, None, None),
    ]
    assert found == expected


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("rules", "keyed", "full"),
    [
        ("a", ["id", "a"], ["a"]),
        ("t.b,doc", ["id", "b", "Doc"], ["Doc"]),
        ("full.[ab]", ["id", "a", "b", "Doc"], ["a", "b"]),
        ("*.id,public.t.*o*", ["id", "Doc"], ["id"]),
        ('t."Doc", full."nothing"', ["id", "Doc"], []),
        ("other.id", ["id", "a", "b", "Doc"], ["id", "a", "b", "Doc"]),
    ],
)
def test_columns_selects_by_table(rules: str, keyed: list[str], full: list[str], way: Way) -> None:
    objects = render(*STREAM, way=way, columns=(rules,)).objects
    assert list(objects[0]["new"]) == keyed
    assert list(objects[2]["old"]) == ["id"]
    assert list(objects[-2]["old"]) == full
    assert objects[1].get("unchanged") == (["Doc"] if "Doc" in keyed else None)


@pytest.mark.parametrize("way", WAYS)
def test_both_together(way: Way) -> None:
    found = shown(way, changed=True, columns=("b",))
    assert found[1] == (None, {"id": 1, "b": "y"}, ["b"], ["b"], None)
    assert found[4] == ({"b": None}, {"b": "y"}, ["b"], None, None)


@pytest.mark.parametrize("way", WAYS)
def test_of_a_key_of_two_columns_what_was_sent_is_compared(way: Way) -> None:
    table = relation(columns=COLUMNS, identity="i", key=(0, 3))
    rows = [
        update(("1", "x", "y", "new"), ("1", None, None, "old"), "K"),
        update(("2", "x", "y", UNCHANGED), ("1", None, None, "out of line"), "K"),
        update(("2", UNCHANGED, UNCHANGED, UNCHANGED)),
        update(("2", UNCHANGED, UNCHANGED, "new"), ("2", None, None, "old"), "K"),
    ]
    found = render(table, begin(), *rows, commit(), way=way, changed=True).objects
    assert [(row["changed"], row.get("maybe_changed")) for row in found] == [
        (["a", "b", "Doc"], ["a", "b"]),
        (["id", "a", "b"], ["a", "b"]),
        ([], None),
        (["Doc"], None),
    ]


@pytest.mark.parametrize("output", ["json", "json-tx", "csv"])
def test_an_old_value_that_was_not_sent_proves_nothing(output: str) -> None:
    odd = update(("1", "x", "y", "z"), ("1", UNCHANGED, "y"), "O", oid=200)
    found = render(FULL, begin(), odd, commit(), output=output, changed=True)
    if output == "csv":
        assert found.lines[-1].split(",", 7)[-1] == '"{a,Doc}","{a,Doc}",1,x,,z'
    else:
        row = found.objects[0] if output == "json" else found.objects[0]["changes"][0]
        assert (row["changed"], row["maybe_changed"]) == (["a", "Doc"], ["a", "Doc"])


def test_csv_names_what_changed_because_an_empty_field_is_null() -> None:
    text = decode("-o", "csv", "--changed", "-t", "full", input=lengths(*STREAM)).stdout.decode()
    assert text.splitlines() == [
        "_op,_xid,_commit_lsn,_commit_ts,_seq,_not_sent,_undecoded,_changed,_maybe_changed,id,a,b,Doc",
        "before,7,0/100,2000-01-01 00:00:00+00,5,,,{b},{},1,,,",
        "update,7,0/100,2000-01-01 00:00:00+00,5,,,{b},{},1,,y,",
        "before,7,0/100,2000-01-01 00:00:00+00,6,,,{},{},1,,,",
        "update,7,0/100,2000-01-01 00:00:00+00,6,,,{},{},1,,,",
        'before,7,0/100,2000-01-01 00:00:00+00,7,,,"{id,b}",{},1,,y,',
        'update,7,0/100,2000-01-01 00:00:00+00,7,,,"{id,b}",{},2,,,',
        "delete,7,0/100,2000-01-01 00:00:00+00,8,,,,,2,x,,d",
    ]


@pytest.mark.parametrize("way", WAYS)
def test_csv_names_what_may_have_changed(way: Way) -> None:
    lines = render(KEYED, begin(), *ROWS[:4], truncate(100), commit(), way=way, output="csv", changed=True).lines
    assert [line.split(",", 5)[-1] for line in lines] == [
        "_not_sent,_undecoded,_changed,_maybe_changed,id,a,b,Doc",
        ',,,,1,x,,""',
        ',,"{a,b}","{a,b}",1,x,y,',
        '"{a,b,Doc}",,"{id,a,b}","{a,b}",1,,,',
        ',,"{id,a,b}","{a,b}",2,x,,',
        '"{a,b,Doc}",,,,2,,,',
        ",,,,,,,",
    ]


@pytest.mark.parametrize("output", ["json", "json-tx", "csv", "table", "line"])
def test_a_note_tells_once_how_to_know(output: str) -> None:
    note = (
        "pgtail: note: without the old row, columns marked ? or in maybe_changed may be unchanged;"
        " --old-values seen remembers the rows that the input showed before (see pgtail-old-values(7)). To have the old"
        " row sent:"
        ' ALTER TABLE "public"."t" REPLICA IDENTITY FULL;\n'
    )
    two = [relation(oid=101, name="s", columns=COLUMNS), *STREAM[:-1], ROWS[1], commit()]
    given = ("-o", output, "--changed", *(("-t", "t") if output == "csv" else ()))
    assert decode(*given, input=lengths(*two)).stderr == note
    assert decode("-q", *given, input=lengths(*two)).stderr == ""
    assert (
        "; that row was not seen before, or may have changed since (see"
        in decode(*given, "--old-values", "seen", input=lengths(*two)).stderr
    )
    assert decode(*given[:3], "-t", "full", input=lengths(*two)).stderr == ""
    if output not in ("line", "table"):
        assert decode(*given[:2], *given[3:], input=lengths(*two)).stderr == ""


def test_the_statement_of_the_note_can_be_run_for_any_name(newest_database: Database) -> None:
    table, database = '"a ""B""\\n;\n$"', newest_database
    database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, v text)", "CREATE PUBLICATION p FOR ALL TABLES")
    database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    database.execute(f"INSERT INTO {table} VALUES (1, 'x')", f"UPDATE {table} SET v = 'x'")
    slot = ("stream", database.conninfo(), "-S", "s", "--until", "now")
    given = (*slot, "--changed", "--old-values", "sent", "--op", "update", "-o", "json")
    before = command(*given)
    assert [(row["changed"], row["maybe_changed"]) for row in before.objects] == [(["v"], ["v"])]
    (statement,) = re.findall("ALTER TABLE .* REPLICA IDENTITY FULL", before.stderr)
    database.execute(statement, f"UPDATE {table} SET v = 'x'", f"UPDATE {table} SET v = 'z'")
    after = [(row["changed"], row.get("maybe_changed")) for row in command(*given).objects]
    assert after == [(["v"], ["v"]), ([], None), (["v"], None)]


def test_csv_has_only_the_chosen_columns() -> None:
    lines = decode("-o", "csv", "--columns", "b", "-t", "t", input=lengths(*STREAM)).stdout.decode().splitlines()
    found = [",".join(line.split(",")[5:]) for line in lines]
    assert found == ["_not_sent,_undecoded,id,b", ",,1,", ",,1,y", "{b},,1,", ",,2,", "{b},,2,", ",,,"]


def test_masked_values_are_compared_by_what_they_are() -> None:
    result = decode("--changed", "--redact", "b,a", "-t", "full", "--op", "update", input=lengths(*STREAM))
    assert [row["new"] for row in result.objects] == [{"id": 1, "b": "(redacted)"}, {"id": 1}, {"id": 2, "b": None}]


@pytest.mark.parametrize("option", [("--changed",), ("--columns", "id")])
@pytest.mark.parametrize("output", ["sql", "debezium", "wal2json", "wal2json-v1", "--format-string"])
def test_formats_with_whole_rows_refuse_and_say_why(option: tuple[str, ...], output: str) -> None:
    asked = ("--format-string", "%o") if output == "--format-string" else ("-o", output)
    result = decode(*asked, *option, input=lengths(*STREAM))
    assert (result.status, result.stdout) == (2, b"")
    assert f"{option[0]} belongs to -o table, line, json, json-tx, csv, not to {output}: " in result.stderr


def test_a_rule_that_names_nothing() -> None:
    result = decode("--columns", "a,no.such,nosuch", input=lengths(*STREAM))
    assert result.status == 0
    assert [line for line in result.stderr.splitlines() if "--columns" in line] == [
        "pgtail: note: no table had a column no.such (--columns)",
        "pgtail: note: no table had a column nosuch (--columns)",
    ]
    near = decode("--columns", "t.dco", input=lengths(*STREAM))
    assert "note: no table had a column t.dco (--columns); did you mean Doc?\n" in near.stderr
    assert decode("--columns", "a.b.c.d", input=lengths(*STREAM)).status == 2
    assert decode("--columns", "", input=lengths(*STREAM)).status == 2


@pytest.mark.parametrize("way", WAYS)
def test_tables(way: Way) -> None:
    text = render(*STREAM, way=way, output="table", changed=True, columns=("t.a,t.doc,full.*",), width=120).written
    rows = [line.split(maxsplit=2)[2] for line in text.decode().splitlines() if re.match("  (INS|UPD|DEL)", line)]
    assert rows == [
        "id=1      a 'x'  \"Doc\" ''",
        "id=1      ?a 'x'",
        "id=1 → 2  ?a 'x'",
        "id=2      only the key was sent",
        "id 1  b NULL → 'y'",
        "id 1  nothing changed",
        "id 1 → 2  b 'y' → NULL",
        "id 2  a 'x'  b NULL  \"Doc\" 'd'",
    ]


def test_a_wide_row_of_which_little_changed_fits_a_line() -> None:
    columns = [(f"column_{number}", 23) for number in range(40)]
    before = [str(number) for number in range(40)]
    after = ["0", "7", *before[2:39], "8"]
    stream = [relation(columns=columns, identity="f", key=range(40)), begin(), update(after, before, "O"), commit()]
    (line,) = render(*stream, output="line", measure=lambda: 130).lines
    assert (len(line), line[-5:]) == (130, "… +34")
    assert " column_0=0 column_1=1→7 column_39=39→8 column_2=2 column_3=3 " in line
    assert render(*stream, output="line").lines[0].endswith(" column_0=0 column_1=1→7 column_39=39→8")
    table = [line for line in render(*stream, output="table", changed=True, width=120).lines if "UPDATE" in line]
    assert table[0].endswith("column_0 0  column_1 1 → 7  column_39 39 → 8")
