"""`changes` through Spark: the same rows whatever the captures, their order and their overlaps."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PythonException

from pgtail.errors import InputError, OptionError, OutputError
from pgtail.spark import changes, read, relations
from pgtail.spark.lake.compact import compact
from pgtail.spark.lake.delta import LakeTable
from pgtail.spark.lake.update import Lake
from pgtail.storage import locate
from tests.support.corpus import capture
from tests.support.spark.captures import plain, record, rows_of, segments

MANY = capture("D_twophase", "p3_2pc")


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One recording as two captures, whose segments end at different places; `names[1]` needs care in a path."""
    folder = tmp_path_factory.mktemp("captures")
    record(MANY, folder / "one", size=20_000)
    record(MANY, folder / "two {a,b} [x]*?", size=33_000)
    return folder


@pytest.fixture(scope="session")
def rows(recorded: Path) -> list[dict[str, Any]]:
    return rows_of(segments(recorded / "one"))


def in_order(found: Any) -> list[dict[str, Any]]:
    """The rows of a DataFrame of changes, in the order of the stream."""
    rows = plain(found.toArrow())
    return sorted(rows, key=lambda row: (row["position"], row["ordinal"], row["seq"] or 0))


def counts(spark: Any, out: Path, table: str) -> Counter[str]:
    return Counter(map(repr, read(spark, str(out), table).collect()))


def test_spark_gives_the_rows(spark: Any, recorded: Path, rows: list[dict[str, Any]]) -> None:
    assert in_order(changes(spark, str(recorded / "one"))) == rows


def test_overlapping_captures_and_segments_given_twice_give_each_change_once(
    spark: Any, recorded: Path, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    some = segments(recorded / "one")[3:7]
    for path in some:
        shutil.copy(path, tmp_path)
    captures = [str(path) for path in (*recorded.iterdir(), tmp_path, recorded / "one", *some)]
    random.Random(4).shuffle(captures)
    assert in_order(changes(spark, captures)) == rows


def test_relations(spark: Any, recorded: Path, rows: list[dict[str, Any]]) -> None:
    tables = {row.relation: row for row in relations(spark, str(recorded / "one")).collect()}
    assert {row["relation"] for row in rows if row["relation"]} <= set(tables)
    for row in rows:
        if row["relation"]:
            table = tables[row["relation"]]
            assert (table.schema, table.table, table.relid) == (row["schema"], row["table"], row["relid"])
            assert set(row["new"] or ()) <= {column.name for column in table.columns}


def test_a_folder_that_grows_in_any_order_is_the_same_in_the_end(
    spark: Any, recorded: Path, rows: list[dict[str, Any]], tmp_path: Path, seed: random.Random
) -> None:
    """Segments come in shuffled order, some again, some of the other capture: in five batches."""
    paths = [path for folder in recorded.iterdir() for path in segments(folder)]
    seed.shuffle(paths)
    grown, at_once = tmp_path / "grown [x]", tmp_path / "at once"
    lake = Lake(spark, str(grown))
    for turn in range(4):
        lake.update([str(path) for path in (*paths[turn::4], *seed.sample(paths, 2))])
    lake.update([str(folder) for folder in recorded.iterdir()])
    Lake(spark, str(at_once)).update([str(recorded / "one")])
    for out in (grown, at_once):
        assert in_order(read(spark, str(out), "changes")) == rows
    for kind in ("transactions", "relations"):
        assert counts(spark, grown, kind) == counts(spark, at_once, kind)
    assert [len(one.runs) for one in lake.plan.captures.values()] == [1, 1]
    assert lake.update([str(recorded / "one")]).batches == 0
    many, version = len(LakeTable(locate(f"{grown}/changes")).files()), LakeTable(locate(f"{grown}/changes")).version
    assert compact(lake) > many
    assert len(LakeTable(locate(f"{grown}/changes")).files()) == 1
    assert in_order(read(spark, str(grown), "changes")) == rows
    assert in_order(read(spark, str(grown), "changes", version)) == rows
    assert compact(lake) == 0
    assert counts(spark, grown, "transactions") == counts(spark, at_once, "transactions")


def test_what_is_odd_survives(spark: Any, tmp_path: Path) -> None:
    """NULLs, messages with any bytes, unchanged TOAST, bytes that are not text: through the files and back."""
    for number, name in enumerate([("A_msgs", "p1_msg"), ("H_sqlascii", "p1"), ("A_dml", "p1_bin")]):
        paths = record(capture(*name), tmp_path / f"capture{number}")
        out = str(tmp_path / f"out{number}")
        Lake(spark, out).update([str(tmp_path / f"capture{number}")])
        assert in_order(read(spark, out, "changes")) == rows_of(paths)


def test_some_tables_alone(spark: Any, tmp_path: Path) -> None:
    paths = record(capture("A_dml", "p1"), tmp_path / "capture")
    out = str(tmp_path / "out")
    Lake(spark, out, tables=["t_toast*"]).update([str(tmp_path / "capture")])
    wanted = [row for row in rows_of(paths) if (row["table"] or "").startswith("t_toast")]
    assert in_order(read(spark, out, "changes")) == wanted
    with pytest.raises(OptionError, match="use another directory"):
        Lake(spark, out)


def test_damage_is_named_and_nothing_of_it_is_written(spark: Any, tmp_path: Path) -> None:
    good, bad, *_ = record(MANY, tmp_path / "capture", size=20_000)
    lake = Lake(spark, str(tmp_path / "out"))
    lake.update([str(good)])
    before = in_order(read(spark, str(tmp_path / "out"), "changes"))
    data = bytearray(bad.read_bytes())
    data[len(data) // 2] ^= 1
    bad.write_bytes(data)
    with pytest.raises(InputError, match=bad.name):
        lake.update([str(bad)])
    with pytest.raises(PythonException, match=bad.name):
        changes(spark, [str(bad), str(good)]).count()
    assert in_order(read(spark, str(tmp_path / "out"), "changes")) == before


def test_what_is_missing_is_said(spark: Any, tmp_path: Path) -> None:
    first, second, third, *_ = record(MANY, tmp_path / "capture", size=20_000)
    lake = Lake(spark, str(tmp_path / "out"))
    [note] = lake.update([str(third)]).notes
    assert second.stem in note
    assert lake.update([str(first), str(second)]).notes == []
    (tmp_path / "dump.bin").write_bytes(b"")
    assert lake.update([str(tmp_path / "dump.bin")]).notes == [
        f"no closed segment (*.pgcap) in {tmp_path / 'dump.bin'}"
    ]
    with pytest.raises(InputError, match="there is no .*nowhere"):
        lake.update([f"file://{tmp_path}/nowhere"])


def test_a_folder_is_written_by_one_process_and_in_one_way(spark: Any, recorded: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    first, second, *_ = segments(recorded / "one")
    one, other = Lake(spark, out), Lake(spark, out)
    one.update([str(first)])
    with pytest.raises(OutputError, match="another process writes to"):
        other.update([str(second)])
    assert in_order(read(spark, out, "changes")) == rows_of([first])
    with pytest.raises(OptionError, match="ftp:// is no storage"):
        Lake(spark, "ftp://host/out")
    Lake(spark, str(tmp_path / "theirs")).update([str(first)])
    shutil.rmtree(tmp_path / "theirs" / "_batches")
    with pytest.raises(OptionError, match="did not write"):
        Lake(spark, str(tmp_path / "theirs"))
    (tmp_path / "file").write_text("")
    with pytest.raises((OutputError, OptionError), match="file"):
        Lake(spark, str(tmp_path / "file")).update([str(recorded / "one")])
    with pytest.raises(InputError, match="there is no table changes"):
        read(spark, str(tmp_path / "nothing"), "changes")
