"""--show-aborted and --show-uncommitted: the added lines, and that no other line changes."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pgtail.changes.assembler import Assembler
from pgtail.changes.stream_buffer import StreamBuffer
from pgtail.changes.streaming import Show
from pgtail.outputs import OUTPUTS, OutputOptions, open_output
from pgtail.outputs.table.table import TableOutput
from pgtail.pgoutput.decoder import Decoder
from pgtail.pgoutput.frames import LENGTHS
from pgtail.pipeline.pipeline import Pipeline
from pgtail.stats.collect import Statistics
from pgtail.values import Types
from tests.support.corpus import Capture, capture
from tests.support.encode import (
    STREAM_STOP,
    begin,
    commit,
    insert,
    lengths,
    message,
    origin,
    recvlogical,
    relation,
    stream_abort,
    stream_commit,
    stream_start,
    truncate,
)
from tests.support.render import WAYS, Sink, feed, rows_by
from tests.support.run import decode
from tests.support.servers import Database
from tests.support.tail import parse, tailing

STREAMED = [
    capture("C_stream", "p2_stream_msg", "pg14"),
    capture("C_stream", "p2_stream_bin", "pg16"),
    capture("E_parallel", "p4_parallel", "pg16"),
    capture("E_parallel", "p4_on", "pg18"),
]
BOTH = ("--show-aborted", "--show-uncommitted")


def frames(one: Capture) -> Path:
    return one.forms["walsender.bin"]


@cache
def lines(*arguments: str | Path) -> list[bytes]:
    result = decode(*arguments)
    assert result.status == 0, result.stderr
    return result.lines


def without_outcome(line: dict[str, Any]) -> str:
    """A change without the keys that the end of its transaction adds."""
    own = {
        key: value for key, value in line.items() if key not in ("seq", "commit_lsn", "commit_ts", "state", "aborted")
    }
    return json.dumps(own, sort_keys=True)


# -- real streams ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("one", STREAMED, ids=str)
def test_other_lines_are_the_same_bytes(one: Capture) -> None:
    plain = lines(frames(one))
    assert [line for line in lines("--show-aborted", frames(one)) if not line.endswith(b'"aborted":true}')] == plain
    assert [line for line in lines("--show-uncommitted", frames(one)) if b'"state":"open"' not in line] == plain
    for option in BOTH:
        assert len(lines(option, frames(one))) > len(plain)


@pytest.mark.parametrize("one", STREAMED, ids=str)
def test_added_lines_and_the_keys_they_lack(one: Capture) -> None:
    """Every change of a stream is shown once as open, and again as committed or rolled back."""
    found = [parse(line) for line in lines(*BOTH, frames(one))]
    open_ = [line for line in found if line.get("state") == "open"]
    aborted = [line for line in found if line.get("aborted")]
    assert open_
    assert aborted
    for line in open_:
        assert not {"seq", "commit_lsn", "commit_ts", "aborted"} & line.keys()
    for line in aborted:
        assert {"seq", "state"} & line.keys() == set()
        assert list(line)[-1] == "aborted"
    assert any("commit_lsn" in line for line in aborted)
    assert any("commit_lsn" not in line for line in aborted)
    xids = {line["xid"] for line in open_}
    ended = [line for line in found if line.get("state") != "open" and line.get("xid") in xids]
    assert Counter(map(without_outcome, open_)) == Counter(map(without_outcome, ended))


@pytest.mark.parametrize("one", STREAMED, ids=str)
def test_rolled_back_rows_are_not_in_the_table(one: Capture) -> None:
    """Compared with the final contents read by SQL."""
    rows = {int(row[0]) for row in one.scenario.state["tables"]["public.st"]["rows"]}
    aborted = [line for line in map(parse, lines("--show-aborted", frames(one))) if line.get("aborted")]
    ids = {int(line["new"]["id"]) for line in aborted if line["op"] == "insert" and line["table"] == "st"}
    assert len(ids) > 100
    assert not ids & rows


@pytest.mark.parametrize("output", ["json", "json-tx", "table"])
def test_scanner_decoder_and_spilled_buffer_write_the_same(output: str) -> None:
    one = capture("C_stream", "p2_stream")
    written = set()
    for way in WAYS:
        for limit in (10_000, 10**9):
            sink, decoder = Sink(), Decoder()
            with closing(Assembler(Types(), buffer=StreamBuffer(limit), show=Show(aborted=True))) as assembler:
                options = OutputOptions(max_rows=0)
                table = TableOutput(sink, options, now=lambda: 0) if output == "table" else None
                made = table or open_output(output, sink, options)
                with rows_by(way):
                    pipeline = Pipeline(assembler, made, note=lambda note: None)
                feed(one.frames(), decoder, pipeline)
                pipeline.finish()
            written.add(b"".join(sink.parts))
    assert len(written) == 1
    assert (b"rolled back" if output == "table" else b'"aborted":true') in written.pop()


# -- small streams -----------------------------------------------------------------------------------------------------

MIXED = recvlogical(
    relation(),
    *[stream_start(7), origin("node_b"), insert("1", "kept", xid=7), insert("2", "gone", xid=8), STREAM_STOP],
    *[begin(xid=5, lsn=0x80), insert("9", "other"), commit(lsn=0x80, end=0x88)],
    stream_abort(7, 8),
    *[stream_start(7, 0), truncate(100, xid=7), insert("3", "last", xid=7), STREAM_STOP],
    stream_commit(7),
    *[stream_start(6), insert("4", "all gone", xid=6), message(b"hello", xid=6), STREAM_STOP],
    stream_abort(6, 6),
)


def test_json() -> None:
    found = [
        (line["op"], line["xid"], line.get("seq"), line.get("state"), line.get("aborted"), line.get("commit_lsn"))
        for line in decode(*BOTH, input=MIXED).objects
    ]
    open_, end = ("open", None, None), (None, None, "0/100")
    assert found == [
        ("insert", 7, None, *open_),
        ("insert", 7, None, *open_),
        ("insert", 5, 1, None, None, "0/80"),
        ("truncate", 7, None, *open_),
        ("insert", 7, None, *open_),
        ("insert", 7, 1, *end),
        ("insert", 7, None, None, True, "0/100"),
        ("truncate", 7, 2, *end),
        ("insert", 7, 3, *end),
        ("insert", 6, None, *open_),
        ("message", 6, None, *open_),
        ("insert", 6, None, None, True, None),
        ("message", 6, None, None, True, None),
    ]
    assert [line.get("origin") for line in decode(*BOTH, input=MIXED).objects if line["xid"] == 7] == ["node_b"] * 8
    assert b'"lsn"' not in decode(*BOTH, input=MIXED).stdout


def test_transaction_lines_are_of_committed_ones_only() -> None:
    ends = [line for line in decode(*BOTH, "--transactions", input=MIXED).objects if line["op"] in ("begin", "commit")]
    assert [(line["op"], line["xid"]) for line in ends] == [("begin", 5), ("commit", 5), ("begin", 7), ("commit", 7)]
    assert ends[-1]["changes"] == 3


def test_json_tx() -> None:
    found = decode("-o", "json-tx", *BOTH, input=MIXED).objects
    assert [(line["xid"], line.get("state"), line.get("aborted"), line.get("end_lsn")) for line in found] == [
        (7, "open", None, None),
        (5, None, None, "0/88"),
        (7, "open", None, None),
        (7, None, None, "0/108"),
        (6, "open", None, None),
        (6, None, True, None),
    ]
    assert [[change.get("aborted") for change in line["changes"]] for line in found[3::2]] == [
        [None, True, None, None],
        [True, True],
    ]
    assert "incomplete" not in str(found)


def test_tables() -> None:
    text = decode("-o", "table", *BOTH, input=MIXED).stdout.decode()
    assert "xid 7  from node_b  open: its end is not known yet" in text
    assert "  2 changes\n" in text
    assert "  INSERT   public.t  id=2  v 'gone'  rolled back\n" in text
    assert "3 changes, 1 rolled back" in text
    assert "● xid 6  rolled back\n" in text
    assert "  2 rolled back\n" in text
    struck = decode("-o", "table", "--color", "always", "--show-aborted", input=MIXED).stdout.decode()
    assert "\x1b[9m'gone'\x1b[0m" in struck
    assert "\x1b[9m'kept'" not in struck
    few = decode("-o", "table", "--max-rows", "1", "--show-aborted", input=MIXED).stdout.decode()
    assert "3 changes, 1 rolled back, 3 not shown (--max-rows 1)" in few


def test_filters_and_limits_apply_to_them_too() -> None:
    found = decode(*BOTH, "--where", "v ~ gone", input=MIXED).objects
    assert [(line["xid"], line["new"]["v"]) for line in found] == [*[(7, "gone")] * 2, *[(6, "all gone")] * 2]
    one = decode(*BOTH, "-n", "1", input=MIXED).objects
    assert {line["xid"] for line in one} == {7, 5}
    assert decode(*BOTH, "--redact", "v", "--op", "insert", input=MIXED).stdout.count(b"(redacted)") == 9


def test_incomplete_segment_is_closed() -> None:
    half = [relation(), stream_start(7), insert("1", "x", xid=7)]
    for rest in ([], [begin(), insert("2", "y"), commit()]):
        result = decode("-o", "json-tx", "--show-uncommitted", input=recvlogical(*half, *rest))
        assert result.objects[0]["incomplete"] is True
        assert len(result.objects) == (2 if rest else 1)


def test_other_formats_refuse() -> None:
    """They would show uncommitted changes as committed."""
    for output in OUTPUTS:
        for option in BOTH:
            result = decode("-o", output, option, input=MIXED)
            if OUTPUTS[output].marks:
                assert result.status == 0
                continue
            assert (result.status, result.stdout) == (2, b"")
            assert f"{option}: only with -o table, line, json, json-tx; this is {output}" in result.stderr


def test_segment_is_closed_where_the_stream_restarts() -> None:
    """The open transaction is repeated from its start; the rendered part of the other transaction is not."""
    sink, decoder = Sink(), Decoder()
    with closing(Assembler(Types(), show=Show(aborted=True, uncommitted=True))) as assembler:
        pipeline = Pipeline(assembler, open_output("json-tx", sink, OutputOptions()), note=lambda note: None)
        first = [relation(), stream_start(7), insert("1", "x", xid=7)]
        feed([b"w" + bytes(24) + data for data in first], decoder, pipeline)
        pipeline.restart(gap=False)
        whole = [*first, STREAM_STOP, begin(xid=5, lsn=0x80), insert("9", "y")]
        decoder = Decoder()
        feed([b"w" + bytes(24) + data for data in whole], decoder, pipeline)
        pipeline.restart(gap=False)
        decoder = Decoder()
        again = [*whole, insert("10", "z"), commit(lsn=0x80, end=0x88), stream_commit(7)]
        feed([b"w" + bytes(24) + data for data in again], decoder, pipeline)
        pipeline.finish()
    found = [json.loads(line) for line in b"".join(sink.parts).splitlines()]
    assert [(line["xid"], line.get("state"), line.get("incomplete"), len(line["changes"])) for line in found] == [
        (7, "open", True, 1),
        (7, "open", None, 1),
        (5, None, None, 2),
        (7, None, None, 1),
    ]


# -- a server ----------------------------------------------------------------------------------------------------------


def test_a_large_transaction_is_seen_before_it_ends(newest_database: Database) -> None:
    newest_database.execute("CREATE TABLE t (id int PRIMARY KEY, pad text)", "CREATE PUBLICATION p FOR TABLE t")
    newest_database.execute(f"ALTER DATABASE {newest_database.name} SET logical_decoding_work_mem = '64kB'")
    newest_database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    fill = "INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series({}, {}) i"
    with tailing(newest_database, "-S", "s", *BOTH) as running, newest_database.connect() as session:
        running.wait_for_slot(newest_database, "s")
        session.execute("BEGIN")
        session.execute(fill.format(1, 3000).encode())
        running.wait_for_output('"state":"open"')
        assert newest_database.value("SELECT count(*) FROM t") == 0
        session.execute("SAVEPOINT a")
        session.execute(fill.format(3001, 6000).encode())
        session.execute("ROLLBACK TO a")
        session.execute("COMMIT")
        session.execute("BEGIN")
        session.execute(fill.format(6001, 9000).encode())
        session.execute("ROLLBACK")
        session.execute("INSERT INTO t VALUES (0, 'end')")
        running.wait_for_output('"pad":"end"')
        found = running.changes
        running.stop()
    committed = [int(line["new"]["id"]) for line in found if "seq" in line]
    assert committed == [*range(1, 3001), 0]
    assert [int(line["seq"]) for line in found if "seq" in line] == [*range(1, 3001), 1]
    aborted = {int(line["new"]["id"]) for line in found if line.get("aborted")}
    assert aborted <= set(range(3001, 9001))
    assert aborted


def test_what_came_of_the_open_transactions_is_counted() -> None:
    """Rows that are decoded and rows that are kept undecoded count alike."""
    with closing(Assembler(Types())) as assembler:
        decoder, pipeline = Decoder(), Pipeline(assembler, Statistics(), note=print)

        def send(*messages: bytes) -> None:
            for one in messages:
                pipeline.feed(decoder.message(one, 0, len(one)), None)

        def send_rows(*rows: bytes) -> None:
            """Undecoded, where they are compiled."""
            frames = lengths(*rows)
            if not assembler.keep_rows(frames, 0, len(frames), LENGTHS):
                send(*rows)

        def unfinished() -> tuple[int | None, int] | None:
            return pipeline.unfinished

        assert unfinished() is None
        send(stream_start(7), relation(xid=7), insert("1", "a", xid=7))
        send_rows(insert("2", "b", xid=8), insert("3", "b", xid=8))
        send(STREAM_STOP)
        assert unfinished() == (7, 3)
        send(stream_start(9), relation(xid=9), insert("4", "c", xid=9), STREAM_STOP)
        assert unfinished() == (7, 3)
        send(stream_abort(7, 7))
        assert unfinished() == (9, 1)
        send(stream_commit(9))
        assert unfinished() is None
        send(begin(10), insert("5", "d"), insert("6", "e"))
        assert unfinished() == (10, 2)
        send(commit())
        assert unfinished() is None
