"""A few frames rendered and written by the thread that reads them: only where it cannot have to wait."""

from __future__ import annotations

import fcntl
import json
import os
import select
import struct
import time
from collections.abc import Callable, Iterator, Sequence
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


def w(*messages: bytes) -> list[bytes]:
    return [b"w" + struct.pack(">QQq", 0x100, 0x100, 0) + message for message in messages]


def lone(*values: str) -> list[bytes]:
    rows = [encode.insert("1", value) for value in values]
    return w(encode.begin(), encode.relation(), *rows, encode.commit())


@dataclass
class Tail:
    spool: Spool
    worker: Worker
    reader: int
    read: bytes = b""

    def direct(self, frames: Sequence[bytes]) -> bool:
        return self.worker.direct(frames)

    def put(self, frames: Sequence[bytes]) -> None:
        assert self.spool.put(frames)

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
    assert tail.direct(lone("a"))
    assert [line["new"] for line in tail.lines(1, 0)] == [{"id": 1, "v": "a"}]
    assert tail.worker.delivered == 0x108


def test_what_may_be_much_is_left_to_the_other_thread(make: Callable[..., Tail]) -> None:
    tail = make()
    assert not tail.direct(lone("a" * DIRECT))
    for large in (encode.stream_commit(), encode.stream_start(), b"K", b"\xff"):
        assert not tail.direct(w(large))
    long = lone(*["b" * (DIRECT // 3)] * 3)
    assert tail.direct(long[:-2])
    assert not tail.direct(long[-2:]), "it began before, and has become long"
    tail.put(long[-2:])
    assert [line["new"] for line in tail.lines(3)] == [{"id": 1, "v": "b" * (DIRECT // 3)}] * 3


def test_a_commit_that_comes_in_pieces(make: Callable[..., Tail]) -> None:
    tail = make()
    for value in "ab":
        for frame in lone(value):
            assert tail.direct([frame])
        assert [line["new"] for line in tail.lines(1, 0)] == [{"id": 1, "v": value}]
    waiting = lone("c")
    tail.put(waiting[:2])
    while not tail.spool.quiet:
        time.sleep(0.01)
    assert not tail.direct(waiting[2:]), "nobody counted what came before"


def test_a_reader_that_stopped_keeps_nobody_waiting(make: Callable[..., Tail]) -> None:
    tail, taken = make(), 0
    while tail.direct(lone("a" * 500)):
        taken += 1
    assert 0 < taken < 20
    for _ in range(20):
        tail.put(lone("b"))
    found = [line["new"] for line in tail.lines(taken + 20)]
    assert found == [{"id": 1, "v": "a" * 500}] * taken + [{"id": 1, "v": "b"}] * 20


def test_what_became_more_than_a_pipe_surely_takes(make: Callable[..., Tail]) -> None:
    """A control character is six bytes of JSON."""
    tail, value = make(), "\x01" * 720
    assert tail.direct(lone(value))  # 4.4 kB
    deadline = time.monotonic() + PATIENCE
    while not tail.spool.idle or tail.worker.delivered == 0:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert not tail.direct(lone("b")), "there is no room"
    assert [line["new"] for line in tail.lines(1)] == [{"id": 1, "v": value}]
    assert tail.direct(lone("c"))
    assert [line["new"] for line in tail.lines(1)] == [{"id": 1, "v": "c"}]


def test_as_many_as_were_wanted(make: Callable[..., Tail]) -> None:
    tail = make(limit=2)
    assert tail.direct(lone("a"))
    assert tail.worker.reached is None
    assert tail.direct(lone("b"))
    tail.worker.join(PATIENCE)
    assert tail.worker.ended
    assert tail.worker.error is None
    assert str(tail.worker.reached) == "enough"
    assert len(tail.lines(3, 0.1)) == 2


def test_damage_ends_it_and_what_came_before_is_written(make: Callable[..., Tail]) -> None:
    tail = make()
    assert tail.direct([*lone("a"), *w(encode.begin()[:-1])])
    tail.worker.join(PATIENCE)
    assert isinstance(tail.worker.error, InputError)
    assert "the stream after 0/108" in str(tail.worker.error)
    assert len(tail.lines(2, 0.1)) == 1
    assert not tail.direct(lone("b"))


def test_both_ways_in_turn_keep_the_order(make: Callable[..., Tail]) -> None:
    tail, sent = make(), 0
    found: list[dict[str, Any]] = []
    for number in range(3000):
        frames = lone(str(number) + "\x01" * (number % 700))
        if not tail.direct(frames):
            tail.put(frames)
        sent += 1
        while sent - len(found) > 3:
            found += tail.lines(1)
    found += tail.lines(sent - len(found))
    assert [str(line["new"]["v"]).rstrip("\x01") for line in found] == [str(n) for n in range(3000)]
