"""The bucket of a row: by its key alone, and the same for neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtail.arrow.fold import Cells
from pgtail.arrow.typed.arrow_types import RESCUED, Declared
from pgtail.arrow.typed.columns import columns_of
from pgtail.arrow.typed.versions import Version, VersionColumn
from pgtail.spark.state.tasks import BLOCK_BITS, TableLayout, split

BIGINT, INT, TEXT = Declared(20, -1, "bigint"), Declared(23, -1, "integer"), Declared(25, -1, "text")


def version(*types: Declared) -> Version:
    columns = tuple(VersionColumn(f"c{number}", one) for number, one in enumerate(types))
    return Version("v", "public", "t", "default", tuple(one.name for one in columns), columns)


def buckets(keys: list[tuple[Any, ...]], *types: Declared, count: int = 64, bits: int = BLOCK_BITS) -> list[int]:
    own = version(*types)
    columns = columns_of([own])
    arrays = [pa.array(values, one.kind) for values, one in zip(zip(*keys, strict=True), columns, strict=True)]
    rows = pa.table([*arrays, pa.nulls(len(keys), RESCUED)], names=[*(one.stored for one in columns), "_rescued"])
    layout = TableLayout(own, columns, count, bits)
    found: list[int] = layout.bucket_of(rows, Cells.of(rows, own)).tolist()
    return found


@pytest.mark.parametrize("first", [0, 512 * 7, -512, -(1 << 63), (1 << 63) - 512])
def test_neighbours_are_in_one_bucket(first: int) -> None:
    assert len(set(buckets([(first + number,) for number in range(512)], BIGINT))) == 1


def test_blocks_are_spread_evenly() -> None:
    found = np.bincount(buckets([(number,) for number in range(1 << 20)], BIGINT, count=16), minlength=16)
    assert found.min() > (1 << 20) / 16 / 2
    assert found.max() < (1 << 20) / 16 * 2


def test_several_integers_share_the_bits() -> None:
    """So a block never has more keys than with one: a table of small numbers is in many buckets all the same."""
    grid = [(one, other) for one in range(64) for other in range(64)]
    found = dict(zip(grid, buckets(grid, INT, BIGINT), strict=True))
    assert len({found[one, other] for one in range(16) for other in range(16)}) == 1
    assert len(set(found.values())) > 8


def test_other_columns_count_with_all_that_they_are() -> None:
    assert len(set(buckets([(f"{number:08}",) for number in range(512)], TEXT))) > 50
    assert len(set(buckets([(f"{number:08}", 1) for number in range(512)], TEXT, INT))) > 50


def test_without_blocks_it_is_as_it_was_before_there_were_any() -> None:
    """States that an older pgtail wrote are read by these numbers."""
    assert buckets([(number,) for number in range(-2, 6)], BIGINT, bits=0) == [26, 35, 24, 41, 32, 11, 22, 30]


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=50))
def test_the_bucket_of_a_row_depends_on_no_other_row(keys: list[int]) -> None:
    together = buckets([(key,) for key in keys], BIGINT)
    assert together == [buckets([(key,)], BIGINT)[0] for key in keys]


@given(st.lists(st.integers(0, 5), max_size=30))
def test_split_keeps_rows_and_their_order(numbers: list[int]) -> None:
    rows = pa.table({"place": pa.array(range(len(numbers)), pa.int64()), "bucket": pa.array(numbers, pa.int64())})
    found = list(split(rows, np.array(numbers, np.int64)))
    assert [bucket for bucket, _ in found] == sorted(set(numbers))
    for bucket, some in found:
        assert some["place"].to_pylist() == [place for place, one in enumerate(numbers) if one == bucket]
