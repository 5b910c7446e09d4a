"""Changes -> a row for each transaction, batch by batch, in the tasks that decode them; knows Arrow alone.

What dataframes.transactions() counts of a DataFrame, for those who have the record batches at hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pgtail.spark.schemas import TRANSACTIONS

_SUMS: Final = ("changes", "messages", "bytes")
_OWN: Final = ("position", *(name for name in TRANSACTIONS.names if name not in ("position", "tables", *_SUMS)))
_OUTCOMES: Final = pa.array(["commit_prepared", "rollback_prepared"])


class Counted(NamedTuple):
    """Rows of TRANSACTIONS by position; `ends` are the positions of which other batches may have more."""

    rows: pa.Table
    ends: list[int]


def counted(batch: pa.RecordBatch) -> Counted:
    """The transactions that rows of `changes` are of."""
    rows = _of_transactions(batch)
    if not rows.num_rows:
        return Counted(TRANSACTIONS.empty_table(), [])
    counts = {
        "changes": pc.is_valid(rows["seq"]),
        "messages": pc.equal(rows["op"], "message"),
        # The rows of one Truncate message each have its size.
        "bytes": pc.if_else(_as_before(rows["position"], rows["ordinal"]), 0, rows["bytes"]),
    }
    numbered = rows.select(_OWN)
    for name, column in counts.items():
        numbered = numbered.append_column(name, column.cast(pa.int64()))
    ranks, names = ranked([rows[name].combine_chunks() for name in ("schema", "table")])
    tables = pa.array([None if None in name else ".".join(name) for name in names], pa.string())
    pairs = pa.table({"position": rows["position"], "table": ranks})
    # Most rows are of the same table as the one before.
    pairs = pairs.filter(pc.invert(_as_before(pairs["position"], pairs["table"])))
    found = _summed(numbered, pairs["position"], tables.take(pairs["table"].combine_chunks()))
    return Counted(found, [rows["position"][end].as_py() for end in (0, -1)])


def _of_transactions(batch: pa.RecordBatch) -> pa.Table:
    """Without outcomes, and without messages that are of no transaction; the columns have one chunk."""
    rows = pa.Table.from_batches([batch]).select([*_OWN, "ordinal", "op", "seq", "schema", "table", "bytes"])
    wanted = pc.and_not(pc.is_valid(rows["xid"]), pc.is_in(rows["op"], _OUTCOMES))
    if not pc.all(wanted).as_py():
        rows = rows.filter(wanted)
    return rows.combine_chunks()


def added_up(parts: pa.Table) -> pa.Table:
    """Transactions that were counted in several parts, each a row: one row for each."""
    rows = parts.combine_chunks()
    tables = rows["tables"].combine_chunks()
    positions = rows["position"].take(pc.list_parent_indices(tables))
    return _summed(rows.drop_columns(["tables"]), positions, pc.list_flatten(tables))


def _as_before(*columns: pa.ChunkedArray) -> pa.Array:
    """Whether a row has the same numbers as the one before it; the columns have one chunk."""
    same = [pc.equal(column.chunk(0)[1:], column.chunk(0)[:-1]) for column in columns]
    return pa.concat_arrays([pa.array([False]), pc.and_(*same)])


def _summed(rows: pa.Table, positions: pa.ChunkedArray, tables: pa.Array) -> pa.Table:
    """One row for each position, with its tables, sorted."""
    rows = rows.append_column("row", pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows), start=-1))
    grouped = rows.select(["position", "row", *_SUMS]).group_by("position")
    found = grouped.aggregate([("row", "min"), *[(name, "sum") for name in _SUMS]]).sort_by("position")
    named = pa.table({"position": positions, "table": tables})
    named = named.filter(pc.is_valid(named["table"])).group_by(["position", "table"]).aggregate([])
    named = named.sort_by([("position", "ascending"), ("table", "ascending")])
    of_each = named.group_by("position").aggregate([("table", "count")])
    numbers = of_each["table_count"].take(pc.index_in(found["position"], of_each["position"].combine_chunks()))
    ends = pc.cumulative_sum(pc.fill_null(numbers, 0)).combine_chunks().cast(pa.int32())
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    columns = {name: rows[name].take(found["row_min"]) for name in _OWN}
    columns |= {name: found[f"{name}_sum"] for name in _SUMS}
    columns["tables"] = pa.ListArray.from_arrays(offsets, named["table"].combine_chunks())
    return pa.table([columns[name] for name in TRANSACTIONS.names], schema=TRANSACTIONS)


def ranked(columns: Sequence[pa.Array]) -> tuple[pa.Array, list[tuple[Any, ...]]]:
    """For each row the rank of its values among those that there are, NULL first; and these values, in order.

    A date or a time is the number that Arrow keeps: not all of them are Python's.
    """
    encoded = [column.dictionary_encode(null_encoding="encode") for column in columns]
    number = encoded[0].indices.cast(pa.int64())
    for column in encoded[1:]:
        number = pc.add(pc.multiply(number, len(column.dictionary)), column.indices)
    found = []
    for one in pc.unique(number).to_pylist():
        rest, values = one, []
        for column in reversed(encoded):
            rest, index = divmod(rest, len(column.dictionary))
            values.append(_value(column.dictionary[index]))
        found.append((values[::-1], one))
    found.sort(key=lambda pair: [(value is not None, value) for value in pair[0]])
    ranks = pc.index_in(number, pa.array([one for _, one in found], pa.int64()))
    return ranks, [tuple(values) for values, _ in found]


def _value(scalar: pa.Scalar) -> Any:
    return scalar.value if pa.types.is_temporal(scalar.type) else scalar.as_py()
