"""Snapshots of tables in changes, tables, state and history: in one go, in batches, and found late."""

from __future__ import annotations

import copy
import itertools
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from msgspec import convert, to_builtins

from pgtail.arrow.decoding.slices import SliceRows
from pgtail.arrow.segments.survey import Survey, name_of
from pgtail.arrow.typed.columns import OWN
from pgtail.arrow.typed.versions import Version
from pgtail.capture.format import SegmentName, SnapshotPart
from pgtail.capture.state import SnapshotFile, TableSnapshot
from pgtail.errors import InputError, OptionError
from pgtail.native import compiled
from pgtail.spark import DataSource, changes, read
from pgtail.spark.lake.batches import Batches, BatchPlan, Notes, TableNotes
from pgtail.spark.lake.compact import compact
from pgtail.spark.lake.delta import LakeTable
from pgtail.spark.lake.update import Lake
from pgtail.spark.segments import listing as listings
from pgtail.spark.segments.snapshots import (
    ListedSnapshot,
    SnapshotSegment,
    UnfinishedSnapshot,
    after_batch,
    new_snapshots,
    segments_of,
)
from pgtail.spark.state.comparison import compare, server_rows, state_rows
from pgtail.storage import locate
from tests.support.spark import model
from tests.support.spark.copied import Recording, Rows, Server, Snapshot, contents
from tests.support.spark.world import apply, same_as_model, same_lives, stored


@pytest.fixture(scope="module")
def server() -> Server:
    """Twenty tables: of most the slot has a snapshot, others are added later, some are copied again, one is empty."""
    choose = Random(7)
    made = Server(choose, 20)
    made.tables[3].rows.clear()
    made.snapshot(made.tables[:12])
    made.run(40)
    made.snapshot(made.tables[10:17], adjacent=True)
    made.run(25)
    for number in range(3):
        made.snapshot(choose.sample(made.tables[:17], 5), adjacent=number == 0)
        made.run(15)
    return made


@pytest.fixture(scope="module")
def capture(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("copied") / "capture"
    Recording(directory).record(server.steps)
    return directory


@pytest.fixture(scope="module")
def in_one_go(spark: Any, capture: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The history is made before there is a state, as by `pgtail spark history` alone; bring_up() makes it after."""
    out = tmp_path_factory.mktemp("copied") / "out"
    apply(spark, out, [str(capture)], history=True)
    assert not stored(out, "state")
    apply(spark, out, [])
    return out


def bring_up(spark: Any, out: Path, captures: Sequence[Path], **settings: Any) -> None:
    apply(spark, out, list(map(str, captures)), **settings)
    apply(spark, out, [], history=True, **settings)


def everything(out: Path, kind: str) -> dict[str, Counter[str]]:
    """All rows of the tables of a kind; columns may be in another order."""
    return {name: Counter(repr(ordered(row)) for row in table.to_pylist()) for name, table in stored(out, kind).items()}


def ordered(value: Any) -> Any:
    return sorted((name, ordered(one)) for name, one in value.items()) if isinstance(value, dict) else value


def of_changes(out: Path, table: str = "changes") -> Counter[str]:
    rows: pa.Table = LakeTable(locate(str(out)) / table).delta.to_pyarrow_table()
    return Counter(map(repr, rows.drop_columns([one for one in ("capture",) if one in rows.column_names]).to_pylist()))


def same(one: Path, other: Path) -> None:
    for table in ("changes", "transactions", "relations", "snapshots", "catalog"):
        assert of_changes(one, table) == of_changes(other, table), table
    for kind in ("tables", "state", "history"):
        mine, others = everything(one, kind), everything(other, kind)
        assert mine.keys() == others.keys()
        for name, rows in mine.items():
            assert rows == others[name], (kind, name)


def last_snapshots(server: Server) -> dict[int, int]:
    """The consistent point of each table's last snapshot."""
    return {one.relid: step.lsn for step in server.steps if isinstance(step, Snapshot) for one in step.tables}


def same_but_unknown(rows: Sequence[dict[str, Any]], expected: Rows, *, altered: bool) -> None:
    """The rows of a state are those of the server in all values that are known, and few are not."""
    found = Counter(tuple(sorted((name, text(row, name)) for name in row.keys() - OWN)) for row in rows)
    if found == expected:
        assert not any(row["_unknown"] for row in rows)
        return
    assert altered
    assert found.total() == expected.total()
    by_id = {dict(row)["id"]: dict(row) for row in expected}
    for row in rows:
        for name in row.keys() - OWN - set(row["_unknown"] or ()):
            assert text(row, name) == by_id[str(row["id"])][name]


def text(row: dict[str, Any], name: str) -> str | None:
    return None if row[name] is None else str(row[name])


def snapshots_of(out: Path) -> list[dict[str, Any]]:
    found: pa.Table = LakeTable(locate(str(out)) / "snapshots").delta.to_pyarrow_table()
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


def test_the_state_has_the_rows_of_the_server(in_one_go: Path, server: Server) -> None:
    copied, state = last_snapshots(server), stored(in_one_go, "state")
    [*_, (_, truth)] = server.truth
    assert len(copied) == 17
    for table in server.tables:
        if table.relid in copied:
            rows = state[table.name].to_pylist()
            same_but_unknown(rows, truth[table.relid], altered=table.version > 0)


def test_the_state_and_the_history_are_those_of_the_model(in_one_go: Path, capture: Path) -> None:
    found, versions = model.changes(capture), model.relations(capture)
    rows, taken = model.committed(found), snapshots_of(in_one_go)
    prepared = {(row["relid"], row["position"], row["gid"]) for row in found if row["state"] == "prepared"}
    ends = {row["gid"]: row["position"] for row in found if row["op"] == "commit_prepared"}
    assert any(
        relid == one["relid"] and position < one["position"] < ends.get(gid, 0)
        for relid, position, gid in prepared
        for one in taken
    ), "no transaction was prepared before a snapshot of its table and committed after it"
    same_as_model(model.folds(rows, versions, snapshots=taken), stored(in_one_go, "state"))
    same_lives(model.folds(rows, versions, history=True, snapshots=taken), stored(in_one_go, "history"))


def test_the_history_has_the_rows_of_the_server_at_every_commit(in_one_go: Path, server: Server) -> None:
    first: dict[int, int] = {}
    for step in server.steps:
        for one in step.tables if isinstance(step, Snapshot) else ():
            first.setdefault(one.relid, step.lsn)
    history = {name: table.to_pylist() for name, table in stored(in_one_go, "history").items()}
    compared = 0
    for lsn, truth in server.truth[::7]:
        for table in server.tables:
            if lsn < first.get(table.relid, 1 << 62) or table.version:
                continue
            there = [
                row
                for row in history.get(table.name, ())
                if row["_valid_from_position"] <= lsn and lsn < (row["_valid_to_position"] or 1 << 62)
            ]
            same_but_unknown(there, truth[table.relid], altered=False)
            compared += 1
    assert compared > 100


def test_the_state_compares_as_equal_with_a_later_snapshot(
    in_one_go: Path, server: Server, capture: Path, tmp_path: Path
) -> None:
    """But for what ALTER TABLE left unknown."""
    later, versions = copy.deepcopy(server), model.relations(capture)
    for table in later.tables:
        if table.identity == "d" and "extra" not in dict(table.columns):
            later.alter(table)
    later.snapshot(later.tables)
    recording = Recording(tmp_path / "capture")
    recording.record(later.steps[-1:])
    there: dict[int, list[tuple[Version, pa.Table]]] = {}
    for one in listings.listing([str(recording.directory)]).snapshots:
        for segment in segments_of(one):
            with open(segment.path, "rb") as file:
                there.setdefault(one.table.relid, []).extend(server_rows(file, segment.path))
    copied, state = last_snapshots(server), stored(in_one_go, "state")
    found: Counter[str] = Counter()
    for table in (one for one in later.tables if one.relid in copied and one.rows):
        [version] = {version for version, _ in there[table.relid]}
        rows = state[table.name]
        before = versions[rows["_relation"][0].as_py()]
        others = pa.concat_tables([one for _, one in there[table.relid]])
        compared = compare(state_rows(rows, before, version), others, version)
        assert compared.same, (table.name, compared)
        assert compared.rows == len(table.rows) == compared.equal + compared.unknown
        assert not compared.unknown or table.version
        found["unknown" if compared.unknown else "equal"] += 1
        if not compared.unknown:
            less = compare(state_rows(rows.slice(1), before, version), others, version)
            assert (less.missing, less.extra, less.different) == (1, 0, 0)
    assert found["equal"] > 3
    assert found["unknown"] > 3


def test_changes_have_the_rows_of_all_snapshots(spark: Any, in_one_go: Path, capture: Path, server: Server) -> None:
    expected = {
        (one.relid, step.lsn - 1): contents(one.rows)
        for step in server.steps
        if isinstance(step, Snapshot)
        for one in step.tables
    }
    rows = [row for row in model.changes(capture) if row["op"] == "snapshot"]
    found: dict[tuple[int, int], Rows] = {key: Counter() for key in expected}
    for row in rows:
        found[row["relid"], row["position"]] += contents([row["new"]])
    assert found == expected
    assert len({(row["position"], row["seq"]) for row in rows}) == len(rows)
    assert {(row["xid"], row["identity"], row["gid"]) for row in rows} == {(None, None, None)}
    listed = snapshots_of(in_one_go)
    assert {(row["relid"], row["position"]): row["rows"] for row in listed} == {
        key: some.total() for key, some in expected.items()
    }
    there = read(spark, str(in_one_go), "changes").where("op = 'snapshot'").select("relid", "position", "seq")
    assert sorted(map(tuple, there.collect())) == sorted((row["relid"], row["position"], row["seq"]) for row in rows)
    read_there = changes(spark, [str(capture)], tables=["t1"]).where("op = 'snapshot'").count()
    assert read_there == sum(row["table"] == "t1" for row in rows)
    spark.dataSource.register(DataSource)
    source = spark.read.format("pgtail").option("ops", "snapshot").option("columns", "table,seq")
    assert Counter(one.table for one in source.load(str(capture)).collect()) == Counter(row["table"] for row in rows)
    transactions: pa.Table = LakeTable(locate(str(in_one_go)) / "transactions").delta.to_pyarrow_table()
    assert not {row["position"] for row in rows} & set(transactions["position"].to_pylist())


def test_batches_give_the_same(spark: Any, in_one_go: Path, server: Server, tmp_path: Path) -> None:
    """Snapshots come in several batches, tables are in several buckets, and small files are merged."""
    out, recording = tmp_path / "out", Recording(tmp_path / "capture")
    cuts = [0, 40, len(server.steps)]
    for first, end in itertools.pairwise(cuts):
        recording.record(server.steps[first:end])
        bring_up(spark, out, [recording.directory], bucket_size=3000, batch_segments=50)
        compact(Lake(spark, str(out)))
    plan = Batches(locate(str(out))).plan
    assert not plan.unfinished
    assert max(table.buckets for table in plan.notes["history"].tables.values()) > 1
    same(out, in_one_go)
    before = plan.batch
    bring_up(spark, out, [recording.directory])
    assert Batches(locate(str(out))).plan.batch == before, "nothing is applied twice"


def test_snapshots_that_are_found_after_what_follows_them(
    spark: Any, in_one_go: Path, server: Server, capture: Path, tmp_path: Path
) -> None:
    """Another capture of the same stream, without snapshots, was applied first."""
    out, other = tmp_path / "out", Recording(tmp_path / "other", snapshots=False)
    other.record(server.steps)
    bring_up(spark, out, [other.directory])
    assert not LakeTable(locate(str(out)) / "snapshots").files()
    bring_up(spark, out, [capture])
    same(out, in_one_go)


def test_changes_without_the_rows_of_snapshots(spark: Any, in_one_go: Path, capture: Path, tmp_path: Path) -> None:
    """What `tables/*` need is read when there are any; the choice is one for the life of OUT."""
    out, tables = str(tmp_path / "out"), ("t1", "t4")
    lake = Lake(spark, out, tables=tables, snapshot_changes=False)
    assert lake.update([str(capture)]).snapshots == 0
    lake = Lake(spark, out, tables=tables, snapshot_changes=False)
    assert lake.update([str(capture)], typed=True).snapshots > 1
    assert lake.update([str(capture)], typed=True).batches == 0
    expected = Counter(repr(row) for row in everything_of(in_one_go) if row["table"] in tables)
    assert Counter(map(repr, everything_of(tmp_path / "out"))) == expected
    mine, others = everything(tmp_path / "out", "tables"), everything(in_one_go, "tables")
    assert mine == {name: others[name] for name in tables}
    with pytest.raises(OptionError, match="was made with --no-snapshot-changes: give it again, or use another"):
        Lake(spark, out, tables=tables)
    with pytest.raises(OptionError, match="was made without --no-snapshot-changes: leave it out, or use another"):
        Lake(spark, str(in_one_go), snapshot_changes=False)


def everything_of(out: Path) -> list[dict[str, Any]]:
    """The rows of `changes` that are not of snapshots."""
    found: pa.Table = LakeTable(locate(str(out)) / "changes").delta.to_pyarrow_table()
    return [row for row in found.to_pylist() if row["op"] != "snapshot" and row["table"] is not None]


def test_after_a_gap_a_snapshot_makes_state_and_history_right(spark: Any, tmp_path: Path) -> None:
    """Also a capture of its own that begins after the end of the other one; and the state as of before a snapshot."""
    made, out = Server(Random(3), 6), tmp_path / "out"
    made.snapshot(made.tables)
    made.run(15)
    lost = len(made.steps)
    made.run(10)
    again, lsn = len(made.steps), made.snapshot(made.tables)
    made.run(10)
    recording, other = Recording(tmp_path / "capture"), Recording(tmp_path / "other")
    recording.record(made.steps[:lost])
    bring_up(spark, out, [recording.directory])
    assert not same_rows(out, made)
    other.record(made.steps[again : again + 1])
    with pytest.raises(InputError, match=r"the snapshot at .* in .*/other begins a capture after the end"):
        apply(spark, out, [str(other.directory)])
    recording.record(made.steps[again:], gap=(made.steps[lost - 1].lsn + 48, lsn - 1))
    with pytest.raises(InputError, match="is not in the capture"):
        apply(spark, out, [str(recording.directory)])
    apply(spark, out, [], until=lsn - 2, allow_gap=True)
    assert not same_rows(out, made)
    apply(spark, out, [], allow_gap=True)
    assert same_rows(out, made)
    apply(spark, out, [], history=True, allow_gap=True)
    for table in made.tables:
        rows = stored(out, "history")[table.name].to_pylist()
        valid = [row for row in rows if row["_valid_to_position"] is None]
        same_but_unknown(valid, made.truth[-1][1][table.relid], altered=table.version > 0)
        assert all(
            (row["_valid_to_position"] or lsn) >= lsn - 1 for row in rows if row["_valid_from_position"] >= lsn - 1
        )


def same_rows(out: Path, made: Server) -> bool:
    """Whether the state has the server's rows, but for columns that were added or removed."""
    state, (_, truth) = stored(out, "state"), made.truth[-1]
    return all(
        state[table.name].num_rows == truth[table.relid].total()
        and Counter(zip(*state[table.name].select(["id", "mood"]).to_pydict().values(), strict=True))
        == Counter((int(dict(row)["id"] or 0), dict(row)["mood"]) for row in truth[table.relid].elements())
        for table in made.tables
    )


def listed(folder: str, lsn: int, relid: int, rows: int = 4) -> ListedSnapshot:
    """A snapshot of three segments."""
    names = [SegmentName(lsn - 1, 100 * relid + number) for number in range(3)]
    files = tuple(SnapshotFile(name, 100, "0" * 64) for name in names)
    return ListedSnapshot(folder, TableSnapshot(lsn, 1, relid, "public", f"t{relid}", rows, files))


def surveyed(segment: SnapshotSegment, rows: int = 1) -> Survey:
    key = segment.snapshot.key
    part = SnapshotPart(key.lsn, key.relid, 0)
    return Survey(segment.path, rows=rows, relations=[{"relation": "r"}], snapshot=part)


def test_a_snapshot_that_several_captures_have_is_read_once_and_goes_on_where_it_was() -> None:
    one, other, later = listed("/a", 0x100, 7), listed("/b", 0x100, 7), listed("/b", 0x200, 7)
    paths = [segment.path for segment in new_snapshots([other, later, one], (), (), ())]
    assert len(paths) == 6
    assert [path[:3] for path in paths] == ["/a/"] * 3 + ["/b/"] * 3
    assert not new_snapshots([one], {one.key}, (), ())
    assert not new_snapshots([one], (), (), ["u*"])
    assert len(new_snapshots([one], (), (), ["public.t7"])) == 3
    # Its capture counts for one that was begun, also if another one is named first.
    begun = [UnfinishedSnapshot(7, 0x100, "/b", str(SegmentName(0xFF, 700)), 2)]
    rest = new_snapshots([one, other], (), begun, ())
    assert [segment.path[:3] for segment in rest] == ["/b/"] * 2
    assert not new_snapshots([one], (), begun, ())


def test_a_snapshot_is_complete_when_its_last_segment_was_read() -> None:
    one, two = listed("/a", 0x100, 7), listed("/a", 0x100, 8, rows=3)
    segments = [*segments_of(one), *segments_of(two)]
    found = {segment.path: surveyed(segment) for segment in segments}
    unfinished, complete = after_batch(segments[:2], found, [])
    assert not complete
    assert unfinished == [UnfinishedSnapshot(7, 0x100, "/a", segments[1].name, 2)]
    with pytest.raises(InputError, match="the snapshot of public.t7 at 0/100 has 3 rows, not 4"):
        after_batch(segments[2:], found, unfinished)
    found[segments[2].path] = surveyed(segments[2], rows=2)
    unfinished, complete = after_batch(segments[2:], found, unfinished)
    assert not unfinished
    assert [(row["relid"], row["position"], row["rows"]) for row in complete] == [(7, 0xFF, 4), (8, 0xFF, 3)]
    found[segments[2].path] = surveyed(segments[3])
    with pytest.raises(InputError, match="is no segment of the snapshot for which capture.json lists it"):
        after_batch(segments[2:], found, [])


def test_the_scanner_takes_the_rows_of_a_snapshot_as_the_decoder_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Server(Random(1), 3)
    for table in made.tables:
        table.rows = [dict(row) for _ in range(100) for row in table.rows or [made.row(table)]]
    made.snapshot(made.tables)
    made.run(5)
    Recording(tmp_path / "capture", part=1 << 20).record(made.steps)
    taken: list[int] = []
    batch = SliceRows.take_rows

    def counted(rows: SliceRows, schema: pa.Schema) -> pa.RecordBatch:
        found = batch(rows, schema)
        taken.append(sum(op == "snapshot" for op in found["op"].to_pylist()))
        return found

    monkeypatch.setattr(SliceRows, "take_rows", counted)
    rows = model.changes(tmp_path / "capture")
    assert sum(taken) > 100 or compiled() is None
    monkeypatch.setattr("pgtail.arrow.decoding.decode.compiled", lambda: None)
    assert model.changes(tmp_path / "capture") == rows
    first = made.steps[0]
    assert isinstance(first, Snapshot)
    assert Counter(row["table"] for row in rows if row["op"] == "snapshot") == {
        table.name: len(table.rows) for table in first.tables
    }


def test_what_is_recorded_while_it_is_listed_fits_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment after a snapshot is not found without the snapshot."""
    made = Server(Random(1), 2)
    made.run(3)
    taken = made.snapshot(made.tables)
    made.run(3)
    recording = Recording(tmp_path / "capture")
    recording.record(made.steps[:3])
    segments, rest = listings.segments, made.steps[3:]

    def slowly(*arguments: Any) -> dict[str, int]:
        if rest:
            recording.record(rest)
            rest.clear()
        return segments(*arguments)

    monkeypatch.setattr(listings, "segments", slowly)
    found = listings.listing([str(recording.directory)])
    assert {one.table.lsn for one in found.snapshots} == {taken}
    assert any(name_of(path) > str(SegmentName(taken, 0)) for path in found.segments)


def test_a_plan_from_before_there_were_snapshots_is_read() -> None:
    plan = BatchPlan(batch=3, typed=True, notes={"state": Notes(tables={7: TableNotes("state/t", ["r"], 5)})})
    found = to_builtins(plan)
    del found["unfinished"], found["snapshot_changes"]
    del found["notes"]["state"]["tables"][7]["snapshot"], found["notes"]["state"]["tables"][7]["snapshots"]
    assert convert(json.loads(json.dumps(found)), BatchPlan, str_keys=True) == plan
