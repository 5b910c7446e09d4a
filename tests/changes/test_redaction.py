"""No output shows a masked value: real captures in every format, both views of inspect, messages and errors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner

from pgtail.changes.filters import OPS
from pgtail.changes.redaction import HASHED, MASK, WITHHELD
from pgtail.cli import main
from pgtail.outputs import OUTPUTS
from tests.support.corpus import Capture, capture, read
from tests.support.encode import UNCHANGED, begin, commit, delete, insert, message, recvlogical, relation, update
from tests.support.run import Result, decode
from tests.support.servers import Database
from tests.support.tail import stream

EVERYTHING = ("--redact", "*")
FORMATS = {name: ("-o", name) for name in OUTPUTS if name != "sql"} | {"template": ("--format-string", "%o %t %v %O")}
"""The options of every format that masks."""
LONGEST_WORD = 5
"""Shorter values appear in names, positions and numbers by chance."""


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_bytes(b"0123456789abcdef")
    return path


def frames(one: Capture) -> Path:
    return one.forms["walsender.bin"]


def lines(*arguments: str | Path, input: bytes | None = None) -> list[Any]:  # noqa: A002 -- as decode()
    """The lines of `pgtail decode`; numbers are their digits, which may be more than a float holds."""
    result = decode(*arguments, input=input)
    assert result.status == 0, result.stderr
    return [json.loads(line, parse_int=str, parse_float=str) for line in result.lines]


@cache
def plain(one: Capture) -> list[Any]:
    """The lines of a capture without a mask."""
    return lines(frames(one))


def values(one: Capture) -> Iterator[str]:
    """Every value of a capture that is long enough."""
    for line in plain(one):
        for row in ("old", "new"):
            for value in line.get(row, {}).values():
                text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                if len(text) > LONGEST_WORD and text.lower() not in OPS:
                    yield text


def inspect(*arguments: str | Path) -> Result:
    """`pgtail inspect`, in this process."""
    out = Path(str(arguments[0])) / "out"
    command = ["inspect", "-f", str(out), *map(str, arguments[1:])]
    ran = CliRunner(env={"COLUMNS": "160"}).invoke(main, command, catch_exceptions=False)
    return Result(ran.exit_code, out.read_bytes(), ran.stderr)


# -- no value is shown ------------------------------------------------------------------------------------------------

CAPTURES = [
    capture("A_dml", "p1"),
    capture("A_types", "p1"),
    capture("A_types", "p1_bin"),
    capture("C_stream", "p2_stream"),
]


@pytest.mark.parametrize("one", CAPTURES[::2], ids=str)
@pytest.mark.parametrize("output", FORMATS)
def test_no_value_of_a_masked_column_is_written(output: str, one: Capture) -> None:
    tables = {line["table"] for line in plain(one) if "table" in line}
    arguments = (*FORMATS[output], "--max-rows", "0", "--max-width", "0", *EVERYTHING, frames(one))
    selections = [("-t", table) for table in tables] if output == "csv" else [()]  # csv writes one table
    shown = [decode(*selection, *arguments) for selection in selections]
    assert {ran.status for ran in shown} <= ({0, 2} if output == "csv" else {0})  # 2: columns of a table changed
    text = "".join([ran.stdout.decode() + ran.stderr for ran in shown])
    assert text.count(MASK) > len(tables)
    masked = {orjson.dumps(value).decode()[1:-1] for value in values(one)} | set(values(one))
    assert len(masked) > 50
    times = {line["commit_ts"] for line in plain(one)}
    others = "".join([*times, *tables, *_names(one), "postgresql"])
    found = [value for value in masked if value in text and value not in others]
    assert found == []


def _names(one: Capture) -> Iterator[str]:
    """The parts of the output that are not values."""
    for line in lines("--schema-changes", frames(one)):
        if line["op"] == "relation":
            yield from (f"{column['name']} {column['type']}" for column in line["columns"])
            yield line["table"]


def test_sql_output_refuses_masks() -> None:
    for options in ((), ("--undo",)):
        result = decode("-o", "sql", *options, "--redact", "v", input=DUMP)
        assert (result.status, result.stdout) == (2, b"")
        assert "-o sql cannot be used with --redact" in result.stderr


@pytest.mark.parametrize("one", CAPTURES[:1], ids=str)
def test_inspect_shows_no_byte_of_a_masked_column(one: Capture, tmp_path: Path) -> None:
    arguments = (frames(one), "--kind", "insert,update,delete", "-o", "json")
    plain = inspect(tmp_path, *arguments)
    shown = inspect(tmp_path, *arguments, *EVERYTHING)
    assert plain.status == shown.status == 0
    cells = 0
    for before, after in zip(plain.objects, shown.objects, strict=True):
        for old, new in zip(before["fields"], after["fields"], strict=True):
            if old["type"].startswith("Byten ("):
                cells += 1
                assert (new["hex"], new["value"]) == (None, MASK)
            else:
                assert new == old
    assert cells > 300
    table = inspect(tmp_path, frames(one), *EVERYTHING, "--max-bytes", "0").stdout.decode()
    digits = "".join([line[6:31] for line in table.splitlines()]).replace(" ", "")
    for old in (old for line in plain.objects for old in line["fields"] if old["type"].startswith("Byten (")):
        assert len(set(old["hex"])) < 8 or len(old["hex"]) < 24 or old["hex"] not in digits


@pytest.mark.parametrize("name", ["p1", "p1_bin"])
def test_hash_is_of_the_text_in_both_forms(name: str, key: Path) -> None:
    """Text and binary captures of the same log: 110 types."""
    options = ("--redact", "*", "--redact-hash", "--redact-key-file", key)
    text, shown = (lines(*options, frames(capture("A_types", one))) for one in ("p1", name))
    unmasked = lines(frames(capture("A_types", name)))
    compared = 0
    for one, other, plain in zip(text, shown, unmasked, strict=True):
        for row in ("old", "new"):
            for column, value in one.get(row, {}).items():
                assert value is None or value.startswith(HASHED)
                if column not in plain.get("undecoded", ()):
                    compared += 1
                    assert other[row][column] == value
    assert compared > 1000


def test_hashes_are_equal_exactly_where_values_are(key: Path) -> None:
    one = capture("A_dml", "p1")
    hashed = lines(*EVERYTHING, "--redact-hash", "--redact-key-file", key, frames(one))
    names: dict[str, str] = {}
    for plain, masked in zip(lines(frames(one)), hashed, strict=True):
        for row in ("old", "new"):
            for column, value in plain.get(row, {}).items():
                text = value if isinstance(value, str) else json.dumps(value)
                if value is None or isinstance(value, bool | float):
                    continue
                assert names.setdefault(masked[row][column], text) == text
    assert len(names) == len(set(names.values())) > 50


@pytest.mark.parametrize("output", FORMATS)
def test_a_large_value_has_one_hash(output: str, key: Path) -> None:
    data = recvlogical(relation(), begin(), insert("1", "x" * 70_000), commit())
    options = ("--redact", "v", "--redact-hash", "--redact-key-file", key, "--max-width", "0")
    [hashed] = [line["new"]["v"] for line in lines(*options, input=data)]
    found = decode(*FORMATS[output], *options, input=data).stdout.decode()
    assert re.findall(HASHED + "[0-9a-f]+", found) == [hashed]


def test_another_key_gives_other_hashes(key: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"fedcba9876543210")
    data = recvlogical(relation(), begin(), insert("1", "ada"), commit())
    ones = {
        decode("--redact", "v", "--redact-hash", "--redact-key-file", one, input=data).stdout for one in (key, other)
    }
    assert len(ones) == 2


# -- what is masked ----------------------------------------------------------------------------------------------------

DUMP = recvlogical(
    relation(),
    relation(oid=200, name="people", columns=(("id", 23), ("E Mail", 25), ("v", 25))),
    *[begin(), insert("1", "one"), insert("2", "ada@x.org", None, oid=200)],
    *[update(("1", UNCHANGED)), update(("2", "uno"), ("1", None)), delete("2", None), message(b"hi"), commit()],
)


@pytest.mark.parametrize(
    ("rule", "masked"),
    [
        ("v", {"t.v"}),
        ("people.*", {"people.id", "people.E Mail"}),
        ('public.people."e mail"', {"people.E Mail"}),
        ("ID", {"t.id", "people.id"}),
        ("p*.people.id,t.v", {"people.id", "t.v"}),
        ('"e mail" , other.people.id', {"people.E Mail"}),
        ('"*"', set()),
    ],
)
def test_columns_that_a_rule_masks(rule: str, masked: set[str]) -> None:
    found = set()
    for line in decode("--redact", rule, input=DUMP).objects:
        for row in ("old", "new"):
            found |= {f"{line['table']}.{name}" for name, value in line.get(row, {}).items() if value == MASK}
    assert found == masked


def test_null_and_unchanged_cells_are_not_masked() -> None:
    plain, masked = decode(input=DUMP).objects, decode("--redact", "v,id", input=DUMP).objects
    assert len(masked) == 6
    for one, other in zip(plain, masked, strict=True):
        for row in ("old", "new"):
            for name, value in one.get(row, {}).items():
                assert other.get(row, {})[name] == (None if value is None else value if name == "E Mail" else MASK)
        for key in one.keys() - {"old", "new"}:
            assert other[key] == one[key]
    assert [line.get("unchanged") for line in masked] == [None, None, ["v"], None, None, None]


def test_a_table_that_was_never_described_is_masked_whole() -> None:
    for data in (recvlogical(begin(), insert("1", "ada"), commit()), _rows_of_a_rotated_file()):
        rows = [line["new"] for line in lines("--redact", "nosuch*", input=data) if "relid" in line]
        assert rows
        assert {value for row in rows for value in row.values()} <= {MASK, None}


def _rows_of_a_rotated_file() -> bytes:
    return read(capture("G_rotate", "p1").scenario.folder / "p1.recv.part2.bin")


def test_a_row_that_does_not_fit_its_table_is_masked_whole() -> None:
    data = recvlogical(relation(), begin(), insert("1", "ada", "extra"), insert("2"), insert("3", "bob"), commit())
    rows = [line["new"] for line in lines("--redact", "nosuch*", input=data)]
    assert rows == [{"id": MASK, "v": MASK, "?3": MASK}, {"id": MASK}, {"id": "3", "v": "bob"}]


def test_a_masked_column_stays_masked_under_another_name() -> None:
    """A_ddl: d.b is renamed to "b b", then neighbours are dropped and a table is renamed."""
    rows = [line for line in decode("--redact", "d.b", frames(capture("A_ddl", "p1"))).objects if "b b" in str(line)]
    assert {line["table"] for line in rows} >= {"d", "d_renamed"}
    assert {line["new"]["b b"] for line in rows if "new" in line and "b b" in line["new"]} <= {MASK, None}
    plain = decode(frames(capture("A_ddl", "p1"))).objects
    assert any(line.get("new", {}).get("b b") is not None for line in plain)


def _renamed(**now: Any) -> bytes:
    """people.mail is renamed in a second version of the table; a third version renames the table."""
    before = relation(name="people", columns=(("id", 23), ("old", 25), ("mail", 25)))
    second = {"name": "people", "columns": (("id", 23), ("address", 25)), **now}
    third = relation(**{**second, "name": "users"})
    rows = [relation(**second), insert("2", "bob@x.org"), third, insert("3", "eve@x.org")]
    return recvlogical(before, begin(), insert("1", "x", "ada@x.org"), *rows, commit())


@pytest.mark.parametrize("options", [(), ("-t", "users"), ("-t", "users", "--where", "id = 3"), ("-t", "people")])
def test_renamed_column_stays_masked_under_any_filter(options: tuple[str, ...]) -> None:
    """Even if the filter excludes every table that had the column under its first name."""
    rows = lines("--redact", "people.mail", *options, input=_renamed())
    assert rows
    assert [row["new"].get("address", MASK) for row in rows] == [MASK] * len(rows)


def test_masked_column_with_another_name_position_and_type() -> None:
    retyped = (("id", 23), ("address", 1043))
    assert b"@x.org" not in decode("--redact", "people.mail", input=_renamed(columns=retyped)).stdout


@pytest.mark.parametrize("shown", [("id", "address"), ("id", "note", "address"), ("id", "address", "mail")])
def test_masked_column_that_returns_renamed_stays_masked(shown: tuple[str, ...]) -> None:
    """Renamed, then left out by a publication's column list, then there again."""
    rows = []
    for names in (("id", "note", "mail"), ("id", "note"), ("id",), shown):
        kinds = tuple((name, 23 if name == "id" else 25) for name in names)
        rows += [relation(columns=kinds), insert("1", *[f"{name}@x.org" for name in names[1:]])]
    found = lines("--redact", "mail", input=recvlogical(begin(), *rows, commit()))
    assert [row["new"] for row in found[:3]] == [
        {"id": "1", "note": "note@x.org", "mail": MASK}, {"id": "1", "note": "note@x.org"}, {"id": "1"}
    ]  # fmt: skip
    assert found[3]["new"] == {"id": "1", **dict.fromkeys(shown[1:], MASK)}


def test_updates_show_which_masked_columns_changed() -> None:
    full = relation(identity="f", key=(0, 1), oid=200, name="f")
    data = recvlogical(
        relation(), full, begin(), update(("2", "a"), ("1", None)), update(("2", "a"), ("2", None)),
        update(("1", "b"), ("1", "a"), "O", oid=200), update(("2", "a"), ("1", "a"), "O", oid=200), commit(),
    )  # fmt: skip
    masked = [decode("-o", "debezium", *options, input=data).objects for options in ((), ("--redact", "id,v"))]
    assert [[event["op"] for event in events] for events in masked] == [["d", "c", "u", "u", "u"]] * 2
    shown = decode("-o", "table", "--redact", "id,v", input=data).stdout.decode()
    assert [part.count(f"'{MASK}' → '{MASK}'") for part in shown.split("UPDATE")[1:]] == [1, 0, 1, 1]


# -- a server ----------------------------------------------------------------------------------------------------------


def test_server_error_that_quotes_a_value_is_withheld(newest_database: Database) -> None:
    """A row filter fails on a value, which the server's error quotes."""
    database = newest_database
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, month int)",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "CREATE PUBLICATION p FOR TABLE t WHERE (pg_catalog.make_date(2026, month, 1) > '2026-02-02')",
    )
    database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    database.execute("INSERT INTO t VALUES (1, 4711)")
    for options, shown in (((), True), (("--redact", "month"), False)):
        _, words = stream(database, "-S", "s", "--until", "now", *options, status=3)
        assert ("4711" in words) == shown
        assert (WITHHELD in words) == (not shown)
