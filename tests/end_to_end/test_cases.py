"""The inputs under tests/cases give the expected output, with and without the compiled scanner."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.encode import begin, commit, insert, recvlogical, relation, update
from tests.support.run import Result, command, decode

CASES = Path(__file__).parents[1] / "cases"
BOTH = pytest.mark.parametrize("pure", ["", "1"], ids=["compiled", "plain"])


def run(name: str, *arguments: str | Path, pure: str = "") -> Result:
    return command(*arguments, CASES / name, environment={"PGTAIL_PURE": pure})


@BOTH
def test_origin_after_the_first_row_is_ignored(pure: str) -> None:
    result = run("origin-late.bin", "decode", "-o", "json", pure=pure)
    assert result.status == 0
    assert "byte 925: Origin 'pg_17725' inside a transaction, after its first change: ignored\n" in result.stderr
    later = [line for line in result.objects if line.get("xid") == 1216]
    assert len(later) == 3
    assert {line.get("origin") for line in later} == {None}
    assert run("origin-late.bin", "decode", "-o", "json", "--strict", pure=pure).status == 1


@BOTH
def test_an_old_tuple_with_more_columns_than_the_new_one(pure: str) -> None:
    result = run("sql-indexerror.bin", "decode", "-o", "sql", pure=pure)
    assert result.status == 1
    assert result.stderr.endswith("byte 2693: Insert.new[1] kind: byte 0x00 where 't', 'b', 'n' or 'u' was expected\n")
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
    assert result.status == 0


def test_a_long_name_is_cut_and_ends_with_its_hash(tmp_path: Path) -> None:
    result = run("csv-long-name.bin", "decode", "-o", "csv", "-f", f"{tmp_path}/")
    assert result.status == 0
    [file] = tmp_path.iterdir()
    assert len(file.name) == 255
    assert file.name.startswith("public.aaaa")
    assert file.name.endswith("aa~3a7b6f8cc847bf7a0bc1.csv")
    assert len(file.read_text().splitlines()) > 1


@BOTH
def test_an_empty_transaction_is_messages_without_a_change(pure: str) -> None:
    result = run("stats-no-message.bin", "stats", "-o", "json", pure=pure)
    assert result.status == 0
    assert result.stderr.endswith(".bin: it holds 2 messages, but no change, read as lengths\n")
    assert result.objects[0]["transactions"]["empty"] == 1
