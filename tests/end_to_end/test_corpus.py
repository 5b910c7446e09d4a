"""Every capture decodes to the same changes in all its forms, equal to those of other plugins and SQL."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Any

import pytest

from tests.support.corpus import Capture, Scenario, capture, captures, read, scenarios
from tests.support.every import every
from tests.support.pgtext import Digits, Pairs, expected, parse
from tests.support.replay import Replica, Row
from tests.support.run import Result, command, decode

# -- known differences, and their reasons ------------------------------------------------------------------------------

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

DDL = "ALTER TABLE is not replicated: rows written before it differ from the final table"
NOT_REPLAYED: dict[str, dict[str, str]] = {
    "A_ddl": {"*": DDL},
    "A_names": {"public.allcols": DDL},
    "C_stream": {"public.st_ddl": DDL},
    "E_parallel": {"public.st_ddl": DDL},
    "D_twophase": {"public.pt_ddl": DDL},
}
ORIGIN_NONE = "local changes meet rows whose insert, from elsewhere, was filtered out by origin=none"

NO_TRUTH = {
    ("A_part", "p1_root"): "test_decoding names the leaf partitions where pgoutput names the root",
    ("A_part", "p1_both"): "the same",
    ("A_ddl", "p1_pub2"): "a publication that gains and loses tables on the way",
    ("F_origin", "p4_none"): "test_decoding shows the changes of all origins",
}
"""Captures that hold less than test_decoding saw, or under other names: compared by replay alone, as all of A_filter
(test_decoding knows no row filters, column lists or publish lists)."""

UNDECODABLE = re.compile(r"reg[a-z]+|float8_r|float8_mr|aclitem")
"""Types whose binary form cannot be decoded: the only ones that may be named in `undecoded`."""

ENUMS = ("mood", "col", "colour", 'We"ird Enum, type')
"""The captures' enums, whose binary form is a label that a dump does not announce."""

LSN = re.compile(rb'^(\{"op":"message",|.*?"(?:commit|prepare)_ts":"[^"]+",)"lsn":"[0-9A-F]+/[0-9A-F]+",')


# -- decoding ----------------------------------------------------------------------------------------------------------


@cache
def decoded(capture: Capture, form: str) -> Result:
    return decode(
        *("--encoding", capture.encoding, "--schema-changes", "--transactions"),
        *(option for name in ENUMS for option in ("--type", f"{name}=enum")),
        capture.forms[form],
    )


def without_lsn(lines: Iterable[bytes]) -> list[bytes]:
    return [LSN.sub(rb"\1", line) for line in lines]


def changes(capture: Capture, form: str) -> list[bytes]:
    """The lines except descriptions of tables, which a session may send at any time."""
    return [line for line in decoded(capture, form).lines if not line.startswith(b'{"op":"relation"')]


def parsed(capture: Capture, form: str = "walsender.bin") -> Iterator[dict[str, Any]]:
    """The lines without loss: the keys of a line as a dictionary, values as pgtext.parse() gives them.

    A row's line has the types of its table's columns, as described so far, under `types`.
    """
    types: dict[tuple[str, str], dict[str, str]] = {}
    for text in decoded(capture, form).lines:
        document = parse(text)
        assert isinstance(document, Pairs)
        line: dict[str, Any] = {name: dict(value) if name in ("old", "new") else value for name, value in document}
        table = line.get("schema", ""), line.get("table", "")
        if line["op"] == "relation":
            line["columns"] = [dict(column) for column in line["columns"]]
            types[table] = types.get(table, {}) | {column["name"]: column["type"] for column in line["columns"]}
        elif table in types:
            line["types"] = types[table]
        yield line


def forms() -> list[Any]:
    found = [pytest.param(capture, form, id=f"{capture}-{form}") for capture in captures() for form in capture.forms]
    return found[:: every(3)]


@pytest.mark.parametrize(("capture", "form"), forms())
def test_every_form_decodes_to_the_same(capture: Capture, form: str) -> None:
    result = decoded(capture, form)
    if capture.scenario.name in REPEATS and form == "recv.bin":
        assert result.status == 0
        assert set(without_lsn(changes(capture, "walsender.bin"))) <= set(changes(capture, form))
        return
    assert (result.status, result.stderr) == (0, "")
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


@pytest.mark.parametrize("scenario", scenarios()[:: every(3)], ids=str)
def test_real_command_prints_the_same_as_in_process(scenario: Scenario) -> None:
    first = scenario.captures[0]
    options = ("--encoding", first.encoding, "--schema-changes", "--transactions")
    enums = [option for name in ENUMS for option in ("--type", f"{name}=enum")]
    result = command("decode", *options, *enums, "-", input=read(first.forms["walsender.bin"]))
    assert (result.status, result.stderr) == (0, "")
    assert result.stdout == decoded(first, "walsender.bin").stdout


# -- truth -------------------------------------------------------------------------------------------------------------


def described(capture: Capture) -> dict[tuple[str, str], dict[str, str]]:
    """(schema, table) -> column -> type, of every version that was described."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for line in parsed(capture):
        if line["op"] == "relation":
            columns = found.setdefault((line["schema"], line["table"]), {})
            columns.update({column["name"]: column["type"] for column in line["columns"]})
    return found


def own_type_name(name: str) -> str:
    """format_type()'s name without the schema and quotes, as it reads in a session whose search_path has the schema."""
    return re.sub(r'^public\.|"', "", name)


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


# -- table descriptions and final contents -----------------------------------------------------------------------------


@pytest.mark.parametrize("capture", captures(), ids=str)
def test_table_descriptions_match_the_catalog(capture: Capture) -> None:
    """The last description of each table, unless it was dropped since; DDL after the last change was never sent."""
    state, last = capture.scenario.state, dict[int, dict[str, Any]]()
    for line in parsed(capture):
        if line["op"] == "relation":
            last[int(line["relid"])] = line
    assert last
    compared = 0
    for oid, line in last.items():
        name = f"{line['schema']}.{line['table']}"
        table = state["tables"].get(name)
        if table is None or table["oid"] != oid or capture.scenario.name == "A_ddl":
            continue
        columns = {column["name"]: column for column in table["columns"]}
        identities = {"d": "default", "n": "nothing", "f": "full", "i": "index"}
        assert line["identity"] == identities[table["replica_identity"]]
        for described_ in line["columns"]:
            column = columns[described_["name"]]
            wanted = DOMAIN_BASES.get(column["type"], column["type"])
            assert own_type_name(described_["type"]) == wanted.replace('"', "")
            assert int(described_["typmod"]) == column["typmod"]
            if line["identity"] != "nothing":
                assert described_["key"] == column["key"], (name, column)
            compared += 1
    assert compared or capture.scenario.name == "A_ddl"


DOMAIN_BASES = {"posint": "integer", "posint[]": "posint[]", "tags": "text[]", "email": "text", "pair_d": "pair"}
"""The wire names a domain's base type; for an array over a domain the domain itself."""


def replayed() -> list[Capture]:
    return [c for c in captures() if c.scenario.name != "A_ddl" and str(c) != "pg16-I_gucs-p1_bin"]


@pytest.mark.parametrize("capture", replayed(), ids=str)
def test_a_replica_has_the_published_rows(capture: Capture) -> None:
    lines = list(parsed(capture))
    replica = Replica()
    replica.apply(lines)
    if capture.options.get("origin") == "none":
        assert replica.missed, ORIGIN_NONE
        return
    assert not replica.missed
    excepted = NOT_REPLAYED.get(capture.scenario.name, {})
    types = {f"{schema}.{table}": columns for (schema, table), columns in described(capture).items()}
    for name, table in published(capture).items():
        if name in excepted:
            continue
        rows = replica.tables.get(name, [])
        raw_rows = table["rows_binary_hex"] if capture.binary else [[None] * len(table["columns"])] * len(table["rows"])
        wanted = [
            {
                column: stored(own_type_name(types[name][column]), text, raw)
                for column, text, raw in zip(table["columns"], texts, raws, strict=True)
            }
            for texts, raws in zip(table["rows"], raw_rows, strict=True)
        ]
        assert as_set(rows) == as_set(wanted), name


def as_set(rows: list[Row]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


def stored(type_name: str, text: str | None, raw: str | None) -> Any:
    """The JSON value of a stored value; `raw` is its bytes in hex, from a binary capture."""
    if text is None:
        return None
    if raw is not None and UNDECODABLE.search(type_name):
        return "\\x" + raw
    encoded = text.encode(errors="surrogateescape")
    if encoded != text.encode(errors="replace"):
        return "\\x" + encoded.hex()
    return expected(type_name, text)


def published(capture: Capture) -> dict[str, Any]:
    """What a replica of the capture's publications must hold; the first publication wins."""
    found: dict[str, Any] = {}
    for publication in capture.meta["publications"]:
        for name, table in capture.scenario.state["published"][publication].items():
            found.setdefault(name, table)
    return found


def test_binary_form_does_not_depend_on_settings() -> None:
    """I_gucs: the text captures have German dates and the like; binary values are shown in ISO form."""
    rows = [line["new"] for line in parsed(capture("I_gucs", "p1_bin")) if "new" in line]
    assert rows == [
        {
            "id": Digits("1"),
            "d": "2024-02-29",
            "ts": "2024-02-29 12:34:56.789",
            "tz": "2024-02-29 12:34:56+00",
            "iv": "1 year 2 days 03:04:05",
            "b": "\\x00ff5c27",
            "f": Digits("0.30000000000000004"),
            "m": "$12.50",
        },
        {
            "id": Digits("1"),
            "d": "infinity",
            "ts": "2024-02-29 12:34:56.789",
            "tz": "0044-03-15 00:00:00+00 BC",
            "iv": "1 year 2 days 03:04:05",
            "b": "\\x00ff5c27",
            "f": "NaN",
            "m": "$12.50",
        },
    ]


# -- text and binary captures of the same changes ----------------------------------------------------------------------

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


def rows(capture: Capture, form: str = "walsender.bin") -> list[dict[str, Any]]:
    """The row changes without positions, and without messages, which not every capture has."""
    found = [line for line in parsed(capture, form) if line["op"] in ("insert", "update", "delete", "truncate")]
    for line in found:
        line.pop("lsn", None)
    return found


# -- positions ---------------------------------------------------------------------------------------------------------


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
