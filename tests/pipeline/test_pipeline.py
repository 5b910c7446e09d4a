"""What a pipeline counts."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cache
from typing import Any

import pytest

from pgtail.service.progress import MOST_TABLES, TableRows
from tests.support.corpus import Capture, capture
from tests.support.encode import begin, commit, insert, lengths, relation, snapshot, truncate
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
    assert sorted(found.tables or ()) == tables_of(one)


@cache
def rows_of(one: Capture, *options: str) -> int:
    """The rows that decode shows."""
    found = decode(*options, one.forms["walsender.bin"]).objects
    return len([row for row in found if row["op"] in ("insert", "update", "delete")])


@cache
def tables_of(one: Capture) -> list[TableRows]:
    """The rows that decode shows, by table and operation."""
    found: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for row in decode(one.forms["walsender.bin"]).objects:
        if "table" in row:
            found[row["schema"], row["table"]][row["op"]] += 1
    ops = ("insert", "update", "delete", "truncate", "snapshot")
    return sorted([TableRows(*name, *[counts[op] for op in ops]) for name, counts in found.items()])


@pytest.mark.parametrize("way", WAYS)
def test_rows_are_counted_through_versions_of_a_table(way: Way) -> None:
    """The rows of many tables together, those of a snapshot apart, and those of a table that is described again."""
    rows = [part for oid in range(300, 1301) for part in (relation(oid, name=f"t{oid}"), insert("1", "v", oid=oid))]
    copied = [*snapshot(["1", "a"]), begin(), relation(), insert("2", "v"), relation(name="u"), insert("3", "v")]
    found = render(*copied, relation(), insert("4", "v"), truncate(100), *rows, commit(), way=way).tables or ()
    known = {one.table: one for one in found}
    assert known["t"] == ("public", "t", 2, 0, 0, 1, 1)
    assert known["u"] == ("public", "u", 1, 0, 0, 0, 0)
    assert (len(found), known[""]) == (MOST_TABLES + 1, ("", "", 3, 0, 0, 0, 0))


@pytest.mark.parametrize("way", WAYS)
def test_a_limit_does_not_count_snapshots(way: Way) -> None:
    transactions = [part for xid in (7, 8) for part in (begin(xid, 0x200), insert(str(xid), "v"), commit(0x200, 0x208))]
    copied = [*snapshot(["1", "a"]), *snapshot(["1", "a"], oid=200, name="u")]
    with rows_by(way):
        shown = decode("-n", "1", input=lengths(*copied, relation(), *transactions)).objects
    assert [(row["op"], row.get("xid")) for row in shown] == [("snapshot", None), ("snapshot", None), ("insert", 7)]
