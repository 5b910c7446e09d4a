"""The rows of a state compared with those of a server: what was planted is found, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from pgtail.arrow.typed.arrow_types import Declared
from pgtail.arrow.typed.casts import typed
from pgtail.arrow.typed.columns import columns_of
from pgtail.arrow.typed.versions import Version, VersionColumn
from pgtail.spark.state.comparison import MOST_EXAMPLES, Example, compare, total
from pgtail.values.oids import OIDS

Row = Mapping[str, str | None]
COLUMNS = {"id": "int4", "total": "float8", "at": "timestamptz", "name": "text", "tags": "_text"}


def version(*key: str, identity: str = "default") -> Version:
    columns = [VersionColumn(name, Declared(OIDS[kind], -1, kind)) for name, kind in COLUMNS.items()]
    return Version("r", "public", "t", identity, key, tuple(columns))


KEYED, FULL, NOTHING = version("id"), version(identity="full"), version(identity="nothing")


def table(rows: Sequence[Row], kind: Version, unknown: Sequence[Sequence[str]] | None = None) -> pa.Table:
    """Rows of texts as they are stored."""
    columns = columns_of([kind])
    arrays, rescued = typed([pa.array([row[one.name] for row in rows], pa.string()) for one in columns], columns)
    found = dict(zip([one.stored for one in columns], arrays, strict=True)) | {
        "_rescued": rescued,
        "_unknown": pa.array([some or None for some in unknown or [()] * len(rows)], pa.list_(pa.string())),
        "_undecoded": pa.nulls(len(rows), pa.list_(pa.string())),
    }
    return pa.table(found)


def row(number: int, choose: Random) -> dict[str, str | None]:
    return {
        "id": str(number),
        "total": choose.choice((None, "NaN", "-0", "1.5")),
        "at": choose.choice((None, "infinity", "2026-11-20 22:05:51+00")),
        "name": choose.choice((None, "", "é", "x" * 50)),
        "tags": choose.choice((None, "{}", "{a,NULL}", "{{1},{2}}")),
    }


@pytest.fixture
def rows() -> list[dict[str, str | None]]:
    choose = Random(5)
    return [row(number, choose) for number in range(500)]


@pytest.mark.parametrize("kind", [KEYED, FULL, NOTHING])
def test_equal_rows_are_equal_in_any_order(rows: list[Row], kind: Version) -> None:
    found = compare(table(rows, kind), table(Random(1).sample(rows, len(rows)), kind), kind)
    assert (found.rows, found.equal, found.same, found.examples) == (500, 500, True, {})


def test_what_was_planted_is_found_by_its_key(rows: list[dict[str, Any]]) -> None:
    state = [dict(one) for one in rows]
    state[7] |= {"name": "other", "total": "2.5"}
    state[9]["at"] = "2026-11-20 22:05:52+00"
    del state[100]
    state.append(row(1000, Random(0)))
    found = compare(table(state, KEYED), table(rows, KEYED), KEYED)
    assert (found.rows, found.equal, found.unknown) == (500, 497, 0)
    assert (found.missing, found.extra, found.different) == (1, 1, 2)
    assert not found.same
    assert found.examples == {
        "different": [Example((("id", "7"),), ("total", "name")), Example((("id", "9"),), ("at",))],
        "missing": [Example((("id", "100"),))],
        "extra": [Example((("id", "1000"),))],
    }


def test_values_that_differ_only_in_what_their_type_cannot_hold_differ(rows: list[dict[str, Any]]) -> None:
    rows[3] |= {"total": "-0", "at": "infinity", "tags": "{{1},{2}}"}
    for name, other in (("total", "0"), ("at", "-infinity"), ("tags", "{{1},{3}}"), ("name", None)):
        rows[3]["name"] = ""
        state = [dict(one) for one in rows]
        state[3][name] = other
        found = compare(table(state, KEYED), table(rows, KEYED), KEYED)
        assert found.examples == {"different": [Example((("id", "3"),), (name,))]}, name


def test_unknown_values_are_apart(rows: list[dict[str, Any]]) -> None:
    state = [dict(one) for one in rows]
    state[3]["name"] = state[4]["name"] = None
    state[4]["total"] = "77"
    rows[3]["name"] = rows[4]["name"] = "x"
    unknown = [["name"] if number in (3, 4) else [] for number in range(500)]
    found = compare(table(state, KEYED, unknown), table(rows, KEYED), KEYED)
    assert (found.equal, found.unknown, found.different) == (498, 1, 1)
    assert found.examples == {
        "unknown": [Example((("id", "3"),), ("name",))],
        "different": [Example((("id", "4"),), ("total",))],
    }


@pytest.mark.parametrize("kind", [FULL, NOTHING])
def test_rows_of_a_bag_are_compared_as_often_as_they_are_there(kind: Version) -> None:
    one, two, three = ({"id": text, "total": "1", "at": None, "name": "n", "tags": None} for text in "123")
    found = compare(table([one, one, two], kind), table([one, two, two, three], kind), kind)
    assert (found.equal, found.missing, found.extra, found.different) == (2, 2, 1, 0)
    # A row of which the name is not known is any of those that are left, but not one that another row is.
    known, unnamed = one | {"name": "m"}, one | {"name": None}
    state = table([unnamed, unnamed, known], kind, [["name"], ["name"], []])
    found = compare(state, table([known, one, two], kind), kind)
    assert (found.equal, found.unknown, found.missing, found.extra) == (1, 1, 1, 1)
    assert [dict(example.row)["id"] for example in found.examples["missing"]] == ["2"]


def test_buckets_add_up_and_few_examples_are_kept(rows: list[Row]) -> None:
    parts = [compare(table([], KEYED), table(rows[start : start + 100], KEYED), KEYED) for start in range(0, 500, 100)]
    found = total(parts)
    assert (found.rows, found.missing, found.equal) == (500, 500, 0)
    assert len(found.examples["missing"]) == MOST_EXAMPLES
    whole = compare(table([], KEYED), table(rows, KEYED), KEYED)
    assert found == whole
    assert total([]).same
