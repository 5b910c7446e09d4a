"""`state` and `history` on Spark: equal to the plain model, and to a real server's tables, in every way."""

from __future__ import annotations

import contextlib
import datetime
import functools
import io
import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner

from pgtail.capture.recorder import Recorder
from pgtail.cli import main
from pgtail.errors import InputError, OptionError
from pgtail.spark import history, state, table
from pgtail.spark.datasets.watch import watch
from pgtail.spark.folding import manifest as manifests
from pgtail.spark.folding.filesystem import HadoopFiles, LocalFiles
from pgtail.spark.folding.settings import until_of
from pgtail.spark.segments.survey import survey
from tests.capture.test_recovery import transactions
from tests.support.captures import SMALL
from tests.support.captures import record as record_frames
from tests.support.corpus import capture as corpus
from tests.support.spark import model
from tests.support.spark.world import (
    SOME,
    World,
    apply,
    as_plain,
    as_texts,
    pieces,
    same_as_model,
    same_as_server,
    same_lives,
)


def test_all_tables_in_one_go(spark: Any, world: World, whole: Path) -> None:
    found = as_texts(spark, whole)
    same_as_server(world, found)
    same_as_model(world.folds(), found)


def test_many_small_batches_give_the_same(
    spark: Any, world: World, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgtail.spark.folding.apply.MOST_CLOSED", 2)
    source, parts = Random(5), pieces(world)
    assert len(parts) > 15
    root, at = tmp_path / "history", 0
    while at < len(parts):
        at += source.randint(4, 9)
        # What was applied before is given again, and in another order.
        apply(spark, world, root, source.sample(parts[:at], len(parts[:at])), history=True, bucket_size=12_000)
    found, once = as_texts(spark, root), as_texts(spark, whole)
    spread = manifests.Manifest.decode((root / "manifest.json").read_bytes(), "").tables.values()
    assert any(table.buckets > 1 for table in spread)
    same_as_server(world, found)
    for name in once.keys() | found.keys():
        assert sorted(map(as_plain, found.get(name, []))) == sorted(map(as_plain, once.get(name, []))), name
    same_lives(spark, root, world.folds(history=True))


def test_a_batch_that_is_applied_again_changes_nothing(spark: Any, world: World, whole: Path) -> None:
    before = (whole / "manifest.json").read_bytes()
    assert apply(spark, world, whole).changes == 0
    assert apply(spark, world, whole, pieces(world)[3:6]).changes == 0
    assert (whole / "manifest.json").read_bytes() == before


def test_what_a_segment_of_a_transaction_lacks_is_waited_for(world: World) -> None:
    piece = manifests.Piece
    one = piece((10, 1), (20, 5), "one", "", True)
    two = piece((20, 5), (20, 9), "two", "one", True)
    three = piece((20, 9), (30, 2), "three", "two")
    manifest = manifests.Manifest()
    found = manifests.next_part(manifest, [one])
    assert found.parts == [((10, 1), (20, 0))]
    manifest.applied = found.parts
    assert manifests.last_whole(manifest, [one]) == ""
    assert manifests.next_part(manifest, [two, one]).parts == []
    assert manifests.joined(manifests.next_part(manifest, [three, two, one]).parts) == [((20, 0), (30, 2))]
    # Without its first part the transaction is not there.
    missing = manifests.next_part(manifest, [two, three]).missing
    assert missing is not None
    assert missing.missing == "one"


def test_a_capture_that_begins_behind_the_end_of_another_leaves_a_gap() -> None:
    piece = manifests.Piece
    one, two = piece((10, 1), (20, 5), "one"), piece((20, 5), (30, 1), "two", "one")
    later = piece((25, 1), (40, 1), "later")
    manifest = manifests.Manifest()
    found = manifests.next_part(manifest, [later, one])
    assert found.parts == [((10, 1), (20, 5))]
    assert found.missing is not None
    assert "whether anything was committed between them no capture tells" in str(found.missing)
    gone_over = manifests.next_part(manifest, [later, one], allow_gap=True)
    assert [gap["before"] for gap in gone_over.gaps] == ["later"]
    assert manifests.joined(gone_over.parts) == [((10, 1), (20, 5)), ((25, 1), (40, 1))]
    # What lies between them comes from the other capture.
    manifest.applied, rest = found.parts, later._replace(first=(30, 1))
    assert manifests.joined(manifests.next_part(manifest, [rest, two, one]).parts) == [((20, 5), (40, 1))]


@pytest.mark.parametrize("before", [0, 3])
def test_a_gap_that_a_recorder_went_over_is_one(tmp_path: Path, before: int) -> None:
    """It is as if a segment were missing; before the first segment there is none."""
    groups = transactions(corpus("A_dml", "p1"))
    record_frames(tmp_path / "c", [frame for group in groups[:before] for frame in group])
    recorder = Recorder(tmp_path / "c", {}, rotation=SMALL, gap=(5, 9))
    for frame in (frame for group in groups[before:] for frame in group):
        recorder.take(frame)
    recorder.close()
    found = [survey(io.BytesIO(path.read_bytes()), path.name).predecessor for path in model.segments(tmp_path / "c")]
    assert len(found) > 2
    assert [one for one in found if " " in one] == (["between 0/5 and 0/9"] if before else [])
    piece, manifest = manifests.Piece((30, 1), (40, 1), "two", "between 0/5 and 0/9"), manifests.Manifest(last="one")
    missing = manifests.next_part(manifest, [piece]).missing
    assert missing is not None
    assert str(missing).startswith("what was committed between 0/5 and 0/9 is not in the capture: two stands behind")
    assert missing.what.endswith("only --allow-gap goes on"), "nobody waits for what never comes"


def test_a_missing_segment_is_named(spark: Any, world: World, tmp_path: Path) -> None:
    # A path that looks like a pattern is a path.
    parts, root = pieces(world), tmp_path / "state {a,b} [x]*?"
    lost = parts[4]
    rest = [part for part in parts if part.name != lost.name]
    with pytest.raises(InputError, match=f"the segment {lost.name} is missing"):
        apply(spark, world, root, rest, some=True)
    assert not (root).exists()
    waiting = apply(spark, world, root, rest, some=True, wait=True)
    assert waiting.waiting.missing == lost.name
    assert waiting.behind <= parts[3].behind
    gone_over = apply(spark, world, root, rest, some=True, allow_gap=True)
    assert [gap["missing"] for gap in gone_over.gaps] == [lost.name]
    assert gone_over.behind == parts[-1].behind
    with pytest.raises(InputError, match="belongs into a gap"):
        apply(spark, world, root, parts, some=True)


def test_the_state_as_of_then(spark: Any, world: World, tmp_path: Path) -> None:
    done = [row for row in world.rows if row["op"] in model.OPS]
    middle = done[len(done) // 2]
    found = as_texts_until(spark, world, tmp_path / "lsn", middle["position"])
    same_as_model(some(world.folds(until=middle["position"])), found)
    # A time is as good, as long as no commit of that moment comes later.
    time = middle["commit_ts"].replace(tzinfo=datetime.UTC)
    last = max(row["position"] for row in done if row["position"] < first_after(done, middle["commit_ts"]))
    same_as_model(some(world.folds(until=last)), as_texts_until(spark, world, tmp_path / "time", time))
    # The state of then goes on from there.
    apply(spark, world, tmp_path / "time", pieces(world), some=True)
    same_as_model(some(world.folds()), as_texts(spark, tmp_path / "time"))
    with pytest.raises(InputError, match="goes beyond"):
        as_texts_until(spark, world, tmp_path / "lsn", middle["position"] - 10_000)


def some(folds: Any) -> Any:
    return {name: fold for name, fold in folds.items() if name in SOME}


def first_after(rows: list[dict[str, Any]], time: datetime.datetime) -> Any:
    return min(row["position"] for row in rows if row["commit_ts"] > time)


def as_texts_until(spark: Any, world: World, root: Path, until: Any) -> dict[str, list[Any]]:
    apply(spark, world, root, pieces(world), some=True, until=until)
    return as_texts(spark, root)


def test_a_batch_that_is_cut_off_and_files_that_no_manifest_names(
    spark: Any, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts, root = pieces(world), tmp_path / "state"
    apply(spark, world, root, parts[:4], some=True)
    reader = state(spark, str(root))
    before = sorted(map(as_plain, reader.collect()))
    with monkeypatch.context() as patch:
        patch.setattr(LocalFiles, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            apply(spark, world, root, parts, some=True)
    assert sorted(map(as_plain, state(spark, str(root)).collect())) == before
    apply(spark, world, root, parts[:-1], some=True)
    # Whoever opened the older manifest still has its files.
    assert sorted(map(as_plain, reader.collect())) == before
    apply(spark, world, root, parts, some=True, retain=0)
    same_as_model(some(world.folds()), as_texts(spark, root))
    named = manifests.Manifest.decode((root / "manifest.json").read_bytes(), "").named()
    assert {str(path.relative_to(root)) for path in root.rglob("*.parquet")} == named


def interrupted(*given: Any) -> None:
    raise KeyboardInterrupt


def test_the_commands_make_everything_from_a_growing_capture(
    spark: Any, world: World, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands' own code, in the session of the tests."""
    monkeypatch.setattr("pgtail.commands.spark.spark_session", lambda options: contextlib.nullcontext(spark))
    segments, capture, out = model.segments(world.capture), tmp_path / "capture", tmp_path / "out"
    capture.mkdir()
    told = ""
    monkeypatch.setattr("pgtail.spark.datasets.watch.watch", functools.partial(watch, once=True))
    for part, more in ((segments[:9], []), (segments[9:], ["--watch"])):
        for path in part:
            shutil.copy(path, capture)
        command = ["spark", "all", "-t", "t0", "-t", "t4", *more, str(capture), str(out)]
        ran = CliRunner().invoke(main, command, catch_exceptions=False)
        assert ran.exit_code == 0, ran.stderr
        told = ran.stderr
    assert "tables: new rows of 2 tables" in told
    assert "history: " in told
    for name in ("t0", "t4"):
        there = [as_plain(row) for row in state(spark, str(out)).collect() if row["table"] == name]
        assert sorted(there) == sorted(as_plain(row) for row in as_texts(spark, whole)[name])
        assert table(spark, str(out), f"public.{name}").count() > 20
        rows = history(spark, str(out), f"public.{name}").where("_valid_to IS NULL")
        assert rows.count() == len(there)
    with pytest.raises(InputError, match="no table public.t1 in it; there are public.t0, public.t4"):
        state(spark, str(out), "public.t1")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0/1949A30", 0x1949A30),
        ("2026-11-20T22:05:51Z", datetime.datetime(2026, 11, 20, 22, 5, 51, tzinfo=datetime.UTC)),
        ("2026-11-20 22:05", datetime.datetime(2026, 11, 20, 22, 5, tzinfo=datetime.UTC)),
        ("2026-11-20T23:05+01:00", datetime.datetime(2026, 11, 20, 22, 5, tzinfo=datetime.UTC)),
    ],
)
def test_until_is_an_lsn_or_a_time(text: str, expected: object) -> None:
    assert until_of(text) == expected


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--until", "someday"], "neither an LSN"),
        (["--until", "0/1", "--watch"], "--watch does not end"),
        (["--retain", "soon"], "not a time such as"),
    ],
)
def test_a_wrong_command_line_is_told_before_anything_starts(arguments: list[str], words: str) -> None:
    ran = CliRunner().invoke(main, ["spark", "state", *arguments, "capture", "out"])
    assert ran.exit_code == 2
    assert words in ran.stderr


def test_state_is_refused_where_it_cannot_be_replaced_atomically(spark: Any) -> None:
    with pytest.raises(OptionError, match="cannot be kept on s3a"):
        state(spark, "s3a://bucket/state")


def test_hadoops_rename_replaces_in_one_step(spark: Any, tmp_path: Path) -> None:
    files = HadoopFiles(spark, f"file://{tmp_path}")
    assert files.read("manifest.json") is None
    for data in (b"one", b"two"):
        files.replace("manifest.json", data)
        assert files.read("manifest.json") == data
    (tmp_path / "data" / "deep").mkdir(parents=True)
    (tmp_path / "data" / "deep" / "x.parquet").write_bytes(b"abc")
    [found] = [file for file in files.walk("data") if file.path.endswith(".parquet")]
    assert (found.path, found.size) == ("data/deep/x.parquet", 3)
    files.remove(found.path)
    assert list(files.walk("data")) == []
