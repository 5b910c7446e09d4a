"""Makes a row for each transaction from batches of changes, in the tasks that decode them; uses only Arrow.

dataframes.transactions() does the same for a DataFrame.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pgtail.arrow.schemas import OUTCOMES, TRANSACTIONS

_SUMS: Final = ("changes", "messages", "bytes")
OWN: Final = [name for name in TRANSACTIONS.names if name not in ("position", "tables", *_SUMS)]
"""Columns that have the same value in each of the transaction's changes."""
_COUNTED: Final = ("ordinal", "op", "seq", "schema", "table", "bytes")
_OUTCOMES: Final = pa.array(OUTCOMES)


class Counted(NamedTuple):
    """Rows of TRANSACTIONS by position; `ends` are the positions of transactions that other batches may continue."""

    rows: pa.Table
    ends: list[int]


def counted(batch: pa.RecordBatch) -> Counted:
    """The transactions of rows of `changes`."""
    rows = pa.Table.from_batches([batch]).select(["position", *OWN, *_COUNTED])
    rows = rows.filter(pc.and_not(pc.is_valid(rows["xid"]), pc.is_in(rows["op"], _OUTCOMES))).combine_chunks()
    if not rows.num_rows:
        return Counted(TRANSACTIONS.empty_table(), [])
    counts = {
        "changes": pc.is_valid(rows["seq"]).cast(pa.int64()),
        "messages": pc.equal(rows["op"], "message").cast(pa.int64()),
        # The rows of one Truncate message each have its size.
        "bytes": pc.if_else(_as_before(rows["position"], rows["ordinal"]), 0, rows["bytes"]),
    }
    own = {name: rows[name] for name in ("position", *OWN)}
    sums = _summed(
        pa.table(own | counts), rows["position"], pc.binary_join_element_wise(rows["schema"], rows["table"], ".")
    )
    return Counted(sums, [rows["position"][end].as_py() for end in (0, -1)])


def added_up(parts: pa.Table) -> pa.Table:
    """Transactions that were counted in several parts, each a row: one row for each."""
    tables = parts["tables"].combine_chunks()
    return _summed(parts, parts["position"].take(pc.list_parent_indices(tables)), pc.list_flatten(tables))


def _as_before(*columns: pa.ChunkedArray) -> pa.Array:
    """Whether a row has the same numbers as the one before it; the columns have one chunk."""
    same = [pc.equal(column.chunk(0)[1:], column.chunk(0)[:-1]) for column in columns]
    return pa.concat_arrays([pa.array([False]), pc.and_(*same)])


def _summed(rows: pa.Table, positions: pa.ChunkedArray, tables: pa.ChunkedArray) -> pa.Table:
    """One row for each position, sorted; its `tables` are those at its `positions` that are not NULL."""
    grouped = rows.group_by("position", use_threads=False)
    sums = grouped.aggregate([*((name, "first") for name in OWN), *((name, "sum") for name in _SUMS)])
    sums = sums.rename_columns([name.removesuffix("_first").removesuffix("_sum") for name in sums.column_names])
    sums = sums.sort_by("position")
    named = pa.table({"position": positions, "table": tables})
    named = named.filter(pc.is_valid(named["table"])).group_by(["position", "table"]).aggregate([])
    named = named.sort_by([("position", "ascending"), ("table", "ascending")])
    lists = named.group_by("position", use_threads=False).aggregate([("table", "list")])
    own = lists["table_list"].take(pc.index_in(sums["position"], lists["position"].combine_chunks()))
    sums = sums.append_column("tables", pc.coalesce(own, pa.scalar([], own.type)))
    return sums.select(TRANSACTIONS.names).cast(TRANSACTIONS)
