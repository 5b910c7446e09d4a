"""Counts in bounded memory are within their documented errors."""

from __future__ import annotations

import itertools
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from pgtail.stats.hot_keys import HotKeys
from pgtail.stats.rate import NOTHING, WIDTHS, Counts, Rate
from pgtail.stats.transactions import LARGEST_KEPT, CommitTimes, Histogram, Transactions

NUMBERS = st.integers(0, 30) | st.integers(0, 1 << 40)


def keys_of(numbers: list[int]) -> list[bytes]:
    return [b"%d" % number for number in numbers]


@given(st.lists(st.integers(0, 60) | st.integers(0, 5), max_size=400), st.integers(2, 40))
def test_hot_keys_are_within_their_error(numbers: list[int], most: int) -> None:
    keys = HotKeys(most)
    for key in keys_of(numbers):
        keys.add(key)
    truth = Counter(keys_of(numbers))
    found = keys.counts
    assert keys.total == len(numbers)
    assert len(found) <= most
    for key, count in truth.items():
        assert found[key] <= count <= found[key] + keys.error
    assert keys.error <= 2 * len(numbers) // most


@given(st.lists(st.integers(0, 90), max_size=400), st.integers(2, 40), st.integers(5, 60))
def test_keys_counted_at_once_are_counted_as_one_after_another(numbers: list[int], most: int, size: int) -> None:
    given, one, more = keys_of(numbers), HotKeys(most, size), HotKeys(most, size)
    for key in given:
        one.add(key)
    for start in range(0, len(given), 7):
        more.add_all(given[start : start + 7])
    assert list(more.counts.items()) == list(one.counts.items())
    assert (more.total, more.size, more.error) == (one.total, one.size, one.error)


def test_long_keys_stay_within_max_bytes() -> None:
    keys = HotKeys(max_keys=1000, max_bytes=100_000)
    for number in range(500):
        keys.add(b"%10d" % number * 300)
    assert len(keys.counts) <= 100_000 // 3000
    assert keys.error > 0


@given(st.lists(NUMBERS, min_size=1))
def test_each_class_of_a_histogram_is_twice_as_wide_as_the_one_before(numbers: list[int]) -> None:
    histogram = Histogram()
    histogram.add_all(numbers)
    classes = [0, *[1 << power for power in range(41)]]
    exact = {least: sum(least <= number < max(2 * least, 1) for number in numbers) for least in classes}
    assert dict(histogram.classes()) == {least: count for least, count in exact.items() if count}


@given(st.lists(NUMBERS, min_size=1), st.sampled_from([1, 50, 95, 99, 100]))
def test_a_histogram_is_too_high_by_a_sixteenth_at_most(numbers: list[int], percent: int) -> None:
    histogram = Histogram()
    histogram.add_all(numbers)
    exact = sorted(numbers)[-(-len(numbers) * percent // 100) - 1]
    assert exact <= histogram.percentile(percent) <= exact + exact / 16
    assert (histogram.count, histogram.total, histogram.maximum) == (len(numbers), sum(numbers), max(numbers))
    assert histogram.percentile(100) == max(numbers)


@given(
    st.lists(
        st.tuples(
            st.integers(-(10**9), 10**9) | st.integers(-(1 << 62), 1 << 62), st.integers(0, 9), st.integers(0, 3)
        ),
        min_size=1,
    ),
    st.integers(2, 80),
)
def test_series_counts_each_commit_at_its_time_and_by_table(commits: list[tuple[int, int, int]], most: int) -> None:
    rate = Rate()
    for time, rows, table in commits:
        rate.add(time, {table: Counts(rows, 2 * rows, 0, 10 * rows)})
    series = rate.series(most)
    assert series is not None
    assert len(series.rows) == len(series.bytes) <= most
    steps = [dict.fromkeys(range(4), NOTHING) for _ in series.steps]
    for time, rows, table in commits:
        step = steps[(time - series.start) // series.width]
        step[table] = step[table].plus((rows, 2 * rows, 0, 10 * rows))
    assert [{table: step.get(table, NOTHING) for table in range(4)} for step in series.steps] == steps
    assert series.rows == [sum(counts.rows for counts in step.values()) for step in steps]
    assert series.bytes == [sum(counts.bytes for counts in step.values()) for step in steps]


def test_a_rate_of_many_tables_keeps_its_sum_in_few_cells() -> None:
    rate = Rate()
    for second in range(300):
        rate.add(second * 1_000_000, {table: Counts(1, 0, 0, 1) for table in range(400)})
    series = rate.series(120)
    assert series is not None
    assert sum(series.rows) == 300 * 400
    assert sum(map(len, series.steps)) <= 65_536
    rate.add(0, {table: Counts(1, 0, 0, 1) for table in range(100_000)})
    series = rate.series(120)
    assert series is not None
    assert [len(step) for step in series.steps] == [100_000]


def test_a_rate_of_many_moments_keeps_its_sum_in_few_bins() -> None:
    rate = Rate()
    for number in range(50_000):
        rate.add(number * 7_000_003, {0: Counts(1, 0, 0, 1)})
    series = rate.series(60)
    assert series is not None
    assert sum(series.rows) == 50_000
    assert max(series.rows[1:-1]) - min(series.rows[1:-1]) <= 2
    assert all(after % before == 0 for before, after in itertools.pairwise(WIDTHS))


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 90)), min_size=1, max_size=60),
    st.integers(0, 3000),
    st.integers(0, 100),
)
def test_the_time_since_an_lsn_is_within_the_bounds(steps: list[tuple[int, int]], lsn: int, after: int) -> None:
    commits, timeline, position, time = CommitTimes(), [(0, 0)], 0, 0
    for further, later in steps:
        position, time = position + further, time + later
        timeline.append((position, time))
        commits.add(position, time)
    lsn = min(lsn, position)
    # `lsn` was written between the last commit at or before it and the first one after it.
    earliest = max([when for where, when in timeline if where <= lsn])
    least, most = commits.since(lsn, time + after)
    following = [when for where, when in timeline if where > lsn]
    assert least == (time + after - following[0] if following else None)
    assert most is None or most == time + after - earliest


def test_thousands_of_commits_still_bound_the_time() -> None:
    commits = CommitTimes()
    for number in range(100_000):
        commits.add(number * 100, number)
    for ago, off in ((90_000, 100), (50_000, 100), (1000, 1), (1, 1)):
        least, most = commits.since((100_000 - ago) * 100 - 50, 100_000)
        assert least is not None
        assert most is not None
        assert ago - off < least <= ago < most <= ago + off
    assert len(commits.lsns) < 15_000
    commits.add(10, 200_000)  # another stream
    assert commits.since(5, 200_001) == (1, None)


def test_the_largest_are_kept_in_order() -> None:
    transactions = Transactions()
    sizes = [(number * 7919) % 1000 for number in range(1000)]
    transactions.add_all([(number, None, None, 1, size, None) for number, size in enumerate(sizes)])
    assert [one.bytes for one in transactions.by_bytes.sizes()] == sorted(sizes, reverse=True)[:LARGEST_KEPT]
    assert [one.transaction.xid for one in transactions.by_rows.sizes()] == list(range(LARGEST_KEPT))


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(-3, 9), st.integers(0, 60)), min_size=1, max_size=60))
def test_the_longest_are_kept(steps: list[tuple[int, int, int]]) -> None:
    """Also where the clock goes back."""
    commits: list[tuple[int, int, int, int, int, int]] = []
    took, position, time = [], 0, 0
    for number, (further, later, ago) in enumerate(steps):
        position, time = position + further, time + later
        first = max(0, position - ago)
        after = next((when for _, where, when, *_ in commits if where > first), time)
        took.append((after - time, number))
        commits.append((number, position, time, 1, 1, first))
    transactions = Transactions()
    for start in range(0, len(commits), 7):
        transactions.add_all(commits[start : start + 7])
    longest = [number for negative, number in sorted(took) if negative < 0][:LARGEST_KEPT]
    assert [one.transaction.xid for one in transactions.by_time.sizes()] == longest
