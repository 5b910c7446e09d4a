"""Snapshots in every output: two tables and an empty one, a transaction, and one of the tables again."""

from __future__ import annotations

import struct
from typing import Any, Final

import orjson
import pytest

from pgtail.outputs import TEMPLATE, OutputOptions
from tests.support.encode import (
    Cell,
    begin,
    begin_prepare,
    commit,
    commit_prepared,
    frame,
    insert,
    message,
    prepare,
    relation,
    rollback_prepared,
    snapshot,
    update,
)
from tests.support.render import WAYS, Rendered, Way, all_ways, render
from tests.support.render_text import NOON, scanned_table

A, B, C = 100, 101, 102
WHEN: Final = NOON - 12_000
TRANSACTION = [begin(7, 0x110, WHEN), insert("3", "c"), update(["1", "z"]), commit(0x110, 0x118, WHEN)]
STREAM: Final = [
    *snapshot(["1", "a"], ["2", None], end=0x100, time=WHEN),
    *snapshot(oid=B, name="e", end=0x100, time=WHEN),
    *snapshot(["7", "x"], oid=C, name="u", end=0x100, time=WHEN),
    *TRANSACTION,
    *snapshot(["1", "z"], ["3", "c"], end=0x200, time=WHEN),
]
SQL_BEGINS: Final = "END $$;\n\n"


def lines(output: str, *messages: bytes, **options: Any) -> list[str]:
    return all_ways(*messages or STREAM, output=output, lsn=0xFF, **options).lines


def test_json() -> None:
    place = '"commit_lsn":"0/FF","commit_ts":"2026-11-28T11:59:59.988000Z","lsn":"0/FF"'
    found = lines("json")
    assert found[:3] == [
        f'{{"op":"snapshot","schema":"public","table":"t","seq":1,{place},"new":{{"id":1,"v":"a"}}}}',
        f'{{"op":"snapshot","schema":"public","table":"t","seq":2,{place},"new":{{"id":2,"v":null}}}}',
        f'{{"op":"snapshot","schema":"public","table":"u","seq":3,{place},"new":{{"id":7,"v":"x"}}}}',
    ]
    assert [orjson.loads(line)["op"] for line in found[3:]] == ["insert", "update", "snapshot", "snapshot"]


def test_json_transactions_name_the_table_also_if_it_is_empty() -> None:
    place = '"commit_lsn":"0/FF","commit_ts":"2026-11-28T11:59:59.988000Z"'
    head = f'{place},"snapshot":true,"schema":"public","table":"e"'
    found = lines("json", transactions=True)
    assert found[4:6] == [f'{{"op":"begin",{head}}}', f'{{"op":"commit",{head},"end_lsn":"0/100","changes":0}}']
    assert [orjson.loads(line)["changes"] for line in found if '"commit",' in line] == [2, 0, 1, 2, 2]


def test_json_tx() -> None:
    place = '"commit_lsn":"0/FF","commit_ts":"2026-11-28T11:59:59.988000Z"'
    head = f'{place},"snapshot":true,"schema":"public","table":'
    row = '{"op":"snapshot","schema":"public","table":"u","seq":3,"lsn":"0/FF","new":{"id":7,"v":"x"}}'
    assert lines("json-tx")[1:3] == [
        f'{{{head}"e","changes":[],"end_lsn":"0/100"}}',
        f'{{{head}"u","changes":[{row}],"end_lsn":"0/100"}}',
    ]


def test_csv_line_and_template() -> None:
    found = render(*STREAM, output="csv", filters={"tables": ["t"]}, way="compiled").lines
    assert found[1:3] == [
        "snapshot,,0/FF,2026-11-28 11:59:59.988+00,1,,,1,a",
        "snapshot,,0/FF,2026-11-28 11:59:59.988+00,2,,,2,",
    ]
    assert found == render(*STREAM, output="csv", filters={"tables": ["t"]}).lines
    shown = render(*STREAM, output="line").lines
    assert shown[0] == "2026-11-28 11:59:59.988000Z - SNAPSHOT public.t         [id=1]      v='a'"
    assert shown == render(*STREAM, output="line", way="compiled").lines
    template = [render(*STREAM, output=TEMPLATE, format_string="%o %t %k %x|%q", way=way).lines for way in WAYS]
    assert template[0][:3] == ["snapshot public.t id=1 |1", "snapshot public.t id=2 |2", "snapshot public.u id=7 |3"]
    assert template[0] == template[1]


@pytest.mark.parametrize("way", WAYS)
def test_a_table_has_a_block_for_each(way: Way) -> None:
    text = scanned_table([frame(one, 0xFF) for one in STREAM[:12]], way, OutputOptions(), None, None)
    assert text == (
        "● snapshot of public.t  0/FF  2026-11-28 11:59:59.988000Z  12 ms ago\n"
        "  SNAPSHOT public.t  id=1  v 'a'\n"
        "  SNAPSHOT public.t  id=2  v NULL\n"
        "  2 rows · end 0/100\n\n"
        "● snapshot of public.e  0/FF  2026-11-28 11:59:59.988000Z  12 ms ago\n"
        "  0 rows · end 0/100\n\n"
        "● snapshot of public.u  0/FF  2026-11-28 11:59:59.988000Z  12 ms ago\n"
        "  SNAPSHOT public.u  id=7  v 'x'\n"
        "  1 row · end 0/100\n"
    )


def test_a_table_that_is_described_before_the_begin_is_shown_also_if_it_is_empty() -> None:
    """As in a segment of a capture."""
    begun, described, *rest = snapshot(end=0x100)
    [found] = all_ways(described, begun, *rest, output="json-tx", filters={"where": ["id = 1"]}).objects
    assert (found["table"], found["changes"]) == ("t", [])


# -- formats that know no snapshots ------------------------------------------------------------------------------------


@pytest.mark.parametrize("output", ["wal2json", "wal2json-v1"])
def test_wal2json_writes_inserts_and_notes_repeated_rows(output: str) -> None:
    told: list[str] = []
    found = render(*STREAM, output=output, report=told.append, way="compiled")
    assert found.written == render(*STREAM, output=output).written
    inserted = found.written.count(b'"action":"I"') + found.written.count(b'"kind":"insert"')
    assert inserted == 6
    assert told == ["note: the snapshot of public.t at 0/1FF repeats rows: readers take them for inserts"]


def sql(*messages: bytes, **options: Any) -> list[str]:
    head, _, script = "\n".join(lines_of_sql(*messages, **options)).partition(SQL_BEGINS)
    assert head
    return script.split("\n")


def lines_of_sql(*messages: bytes, **options: Any) -> list[str]:
    written = {render(*messages, output="sql", way=way, **options).written for way in WAYS}
    assert len(written) == 1
    return written.pop().decode().split("\n")


def test_sql_inserts_and_deletes_before_it_inserts_again() -> None:
    script = sql(*STREAM)
    assert script[:8] == [
        "-- snapshot of public.t, 0/FF, committed at 2026-11-28 11:59:59.988000Z",
        "BEGIN;",
        """INSERT INTO "public"."t" ("id", "v") OVERRIDING SYSTEM VALUE VALUES ('1', 'a');""",
        """INSERT INTO "public"."t" ("id", "v") OVERRIDING SYSTEM VALUE VALUES ('2', NULL);""",
        "COMMIT;",
        "",
        "-- snapshot of public.e, 0/FF, committed at 2026-11-28 11:59:59.988000Z",
        "BEGIN;",
    ]
    start = script.index("-- snapshot of public.t, 0/1FF, committed at 2026-11-28 11:59:59.988000Z")
    assert script[start + 1] == "BEGIN;"
    assert script[start + 2] == (
        "DO $$ BEGIN EXECUTE (SELECT 'DELETE FROM ' || CASE relkind WHEN 'p' THEN '' ELSE 'ONLY ' END"
        """ || oid::regclass::text FROM pg_catalog.pg_class WHERE oid = '"public"."t"'::regclass); END $$;"""
    )
    assert script[start + 5] == "COMMIT;"
    assert sum(line.startswith("DO ") for line in script) == 1


@pytest.mark.parametrize("rows", [[], [["5", "e"]]], ids=["empty", "rows"])
@pytest.mark.parametrize("filters", [None, {"tables": ["t"]}, {"where": ["id = 5"]}], ids=str)
def test_sql_deletes_what_the_stream_has_inserted(filters: dict[str, Any] | None, rows: list[list[Cell]]) -> None:
    """Also if no row follows, and if a filter leaves all of them out."""
    before = [relation(), begin(7), insert("5", "a"), commit()]
    script = sql(*before, *snapshot(*rows, end=0x200), filters=filters)
    assert [line for line in script if line.startswith("DO ") and "DELETE" in line]


@pytest.mark.parametrize("outcome", [commit_prepared(9), rollback_prepared(9)], ids=["committed", "rolled back"])
@pytest.mark.parametrize("filters", [None, {"tables": ["t"]}], ids=str)
def test_sql_does_not_wait_for_a_prepared_transaction(filters: dict[str, Any] | None, outcome: bytes) -> None:
    """Its locks would hold the DELETE up for ever: it is repeated when it is committed, after the snapshot."""
    hidden = [] if filters is None else [relation(oid=B, name="e"), insert("8", "h", oid=B)]
    prepared = [begin_prepare(9), *hidden, update(["1", "p"]), insert("2", "p"), prepare(9)]
    again = snapshot(["1", "a"], end=0x180)
    end = snapshot(["1", "a"], end=0x300)
    script = sql(*snapshot(["1", "a"]), *prepared, *again, outcome, *end, filters=filters)
    start = script.index("-- xid 9, 0/100, prepared at 2000-01-01 00:00:00.000000Z")
    changes = script[start : script.index("PREPARE TRANSACTION 'g';")]
    assert len(changes) == 4
    rolled_back = script.index("ROLLBACK PREPARED 'g';")
    heads = [at for at, line in enumerate(script) if line.startswith("-- snapshot of public.t")]
    assert rolled_back < heads[1]
    assert script[heads[1] :].count("PREPARE TRANSACTION 'g';") == 0
    between = script[script.index("COMMIT;", heads[1]) + 2 : heads[2]]
    assert between == ([*changes, "COMMIT;", ""] if outcome[:1] == b"K" else [])
    assert script.count("ROLLBACK PREPARED 'g';") == 1


def test_undo_writes_a_comment() -> None:
    told: list[str] = []
    script = sql(*STREAM, undo=True, report=told.append)
    assert script.count("-- cannot be undone: snapshot of public.t: what the table had before was not sent") == 2
    assert "-- undo snapshot of public.u, 0/FF, committed at 2026-11-28 11:59:59.988000Z" in script
    assert not [line for line in script if "SNAPSHOT" in line]
    assert told[1] == "2 times snapshot of public.t: what the table had before was not sent"


# -- debezium: the first and the last rows -----------------------------------------------------------------------------


def marks(*messages: bytes, way: Way, broken_off: bool = False, **options: Any) -> list[tuple[str, str]]:
    """The operation and source.snapshot of each event."""
    found = render(*messages, output="debezium", way=way, broken_off=broken_off, **options)
    return [(one["op"], one["source"]["snapshot"]) for one in events(found)]


def events(found: Rendered) -> list[dict[str, Any]]:
    return [orjson.loads(line.rpartition(b"\t")[2]) for line in found.written.splitlines()]


def three(name: str, oid: int, count: int) -> list[bytes]:
    return snapshot(*[[str(number), "v"] for number in range(count)], oid=oid, name=name)


_FIRST, _LAST, _OTHER = ("r", "first"), ("r", "last"), ("r", "true")
_FIRST_IN, _LAST_IN = ("r", "first_in_data_collection"), ("r", "last_in_data_collection")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ((3, 0, 3), [_FIRST, _OTHER, _LAST_IN, _FIRST_IN, _OTHER, _LAST]),
        ((2, 2, 2), [_FIRST, _LAST_IN, _FIRST_IN, _LAST_IN, _FIRST_IN, _LAST]),
        ((1, 1, 1), [_FIRST, _LAST_IN, _LAST]),
        ((0, 2, 0), [_FIRST, _LAST]),
        ((2, 0, 0), [_FIRST, _LAST]),
        ((0, 0, 1), [_LAST]),
        ((0, 0, 0), []),
    ],
)
def test_debezium_marks_the_first_and_last_rows(
    counts: tuple[int, ...], expected: list[tuple[str, str]], way: Way
) -> None:
    tables = [part for oid, count in enumerate(counts, 100) for part in three(f"t{oid}", oid, count)]
    assert marks(*tables, way=way) == expected
    assert marks(*tables, relation(), *TRANSACTION, way=way) == [*expected, ("c", "false"), ("u", "false")]
    assert marks(*tables, *snapshot(["1", "a"], end=0x300), way=way) == [*expected, _LAST]
    assert marks(*tables, message(b"m", transactional=False), way=way) == [*expected, ("m", "false")]


@pytest.mark.parametrize("way", WAYS)
def test_debezium_marks_shown_rows_and_knows_no_end_of_a_broken_snapshot(way: Way) -> None:
    tables = [*three("t", A, 4), *three("u", B, 4)]
    assert marks(*tables, way=way, filters={"tables": ["u"]}) == [_FIRST, _OTHER, _OTHER, _LAST]
    assert marks(*tables, way=way, filters={"where": ["id >= 2"]}) == [_FIRST, _LAST_IN, _FIRST_IN, _LAST]
    assert marks(*three("t", A, 3)[:-1], way=way, broken_off=True) == [_FIRST, _OTHER, _OTHER]
    assert marks(*three("t", A, 3), way=way, broken_off=True) == [_FIRST, _OTHER, _LAST_IN]


@pytest.mark.parametrize("way", WAYS)
def test_debezium_rows_have_no_transaction_and_keep_values_that_look_like_the_mark(way: Way) -> None:
    rows: list[list[Cell]] = [["1", '","snapshot":"true"'], ["2", "true\tfirst"]]
    found = render(
        *snapshot(*rows, end=0x100, time=WHEN), *TRANSACTION, output="debezium", way=way, transactions=True, lsn=0xFF
    )
    first, second, begun, *_ = [orjson.loads(line) for line in found.written.splitlines()]
    assert [first["after"]["v"], second["after"]["v"]] == [row[1] for row in rows]
    assert (first["before"], first["transaction"], first["source"]["txId"]) == (None, None, None)
    assert (first["source"]["lsn"], first["source"]["sequence"]) == (0xFF, '[null,"255"]')
    assert begun["status"] == "BEGIN"


@pytest.mark.parametrize("way", WAYS)
def test_debezium_keys_and_a_row_that_is_written_in_pieces(way: Way) -> None:
    long = "x" * (3 << 20)
    tables = snapshot(["1", "a"], ["2", long], ["3", "b"])
    found = render(*tables, output="debezium", way=way, keys=True)
    assert [line.partition(b"\t")[0] for line in found.written.splitlines()] == [b'{"id":%d}' % n for n in (1, 2, 3)]
    assert [one["source"]["snapshot"] for one in events(found)] == ["first", "true", "last"]
    assert events(found)[1]["after"]["v"] == long


# -- options -----------------------------------------------------------------------------------------------------------


def test_values_are_masked_and_columns_chosen_as_of_inserts() -> None:
    [row, *_] = all_ways(*STREAM, redact=["v"]).objects
    assert row["new"] == {"id": 1, "v": "(redacted)"}
    [row, *_] = all_ways(*STREAM, columns=("id",), changed=True).objects
    assert row["new"] == {"id": 1}
    assert "changed" not in row


def test_binary_cells_give_the_same() -> None:
    def rows(cells: list[list[Cell]]) -> list[str]:
        return lines("json", *snapshot(*cells))

    assert rows([[struct.pack(">i", 1), b"a"], [struct.pack(">i", -2), None]]) == rows([["1", "a"], ["-2", None]])


@pytest.mark.parametrize("way", WAYS)
def test_rows_of_a_snapshot_go_through_the_scanner(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the first one, which the decoder needs to know the table."""
    from pgtail.changes.assembler import Assembler

    fed: list[str] = []
    feed = Assembler.feed

    def counting(self: Assembler, one: Any, *arguments: Any) -> Any:
        fed.append(type(one).__name__)
        return feed(self, one, *arguments)

    monkeypatch.setattr(Assembler, "feed", counting)
    tables = snapshot(*[[str(number), "v"] for number in range(1000)])
    assert len(render(*tables, way=way).lines) == 1000
    assert fed.count("Insert") == (2 if way == "compiled" else 1001)
