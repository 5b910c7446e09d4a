"""The inputs under tests/cases give the expected output, with and without the compiled scanner."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.encode import begin, commit, insert, recvlogical, relation, update
from tests.support.render import WAYS, Way, rows_by
from tests.support.run import Result, decode, here

CASES = Path(__file__).parents[1] / "cases"
WAY = pytest.mark.parametrize("way", WAYS)


def run(way: Way, name: str, *arguments: str) -> Result:
    with rows_by(way):
        return here(*arguments, CASES / name)


@WAY
def test_origin_after_the_first_row_is_ignored(way: Way) -> None:
    result = run(way, "origin-late.bin", "decode", "-o", "json")
    assert result.status == 0
    assert "byte 925: Origin 'pg_17725' inside a transaction, after its first change: ignored\n" in result.stderr
    later = [line for line in result.objects if line.get("xid") == 1216]
    assert len(later) == 3
    assert {line.get("origin") for line in later} == {None}
    assert run(way, "origin-late.bin", "decode", "-o", "json", "--strict").status == 1


@WAY
def test_an_old_tuple_with_more_columns_than_the_new_one(way: Way) -> None:
    result = run(way, "sql-indexerror.bin", "decode", "-o", "sql")
    assert result.status == 1
    assert result.stderr.endswith(
        "byte 2693: Insert.new[1] kind: byte 0x00 where 't', 'b', 'n' or 'u' was expected; --resync skips the damage\n"
    )
    assert "5 changes could not be written as SQL" in result.stderr


@pytest.mark.parametrize("key", ["d", "f"])
@pytest.mark.parametrize("output", ["sql", "sql --undo", "table", "csv", "wal2json", "debezium", "json-tx"])
def test_tuples_of_different_sizes(output: str, key: str) -> None:
    rows = [None, "1", "x"]
    updates = [
        update(rows[1:new], rows[1:old], "K" if key == "d" else "O") for new in range(1, 4) for old in range(1, 4)
    ]
    data = recvlogical(relation(identity=key, key=(0, 1)), begin(), insert("1", "x"), *updates, commit())
    result = decode("-o", *output.split(), input=data)
    assert result.status == (output == "sql --undo")


@WAY
def test_an_empty_transaction_is_messages_without_a_change(way: Way) -> None:
    result = run(way, "stats-no-message.bin", "stats", "-o", "json")
    assert result.status == 0
    assert result.stderr.endswith(".bin: it holds 2 messages, but no change, read as lengths\n")
    assert result.objects[0]["transactions"]["empty"] == 1


@WAY
def test_the_end_of_a_transaction_of_many_tables(way: Way) -> None:
    end = run(way, "debezium-end-20.bin", "decode", "-o", "debezium", "--transactions").objects[-1]
    counts = [{"data_collection": f"public.p{number:05}", "event_count": 1} for number in range(1, 21)]
    assert (end["event_count"], end["data_collections"]) == (20, counts)


@WAY
def test_gid_and_origin(way: Way) -> None:
    first, second, outcome, other = run(way, "gid-uaf.bin", "decode", "-o", "json").objects
    assert first["gid"] == second["gid"] == outcome["gid"] == "gid-0123456789"
    assert first["prepare_ts"] == second["prepare_ts"]
    assert other["origin"] == "pg_16389"


@WAY
@pytest.mark.parametrize("output", ["json-tx", "wal2json-v1"])
def test_a_filtered_streamed_transaction_begins_with_nothing(output: str, way: Way) -> None:
    result = run(way, "json-tx-comma.bin", "decode", "-o", output, "--op", "insert")
    assert [len(line.get("changes") or line["change"]) for line in result.objects] == [2, 2, 1]


@WAY
def test_numbers_of_a_filtered_streamed_transaction(way: Way) -> None:
    result = run(way, "json-tx-comma.bin", "decode", "-o", "debezium", "--transactions", "--op", "insert")
    orders = [line["transaction"]["total_order"] for line in result.objects if line.get("transaction")]
    assert orders == [1, 2, 1, 2, 1]
    assert [line["event_count"] for line in result.objects if line.get("status") == "END"] == [2, 2, 1]
    options = ("-o", "wal2json", "--wal2json", "include-lsn", "--op", "insert")
    begins = run(way, "json-tx-comma.bin", "decode", *options)
    assert [line.get("nextlsn") for line in begins.objects if line["action"] == "B"] == [None, "0/2030", None]


@WAY
@pytest.mark.parametrize("selection", [["--xid", "99"], ["--since", "F/0"], ["--op", "truncate"]])
def test_conditions_are_checked_whatever_is_selected(selection: list[str], way: Way) -> None:
    bad = run(way, "json-tx-comma.bin", "decode", "--where", "id > x", *selection)
    assert (bad.status, bad.stderr) == (2, "pgtail: error: --where 'id > x': public.t.id is a number, 'x' is none\n")
    good = run(way, "json-tx-comma.bin", "decode", "--where", "id > 2", *selection)
    assert (good.status, good.stdout) == (0, b"")
    assert "matched" in good.stderr
    assert len(good.stderr.splitlines()) == 1
    unknown = run(way, "json-tx-comma.bin", "decode", "--where", "nosuch > 2", *selection)
    assert unknown.status == 0
    assert unknown.stderr == good.stderr + "pgtail: note: no table had a column nosuch (--where nosuch > 2)\n"


@WAY
@pytest.mark.parametrize(
    ("file", "options", "status", "changes"),
    [("strict-json-tx.bin", ["--strict"], 1, 0), ("where-error-late.bin", ["--where", "n > x or id > 0"], 2, 1)],
)
def test_an_error_completes_the_line(file: str, options: list[str], status: int, changes: int, way: Way) -> None:
    result = run(way, file, "decode", "-o", "json-tx", *options)
    assert result.status == status
    [line] = result.objects
    assert (len(line["changes"]), line["incomplete"]) == (changes, True)


def test_csv_has_the_same_rows_before_an_error() -> None:
    decoded, scanned = [run(way, "csv-two-tables.bin", "decode", "-o", "csv") for way in WAYS]
    assert decoded == scanned
    assert (decoded.status, len(decoded.lines)) == (2, 2)


@WAY
def test_unsent_columns_are_in_order(way: Way) -> None:
    [counts] = run(way, "stats-toast-order.bin", "stats", "-o", "json").objects[0]["tables"]
    assert [*counts["unsent_toast"].items()] == [("total", 2), ("é", 1)]
