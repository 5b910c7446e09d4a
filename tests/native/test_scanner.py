"""Scanner and decoder write the same of the captures; what the scanner leaves to the decoder."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from pgtail.changes.commit_range import CommitRange
from pgtail.changes.relations import Column, Relation
from pgtail.native import compiled
from pgtail.outputs import OutputOptions, open_output
from pgtail.pgoutput.decoder import AnyFrame
from pgtail.pgoutput.scalars import Point
from pgtail.pipeline.pipeline import Pipeline
from pgtail.values import Types
from tests.support.corpus import captures
from tests.support.encode import (
    STREAM_STOP,
    begin,
    commit,
    delete,
    insert,
    lengths,
    relation,
    stream_abort,
    stream_commit,
    stream_start,
    update,
)
from tests.support.render import WAYS, Sink, Way, need_compiled, render, write_slice
from tests.support.same import OUTPUTS, same
from tests.support.typed_rows import one_of_each


class Alarm(Exception):
    pass


TRANSACTIONS = 20_000
"""In one batch."""


def test_signal_is_handled_at_the_end_of_a_run() -> None:
    """Python integers in the scanner would raise the exception of a signal handler where it cannot be propagated."""
    if compiled() is None:
        need_compiled()

    def ring(*_: object) -> None:
        raise Alarm

    table, rows = one_of_each([23])
    buf = lengths(begin(), rows[0], commit()) * TRANSACTIONS
    lines: list[bytes] = []
    sink = SimpleNamespace(write=lines.append)  # no Python code, where a handler could run
    output = open_output("json", sink, OutputOptions())
    before = signal.signal(signal.SIGVTALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.005)
        with pytest.raises(Alarm):  # noqa: PT012
            for _ in range(10_000):
                write_slice(output, None, buf, table)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    assert b'"commit_ts":""' not in b"".join(lines)
    assert len(b"".join(lines).splitlines()) % TRANSACTIONS == 0


def test_row_interrupted_by_an_exception_is_not_written() -> None:
    """For example an exception of a signal handler, while Python converts one of the row's values."""
    if compiled() is None:
        need_compiled()

    def convert(cell: bytes) -> bytes:
        if cell == b"2":
            raise Alarm
        return cell

    codec = replace(Types().codec(23), json_text=convert, native=None)
    columns = (Column("a", 25, -1, True, "text", Types().codec(25)), Column("b", 23, -1, False, "integer", codec))
    buf = lengths(begin(), insert("x", "1"), insert("y", "2"), commit())
    sink = Sink()
    table = Relation(100, "public", "t", "default", columns)
    with pytest.raises(Alarm):
        write_slice(open_output("json", sink, OutputOptions()), None, buf, table)
    assert [line[-22:] for line in b"".join(sink.parts).split(b"\n")] == [b'"new":{"a":"x","b":1}}', b""]


@pytest.mark.parametrize("part", range(8))
def test_captures(part: int) -> None:
    for number, found in enumerate(captures()[part :: 8 * 2]):
        messages = [raw.data for raw in found.messages()]
        step = 8
        for output, options in [OUTPUTS[0], *OUTPUTS[1 + (number + part) % step :: step]]:
            same(*messages, output=output, encoding=found.encoding, lsn=0x1_0000_00FF, **options)
        for filtered in ({"ops": ["update", "truncate"], "exclude": ["*t*"]}, {"where": ["id > 2"]}, {"xids": [750]}):
            same(*messages, encoding=found.encoding, filters=filtered)


@pytest.fixture
def fed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of the messages that were decoded one by one."""
    found: list[str] = []
    usual = Pipeline.feed

    def feed(self: Pipeline, message: AnyFrame, lsn: int | None, offset: int | None = None) -> None:
        found.append(type(message).__name__)
        usual(self, message, lsn, offset)

    monkeypatch.setattr(Pipeline, "feed", feed)
    return found


@pytest.mark.parametrize("way", WAYS)
def test_ordinary_rows_are_scanned(way: Way, fed: list[str]) -> None:
    """Otherwise the comparisons would compare the decoder with itself."""
    rows = [insert("1", "one"), update(("1", "one")), delete("1", None)]
    render(relation(), begin(), *rows, commit(), begin(), *rows, commit(), way=way)
    if way == "decoder":
        assert len(fed) == 11
    else:
        # Only the Begin shows that the stream did not start inside a segment.
        assert fed == ["Relation", "Begin", "Insert"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("streams", [False, True])
def test_rows_that_a_table_does_not_show_are_counted(streams: bool, way: Way, fed: list[str]) -> None:
    """The first ones after two Relations are decoded, and those that are shown."""
    xid, notes = 7 if streams else None, list[str]()
    tables = [relation(1, "t", xid=xid), relation(2, "other", [("id", 23), ("w", 25)], xid=xid)]
    rows = [insert(str(number), "x", oid=1 + number // 6, xid=xid) for number in range(10)]
    messages = [begin(), *tables, *rows, commit()]
    if streams:
        messages = [stream_start(), *tables, *rows, STREAM_STOP, stream_commit()]
    options: dict[str, Any] = {"max_rows": 2, "columns": ["id,w"], "report": notes.append}
    ran = render(*messages, *messages, output="table", way=way, **options)
    assert ran.written.count(b"INSERT") == 4
    assert ran.written.count(b"10 changes, 8 not shown (--max-rows 2)") == 2
    assert (ran.rows, notes) == (20, [])
    assert fed.count("Insert") == (20 if way == "decoder" else 2 if streams else 4)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("until", [Point(time=0), Point(lsn=0x100)])
def test_a_transaction_after_the_last_one_is_decoded(until: Point, way: Way, fed: list[str]) -> None:
    """The reader of a slot ends there: whatever the scanner processes is acknowledged."""
    filters = {"commits": CommitRange(until=until, margin=0)}
    first = [begin(lsn=0x100, time=0), insert("1", "one"), insert("2", "two"), commit(lsn=0x100, time=0)]
    later = [begin(lsn=0x200, time=1), insert("3", "three"), commit(lsn=0x200, end=0x208, time=1)]
    render(relation(), *first, *first, *later, filters=filters, way=way)
    assert fed.count("Begin") == (3 if way == "decoder" else 2)


@pytest.mark.parametrize("way", WAYS)
def test_streamed_rows_are_buffered_without_being_decoded(way: Way, fed: list[str]) -> None:
    written = render(*streamed(), way=way).written
    assert written == b"".join(
        b'{"op":"insert","schema":"public","table":"t","xid":7,"seq":%d,"commit_lsn":"0/100",'
        b'"commit_ts":"2000-01-01T00:00:00.000000Z","new":{"id":%d,"%b":"x"}}\n' % (seq, id_, column)
        for seq, id_, column in [(1, 1, b"v"), (2, 2, b"v"), (3, 6, b"w"), (4, 7, b"w")]
    )
    if way != "compiled":
        assert fed.count("Insert") == 7
    else:
        assert "Insert" not in fed


def streamed() -> list[bytes]:
    """A streamed transaction: a rolled-back part, and a table that becomes another one halfway."""
    other = relation(columns=[("id", 23), ("w", 25)], xid=7)
    rows = [insert(str(number + 1), "x", xid=xid) for number, xid in enumerate([7, 7, 8, 8, 9, 7, 10])]
    return [
        *[stream_start(), relation(xid=7), *rows[:3], STREAM_STOP],
        *[stream_start(first=0), *rows[3:5], STREAM_STOP, stream_abort(7, 8)],
        *[stream_start(first=0), other, *rows[5:], STREAM_STOP, stream_commit()],
    ]
