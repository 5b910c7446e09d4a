"""Typed rows of one table by the data source: equal to tables/*, and with a snapshot before them to the server's rows.

The readers run in this process, as in Spark's workers; test_stream.py has them in Spark.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles
from pyspark.sql.types import StructType

from pgtail.arrow.decoding.decode import has_none
from pgtail.arrow.segments.survey import TWO_PHASE
from pgtail.capture.contents import read_contents
from pgtail.capture.recorder import Recorder, Rotation
from pgtail.errors import InputError, OptionError
from pgtail.pgoutput.scalars import lsn_text
from pgtail.spark import DataSource
from pgtail.spark.data_source import BatchReader, FilteringReader, StreamReader
from pgtail.storage import locate
from tests.support import encode
from tests.support.encode import INT4, TEXT, UNCHANGED
from tests.support.spark.copied import HEAD, Recording, Rows, Server
from tests.support.spark.world import World, stored

DATE = 1082
NEW_YEAR, DAY_AFTER = "2026-01-01", "2026-01-02"


def batch_reader(path: Path, **options: str) -> BatchReader:
    return DataSource({"path": str(path), **options}).reader(StructType())


def stream_reader(path: Path, **options: str) -> StreamReader:
    return DataSource({"path": str(path), **options}).streamReader(StructType())


def read(reader: BatchReader) -> pa.Table:
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    return pa.Table.from_batches(batches, None if batches else pa.schema([]))


def micro_batches(reader: StreamReader, most: int | None, start: dict[str, str] | None = None) -> Iterator[pa.Table]:
    """The rows of each micro-batch, of at most so many segments."""
    offset = reader.initialOffset() if start is None else start
    while True:
        end = reader.latestOffset(offset, ReadAllAvailable() if most is None else ReadMaxFiles(most))
        if end == offset:
            assert not reader.partitions(offset, end)
            return
        batches = [batch for partition in reader.partitions(offset, end) for batch in reader.read(partition)]
        if batches:
            yield pa.Table.from_batches(batches)
        offset = end


def streamed(
    reader: StreamReader, most: int | None = None, start: dict[str, str] | None = None
) -> list[dict[str, Any]]:
    return [row for batch in micro_batches(reader, most, start) for row in batch.to_pylist()]


def text(value: Any) -> str | None:
    return None if value is None else str(value)


def history(folder: Path, seed: int) -> Server:
    """Tables with rows, a snapshot of them, transactions, and a later snapshot of some: in many small segments."""
    choose = Random(seed)
    made = Server(choose, 5)
    made.snapshot(made.tables, adjacent=choose.random() < 0.5)
    made.transact(25)
    made.snapshot(made.tables[:3], adjacent=True)
    made.transact(25)
    Recording(folder, head={**HEAD, TWO_PHASE: "off"}).record(made.steps)
    return made


def folded(rows: list[dict[str, Any]], names: list[str], key: tuple[str, ...]) -> Rows:
    """The table's rows after these typed changes, by a key."""
    there: dict[Any, dict[str, Any]] = {}
    for row in rows:
        if row["_op"] == "truncate":
            there.clear()
            continue
        before = row["_old"] or row
        old = there.pop(tuple(before[name] for name in key), None)
        if row["_op"] == "delete":
            continue
        lost, unchanged = dict(row["_rescued"] or ()), row["_unchanged"] or ()
        values = {name: lost.get(name, text(row[name])) for name in names}
        if unchanged:
            assert old is not None
            values |= {name: old[name] for name in unchanged}
        there[tuple(row[name] for name in key)] = values
    return Counter(tuple(sorted(row.items())) for row in there.values())


@pytest.mark.parametrize("seed", range(2))
def test_a_snapshot_and_the_changes_after_it_are_the_servers_rows(tmp_path: Path, seed: int) -> None:
    server = history(tmp_path / "c", seed)
    [*_, (_, truth)] = server.truth
    ops = set[str]()
    for table in server.tables:
        if table.identity == "d":
            names = [name for name, _ in table.columns]
            rows = streamed(stream_reader(tmp_path / "c", table=f"public.{table.name}"), 1 + seed)
            ops |= {row["_op"] for row in rows}
            assert len({row["_position"] for row in rows if row["_op"] == "snapshot"}) <= 1
            assert folded(rows, names, table.key) == truth[table.relid]
    assert ops >= {"snapshot", "insert", "update", "delete"}


def test_a_change_data_feed_adds_up_to_the_servers_rows(tmp_path: Path) -> None:
    ends = Counter[bool]()
    for seed in (0, 1):
        server = history(tmp_path / f"c{seed}", seed)
        [table] = [one for one in server.tables if one.identity == "f"]
        path, names = tmp_path / f"c{seed}", [name for name, _ in table.columns]
        truncated = encode.truncate(table.relid) in [
            item for step in server.steps for item in getattr(step, "items", ())
        ]
        ends[truncated] += 1
        reader = stream_reader(path, table=f"public.{table.name}", shape="cdf")
        if truncated:
            with pytest.raises(
                InputError, match=r"truncate \d+ of the commit at 0/\w+: .* TRUNCATE .* pgtail spark tables"
            ):
                streamed(reader)
            continue
        rows: Rows = Counter()
        of_stream = streamed(reader, 2)
        for row in of_stream:
            sign = -1 if row["_change_type"] in ("delete", "update_preimage") else 1
            rows[tuple(sorted((name, text(row[name])) for name in names))] += sign
        assert +rows == server.truth[-1][1][table.relid]
        assert not -rows
        assert read(batch_reader(path, table=f"public.{table.name}", shape="cdf")).to_pylist() == of_stream
    assert len(ends) == 2, "one history has a TRUNCATE"


def test_rows_are_those_of_tables(world: World, whole: Path) -> None:
    """All operations, versions and prepared transactions of a server's tables."""
    for name, table in stored(whole, "tables").items():
        order = [("_position", "ascending"), ("_seq", "ascending")]
        source = batch_reader(world.capture, table=f"public.{name}")
        found, expected = read(source).sort_by(order), table.sort_by(order)
        assert set(found.column_names) == set(expected.column_names), name
        for field in expected.schema:
            assert found.schema.field(field.name).type == field.type or field.name.startswith("_old"), (name, field)
        assert found.select(expected.column_names).to_pylist() == expected.to_pylist(), name


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Server]:
    folder = tmp_path_factory.mktemp("history") / "c"
    return folder, history(folder, 5)


def test_a_stream_starts_where_the_option_says(server: tuple[Path, Server]) -> None:
    path, made = server
    copied = {step.lsn for step in made.steps if hasattr(step, "tables")}
    every = streamed(stream_reader(path, startingPosition="earliest"))
    assert {row["op"] for row in every} & {"snapshot"} == set()
    positions = sorted({row["position"] for row in every})
    for lsn in [*positions[::7], positions[-1], min(positions) - 1]:
        wanted = [row for row in every if row["position"] >= lsn]
        since = streamed(stream_reader(path, startingPosition=lsn_text(lsn)), 1)
        assert [row for row in since if row["op"] != "snapshot"] == wanted
        assert (since != wanted) == (lsn in copied), "an LSN may be that of a snapshot"
        time = wanted[0]["commit_ts"].isoformat()
        assert streamed(stream_reader(path, startingPosition=time)) == wanted
    default = streamed(stream_reader(path))
    assert default == streamed(stream_reader(path, startingPosition="snapshot"), 2)
    assert [row for row in default if row["op"] != "snapshot"] == [
        row for row in every if row["position"] >= min(copied)
    ]
    assert {row["position"] for row in default if row["op"] == "snapshot"} == {min(copied) - 1}
    latest = stream_reader(path, startingPosition="latest")
    assert streamed(latest) == []
    assert latest.initialOffset() == {
        "segment": max(one.stem for one in path.glob("*.pgcap") if "snapshot" not in one.name)
    }


def test_offsets_of_running_streams_keep_their_form(server: tuple[Path, Server]) -> None:
    path, _ = server
    names = sorted(one.stem for one in path.glob("*.pgcap") if "snapshot" not in one.name)
    every = streamed(stream_reader(path, startingPosition="earliest"))
    assert streamed(stream_reader(path), 3, {"segment": ""}) == every
    after = streamed(stream_reader(path), 3, {"segment": names[2]})
    assert 0 < len(after) < len(every)
    assert every[-len(after) :] == after
    assert stream_reader(path).latestOffset({"segment": names[2]}, ReadMaxFiles(2)) == {"segment": names[4]}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingPosition": "soon"}, "option startingPosition: snapshot, earliest, latest, or an LSN or a time"),
        ({"startingPosition": "2100-01-01T00:00Z"}, "the capture has no commit since then: write latest"),
        ({"table": "public.t9"}, r"the captures have no table public.t9; did you mean public.t\d\?"),
        ({"table": "t1"}, "option table: no table t1: write SCHEMA.TABLE"),
        ({"table": "public.t1", "tables": "t1"}, "options table and tables: name one"),
        ({"table": "public.t1", "shape": "scd"}, "option shape: scd is not cdf"),
        ({"shape": "cdf"}, "name it with option table"),
        ({"table": "public.t1", "columns": "id,op"}, "option columns: op is none of id, v, mood, body, _op"),
    ],
)
def test_wrong_options(server: tuple[Path, Server], options: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        streamed(stream_reader(server[0], **options))


def test_a_capture_without_a_snapshot(tmp_path: Path) -> None:
    record(tmp_path / "c", [transaction(100, encode.insert("1"))], [("id", INT4)])
    with pytest.raises(OptionError, match="no snapshot of these tables: pgtail record --snapshot-table"):
        stream_reader(tmp_path / "c", startingPosition="snapshot").initialOffset()
    assert len(streamed(stream_reader(tmp_path / "c"))) == 1


def test_a_gap_before_a_later_snapshot_ends_a_stream(tmp_path: Path) -> None:
    choose = Random(1)
    made, path = Server(choose, 2), tmp_path / "c"
    made.snapshot(made.tables)
    made.transact(8)
    recording = Recording(path)
    recording.record(made.steps)
    reader, offset = stream_reader(path), stream_reader(path).initialOffset()
    read_so_far = reader.latestOffset(offset, ReadAllAvailable())
    before = made.lsn
    made.transact(3)
    done = len(made.steps)
    gap = (before + 60, made.lsn + 8)
    made.transact(3)
    recording.record(made.steps[done:], gap=gap)
    assert streamed(reader, None, read_so_far), "without a later snapshot there is nothing better than to go on"
    done = len(made.steps)
    made.transact(1)
    made.snapshot(made.tables)
    made.transact(3)
    recording.record(made.steps[done:])
    with pytest.raises(InputError, match=rf"gap before it, up to {lsn_text(gap[1])}, .*startingPosition 0/") as error:
        streamed(reader, 1, read_so_far)
    anew = streamed(stream_reader(path, startingPosition=str(error.value).rpartition(" ")[2]))
    assert (anew[0]["op"], anew[-1]["position"]) == ("snapshot", made.lsn)


# -- one table, by hand ------------------------------------------------------------------------------------------------


def transaction(lsn: int, *items: bytes) -> tuple[int, list[bytes]]:
    return lsn, [encode.begin(7, lsn, lsn * 1_000_000), *items, encode.commit(lsn, lsn + 8, lsn * 1_000_000)]


def record(
    path: Path,
    transactions: list[tuple[int, list[bytes]]],
    columns: list[tuple[str, int]],
    identity: str = "d",
    key: tuple[int, ...] = (0,),
) -> None:
    relation = encode.relation(100, "t", columns, identity=identity, key=[*key])
    path.mkdir(exist_ok=True)
    recorder = Recorder(path, HEAD, rotation=Rotation(size=150, sync_size=100))
    for number, (lsn, messages) in enumerate(transactions):
        for message in messages[:1] + [relation] * (number == 0) + messages[1:]:
            recorder.take_frame(encode.frame(message, lsn))
    recorder.close()


def test_a_later_version_that_does_not_fit_ends_the_stream(tmp_path: Path) -> None:
    path = tmp_path / "c"
    record(path, [transaction(100, encode.insert("1", "x"))], [("id", INT4), ("a", TEXT)])
    reader = stream_reader(path, table="public.t")
    start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    fits = [("id", INT4)]
    record(path, [transaction(200, encode.insert("2"))], fits)
    assert [(row["id"], row["a"]) for row in streamed(reader, None, start)] == [(2, None)]
    record(path, [transaction(300, encode.insert("3", "y"))], [("id", INT4), ("b", TEXT)])
    with pytest.raises(InputError, match=r"column b of public.t is new, .* start the query again"):
        streamed(reader, None, start)
    again = stream_reader(path, table="public.t")
    assert [(row["id"], row["b"]) for row in streamed(again, None, start)] == [(2, None), (3, "y")]


def test_names_of_pgtails_own_columns(tmp_path: Path) -> None:
    path = tmp_path / "c"
    record(path, [transaction(100, encode.insert("1", "x"))], [("id", INT4), ("_Op", TEXT)])
    with pytest.raises(OptionError, match=r"public.t has a column _op, .* option prefix, such as pgtail, .* pgtail_op"):
        batch_reader(path, table="public.t")
    [row] = read(batch_reader(path, table="public.t", prefix="x", columns="id,_Op,x_op,x_position")).to_pylist()
    assert row == {"id": 1, "_Op": "x", "x_op": "insert", "x_position": 100}
    [row] = read(batch_reader(path, table="public.t", shape="cdf")).to_pylist()
    assert row == {
        "id": 1,
        "_Op": "x",
        "_change_type": "insert",
        "_commit_version": 100,
        "_commit_timestamp": datetime.datetime(2000, 1, 1, 0, 1, 40, tzinfo=datetime.UTC),
    }


COLUMNS = [("id", INT4), ("a", TEXT), ("d", DATE)]


@pytest.mark.parametrize(
    ("identity", "change", "words"),
    [
        ("d", encode.delete("1", None, None), "the old value of column a was not sent.*REPLICA IDENTITY FULL"),
        ("d", encode.update(["1", "y", DAY_AFTER]), "the old value of column id was not sent.*REPLICA IDENTITY FULL"),
        ("d", encode.update(["1", UNCHANGED, DAY_AFTER]), "column id was not sent"),
        ("f", encode.insert("1", UNCHANGED, DAY_AFTER), "the unchanged value of column a was not sent"),
        ("f", encode.truncate(100), "the rows that a TRUNCATE removes"),
        ("f", encode.insert("1", "x", "infinity"), "a value of column d has no place in its type"),
    ],
    ids=["key of delete", "no old row", "unchanged without old row", "unchanged in insert", "truncate", "infinity"],
)
def test_what_a_change_data_feed_cannot_have_ends_it(tmp_path: Path, identity: str, change: bytes, words: str) -> None:
    key = (0,) if identity == "d" else (0, 1, 2)
    record(tmp_path / "c", [transaction(100, encode.insert("1", "x", NEW_YEAR), change)], COLUMNS, identity, key)
    with pytest.raises(InputError, match=rf"public.t, \w+ 2 of the commit at 0/64: .*{words}"):
        read(batch_reader(tmp_path / "c", table="public.t", shape="cdf"))


def test_an_unchanged_value_is_that_of_the_old_row(tmp_path: Path) -> None:
    old = ["1", "long", NEW_YEAR]
    items = [encode.insert(*old), encode.update(["1", UNCHANGED, DAY_AFTER], old, "O"), encode.delete(*old, kind="O")]
    record(tmp_path / "c", [transaction(100, *items)], COLUMNS, "f", (0, 1, 2))
    rows = read(batch_reader(tmp_path / "c", table="public.t", shape="cdf")).to_pylist()
    assert [(row["_change_type"], row["id"], row["a"], str(row["d"])) for row in rows] == [
        ("insert", 1, "long", NEW_YEAR),
        ("update_preimage", 1, "long", NEW_YEAR),
        ("update_postimage", 1, "long", DAY_AFTER),
        ("delete", 1, "long", NEW_YEAR),
    ]


# -- segments that are not read ----------------------------------------------------------------------------------------


def test_segments_without_what_filters_want_are_not_read(server: tuple[Path, Server]) -> None:
    path, _ = server
    source = DataSource({"path": str(path)})._source
    rows = read(BatchReader(source)).to_pylist()
    middle = sorted((row for row in rows if row["xid"]), key=lambda row: row["position"])[len(rows) // 2]
    day = middle["commit_date"]
    cases: list[tuple[list[Any], Any]] = [
        ([EqualTo(("xid",), middle["xid"])], lambda row: row["xid"] == middle["xid"]),
        ([In(("xid",), (1, 2))], lambda row: row["xid"] in (1, 2)),
        ([GreaterThan(("position",), middle["position"])], lambda row: row["position"] > middle["position"]),
        ([LessThanOrEqual(("position",), middle["position"])], lambda row: row["position"] <= middle["position"]),
        ([EqualTo(("commit_lsn",), middle["commit_lsn"])], lambda row: row["commit_lsn"] == middle["commit_lsn"]),
        (
            [GreaterThanOrEqual(("commit_ts",), middle["commit_ts"])],
            lambda row: row["commit_ts"] >= middle["commit_ts"],
        ),
        ([LessThan(("commit_ts",), middle["commit_ts"])], lambda row: row["commit_ts"] < middle["commit_ts"]),
        ([EqualTo(("commit_date",), day - datetime.timedelta(1))], lambda row: row["commit_date"] < day),
        ([EqualTo(("op",), "truncate")], lambda row: row["op"] == "truncate"),
        ([EqualTo(("schema",), "nosuch")], lambda row: row["schema"] == "nosuch"),
        ([EqualTo(("table",), "t1"), EqualTo(("schema",), "public")], lambda row: row["table"] == "t1"),
    ]
    for filters, passes in cases:
        reader = FilteringReader(source)
        assert reader.pushFilters(filters) == filters
        limits, tables = reader.selection.limits, reader.selection.tables
        partitions = [partition.value for partition in reader.partitions()]
        places = [(locate(name), end) for name, _, end in partitions]
        unread = [one for one, end in places if has_none(one, read_contents(one), tables, limits, end)]
        found = [row for row in read(reader).to_pylist() if passes(row)] if len(unread) < len(partitions) else []
        assert found == list(filter(passes, rows)), filters
        assert unread or len(partitions) < len(BatchReader(source).partitions()), filters


def test_segments_with_prepared_transactions_are_skipped_where_outcomes_are_not_wanted(tmp_path: Path) -> None:
    """Of random histories; some transactions are sent when they are committed, with their earlier position."""
    skipped = Counter[str]()
    made = Server(Random(3), 12)
    made.run(60)
    Recording(tmp_path / "c", head={**HEAD, TWO_PHASE: "on"}).record(made.steps)
    paths = sorted((tmp_path / "c").glob("*.pgcap"))
    late = [encode.begin_prepare(3, "late", 0x900, 0x908), encode.insert("1", None, "sad", None, oid=16_384)]
    late += [encode.prepare(3, "late", 0x900, 0x908), encode.commit_prepared(3, "late", made.lsn + 64, made.lsn + 72)]
    recorder = Recorder(tmp_path / "c", {**HEAD, TWO_PHASE: "on"}, rotation=Rotation(size=1))
    for message in [*made.tables[0].describe(), *late]:
        recorder.take_frame(encode.frame(message, made.lsn + 64))
    recorder.close()
    source = DataSource({"path": str(tmp_path / "c")})._source
    rows = read(BatchReader(source)).to_pylist()
    assert {"commit_prepared", "rollback_prepared"} < {row["op"] for row in rows}
    positions = sorted(row["position"] for row in rows)
    middle = positions[len(rows) // 2]
    cases: dict[str, tuple[list[Any], Any]] = {
        "op": ([EqualTo(("op",), "truncate")], lambda row: row["op"] == "truncate"),
        "early": (
            [LessThan(("position",), middle), In(("op",), ("insert", "update"))],
            lambda row: row["position"] < middle and row["op"] in ("insert", "update"),
        ),
        "all ops": ([LessThan(("position",), middle)], lambda row: row["position"] < middle),
        "outcomes": (
            [EqualTo(("table",), "t1"), EqualTo(("op",), "commit_prepared")],
            lambda row: row["table"] == "t1" and row["op"] == "commit_prepared",
        ),
    }
    assert positions[0] == 0x900
    for name, (filters, passes) in cases.items():
        reader = FilteringReader(source)
        reader.pushFilters(filters)
        batches = [[*reader.read(partition)] for partition in reader.partitions()]
        skipped[name] = sum(not one for one in batches)
        assert [row for some in batches for batch in some for row in batch.to_pylist() if passes(row)] == [
            row for row in rows if passes(row)
        ], name
    assert len(paths) > 5
    assert skipped["op"]
    typed = batch_reader(tmp_path / "c", table="public.t1")
    found = [[*typed.read(partition)] for partition in typed.partitions()]
    assert [] in found
    assert sum(batch.num_rows for some in found for batch in some) == sum(row["table"] == "t1" for row in rows)


@pytest.mark.parametrize("two_phase", ["on", "off"])
def test_a_transaction_prepared_before_a_snapshot_is_not_lost_in_silence(tmp_path: Path, two_phase: str) -> None:
    made = Server(Random(1), 2)
    made.transact(3)
    made._prepare()
    made.transact(1)
    first = made.snapshot(made.tables)
    made.transact(2)
    made._outcome()
    later = made.snapshot(made.tables)
    made.transact(2)
    steps = [step for step in made.steps if two_phase == "on" or not _is_prepared(step)]
    Recording(tmp_path / "c", head={**HEAD, TWO_PHASE: two_phase}).record(steps)
    if two_phase == "on":
        for options in ({}, {"startingPosition": lsn_text(first)}, {"startingPosition": "snapshot"}):
            with pytest.raises(OptionError, match=r"transaction \d+ \(g\d+\) was prepared before the snapshot at 0/"):
                stream_reader(tmp_path / "c", **options).initialOffset()
    else:
        assert streamed(stream_reader(tmp_path / "c"))
    rows = streamed(stream_reader(tmp_path / "c", startingPosition=lsn_text(later)))
    assert rows[0]["op"] == "snapshot"
    assert len({row["position"] for row in rows}) == 3


def _is_prepared(step: Any) -> bool:
    return any(isinstance(item, bytes) and item[:1] in b"bPKr" for item in getattr(step, "items", ()))
