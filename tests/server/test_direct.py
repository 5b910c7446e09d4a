"""A few frames rendered and written by the thread that reads them: only where it cannot have to wait."""

from __future__ import annotations

import fcntl
import json
import os
import select
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from pgtail.assembler import Assembler
from pgtail.cli.voice import StreamSink
from pgtail.errors import InputError
from pgtail.outputs import open_output
from pgtail.outputs.base import OutputOptions
from pgtail.pipeline import Pipeline
from pgtail.server.spool import Spool
from pgtail.server.worker import DIRECT, Worker
from pgtail.values import Types
from pgtail.wire.decoder import Decoder
from tests import encode

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

    def direct(self, *frames: bytes) -> bytes:
        return self.worker.direct(b"".join(frames))

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
def make() -> Iterator[Callable[..., Tail]]:
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
