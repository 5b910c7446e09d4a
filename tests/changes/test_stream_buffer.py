"""StreamBuffer compared with a simple model: lists in memory."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from pgtail.changes.stream_buffer import CHUNK, MEMORY, StreamBuffer
from pgtail.errors import OutputError
from pgtail.pgoutput.cells import UNCHANGED, Binary
from pgtail.pgoutput.rows import Insert
from tests.support.limits import within


class Model:
    """A StreamBuffer without a limit, after stream_abort_internal in PostgreSQL's worker.c."""

    def __init__(self) -> None:
        self.open: dict[int, list[tuple[int, Any]]] = {}

    def add(self, xid: int, subxid: int, entry: Any) -> None:
        self.open[xid].append((subxid, entry))

    def abort(self, xid: int, subxid: int) -> bool:
        first = next((i for i, (sub, _) in enumerate(self.open[xid]) if sub == subxid), None)
        if first is not None:
            del self.open[xid][first:]
        return first is not None


MakeBuffer = Callable[..., StreamBuffer]


@pytest.fixture
def make() -> Iterator[MakeBuffer]:
    """Makes StreamBuffers, closed at the end."""
    with ExitStack() as stack:

        def made(limit: int = MEMORY) -> StreamBuffer:
            return stack.enter_context(closing(StreamBuffer(limit)))

        yield made


def test_starting_again_drops_old_entries(make: MakeBuffer) -> None:
    buffer = make(limit=0)
    buffer.start(1)
    buffer.add(1, 1, "old" * CHUNK, CHUNK)
    buffer.start(1)
    buffer.add(1, 1, "new", 1)
    assert list(buffer.take_entries(1)) == ["new"]


@pytest.mark.parametrize("limit", [0, 1000, 100_000, 10**9])
@pytest.mark.parametrize("seed", range(5))
def test_buffer_agrees_with_the_model(make: MakeBuffer, limit: int, seed: int) -> None:
    choose = random.Random(f"{limit} {seed}")
    buffer, model = make(limit=limit), Model()
    number = 0
    for _ in range(3000):
        xid = choose.choice((10, 20, 30))
        if xid not in model.open:
            model.open[xid] = []
            buffer.start(xid)
        match choose.random():
            case chance if chance < 0.9:
                subxid = xid + choose.choice((0, 0, 1, 2, 3))
                number += 1
                model.add(xid, subxid, number)
                buffer.add(xid, subxid, number, choose.choice((10, 1000, CHUNK)))
            case chance if chance < 0.96:
                subxid = xid + choose.randrange(1, 5)
                assert buffer.abort(xid, subxid) == model.abort(xid, subxid)
            case chance if chance < 0.98:
                assert list(buffer.take_entries(xid)) == [entry for _, entry in model.open.pop(xid)]
                assert xid not in buffer
            case _:
                model.open.pop(xid)
                buffer.drop(xid)
    for xid, entries in model.open.items():
        assert list(buffer.take_entries(xid)) == [entry for _, entry in entries]


def test_cells_keep_their_kinds_on_disk(make: MakeBuffer) -> None:
    buffer = make(limit=0)
    buffer.start(1)
    message = Insert(5, 6, (b"text", Binary(b"binary"), None, UNCHANGED))
    buffer.add(1, 5, message, CHUNK)
    buffer.add(1, 5, "in memory", 1)
    kept, last = buffer.take_entries(1)
    assert kept == message
    assert [type(cell) for cell in kept.new] == [bytes, Binary, type(None), type(UNCHANGED)]
    assert kept.new[3] is UNCHANGED
    assert last == "in memory"


def test_many_small_transactions_stay_within_the_limit(make: MakeBuffer) -> None:
    buffer = make(limit=10_000)
    for xid in range(100):
        buffer.start(xid)
        for number in range(20):
            buffer.add(xid, xid, (xid, number), 100)
            assert buffer.used <= 20_000
    for xid in range(100):
        assert list(buffer.take_entries(xid)) == [(xid, number) for number in range(20)]


def test_the_file_does_not_grow_while_one_stream_or_another_is_always_open(make: MakeBuffer) -> None:
    buffer = make(limit=0)
    buffer.start(0)
    largest = 0
    for xid in range(1, 60):
        buffer.start(xid)
        for _ in range(3):
            buffer.add(xid, xid, bytes(CHUNK), CHUNK)
        assert len(list(buffer.take_entries(xid - 1))) == (3 if xid > 1 else 0)
        largest = max(largest, buffer.file.size)
    assert largest < 10 * CHUNK
    buffer.drop(59)
    assert buffer.file.size == 0


def test_a_hundred_thousand_rolled_back_savepoints_are_fast(make: MakeBuffer) -> None:
    """A loop with an exception block does this; a check of every range for every entry would take minutes."""
    buffer = make()
    buffer.start(1)
    began = time.process_time()
    for number in range(100_000):
        buffer.add(1, 1, number, 1)
        buffer.add(1, 2 + number, -1, 1)
        buffer.abort(1, 2 + number)
    assert list(buffer.take_entries(1)) == list(range(100_000))
    assert time.process_time() - began < within(10)


def test_a_disk_that_cannot_be_written_is_an_output_error(
    make: MakeBuffer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    buffer = make(limit=0)
    buffer.start(1)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(OutputError, match=r"cannot keep a streamed transaction in .*missing.*TMPDIR"):
        buffer.add(1, 1, "x", CHUNK)
