"""stats --jobs N reports what --jobs 1 does, of parts of any size, also where what is kept is bounded."""

from __future__ import annotations

import itertools
import pickle
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pgtail.changes.assembler import Assembler
from pgtail.pgoutput.decoder import Decoder
from pgtail.pipeline import parts
from pgtail.pipeline.pipeline import Pipeline
from pgtail.stats import hot_keys, rate, transactions
from pgtail.stats import parts as stats_parts
from pgtail.stats.collect import Statistics
from pgtail.stats.report_json import stats_json
from pgtail.values import Types
from tests.stats.test_scanned import HOUR, stream
from tests.support import encode
from tests.support.render import Way, feed, rows_by
from tests.support.run import Result, here
from tests.torture.streams import case_of

SECONDS = 5
_SECOND = 1_000_000
_FILTERS = ("--op", "--xid", "-t", "--exclude", "--where", "--since", "--until", "--input-format", "--assume")


@pytest.fixture
def bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """So little is kept that every bound is reached."""
    monkeypatch.setattr(hot_keys.HotKeys.__init__, "__defaults__", (5, 200))
    monkeypatch.setattr(transactions, "_MAX_COMMITS", 8)
    monkeypatch.setattr(transactions, "MOST_IN_PART", 7)
    monkeypatch.setattr(rate, "_MAX_BINS", 4)
    monkeypatch.setattr(stats_parts, "MOST", 9)


def _options(command: Sequence[str], choose: random.Random) -> Iterator[str]:
    """The options of a command that stats has, and others."""
    given = iter(command)
    for option in given:
        if option in _FILTERS:
            yield from (option, next(given))
    yield from ("-o", choose.choice(("json", "table")))
    yield from choose.choice(((), ("--resync",), ("-v",), ("--redact", "*"), ("-n", str(choose.randrange(1, 20)))))


@pytest.mark.usefixtures("bounded")
def test_random_streams(
    divided: list[parts.Part], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: random.Random
) -> None:
    start, end, several, number = seed.randrange(1 << 30), time.monotonic() + SECONDS, 0, 0
    given = tmp_path / "input"
    monkeypatch.setenv("COLUMNS", "100")
    while time.monotonic() < end or several < 10:
        number += 1
        name = f"{start}-{number}"
        case, choose = case_of(name), random.Random(name)
        size = choose.choice((1, 100, 1000))
        monkeypatch.setattr(parts, "FIRST_SIZE", size)
        monkeypatch.setattr(parts, "SIZE", size)
        given.write_bytes(case.data)
        options = [*_options(case.command, choose)]
        divided.clear()
        one, more = [_counted(jobs, options, given) for jobs in (1, choose.choice((2, 3)))]
        several += len(divided) > 0
        assert one == more, f"{name}, parts of {size} bytes: stats {' '.join(options)}"


def _counted(jobs: int, options: Sequence[str], file: Path) -> Result:
    done = here("stats", *options, "--jobs", str(jobs), file)
    lines = done.stderr.splitlines(keepends=True)  # several processes look for settings in the first part alone
    why = [line for line in lines if not ("(--jobs)" in line or "the session that made this dump" in line)]
    return replace(done, stderr="".join(why))


@pytest.mark.parametrize("way", ["decoder", "compiled"])
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.usefixtures("bounded")
def test_parts_joined_are_the_whole(way: Way, restarts: bool) -> None:
    choose = random.Random(7)
    [described], *rest = _transactions(restarts=restarts)
    whole = Statistics()
    _count(whole, Types(), [described, *itertools.chain(*rest)], way)
    joined, types, done = Statistics(), Types(), 0
    while done < len(rest):
        count = choose.choice((1, 3, 40, 400))
        _join_part([described, *itertools.chain(*rest[done : done + count])], joined, types, way)
        done += count
    assert stats_json(joined) == stats_json(whole)
    assert whole.hot_keys.error > 0
    assert (len(whole.transactions.commits.set_back) > 0, len(whole.transactions.origins)) == (restarts, 2 * restarts)
    assert any(size.at_most is not None for size in whole.transactions.by_bytes.sizes())


def _join_part(frames: Sequence[bytes], joined: Statistics, types: Types, way: Way) -> None:
    """Count frames as another process does, and join that."""

    def send() -> None:
        stats_parts.join(joined, pickle.loads(pickle.dumps(counting.take())), types)

    part, of_part = Statistics(), Types()
    counting = stats_parts.PartStatistics(part, of_part, send)
    _count(part, of_part, frames, way)
    send()


def _transactions(*, restarts: bool) -> list[list[bytes]]:
    """A table, and 1,000 transactions of it."""
    frames = [*itertools.chain(*stream(3, start=40 * HOUR, times=(0, 3 * _SECOND), restarts=restarts))]
    found = [[frames[0]], []]
    for one in frames[1:]:
        found[-1].append(one)
        if one[25:26] == b"C":
            found.append([])
    return found[:1001]


def _count(stats: Statistics, types: Types, frames: Sequence[bytes], way: Way) -> None:
    with rows_by(way):
        pipeline = Pipeline(Assembler(types), stats, note=print)
    feed(frames, Decoder(), pipeline)


def test_a_slot_has_no_jobs() -> None:
    done = here("stats", "--slot", "s", "--jobs", "2", "host=nowhere.invalid")
    assert done.status == 2
    assert "--jobs is for dumps, not for a slot" in done.stderr


def test_a_key_that_survives_a_change_of_its_table_is_counted_as_one(tmp_path: Path) -> None:
    table = [("id", 23), ("v", 25)]
    messages = [
        *(encode.relation(100, "t", table), encode.begin(5), encode.update(("1", "a")), encode.commit()),
        *(encode.relation(100, "t", [*table, ("w", 25)]), encode.begin(6), encode.update(("1", "a", "b"))),
        encode.commit(),
    ]
    given = tmp_path / "input"
    given.write_bytes(encode.recvlogical(*messages))
    [report] = here("stats", "-o", "json", given).objects
    assert report["hot_keys"]["keys"] == [{"schema": "public", "table": "t", "key": {"id": 1}, "changes": 2}]
