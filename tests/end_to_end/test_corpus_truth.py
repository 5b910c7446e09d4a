"""The captures: values and times are those of test_decoding."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.corpus import Capture, Scenario, captures
from tests.support.decoded import decoded, described, own_type_name, parsed
from tests.support.pgtext import expected

NO_TRUTH = {
    ("A_part", "p1_root"): "test_decoding names the leaf partitions where pgoutput names the root",
    ("A_part", "p1_both"): "the same",
    ("A_ddl", "p1_pub2"): "a publication that gains and loses tables on the way",
    ("F_origin", "p4_none"): "test_decoding shows the changes of all origins",
}
"""Captures that hold less than test_decoding saw, or under other names: compared by replay alone, as all of A_filter
(test_decoding knows no row filters, column lists or publish lists)."""


def has_truth(capture: Capture) -> bool:
    """Whether this capture must hold the transactions that test_decoding saw."""
    filtered = capture.scenario.name == "A_filter"
    return not capture.binary and not filtered and (capture.scenario.name, capture.name) not in NO_TRUTH


with_truth = pytest.mark.parametrize("capture", [c for c in captures() if has_truth(c)], ids=str)


def transactions(capture: Capture) -> dict[int, list[dict[str, Any]]]:
    """The changes by xid, prepared ones only if they were committed; in the order of the commits."""
    found: dict[int, list[dict[str, Any]]] = {}
    prepared: dict[str, list[dict[str, Any]]] = {}
    for line in parsed(capture):
        if line["op"] in ("relation", "message", "begin", "prepare"):
            continue
        xid = int(line["xid"])
        if line["op"] == "commit_prepared":
            found[xid] = prepared.pop(line["gid"], [])
        elif line["op"] == "rollback_prepared":
            prepared.pop(line["gid"], None)
        elif line.get("state") == "prepared":
            prepared.setdefault(line["gid"], []).append(line)
        else:
            found.setdefault(xid, [])
            if line["op"] != "commit":
                found[xid].append(line)
    return {xid: lines for xid, lines in found.items() if lines}


@with_truth
def test_values_equal_those_of_test_decoding(capture: Capture) -> None:
    types = described(capture)
    found = transactions(capture)
    wanted = {
        transaction["xid"]: [change for change in transaction["changes"] if concerns(change, types)]
        for transaction in capture.scenario.truth
    }
    wanted = {xid: listed for xid, listed in wanted.items() if listed}
    assert list(found) == list(wanted)
    compared = 0
    for xid, listed in wanted.items():
        lines = iter(found[xid])
        for change in listed:
            if change["op"] == "truncate":
                for table in change["tables"]:
                    if tuple(table) in types:
                        check_truncate(next(lines), table, change)
                continue
            compared += check_row(next(lines), change, generated(capture.scenario))
        assert next(lines, None) is None
    assert compared > 0


def concerns(change: dict[str, Any], types: dict[tuple[str, str], dict[str, str]]) -> bool:
    tables = change["tables"] if change["op"] == "truncate" else [change["table"]]
    return any(tuple(table) in types for table in tables)


def check_truncate(line: dict[str, Any], table: list[str], change: dict[str, Any]) -> None:
    assert [line["op"], line["schema"], line["table"]] == ["truncate", *table]
    assert (line["cascade"], line["restart_identity"]) == (change["cascade"], change["restart_identity"])


def generated(scenario: Scenario) -> set[tuple[str, str]]:
    """(schema.table, column) of generated columns, which test_decoding shows and pgoutput leaves out."""
    tables = scenario.state["tables"].items()
    return {(name, column["name"]) for name, table in tables for column in table["columns"] if column["generated"]}


def check_row(line: dict[str, Any], change: dict[str, Any], not_sent: set[tuple[str, str]]) -> int:
    """Compare one row change; returns how many values it has. test_decoding leaves NULLs out of old rows."""
    assert [line["op"], line["schema"], line["table"]] == [change["op"], *change["table"]]
    types, table = line["types"], f"{line['schema']}.{line['table']}"
    old = {name: value for name, value in line.get("old", {}).items() if value is not None}
    not_text, count = set(), 0
    for row, said in ((old, change.get("old") or {}), (line.get("new", {}), change.get("new") or {})):
        wanted = {name: text for name, text in said.items() if (table, name) not in not_sent}
        assert list(row) == list(wanted)
        for name, text in wanted.items():
            if text is not None and text != text.encode(errors="replace").decode():
                not_text.add(name)
                assert row[name] == "\\x" + text.encode(errors="surrogateescape").hex()
            else:
                assert row[name] == expected(own_type_name(types[name]), text), (line, name)
            count += 1
    assert line.get("unchanged", []) == change.get("unchanged", [])
    assert set(line.get("undecoded", [])) == not_text
    return count


@with_truth
def test_times_are_those_of_the_commits(capture: Capture) -> None:
    times = {transaction["xid"]: transaction["commit_time"] for transaction in capture.scenario.truth}
    for line in parsed(capture):
        if line["op"] in ("commit", "commit_prepared"):
            assert moment(line["commit_ts"]) == moment(times[int(line["xid"])])


def moment(text: str) -> datetime:
    return datetime.fromisoformat(re.sub(r"([-+]\d\d)$", r"\1:00", text)).astimezone(UTC)


@with_truth
def test_json_is_unchanged_on_one_line(capture: Capture) -> None:
    types = described(capture)
    lines = [line for line in decoded(capture, "walsender.bin").lines if b'"insert"' in line[:20]]
    for transaction in capture.scenario.truth:
        for change in transaction["changes"]:
            if change["op"] != "insert" or tuple(change["table"]) not in types:
                continue
            for name, text in (change["new"] or {}).items():
                if types[tuple(change["table"])].get(name) in ("json", "jsonb") and text is not None:
                    token = f'"{name}":' + text.replace("\r", " ").replace("\n", " ")
                    assert any(token.encode() in line for line in lines), token
