"""The scanner counts the same as the methods of Statistics, in streams of thousands of transactions."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from pgtail.changes.assembler import Assembler
from pgtail.native import compiled
from pgtail.pgoutput.decoder import Decoder
from pgtail.pipeline.pipeline import Pipeline
from pgtail.stats.collect import Statistics
from pgtail.stats.report_json import stats_json
from pgtail.values import Types
from tests.support.encode import (
    INT4,
    STREAM_STOP,
    UNCHANGED,
    begin,
    commit,
    delete,
    frame,
    insert,
    origin,
    relation,
    snapshot,
    stream_commit,
    stream_start,
    truncate,
    update,
)
from tests.support.render import Way, feed, need_compiled, rows_by

TRANSACTIONS = 12_000
"""More than the commit times that are kept at first."""
PART = 50
"""Transactions between two comparisons."""
SECOND = 1_000_000
HOUR = 3600 * SECOND


def states(parts: Sequence[list[bytes]], way: Way) -> Iterator[tuple[Any, ...]]:
    """The counts after each of these lists of frames."""
    found, decoder, assembler = Statistics(), Decoder(), Assembler(Types())
    with rows_by(way):
        pipeline = Pipeline(assembler, found, note=print)
    for part in parts:
        feed(part, decoder, pipeline)
        commits, keys = found.transactions.commits, found.hot_keys
        points = [*zip(commits.lsns, commits.times, strict=True)]
        yield stats_json(found), points[:5], points[-5:], len(points), keys.size, keys.error, len(keys.counts)


def same(parts: Sequence[list[bytes]]) -> None:
    if compiled() is None:
        need_compiled()
    for decoded, scanned in zip(states(parts, "decoder"), states(parts, "compiled"), strict=True):
        assert scanned == decoded


def stream(seed: int, *, start: int, times: tuple[int, int], restarts: bool = False) -> list[list[bytes]]:
    """Transactions of clients that work at once; `times` are the least and the most between two commits.

    With `restarts`, LSNs go back, some transactions have an origin and its time, and the clock is set.
    """
    choose = random.Random(seed)
    lsn, now = 1 << 20, start
    parts = [[frame(relation())]]
    for xid in range(3, TRANSACTIONS + 3):
        lsn = 1000 if restarts and choose.random() < 0.001 else lsn + choose.randrange(200)
        now += choose.randrange(*times)
        now += choose.randrange(-HOUR, HOUR) if restarts and choose.random() < 0.003 else 0
        first = max(1, lsn - choose.choice((0, 10, 1000, 10_000)))
        rows = choose.choice((0, 1, 1, 1, 2, 5)) if choose.random() < 0.99 else choose.randrange(40)
        came = choose.choice(("a", "b")) if restarts and choose.random() < 0.02 else None
        at = now if came is None else choose.randrange(now)
        frames = [frame(begin(xid, lsn, at)), *([] if came is None else [frame(origin(came))])]
        frames += [frame(row(choose), first + number) for number in range(rows)]
        if choose.random() < 0.001:
            frames.append(frame(truncate(100)))
        frames.append(frame(commit(lsn, lsn + 8, at)))
        if xid % PART == 0:
            cut = choose.randrange(len(frames))
            parts += [parts.pop() + frames[:cut], frames[cut:]]
        else:
            parts[-1] += frames
    return parts


def row(choose: random.Random) -> bytes:
    key, value = str(choose.choice((7, choose.randrange(20), choose.randrange(1 << 20)))), "x" * choose.randrange(100)
    if choose.random() < 0.5:
        return update((key, value))
    return choose.choice((insert(key, value), delete(key, None), update((key, value), ("1", None))))


@pytest.mark.parametrize(
    ("start", "times", "restarts"),
    [(-SECOND // 20, (0, 50), False), (40 * HOUR, (-SECOND, 2 * SECOND), True), (0, (0, 1 << 48), False)],
    ids=["dense", "restarts", "sparse"],
)
def test_many_transactions(start: int, times: tuple[int, int], restarts: bool) -> None:
    same(stream(1, start=start, times=times, restarts=restarts))


def test_times_at_both_ends_of_their_range() -> None:
    frames = [frame(relation())]
    for xid, time in enumerate((-1 << 63, (1 << 63) - 1, 0, -1 << 63, (1 << 63) - 1), 7):
        frames += [frame(begin(xid, xid * 100, time)), frame(insert("1")), frame(commit(xid * 100, time=time))]
    same([frames])


def test_more_keys_than_are_counted_at_a_time() -> None:
    keys = [number if number % 3 else 5 for number in range(80_000)]
    frames = [frame(relation()), frame(begin()), *[frame(delete(str(key), None)) for key in keys], frame(commit())]
    same([frames[at : at + 7777] for at in range(0, len(frames), 7777)])


def test_a_streamed_change_from_before_columns_were_dropped_names_its_own_columns() -> None:
    streamed = [stream_start(7), relation(xid=7), update(("1", UNCHANGED), xid=7), STREAM_STOP]
    dropped = [relation(columns=[("id", INT4)]), begin(8), insert("1"), commit()]
    first = [relation(), begin(6), update(("1", UNCHANGED)), commit()]
    same([[frame(message) for message in (*first, *streamed, *dropped, stream_commit(7))]])


def test_rows_of_snapshots_are_counted_apart() -> None:
    rows = [[str(number), "v"] for number in range(500)]
    messages = [
        *snapshot(*rows),
        *snapshot(oid=200, name="u"),
        begin(7),
        insert("1", "v"),
        update(("1", "w")),
        commit(),
    ]
    same([[frame(message) for message in messages[:300]], [frame(message) for message in messages[300:]]])
    *_, (found, *_) = states([[frame(message) for message in messages]], "decoder")
    report = json.loads(found)
    [table] = report["tables"]
    assert report["transactions"]["count"] == 1
    assert report["transactions"]["rows"]["total"] == 2
    assert report["snapshots"] == {"count": 2, "rows": 500, "bytes": sum(len(insert(*row)) for row in rows)}
    assert (table["inserts"], table["updates"], table["snapshot_rows"]) == (1, 1, 500)
    assert table["bytes"] == len(insert("1", "v")) + len(update(("1", "w")))
    assert report["hot_keys"]["counted"] == 1
