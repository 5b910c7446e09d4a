"""Streams in Spark: typed changes that foreachBatch merges into a Delta table, and one whose driver is killed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from tests.spark.test_changes import in_order, recorded, rows
from tests.spark.test_typed_source import history, text
from tests.support.spark.stream_program import append_all, committed, kill_after

__all__ = ["recorded", "rows"]  # fixtures


def test_a_merge_makes_the_servers_rows(spark: Any, tmp_path: Path) -> None:
    """A snapshot and changes of a table whose key is id; values that were not sent stay as they are."""
    server = history(tmp_path / "c", 0)
    table, target = server.tables[1], str(tmp_path / "target")
    assert (table.identity, table.key) == ("d", ("id",))
    stream = spark.readStream.format("pgtail").option("table", f"public.{table.name}")
    frame = stream.option("maxSegmentsPerTrigger", "30").load(str(tmp_path / "c"))
    names = [name for name, _ in table.columns]
    schema = pa.schema([("id", pa.int32()), *[(name, pa.string()) for name in names[1:]]])
    write_deltalake(target, schema.empty_table())

    def merge(batch: Any, _: int) -> None:
        there = {row["id"]: row for row in DeltaTable(target).to_pyarrow_table().to_pylist()}
        touched = set[int]()
        for row in batch.sort("_position", "_seq").toArrow().to_pylist():
            if row["_op"] == "truncate":
                touched |= there.keys()
                there.clear()
                continue
            old = there.pop((row["_old"] or row)["id"], {})
            touched |= {(row["_old"] or row)["id"], row["id"]}
            if row["_op"] != "delete":
                sent = {name: row[name] for name in names if name not in (row["_unchanged"] or ())}
                there[row["id"]] = {**old, **sent}
        rows = [{**there.get(one, {"id": one}), "gone": one not in there} for one in touched]
        source = pa.Table.from_pylist(rows, schema.append(pa.field("gone", pa.bool_())))
        merging = DeltaTable(target).merge(source, "t.id = s.id", source_alias="s", target_alias="t")
        every = {name: f"s.{name}" for name in names}
        merging = merging.when_matched_delete("s.gone").when_matched_update(every)
        merging.when_not_matched_insert(every, "NOT s.gone").execute()

    query = frame.writeStream.foreachBatch(merge).option("checkpointLocation", str(tmp_path / "checkpoint"))
    started = query.trigger(availableNow=True).start()
    assert started.awaitTermination(200)
    assert started.exception() is None
    found = [
        {name: text(one) for name, one in row.items()} for row in DeltaTable(target).to_pyarrow_table().to_pylist()
    ]
    assert Counter(tuple(sorted(row.items())) for row in found) == server.truth[-1][1][table.relid]


def test_each_change_is_in_the_sink_once_after_the_kill_of_a_driver(
    spark: Any, recorded: Path, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    assert kill_after(recorded / "one", tmp_path, 2, 0.2), "it was killed before it was done"
    before = len(committed(tmp_path))
    append_all(spark, recorded / "one", tmp_path)
    assert len(committed(tmp_path)) > before
    assert in_order(spark.read.parquet(str(tmp_path / "rows"))) == rows
