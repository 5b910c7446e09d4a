"""The column `context` through Spark: changes(), the data source in batches and streams, and OUT/changes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from pgtail.demo.server import EmbeddedServer
from pgtail.errors import InputError, OptionError
from pgtail.spark import DataSource, changes, read
from pgtail.spark.lake.compact import compact
from pgtail.spark.lake.update import Lake
from tests.changes.test_context import EMIT
from tests.support.servers import fresh_database
from tests.support.spark import model
from tests.support.spark.captures import segments

FILL = "INSERT INTO t SELECT i, md5(i::text) FROM generate_series({}, {}) i"


@pytest.fixture(scope="module")
def recorded(newest_server: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A transaction over several segments: from row 1001 on ada did it, from 4001 on bob."""
    capture = tmp_path_factory.mktemp("contexts") / "capture"
    with fresh_database(newest_server) as database:
        database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
        model.begin(database)
        statements = [FILL.format(1, 1000), EMIT.format("ada"), FILL.format(1001, 4000), EMIT.format("bob")]
        database.execute("INSERT INTO t VALUES (0)", "BEGIN", *statements, FILL.format(4001, 5000), "COMMIT")
        model.record(database, capture, "--segment-size", "64kB")
        database.execute("SELECT pg_drop_replication_slot('s')")
    assert len(segments(capture)) > 4
    return capture


def truth() -> Counter[tuple[str, str | None]]:
    return Counter(
        (str(number), None if number <= 1000 else "ada" if number <= 4000 else "bob") for number in range(5001)
    )


def users(rows: Iterable[Any]) -> Counter[tuple[str, str | None]]:
    """The id and the user of each insert."""
    return Counter(
        (row["new"]["id"], None if row["context"] is None else json.loads(row["context"])["user"])
        for row in rows
        if row["op"] == "insert"
    )


def test_changes_have_it(spark: Any, recorded: Path) -> None:
    found = changes(spark, str(recorded), context="context")
    assert found.columns == [*changes(spark, str(recorded)).columns, "context"]
    assert users(found.collect()) == truth()
    assert users(changes(spark, str(recorded), context="other").collect()) == Counter(
        (str(number), None) for number in range(5001)
    )


def test_the_source_has_it_in_batches_and_streams(spark: Any, recorded: Path, tmp_path: Path) -> None:
    options = {"context": "context", "columns": "op,new,context"}
    found = spark.read.format("pgtail").options(**options).load(str(recorded))
    assert found.columns == ["op", "new", "context"]
    assert users(found.collect()) == truth()
    stream = spark.readStream.format("pgtail").options(**options, maxSegmentsPerTrigger="1").load(str(recorded))
    rows: list[Any] = []
    query = stream.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert users(rows) == truth()


def test_typed_rows_have_it(spark: Any, recorded: Path) -> None:
    typed = spark.read.format("pgtail").option("table", "public.t")
    plain = typed.load(str(recorded)).columns
    found = typed.option("context", "context").load(str(recorded))
    assert found.columns == [*plain, "_context"]
    of_each = found.selectExpr("CAST(id AS string) AS id", "get_json_object(_context, '$.user') AS user").collect()
    assert Counter(map(tuple, of_each)) == truth()
    with pytest.raises(OptionError, match="the shape cdf has no column for it"):
        DataSource({"path": str(recorded), "table": "public.t", "shape": "cdf", "context": "context"}).schema()


def test_out_has_it_for_its_life(spark: Any, recorded: Path, tmp_path: Path) -> None:
    """In several batches, after compacting, and with tables made of it later."""
    out = str(tmp_path / "out")
    lake = Lake(spark, out, context="context", batch_segments=2)
    lake.update([str(recorded)])
    found = read(spark, out, "changes")
    assert found.columns[-1] == "context"
    assert users(found.collect()) == truth()
    assert compact(lake) > 0
    Lake(spark, out, context="context").update([str(recorded)], typed=True)
    assert users(read(spark, out, "changes").collect()) == truth()
    assert read(spark, out, "tables/public.t").count() == 5001
    for other, words in ((None, "with --context context"), ("who", "with --context context")):
        with pytest.raises(OptionError, match=f"was made {words}, which holds for its life: use another directory"):
            Lake(spark, out, context=other)
    Lake(spark, str(tmp_path / "plain")).update([str(recorded)])
    with pytest.raises(OptionError, match="was made without --context"):
        Lake(spark, str(tmp_path / "plain"), context="context")


def test_a_segment_whose_transaction_began_elsewhere_is_refused(spark: Any, recorded: Path, tmp_path: Path) -> None:
    last = segments(recorded)[-1]
    (tmp_path / last.name).write_bytes(last.read_bytes())
    with pytest.raises(InputError, match="whose context may be in the segment before it"):
        Lake(spark, str(tmp_path / "out"), context="context").update([str(tmp_path / last.name)])
    Lake(spark, str(tmp_path / "plain")).update([str(tmp_path / last.name)])
