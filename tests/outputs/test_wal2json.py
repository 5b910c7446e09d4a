"""wal2json's two formats: compared with the plugin itself on a real server, and by example."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from pgtail.demo.account import Account
from pgtail.demo.server import EmbeddedServer
from pgtail.errors import OptionError, ServerError
from pgtail.outputs.wal2json.options import DEFAULTS, enabled
from tests.bench.live import wal2json_folder
from tests.support.encode import (
    UNCHANGED,
    begin,
    begin_prepare,
    commit,
    commit_prepared,
    delete,
    insert,
    message,
    prepare,
    relation,
    rollback_prepared,
    truncate,
    update,
)
from tests.support.render import render
from tests.support.servers import embedded_server, fresh_database, installations
from tests.support.tail import parse
from tests.support.workload import Message, pgoutput, pinned, published, run_scenario, write

Json = dict[str, Any]

EVERYTHING = ("include-xids", "include-timestamp", "include-lsn", "include-type-oids")
LITTLE = ("include-transaction=off", "include-schemas=off", "include-types=off")
SCENARIOS = ("A_dml", "A_types", "A_msgs", "C_stream")

# -- the plugin itself -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedServer]:
    """PostgreSQL 15 with Debian's wal2json, which is unpacked and not installed."""
    installation = installations().get("pg15")
    if installation is None:
        pytest.skip("no PostgreSQL 15 is installed, for which Debian has wal2json")
    try:
        folder = wal2json_folder(15)
    except ServerError as error:
        pytest.skip(f"no wal2json to compare with: {error}")
    # Outside the checkout, which the server's user may not read.
    account = Account.for_server()
    copy = account.private_directory()
    try:
        shutil.copy(folder / "wal2json.so", copy)
        account.give(copy)
        settings = {"dynamic_library_path": f"$libdir:{copy}", "logical_decoding_work_mem": "64kB"}
        with embedded_server(installation, **settings) as running:
            yield running
    finally:
        shutil.rmtree(copy)


class Both:
    """The plugin's output for a scenario in both versions, and the messages of pgoutput."""

    def __init__(self, server: EmbeddedServer, scenario: str) -> None:
        slots = [("v1", "wal2json", False), ("v2", "wal2json", False), ("p", "pgoutput", False)]
        with fresh_database(server) as database:
            run_scenario(database, scenario, slots)
            with pinned(database) as session:
                options = [word for name in EVERYTHING for word in (name, "on")]
                query = "SELECT data FROM pg_logical_slot_peek_changes(%s, NULL, NULL, VARIADIC %s::text[])"
                self.v1 = [row[0] for row in session.execute(query, ["v1", [*options, "format-version", "1"]])]
                self.v2 = [row[0] for row in session.execute(query, ["v2", [*options, "format-version", "2"]])]
                options = [word for option in LITTLE for word in option.split("=")]
                self.little = [row[0] for row in session.execute(query, ["v2", [*options, "format-version", "2"]])]
            self.messages: list[Message] = pgoutput(database, "p", messages="true")
            self.tables = published(database)


@pytest.fixture(scope="module", params=SCENARIOS)
def both(request: pytest.FixtureRequest, server: EmbeddedServer) -> Both:
    return Both(server, request.param)


DOMAINS = {"public.posint": "integer", "public.email": "text", "public.tags": "text[]", "public.pair_d": "public.pair"}
"""pgoutput names the base type of a domain."""
GENERATED = {"t_gen": "g"}
"""Generated columns, which pgoutput does not send (up to PostgreSQL 17)."""


def as_pgoutput_knows_it(lines: list[str], tables: set[tuple[str, str]]) -> list[Json]:
    """The plugin's lines of format-version 2, without what pgoutput cannot know."""
    found: list[Json] = []
    for line in lines:
        one = parse(line)
        if one["action"] == "B":
            del one["nextlsn"]  # Begin does not have it
        if "table" in one and (one["schema"], one["table"]) not in tables:
            continue  # not published
        if one["action"] == "C" and found and found[-1]["action"] == "B":
            found.pop()  # transactions without a published change are left out by the server, from 15 on
            continue
        for columns in (one.get("columns", []), one.get("identity", [])):
            columns[:] = [column for column in columns if GENERATED.get(one["table"]) != column["name"]]
            for column in columns:
                column["type"] = DOMAINS.get(column["type"], column["type"])
        if one["action"] == "M":
            one["content"] = one["content"].partition("\0")[0]
        found.append(one)
    return found


def without_nul(one: Json) -> Json:
    """The plugin cuts a message at its first NUL, and does not check that it is text."""
    if one.get("action") == "M" or one.get("kind") == "message":
        content = bytes.fromhex(one["content"][2:]) if one.pop("undecoded", False) else one["content"].encode()
        one["content"] = content.partition(b"\0")[0].decode()
    return one


def test_version_2_equals_the_plugin_line_by_line(both: Both) -> None:
    ours = [without_nul(parse(line)) for line in write("wal2json", both.messages, wal2json=EVERYTHING).lines]
    assert len(ours) > 30
    assert ours == as_pgoutput_knows_it(both.v2, both.tables)


def test_other_options_equal_the_plugins(both: Both) -> None:
    theirs = [parse(line) for line in both.little]
    ours = [without_nul(parse(line)) for line in write("wal2json", both.messages, wal2json=LITTLE).lines]
    names = {name for _, name in both.tables}
    for one in theirs:
        for columns in (one.get("columns", []), one.get("identity", [])):
            columns[:] = [column for column in columns if GENERATED.get(one["table"]) != column["name"]]
        if one["action"] == "M":
            one["content"] = one["content"].partition("\0")[0]
    assert ours == [one for one in theirs if one.get("table") is None or one["table"] in names]
    assert len(ours) > 15


def test_version_1_equals_the_plugin_by_transaction(both: Both) -> None:
    theirs = []
    for line in both.v1:
        # 2.5 writes a comma before the first change after a non-transactional message.
        one = parse(line.replace('"change":[,', '"change":['))
        one["change"] = [known for change in one["change"] if (known := known_v1(change, both.tables))]
        theirs.append(one)
    ours = []
    for line in write("wal2json-v1", both.messages, wal2json=EVERYTHING).lines:
        one = parse(line)
        one["change"] = [without_nul(change) for change in one["change"] if change["kind"] != "truncate"]
        ours.append(one)
    assert [one for one in ours if one["change"]] == [one for one in theirs if one["change"]]
    assert sum(len(one["change"]) for one in ours) > 15


def known_v1(change: Json, tables: set[tuple[str, str]]) -> Json | None:
    """One of the plugin's changes, without what pgoutput cannot know."""
    if change["kind"] == "message":
        change["content"] = change["content"].partition("\0")[0]
        return change
    if (change["schema"], change["table"]) not in tables:
        return None
    for types in (change.get("columntypes", []), change.get("oldkeys", {}).get("keytypes", [])):
        types[:] = [DOMAINS.get(type_, type_) for type_ in types]
    generated = GENERATED.get(change["table"])
    if generated in change.get("columnnames", []):
        place = change["columnnames"].index(generated)
        for key in ("columnnames", "columntypes", "columntypeoids", "columnvalues"):
            del change[key][place]
    return change


# -- by example --------------------------------------------------------------------------------------------------------


def test_options_are_those_of_the_plugin() -> None:
    changed = {name: not on for name, on in DEFAULTS.items()}
    assert enabled([f"{name}={'on' if on else 'off'}" for name, on in changed.items()]) == set(DEFAULTS) - enabled(())
    assert enabled(["include-xids", "include-xids=0"]) == enabled(())
    for text, why in (
        ("include-pk", "pgoutput does not send this"),
        ("include-xids=perhaps", "include-xids=on or include-xids=off"),
        ("xids", "the options are include-transaction"),
        ("add-tables=a.b", "use --table"),
    ):
        with pytest.raises(OptionError, match=why):
            enabled([text])


def test_lines_with_everything_off() -> None:
    off = [f"{name}=off" for name in DEFAULTS]
    found = render(relation(), begin(), insert("1", None), commit(), output="wal2json", wal2json=off).lines
    assert found == ['{"action":"I","table":"t","columns":[{"name":"id","value":1},{"name":"v","value":null}]}']


def test_numbers_as_strings() -> None:
    """An option of 2.6, newer than Debian's plugin: by wal2json.c, with NaN, which is null otherwise."""
    table = relation(columns=(("id", 23), ("n", 1700), ("f", 701)))
    changes = (table, begin(), insert("1", "NaN", "-Infinity"), commit())
    for on, values in (("off", [1, None, None]), ("on", ["1", "NaN", "-Infinity"])):
        options = [f"numeric-data-types-as-string={on}"]
        [_, found, _] = render(*changes, output="wal2json", wal2json=options).objects
        assert [column["value"] for column in found["columns"]] == values


def test_unchanged_toast_is_left_out_or_filled() -> None:
    full = relation(identity="f", key=(0, 1))
    changes = (begin(), update(("1", UNCHANGED), old=("1", "toasted"), kind="O"), commit())
    [_, left_out, _] = render(full, *changes, output="wal2json").objects
    assert [column["name"] for column in left_out["columns"]] == ["id"]
    assert [column["value"] for column in left_out["identity"]] == [1, "toasted"]
    [_, filled, _] = render(full, *changes, output="wal2json", fill_unchanged=True).objects
    assert [column["value"] for column in filled["columns"]] == [1, "toasted"]


def test_undecoded_values_are_marked() -> None:
    found = render(relation(), begin(), insert("one", "a"), commit(), output="wal2json").objects[1]
    assert found["columns"][0] == {"name": "id", "type": "integer", "value": "one", "undecoded": True}
    [v1] = render(relation(), begin(), insert("one", "a"), commit(), output="wal2json-v1").objects
    assert v1["change"][0]["columnvalues"] == ["one", "a"]
    assert v1["change"][0]["undecoded"] == ["id"]
    [*_, said] = render(begin(), message(b"\xff\0"), commit(), output="wal2json").objects[:2]
    assert (said["content"], said["undecoded"]) == ("\\xff00", True)


def test_a_table_that_was_never_described() -> None:
    found = render(begin(), delete("1", None), commit(), output="wal2json").objects[1]
    assert found["table"] == "relation 100"
    assert found["identity"] == [{"name": "?1", "type": "", "value": "1"}]


PREPARED = (relation(), begin_prepare(7), insert("1", "a"), truncate(100), message(b"hi"), prepare(7))


@pytest.mark.parametrize("output", ["wal2json", "wal2json-v1", "debezium", "csv"])
def test_prepared_transaction_is_written_at_its_commit(output: str) -> None:
    whole = render(relation(), begin(7, 0x200), insert("1", "a"), truncate(100), message(b"hi"), commit(0x200, 0x208),
                   output=output)  # fmt: skip
    later = (begin(8), insert("2", "b"), commit())
    other = render(relation(), *later, output=output)
    found = render(*PREPARED, *later, commit_prepared(7), output=output)
    assert timeless(found.lines) == timeless([*other.lines, *whole.lines[output == "csv" :]])
    assert timeless(render(*PREPARED, *later, rollback_prepared(7), output=output).lines) == timeless(other.lines)


def timeless(lines: list[str]) -> list[str]:
    """An event without its times of processing and the last commit."""
    found = []
    for line in lines:
        one = json.loads(line) if line.startswith("{") else line
        if isinstance(one, dict) and "source" in one:
            for name in ("ts_ms", "ts_us", "ts_ns"):
                del one[name]
            del one["source"]["sequence"]
        found.append(json.dumps(one))
    return found


def test_missing_outcomes_are_reported() -> None:
    reported: list[str] = []
    assert render(*PREPARED, output="wal2json", report=reported.append).lines == []
    assert reported == ["prepared transaction 'g' (xid 7) was neither committed nor rolled back: it is not shown"]
    render(commit_prepared(9, "h"), output="wal2json", report=reported.append)
    assert reported[1] == (
        "prepared transaction 'h' (xid 9) was committed, but the input has none of its changes that the filters pass"
    )


def test_version_1_closes_cut_off_transactions_and_moves_messages_out() -> None:
    alone = message(b"alone", transactional=False)
    [cut] = render(relation(), begin(), insert("1", "a"), output="wal2json-v1", broken_off=True).objects
    assert cut["incomplete"]
    found = render(relation(), begin(), insert("1", "a"), alone, insert("2", "b"), commit(), output="wal2json-v1")
    assert [[change["kind"] for change in one["change"]] for one in found.objects] == [["insert"] * 2, ["message"]]
