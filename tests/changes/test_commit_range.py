"""--since and --until: what they may say, and which commits are inside."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgtail.changes.commit_range import MARGIN, CommitRange, point_of
from pgtail.changes.events import LogicalMessage, Outcome, Transaction
from pgtail.changes.filters import Filter
from pgtail.native import compiled
from pgtail.pgoutput.scalars import Point, parse_lsn, time_text
from tests.support.encode import begin, commit, insert, relation
from tests.support.render import WAYS, need_compiled, render
from tests.support.run import decode, here
from tests.support.zones import zone

NOW = 848_664_123_456_789
"""2026-11-22T12:02:03.456789Z in microseconds since 2000."""


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-11-22T10:00", "2026-11-22T10:00:00.000000Z"),
        ("2026-11-22 10:00:01.5", "2026-11-22T10:00:01.500000Z"),
        ("2026-11-22T10:00:00Z", "2026-11-22T10:00:00.000000Z"),
        ("2026-11-22T10:00:00+02:30", "2026-11-22T07:30:00.000000Z"),
        ("2026-11-22", "2026-11-22T00:00:00.000000Z"),
        ("2026-11", "2026-11-01T00:00:00.000000Z"),
        ("10m", "2026-11-22T11:52:03.456789Z"),
        ("2h", "2026-11-22T10:02:03.456789Z"),
        ("1.5d", "2026-11-21T00:02:03.456789Z"),
        ("500ms", "2026-11-22T12:02:02.956789Z"),
        ("today", "2026-11-22T00:00:00.000000Z"),
        ("yesterday", "2026-11-21T00:00:00.000000Z"),
        ("9:30", "2026-11-22T09:30:00.000000Z"),
        ("23:30:01", "2026-11-22T23:30:01.000000Z"),
    ],
)
def test_times(text: str, time: str) -> None:
    found = point_of(text, NOW)
    assert found.lsn is None
    assert found.time is not None
    assert time_text(found.time) == time


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-11-22T10:00", "2026-11-22T09:00:00.000000Z"),
        ("2026-07-22T10:00", "2026-07-22T08:00:00.000000Z"),
        ("2026-07-22T10:00Z", "2026-07-22T10:00:00.000000Z"),
        ("2026-07-22T10:00+05:30", "2026-07-22T04:30:00.000000Z"),
        ("today", "2026-11-21T23:00:00.000000Z"),
        ("yesterday", "2026-11-20T23:00:00.000000Z"),
        ("9:30", "2026-11-22T08:30:00.000000Z"),
        ("9:30Z", "2026-11-22T09:30:00.000000Z"),
        ("2h", "2026-11-22T10:02:03.456789Z"),
        ("2026-10-25T01:59:59", "2026-10-24T23:59:59.000000Z"),
        ("2026-10-25T03:00", "2026-10-25T02:00:00.000000Z"),
        ("2026-03-29T03:00", "2026-03-29T01:00:00.000000Z"),
        ("1890-01-01", "1889-12-31T23:06:32.000000Z"),
    ],
)
def test_local_times(text: str, time: str) -> None:
    with zone("Europe/Berlin"):
        found = point_of(text, NOW)
    assert found.time is not None
    assert time_text(found.time) == time
    assert found.local == (text[-1] != "Z" and "+" not in text and text != "2h")


@pytest.mark.parametrize(
    ("text", "words"), [("2026-10-25T02:30", "show it twice"), ("2026-03-29T02:30", "never show it")]
)
def test_a_local_time_that_is_not_one(text: str, words: str) -> None:
    with zone("Europe/Berlin"), pytest.raises(ValueError, match=rf"{words}; give its offset from UTC: \+02 or \+01"):
        point_of(text, NOW)


def test_an_lsn() -> None:
    assert point_of("0/16B3748") == Point(lsn=parse_lsn("0/16B3748"))


@pytest.mark.parametrize(
    "text",
    [
        *("", "10", "tomorrow", "now", "10 apples", "m", "infinity", "0/"),
        *("2026-13-01", "25:00", "2026-11-22 24:00:01", "2026-11-22 10:00+16", "2026-11-22 10:00+02:60"),
    ],
)
def test_what_is_no_point(text: str) -> None:
    with pytest.raises(ValueError, match="is neither an LSN such as 0/1949A30, nor a time such as 10m"):
        point_of(text, NOW)


@pytest.mark.parametrize(
    ("since", "until", "inside"),
    [
        (Point(), Point(), {(5, 50), (6, 60), (5, None), (None, None)}),
        (Point(lsn=6), Point(), {(6, 60)}),
        (Point(), Point(lsn=5), {(5, 50), (5, None)}),
        (Point(time=60), Point(), {(6, 60)}),
        (Point(), Point(time=50), {(5, 50)}),
        (Point(lsn=5), Point(time=59), {(5, 50)}),
    ],
)
def test_both_ends_are_included(since: Point, until: Point, inside: set[tuple[int | None, int | None]]) -> None:
    places: list[tuple[int | None, int | None]] = [(5, 50), (6, 60), (5, None), (None, None)]
    assert {place for place in places if CommitRange(since, until).contains(*place)} == inside


def test_nothing_comes_after_the_margin() -> None:
    range_ = CommitRange(until=Point(time=50))
    assert [range_.is_past(1, time) for time in (None, 50, 50 + MARGIN, 51 + MARGIN)] == [False, False, False, True]
    assert CommitRange(until=Point(time=50), margin=0).is_past(1, 51)
    assert [CommitRange(until=Point(lsn=5)).is_past(lsn, 0) for lsn in (5, 6)] == [False, True]


def test_a_prepared_transaction_has_the_time_of_its_prepare() -> None:
    filter_ = Filter(commits=CommitRange(Point(time=50)))
    assert filter_.active
    assert filter_.selects(Transaction(7, prepare_lsn=1, prepare_ts=50))
    assert not filter_.selects(Transaction(7))
    assert filter_.outcome_passes(Outcome("commit_prepared", 7, "g", 1, 2, 50))
    assert not filter_.outcome_passes(Outcome("commit_prepared", 7, "g", 1, 2, 49))


def transaction(number: int, time: int) -> list[bytes]:
    lsn = 0x100 * number
    return [begin(number, lsn, time), insert(str(number), "x"), commit(lsn, lsn + 8, time)]


UNORDERED = [relation(), *[part for pair in enumerate([10, 30, 20, 40, 35], 1) for part in transaction(*pair)]]
"""Five transactions; two have an earlier time than the one before."""


@pytest.mark.parametrize(
    ("commits", "shown"),
    [
        (CommitRange(Point(time=30)), [2, 4, 5]),
        (CommitRange(until=Point(time=30)), [1, 2, 3]),
        (CommitRange(Point(time=20), Point(time=35)), [2, 3, 5]),
        (CommitRange(Point(lsn=0x200), Point(lsn=0x400)), [2, 3, 4]),
        (CommitRange(Point(lsn=0x200), Point(time=30)), [2, 3]),
        (CommitRange(Point(time=-(1 << 70))), [1, 2, 3, 4, 5]),
        (CommitRange(Point(time=1 << 70)), []),
    ],
)
def test_decoder_and_scanner_show_the_same(commits: CommitRange, shown: list[int]) -> None:
    if compiled() is None:
        need_compiled()
    for way in WAYS:
        found = render(*UNORDERED, way=way, filter_=Filter(commits=commits))
        assert [line["xid"] for line in found.objects] == shown


def test_decode_reads_no_further_than_the_margin() -> None:
    """What is no message after that is not seen."""
    last = transaction(9, 100 + MARGIN)
    dump = b"".join([message + b"\n" for message in [*UNORDERED, *last]]) + b"damage"
    options = ("--since", "2000-01-01T00:00:00.00002Z", "--until", "2000-01-01T00:00:00.00003Z")
    assert [line["xid"] for line in decode(*options, input=dump).objects] == [2, 3]
    assert decode(*options[:2], input=dump).status == 1
    assert decode("--since", "yesterdays", input=dump).status == 2


@pytest.mark.parametrize("command", ["decode", "stats"])
@pytest.mark.parametrize(("since", "until"), [("10m", "1h"), ("2026-11-22", "2026-11-21T23:59:59"), ("0/2", "0/1")])
def test_a_range_that_ends_before_it_begins(command: str, since: str, until: str, tmp_path: Path) -> None:
    ran = here(command, "--since", since, "--until", until, tmp_path / "not read")
    assert (ran.status, "nothing is in between" in ran.stderr) == (2, True)


def test_messages_outside_of_transactions_have_a_position_alone() -> None:
    message = LogicalMessage(None, 0x200, "p", b"", transactional=False)
    assert Filter(commits=CommitRange(Point(lsn=0x200))).passes(message)
    assert not Filter(commits=CommitRange(Point(lsn=0x201))).passes(message)
    assert not Filter(commits=CommitRange(Point(time=0))).passes(message)
