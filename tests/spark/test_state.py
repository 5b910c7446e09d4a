"""`state` and `history` on Spark: equal to the plain model, and to a real server's tables, in every way."""

from __future__ import annotations

import datetime
import io
import json
import zoneinfo
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec import to_builtins

from pgtail.arrow.decoding.decode import survey
from pgtail.arrow.segments.ranges import Place, Range
from pgtail.arrow.segments.survey import Survey, name_of
from pgtail.capture.recorder import Recorder
from pgtail.changes.commit_range import point_of
from pgtail.cli import main
from pgtail.errors import InputError
from pgtail.spark.lake.batches import Batches, BatchPlan, Notes
from pgtail.spark.lake.compact import compact
from pgtail.spark.lake.update import Lake
from pgtail.spark.segments import listing
from pgtail.spark.segments.applied import Capture, SegmentRun, new_ones
from pgtail.spark.session import DRIVER_BYTES
from pgtail.spark.state.increment import next_increment
from pgtail.spark.state.settings import bound_of
from pgtail.spark.state.tasks import BLOCK_BITS
from pgtail.storage import locate
from tests.capture.test_recovery import transactions
from tests.support.captures import SMALL
from tests.support.captures import record as record_frames
from tests.support.corpus import capture as corpus
from tests.support.servers import Database
from tests.support.spark import model
from tests.support.spark.captures import segments
from tests.support.spark.world import SOME, World, apply, same_as_model, same_as_server, same_lives, stored


def some(folds: Any) -> Any:
    return {name: fold for name, fold in folds.items() if name in SOME}


def test_all_tables_in_one_go(world: World, whole: Path) -> None:
    found = stored(whole, "state")
    same_as_server(world, found)
    same_as_model(world.folds(), found)
    same_lives(world.folds(history=True), stored(whole, "history"))


def test_many_small_batches_give_the_same(
    spark: Any, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first batches are those of an older pgtail, whose buckets did not have neighbouring keys."""
    monkeypatch.setattr("pgtail.spark.state.update.BLOCK_BITS", 0)
    spark.conf.set(DRIVER_BYTES, 16 << 20)
    source, segments, out = Random(5), world.segments, tmp_path / "out"
    assert len(segments) > 15
    at = 0
    while at < len(segments):
        new = segments[at : (at := at + source.randint(9, 15))]
        # What was applied before is given again, and in another order.
        again = source.sample(segments[:at], min(3, at))
        apply(spark, out, [*again, *reversed(new)], bucket_size=12_000)
        apply(spark, out, [], history=True, bucket_size=12_000)
        if at > len(segments) / 2:
            monkeypatch.undo()
    spark.conf.set(DRIVER_BYTES, 0)
    plan = Batches(locate(str(out))).plan
    assert {table.block_bits for notes in plan.notes.values() for table in notes.tables.values()} >= {BLOCK_BITS}
    spread = {table.buckets for notes in plan.notes.values() for table in notes.tables.values()}
    assert max(spread) > 1
    for merged in (False, True):
        if merged:
            assert compact(Lake(spark, str(out))) > 10
        found = stored(out, "state")
        same_as_server(world, found)
        same_as_model(world.folds(), found)
        same_lives(world.folds(history=True), stored(out, "history"))


def test_batches_cut_at_every_segment_of_captures_that_overlap(spark: Any, world: World, tmp_path: Path) -> None:
    """Prepared transactions are open at the borders; what is applied again changes nothing."""
    out, tables = tmp_path / "out", list(SOME)
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in world.segments[3:9]:
        (copy / Path(path).name).write_bytes(Path(path).read_bytes())
    waited = False
    for number, path in enumerate(world.segments[:14]):
        captures = [path, *([str(copy)] if number == 5 else [])]
        apply(spark, out, captures, tables, history=True)
        waited |= bool(Batches(locate(str(out))).plan.notes["history"].pending)
    assert waited, "no transaction was prepared in one batch and committed in another"
    apply(spark, out, world.segments, tables, history=True)
    version = Batches(locate(str(out))).plan.batch
    assert apply(spark, out, world.segments, tables, history=True).changes == 0
    assert Batches(locate(str(out))).plan.batch == version
    same_lives(some(world.folds(history=True)), stored(out, "history"))


def ids_and_values(out: Path, columns: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in stored(out, "state")["t"].select(columns.split(", ")).to_pylist())


@pytest.fixture
def spread(spark: Any, newest_database: Database, tmp_path: Path) -> Callable[[Sequence[str], Sequence[str]], Path]:
    """Makes the state of the server's table t: after some statements in several buckets, then after others."""

    def make(before: Sequence[str], after: Sequence[str]) -> Path:
        out, capture = tmp_path / "out", str(tmp_path / "capture")
        model.begin(newest_database)
        newest_database.execute(*before)
        model.record(newest_database, tmp_path / "capture")
        apply(spark, out, [capture], bucket_size=2_000)
        [notes] = Batches(locate(str(out))).plan.notes["state"].tables.values()
        assert 4 <= notes.buckets <= 16
        newest_database.execute(*after)
        model.record(newest_database, tmp_path / "capture")
        apply(spark, out, [capture])
        return out

    return make


def test_a_row_that_takes_a_value_along_to_another_bucket_leaves_the_others_there(
    spread: Any, newest_database: Database
) -> None:
    """Nothing else of the bucket that it leaves changes in that batch."""
    before = [
        "CREATE TABLE t (id int PRIMARY KEY, v int, body text)",
        "ALTER TABLE t ALTER body SET STORAGE EXTERNAL",
        "INSERT INTO t SELECT n, n, repeat(md5(n::text), 80) FROM generate_series(1, 40) AS n",
    ]
    out = spread(before, ["UPDATE t SET id = id + 1000 WHERE id % 10 = 0"])
    assert ids_and_values(out, "id, v, body") == sorted(newest_database.query("SELECT id, v, body FROM t"))


def test_rows_found_by_what_is_known_of_them_are_found_in_any_bucket(spread: Any, newest_database: Database) -> None:
    """Also where the table has a key at the end of the batch."""
    before = [
        "CREATE TABLE t (id int, v text)",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "INSERT INTO t SELECT n, repeat(md5(n::text), 60) FROM generate_series(1, 40) AS n",
    ]
    after = [
        "ALTER TABLE t ADD c int DEFAULT 3",
        "DELETE FROM t WHERE id % 2 = 0",
        "ALTER TABLE t ADD PRIMARY KEY (id), REPLICA IDENTITY DEFAULT",
        "UPDATE t SET v = 'x' WHERE id = 1",
    ]
    assert ids_and_values(spread(before, after), "id, v") == sorted(newest_database.query("SELECT id, v FROM t"))


def run(
    first: tuple[int, int], end: tuple[int, int], name: str, before: str = "", *, inside: bool = False
) -> SegmentRun:
    return SegmentRun(name, name, before, "s", inside, between(first, end))


def between(first: tuple[int, int], end: tuple[int, int]) -> Range:
    return Range(Place(*first), Place(*end))


def test_what_a_segment_of_a_transaction_lacks_is_waited_for() -> None:
    one = run((10, 1), (20, 5), "one", inside=True)
    first = between((10, 1), (20, 1))
    assert next_increment([one], Notes()).ranges == [first]
    later = one._replace(end="three", open=False, places=between((10, 1), (30, 2)))
    assert next_increment([later], Notes([first])).ranges == [between((20, 1), (30, 2))]
    # Without its first part the transaction is not there.
    rest = run((20, 9), (30, 2), "three", "two")
    missing = next_increment([one, rest], Notes()).missing
    assert missing is not None
    assert missing.missing == "two"


def test_segments_that_follow_each_other_are_one_range_in_whatever_order_they_come() -> None:
    parts = [between((10 * n, 1), (10 * n + 5, 2)) for n in range(5)]
    names = [f"{n:016X}-0000000001" for n in range(5)]
    segments = [
        Survey(f"/c/{name}.pgcap", None if n == 2 else parts[n], "s", "server", names[n - 1] if n else "", n == 3)
        for n, name in enumerate(names)
    ]
    for seed in range(20):
        capture = Capture()
        for segment in Random(seed).sample(segments, 5):
            capture.add_segment(segment)
        assert capture.runs == [SegmentRun(names[0], names[4], "", "s", False, between((0, 1), (45, 2)))]
        assert all(map(capture.has, names))
    capture = Capture()
    for number in (0, 3):
        capture.add_segment(segments[number])
    assert [one.open for one in capture.runs] == [False, True]
    assert not capture.has(names[1])


def test_a_run_that_continues_one_of_another_stream_leaves_no_gap() -> None:
    """The recorder went on with another publication, or on another timeline."""
    one, two, three = (between((10 * n, 1), (10 * n + 5, 2)) for n in range(1, 4))
    runs = [
        run((10, 1), (15, 2), "1"),
        run((20, 1), (25, 2), "2", "1")._replace(stream="t"),
        SegmentRun("3", "3", "2", "u"),
        run((30, 1), (35, 2), "4", "3"),
    ]
    capture = Capture(runs)
    found = next_increment(runs, Notes(), capture.following())
    assert (found.ranges, found.gaps, found.missing) == ([one, two, three], [], None)
    assert Capture(runs[1:]).following() == runs[2:]
    # An empty run that nothing precedes begins a capture; one whose predecessor is missing continues nothing.
    assert Capture([runs[2]._replace(predecessor=""), runs[3]]).following() == runs[3:]
    assert Capture(runs[2:]).following() == []
    lacks_two = [runs[0], *runs[2:]]
    missing = next_increment(lacks_two, Notes(), Capture(lacks_two).following()).missing
    assert missing is not None


def test_a_year_of_segments_is_planned_as_a_day() -> None:
    """What is kept of 200,000 segments, and what one more costs, is what it is of a few."""
    capture, before = Capture(), ""
    for number in range(200_000):
        name = f"{number:016X}-0000000001"
        part = between((10 * number + 10, 1), (10 * number + 15, 2))
        capture.add_segment(Survey(f"/c/{name}.pgcap", part, "s", "server", before))
        before = name
    plan = BatchPlan(captures={"/c": capture})
    assert len(json.dumps(to_builtins(plan))) < 500
    paths = [f"/c/{number:016X}-0000000001.pgcap" for number in range(200_001)]
    assert new_ones(paths, plan.captures) == paths[-1:]
    known = Notes([between((10, 1), (1_999_990, 2))])
    assert next_increment(capture.runs, known).ranges == [between((1_999_990, 2), (2_000_005, 2))]


def test_only_segments_after_those_applied_without_a_gap_are_listed(tmp_path: Path) -> None:
    names = [f"{number:016X}-0000000001" for number in range(5)]
    for name in names:
        (tmp_path / f"{name}.pgcap").touch()
    chain = [
        Survey(f"/c/{name}.pgcap", stream="s", predecessor=before)
        for name, before in zip(names, ["", *names], strict=False)
    ]

    def listed(*applied: int) -> list[str]:
        capture = Capture()
        for number in applied:
            capture.add_segment(chain[number])
        found = listing.segments([str(tmp_path)], after={str(tmp_path): capture.complete_to})
        return [name_of(path) for path in found]

    assert listed(0, 1, 3) == names[2:]
    assert listed(1, 2) == names
    assert listed() == names


def test_a_capture_that_begins_behind_the_end_of_another_leaves_a_gap() -> None:
    one, later = run((10, 1), (20, 5), "one"), run((25, 1), (40, 1), "later")
    found = next_increment([later, one], Notes())
    assert found.ranges == [one.places]
    assert found.missing is not None
    assert "whether anything was committed between them is unknown" in str(found.missing)
    gone_over = next_increment([later, one], Notes(), allow_gap=True)
    assert [gap["before"] for gap in gone_over.gaps] == ["later"]
    assert gone_over.ranges == [one.places, later.places]
    # What is between them comes from the other capture.
    longer = one._replace(places=between((10, 1), (30, 1)), end="two")
    assert next_increment([later, longer], Notes(found.ranges)).ranges == [
        between((20, 5), (30, 1)),
        between((30, 1), (40, 1)),
    ]


def test_changes_from_before_the_start_of_a_state_are_not_skipped() -> None:
    state = Notes([between((20, 1), (30, 2))])
    with pytest.raises(InputError, match="the segment one has changes from before the end of the state"):
        next_increment([run((10, 1), (40, 1), "one")], state)


@pytest.mark.parametrize("before", [0, 3])
def test_a_gap_that_a_recorder_went_over_is_one(tmp_path: Path, before: int) -> None:
    """It is as if a segment were missing; before the first segment there is none."""
    groups = transactions(corpus("A_dml", "p1"))
    record_frames(tmp_path / "c", [frame for group in groups[:before] for frame in group])
    recorder = Recorder(tmp_path / "c", {}, rotation=SMALL, gap=(5, 9))
    for frame in (frame for group in groups[before:] for frame in group):
        recorder.take_frame(frame)
    recorder.close()
    found = [survey(io.BytesIO(path.read_bytes()), path.name).predecessor for path in segments(tmp_path / "c")]
    assert len(found) > 2
    assert [one for one in found if " " in one] == (["between 0/5 and 0/9"] if before else [])
    later = run((30, 1), (40, 1), "two", "between 0/5 and 0/9")
    missing = next_increment([later], Notes()).missing
    assert missing is not None
    assert str(missing).startswith("what was committed between 0/5 and 0/9 is not in the capture: two comes after")
    assert missing.what.endswith("only --allow-gap goes on"), "nobody waits for what never comes"


def test_a_missing_segment_is_named(spark: Any, world: World, tmp_path: Path) -> None:
    # A path that looks like a pattern is a path.
    out, tables = tmp_path / "out {a,b} [x]*?", list(SOME)
    lost = Path(world.segments[4])
    rest = [path for path in world.segments if path != str(lost)]
    with pytest.raises(InputError, match=f"the segment {lost.stem} is missing"):
        apply(spark, out, rest, tables)
    assert stored(out, "state") == {}
    waiting = apply(spark, out, [], tables, wait=True)
    assert waiting.waiting is not None
    assert waiting.waiting.missing == lost.stem
    places = survey(io.BytesIO(Path(world.segments[3]).read_bytes()), "").places
    assert places is not None
    assert waiting.end <= places.end
    gone_over = apply(spark, out, [], tables, allow_gap=True)
    assert [gap["missing"] for gap in gone_over.gaps] == [lost.stem]
    assert gone_over.end.position >= max(row["position"] for row in world.rows if row["op"] in model.OPS)


def test_the_state_as_of_then(spark: Any, world: World, tmp_path: Path) -> None:
    done, tables = [row for row in world.rows if row["op"] in model.OPS], list(SOME)
    middle = done[len(done) // 2]
    apply(spark, tmp_path / "lsn", [str(world.capture)], tables, until=middle["position"])
    same_as_model(some(world.folds(until=middle["position"])), stored(tmp_path / "lsn", "state"))
    # A time is as good, as long as no commit of that moment comes later.
    utc = zoneinfo.ZoneInfo("UTC")
    time = middle["commit_ts"].replace(tzinfo=utc)
    later = min(row["position"] for row in done if row["commit_ts"].replace(tzinfo=utc) > time)
    last = max(row["position"] for row in done if row["position"] < later)
    apply(spark, tmp_path / "time", [str(world.capture)], tables, until=time)
    same_as_model(some(world.folds(until=last)), stored(tmp_path / "time", "state"))
    # The state of then goes on from there.
    apply(spark, tmp_path / "time", [], tables)
    same_as_model(some(world.folds()), stored(tmp_path / "time", "state"))
    with pytest.raises(InputError, match="goes beyond"):
        apply(spark, tmp_path / "time", [], tables, until=time)
    apply(spark, tmp_path / "lsn", [], tables, until=middle["position"])
    with pytest.raises(InputError, match="goes beyond"):
        apply(spark, tmp_path / "lsn", [], tables, until=middle["position"] - 10_000)


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
    assert bound_of(point_of(text)) == expected


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["state", "--until", "someday", "capture", "out"], "neither an LSN"),
        (["state", "--until", "0/1", "--watch", "capture", "out"], "--watch does not end"),
        (["state", "--retain", "soon", "capture", "out"], "not a time such as"),
        (["changes", "capture"], "expected CAPTURE... OUT"),
        (["changes", "--conf=x", "capture", "out"], "--conf x: expected NAME=VALUE"),
        (["changes", "--watch", "--compact", "capture", "out"], "--watch merges small files by itself"),
        (["changes", "capture", "hdfs://host/out"], "pgtail only reads from HDFS"),
        (["changes", "--every=soon", "capture", "out"], "'soon' is not a time such as 30s"),
    ],
)
def test_a_wrong_command_line_is_told_before_anything_starts(
    arguments: list[str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgtail.commands.spark.command.session", lambda *_, **__: pytest.fail("Spark was started"))
    ran = CliRunner().invoke(main, ["spark", *arguments])
    assert ran.exit_code == 2
    assert words in ran.stderr
