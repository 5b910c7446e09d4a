"""A few frames rendered and written by the thread that reads them: only where it cannot have to wait."""

from __future__ import annotations

import fcntl
import json
import os
import select
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from pgtail.assembler import Assembler
from pgtail.cli.standard import ClosedPipe
from pgtail.cli.voice import StreamSink
from pgtail.compiled import compiled
from pgtail.errors import InputError
from pgtail.outputs import open_output
from pgtail.outputs.base import OutputOptions
from pgtail.pipeline import Pipeline
from pgtail.server.spool import Spool
from pgtail.server.worker import DIRECT, Worker
from pgtail.values import Types
from pgtail.wire.decoder import Decoder
from tests import encode
from tests.rendering import need_compiled, rows_by

KEEPALIVE = struct.pack(">IcQqB", 18, b"k", 0, 0, 0)
NUMERIC = 1700
F_SETPIPE_SZ = 1031
PATIENCE = 10.0


def lone(*values: str) -> list[bytes]:
    """The frames of a transaction that inserts these values."""
    rows = [encode.insert("1", value) for value in values]
    return [encode.lengths(one) for one in (encode.begin(), encode.relation(), *rows, encode.commit())]


@dataclass
class Tail:
    spool: Spool
    worker: Worker
    reader: int
    read: bytes = b""
    ahead: bool = False
    """Whether rows are taken as soon as they come, where they can be."""

    def direct(self, *frames: bytes) -> bytes:
        joined = b"".join(frames)
        at_once = self.worker.at_once() if self.ahead else None
        if at_once is not None:
            at_once(joined)
        return self.worker.direct(joined)

    def put(self, *frames: bytes) -> None:
        assert self.spool.put(b"".join(frames))

    def lines(self, count: int, seconds: float = PATIENCE) -> list[dict[str, Any]]:
        """So many lines of what was written; those that there are where they do not come in time."""
        until = time.monotonic() + seconds
        while self.read.count(b"\n") < count:
            if not select.select([self.reader], [], [], max(0, until - time.monotonic()))[0]:
                break
            self.read += os.read(self.reader, 1 << 16)
        *lines, self.read = self.read.split(b"\n")
        return [json.loads(line) for line in lines]


@pytest.fixture
def made() -> Iterator[Callable[..., Tail]]:
    tails: list[Tail] = []
    writers: list[int] = []

    def one(limit: int | None = None) -> Tail:
        reader, writer = os.pipe()
        fcntl.fcntl(writer, F_SETPIPE_SZ, 2 * select.PIPE_BUF)
        writers.append(writer)
        sink, spool = StreamSink(writer, "stdout", None), Spool(1 << 20)
        pipeline = Pipeline(
            Assembler(Types()), open_output("json", sink, OutputOptions()), note=lambda _: None, limit=limit
        )
        worker = Worker(
            spool,
            pipeline,
            sink,
            Decoder,
            lambda: None,
            position=0,
            durable=False,
            enough=lambda: limit is not None and pipeline.shown >= limit,
        )
        worker.start()
        tails.append(Tail(spool, worker, reader))
        return tails[-1]

    yield one
    for tail, writer in zip(tails, writers, strict=True):
        os.close(tail.reader)
        assert tail.worker.stop(PATIENCE)
        os.close(writer)


@pytest.fixture(params=[False, True], ids=["then", "ahead"])
def make(request: pytest.FixtureRequest, made: Callable[..., Tail]) -> Callable[..., Tail]:
    def one(limit: int | None = None) -> Tail:
        tail = made(limit)
        tail.ahead = request.param
        return tail

    return one


def test_a_lone_commit_is_written_at_once(make: Callable[..., Tail]) -> None:
    tail = make()
    assert tail.direct(*lone("a")) == b""
    assert [line["new"] for line in tail.lines(1, 0)] == [{"id": 1, "v": "a"}]
    assert tail.worker.delivered == 0x108


def test_what_may_be_much_is_left_to_the_other_thread(make: Callable[..., Tail]) -> None:
    tail = make()
    assert tail.direct(*lone("a" * DIRECT))
    for large in (encode.stream_commit(), encode.stream_start(), b"K", b"\xff"):
        rest = encode.lengths(large, encode.begin())
        assert tail.direct(*lone("a"), rest) == rest
        assert [line["new"] for line in tail.lines(1, 0)] == [{"id": 1, "v": "a"}]
    long = lone(*["b" * (DIRECT // 3)] * 3)
    assert tail.direct(*long[:-2]) == b""
    assert tail.direct(*long[-2:]), "it began before, and has become long"
    tail.put(*long[-2:])
    assert [line["new"] for line in tail.lines(3)] == [{"id": 1, "v": "b" * (DIRECT // 3)}] * 3


def test_a_commit_that_comes_in_pieces(make: Callable[..., Tail]) -> None:
    tail = make()
    for value in "ab":
        for frame in lone(value):
            assert tail.direct(frame) == b""
        assert [line["new"] for line in tail.lines(1, 0)] == [{"id": 1, "v": value}]
    waiting = lone("c")
    tail.put(*waiting[:2])
    until_quiet(tail)
    assert tail.direct(*waiting[2:]), "nobody counted what came before"


def until_quiet(tail: Tail) -> None:
    deadline = time.monotonic() + PATIENCE
    while not tail.spool.quiet:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_reader_that_stopped_keeps_nobody_waiting(make: Callable[..., Tail]) -> None:
    tail, taken = make(), 0
    while not tail.direct(*lone("a" * 500)):
        taken += 1
    assert 0 < taken < 20
    for _ in range(20):
        tail.put(*lone("b"))
    found = [line["new"] for line in tail.lines(taken + 20)]
    assert found == [{"id": 1, "v": "a" * 500}] * taken + [{"id": 1, "v": "b"}] * 20
    until_quiet(tail)
    assert tail.direct(*lone("c")) == b""
    assert [line["new"] for line in tail.lines(1)] == [{"id": 1, "v": "c"}]


@pytest.mark.parametrize("word", [True, False], ids=["with a word for it", "without"])
def test_what_is_more_than_a_pipe_takes(make: Callable[..., Tail], monkeypatch: pytest.MonkeyPatch, word: bool) -> None:
    """A control character is six bytes of JSON. Not every system has the word for what is not to wait."""
    if not word:
        monkeypatch.delattr("os.RWF_NOWAIT", raising=False)
    tail, value = make(), "\x01" * 720
    taken = 0
    while tail.spool.quiet:
        assert taken < 3, "4.4 kB each went into a pipe of 8"
        assert tail.direct(*lone(value)) == b""
        taken += 1
    assert tail.direct(*lone("b")), "the other thread is busy"
    tail.put(*lone("b"))
    assert [line["new"]["v"] for line in tail.lines(taken + 1)] == [value] * taken + ["b"]
    until_quiet(tail)
    assert tail.direct(*lone("c")) == b""
    assert [line["new"] for line in tail.lines(1)] == [{"id": 1, "v": "c"}]


def test_as_many_as_were_wanted(make: Callable[..., Tail]) -> None:
    tail = make(limit=2)
    assert tail.direct(*lone("a")) == b""
    assert tail.worker.reached is None
    assert tail.direct(*lone("b"), *lone("c")) == b""
    tail.worker.join(PATIENCE)
    assert tail.worker.ended
    assert tail.worker.error is None
    assert str(tail.worker.reached) == "enough"
    assert len(tail.lines(3, 0.1)) == 2


def test_damage_ends_it_and_what_came_before_is_written(make: Callable[..., Tail]) -> None:
    tail = make()
    assert tail.direct(*lone("a"), encode.lengths(encode.begin()[:-1])) == b""
    tail.worker.join(PATIENCE)
    assert isinstance(tail.worker.error, InputError)
    assert "the stream after 0/108" in str(tail.worker.error)
    assert len(tail.lines(2, 0.1)) == 1
    assert tail.direct(*lone("b"))


def test_both_ways_in_turn_keep_the_order(make: Callable[..., Tail]) -> None:
    tail, sent = make(), 0
    found: list[dict[str, Any]] = []
    for number in range(3000):
        frames = lone(str(number) + "\x01" * (number % 700))
        if rest := tail.direct(*frames):
            tail.put(rest)
        sent += 1
        while sent - len(found) > 3:
            found += tail.lines(1)
    found += tail.lines(sent - len(found))
    assert [str(line["new"]["v"]).rstrip("\x01") for line in found] == [str(n) for n in range(3000)]


# -- ahead -------------------------------------------------------------------------------------------------------------


def known(*values: str) -> bytes:
    """The frames of a transaction that inserts these values into a table that was described before."""
    rows = [encode.insert("1", value) for value in values]
    return encode.lengths(encode.begin(), *rows, encode.commit())


@pytest.fixture
def tail(made: Callable[..., Tail]) -> Tail:
    """One whose rows can be taken ahead, behind a first commit that described the table."""
    if compiled() is None:
        need_compiled()
    found = made()
    found.ahead = True
    assert found.direct(*lone("first")) == b""
    assert len(found.lines(1, 0)) == 1
    return found


def ahead(tail: Tail, frames: bytes) -> None:
    at_once = tail.worker.at_once()
    assert at_once is not None
    at_once(frames)


def values(lines: list[dict[str, Any]]) -> list[str]:
    return [line["new"]["v"] for line in lines]


def test_rows_are_written_before_anything_is_noted(tail: Tail) -> None:
    frames = KEEPALIVE + KEEPALIVE + known("a", "b") + known("c")
    ahead(tail, frames)
    assert values(tail.lines(3, 0)) == ["a", "b", "c"]
    assert tail.worker.direct(frames) == b""
    assert tail.worker.position == tail.worker.delivered == 0x108
    assert tail.direct(known("d")) == b""
    assert values(tail.lines(2, 0.1)) == ["d"], "each is written once"


def test_what_is_not_taken_ahead(tail: Tail) -> None:
    for frames, at_once, then in (
        (known("a" * DIRECT), [], ["a" * DIRECT]),
        (KEEPALIVE, [], []),
        (b"".join(lone("b")), [], ["b"]),
        (known("c") + encode.lengths(encode.stream_start()), ["c"], []),
    ):
        ahead(tail, frames)
        assert values(tail.lines(1, 0)) == at_once
        rest = tail.worker.direct(frames)
        if rest:
            tail.put(rest)
            until_quiet(tail)
        assert values(tail.lines(1, 0)) == then
    assert tail.worker.at_once() is None, "inside of a stream nothing is"


def test_a_transaction_that_goes_on(tail: Tail) -> None:
    frames = known("a", "b")
    half = encode.lengths(encode.begin(), encode.insert("1", "a"))
    ahead(tail, half)
    assert tail.worker.direct(half) == b""
    assert tail.worker.at_once() is None
    assert tail.worker.direct(frames[len(half) :]) == b""
    assert values(tail.lines(2, 0)) == ["a", "b"]
    assert tail.worker.at_once() is not None


def test_a_pipe_that_is_full(tail: Tail) -> None:
    value = "x" * 800
    while tail.spool.quiet:
        frames = known(value)
        ahead(tail, frames)
        assert tail.worker.direct(frames) == b""
    assert tail.worker.at_once() is None, "the other thread waits for room"
    count = 1
    while lines := values(tail.lines(1, 1)):
        assert lines == [value] * len(lines)
        count += len(lines)
    assert count > 5
    until_quiet(tail)
    assert tail.direct(known("b")) == b""
    assert values(tail.lines(1)) == ["b"]


def test_other_frames_than_those_that_were_taken(tail: Tail) -> None:
    ahead(tail, known("a"))
    assert tail.worker.direct(known("b")) == b""
    tail.worker.join(PATIENCE)
    assert isinstance(tail.worker.error, RuntimeError), "a mistake of ours is no silent loss"
    assert values(tail.lines(2, 0.1)) == ["a"]


def test_nobody_reads(tail: Tail) -> None:
    reader, tail.reader = tail.reader, os.open(os.devnull, os.O_RDONLY)
    os.close(reader)
    frames = known("a")
    ahead(tail, frames)
    assert tail.worker.direct(frames) == b""
    tail.worker.join(PATIENCE)
    assert isinstance(tail.worker.error, ClosedPipe)
    assert tail.worker.delivered == 0x108, "of the first one"


def test_where_it_may_not_be_ahead(made: Callable[..., Tail]) -> None:
    limited = made(limit=2)
    assert limited.direct(*lone("a")) == b""
    assert limited.worker.at_once() is None
    with rows_by("plain"):
        plain = made()
        assert plain.direct(*lone("a")) == b""
        assert plain.worker.at_once() is None


def test_a_row_that_becomes_much(made: Callable[..., Tail]) -> None:
    """A binary numeric of a few bytes has 16383 digits behind its point: nobody waits for the pipe to take them."""
    if compiled() is None:
        need_compiled()
    tail, numeric = made(), struct.pack(">hhHH", 0, 0, 0, 16383)
    described = encode.relation(columns=[(f"c{number}", NUMERIC) for number in range(70)])
    tail.put(encode.lengths(encode.begin(), described, encode.commit()))
    until_quiet(tail)
    row = encode.lengths(encode.begin(), encode.insert(*[numeric] * 70))
    ahead(tail, row)
    assert tail.worker.direct(row) == b""
    tail.put(encode.lengths(encode.commit()))
    [line] = tail.lines(1)
    assert set(line["new"].values()) == {0}


def test_bytes_that_another_thread_is_to_write_are_no_idleness() -> None:
    spool = Spool(1 << 20)
    found = [spool.idle]
    spool.nudge()
    found.append(spool.idle)
    assert spool.take(1) is None
    found.append(spool.idle)
    assert found == [True, False, False], "the last one as he is busy with them"
