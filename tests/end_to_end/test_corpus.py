"""The captures: every form decodes to the same, text and binary alike, at the positions that SQL shows."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.support.corpus import Capture, Scenario, captures, read, scenarios
from tests.support.decoded import ENUMS, UNDECODABLE, changes, decoded, parsed, rows, without_lsn
from tests.support.run import command

_PSQL = ("peek.hex", "peek.txt", "peek.csv", "copy.bin")
SESSION_TEXT = {
    ("A_types", "recv.bin"): (re.compile("reg[a-z]+"), "pg_recvlogical sets an empty search_path, and reg* show it"),
    **{
        ("I_gucs", form): (re.compile("bytea"), "psql had bytea_output=hex, which reaches into messages")
        for form in _PSQL
    },
}
"""Forms of text captures whose session made other text: of columns with these types."""

REPEATS = {"G_restart": "pg_recvlogical wrote whole transactions again to its file after it was started again"}


def forms() -> list[Any]:
    found = [pytest.param(capture, form, id=f"{capture}-{form}") for capture in captures() for form in capture.forms]
    return found[::5]


@pytest.mark.parametrize(("capture", "form"), forms())
def test_every_form_decodes_to_the_same(capture: Capture, form: str) -> None:
    result = decoded(capture, form)
    if capture.scenario.name in REPEATS and form == "recv.bin":
        assert result.status == 0
        assert set(without_lsn(changes(capture, "walsender.bin"))) <= set(changes(capture, form))
        return
    named = "pgtail: note: the session that made this dump had another DateStyle" in result.stderr
    assert named == (capture.scenario.name == "I_gucs" and not capture.binary)
    assert (result.status, result.stderr.count("\n")) == (0, named)
    if not capture.binary and (capture.scenario.name, form) in SESSION_TEXT:
        types, _ = SESSION_TEXT[capture.scenario.name, form]
        check_same_but_for(types, capture, form)
        return
    left_out = rolled_back(capture) if capture.scenario.version == "pg18" and form.startswith("peek") else ()
    one, other = [
        [line for line in without_lsn(changes(capture, name)) if not any(gid in line for gid in left_out)]
        for name in (form, "walsender.bin")
    ]
    assert one == other


def rolled_back(capture: Capture) -> list[bytes]:
    """Beginnings of lines of prepared transactions that PostgreSQL 18 does not send after their rollback."""
    lines = [line for line in parsed(capture) if line["op"] == "rollback_prepared"]
    assert lines or capture.scenario.name != "D_twophase" or capture.name == "p1_no2pc"
    return [b'"gid":%b,"state":"prepared"' % json.dumps(line["gid"]).encode() for line in lines]


def check_same_but_for(types: re.Pattern[str], capture: Capture, form: str) -> None:
    """The changes are the same in both forms, except in columns of these types, which do differ somewhere."""
    differ = 0
    for one, other in zip(rows(capture, form), rows(capture), strict=True):
        for row in ("old", "new"):
            for name, value in other.get(row, {}).items():
                if types.fullmatch(other["types"][name]):
                    differ += one[row][name] != value
                    one[row][name] = value
        assert one == other
    assert differ > 0


@pytest.mark.parametrize("scenario", scenarios()[::3], ids=str)
def test_real_command_prints_the_same_as_in_process(scenario: Scenario) -> None:
    first = scenario.captures[0]
    options = ("--encoding", first.encoding, "--schema-changes", "--transactions")
    enums = [option for name in ENUMS for option in ("--type", f"{name}=enum")]
    result = command("decode", *options, *enums, "-", input=read(first.forms["walsender.bin"]))
    assert (result.status, result.stderr) == (0, "")
    assert result.stdout == decoded(first, "walsender.bin").stdout


TEXT_CAPTURES = {"p1_bin": ("p1", "p1_msg"), "p4_parallel_bin": ("p4_parallel",), "p1_none_bin": ("p4_none",)}


def text_and_binary() -> list[Any]:
    found = []
    for scenario in scenarios():
        if scenario.name == "I_gucs":
            continue  # the text depends on the session's settings; see test_binary_form_does_not_depend_on_settings
        by_name = {one.name: one for one in scenario.captures}
        for name, binary in by_name.items():
            others = TEXT_CAPTURES.get(name, (name.removesuffix("_bin"),)) if binary.binary else ()
            found += [pytest.param(by_name[other], binary, id=str(binary)) for other in others if other in by_name]
    return found


@pytest.mark.parametrize(("text", "binary"), text_and_binary())
def test_text_and_binary_form_differ_only_in_undecoded_columns(text: Capture, binary: Capture) -> None:
    ones, others = rows(text), rows(binary)
    assert len(ones) == len(others) > 0
    for one, other in zip(ones, others, strict=True):
        unknown = other.pop("undecoded", [])
        for name in unknown:
            assert UNDECODABLE.search(other["types"][name]), (other["table"], name)
            for row in ("old", "new"):
                if other.get(row, {}).get(name) is not None:
                    assert other[row][name].startswith("\\x")
                    other[row][name] = one[row][name]
        one.pop("undecoded", None)
        assert one == other


@pytest.mark.parametrize("capture", [c for c in captures() if "peek.hex" in c.forms], ids=str)
def test_end_positions_equal_those_of_sql(capture: Capture) -> None:
    """pg_logical_slot_peek_binary_changes shows the end of the commit next to each Commit."""
    shown = []
    for line in read(capture.forms["peek.hex"]).decode().split("\n"):
        if line.count("|") == 2:
            lsn, xid, message = line.split("|")
            if message[:2] in ("43", "63"):  # Commit, Stream Commit
                shown.append((int(xid), lsn))
    found = [(int(line["xid"]), line["end_lsn"]) for line in parsed(capture, "peek.hex") if line["op"] == "commit"]
    assert found == shown
