"""What a pipeline counts."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.support.corpus import Capture, capture
from tests.support.encode import begin, commit, insert, lengths, relation, snapshot
from tests.support.render import WAYS, Way, render, rows_by
from tests.support.run import decode


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("output", ["json", "table"])
@pytest.mark.parametrize("filters", [{}, {"where": ["id in (1, 3)"]}, {"tables": ["st"]}, {"ops": ["delete"]}], ids=str)
@pytest.mark.parametrize("names", [("D_twophase", "p3_2pc"), ("C_stream", "p2_stream")], ids="-".join)
def test_rows_are_counted_and_those_that_the_filter_leaves_out(
    names: tuple[str, str], filters: dict[str, Any], output: str, way: Way
) -> None:
    one = capture(*names)
    found = render(*[raw.data for raw in one.messages()], output=output, filters=filters, way=way)
    options = [f"--{name.removesuffix('s')}={text}" for name, (text,) in filters.items()]
    assert found.rows == rows_of(one)
    assert found.rows - found.left_out == rows_of(one, *options)


@cache
def rows_of(one: Capture, *options: str) -> int:
    """The rows that decode shows."""
    found = decode(*options, one.forms["walsender.bin"]).objects
    return len([row for row in found if row["op"] in ("insert", "update", "delete")])


@pytest.mark.parametrize("way", WAYS)
def test_a_limit_does_not_count_snapshots(way: Way) -> None:
    transactions = [part for xid in (7, 8) for part in (begin(xid, 0x200), insert(str(xid), "v"), commit(0x200, 0x208))]
    copied = [*snapshot(["1", "a"]), *snapshot(["1", "a"], oid=200, name="u")]
    with rows_by(way):
        shown = decode("-n", "1", input=lengths(*copied, relation(), *transactions)).objects
    assert [(row["op"], row.get("xid")) for row in shown] == [("snapshot", None), ("snapshot", None), ("insert", 7)]
