"""The rows of a table as they were, beside what real servers had, and beside a made-up server that knows all."""

from __future__ import annotations

import datetime
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import pyarrow.compute as pc
import pytest

from pgtail import table_at
from pgtail.arrow import table_fold
from pgtail.arrow.row_events import row_changes, snapshot_of
from pgtail.arrow.table_at import TableAt, read_table
from pgtail.capture.format import SegmentName
from pgtail.errors import InputError, OptionError
from pgtail.pgoutput.cells import UNCHANGED
from pgtail.pgoutput.scalars import Point, lsn_text, parse_lsn
from pgtail.storage import locate
from tests.support import two_phase
from tests.support.servers import Database, since
from tests.support.spark import copied, model, workloads
from tests.support.spark.captures import cut, segments

Known: TypeAlias = frozenset[tuple[str, str | None]]
MOMENTS = 20
_PREPARED = "SELECT count(*) FROM pg_prepared_xacts"
_LOCKED = "SELECT relation::regclass::text FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND relation IS NOT NULL"


def known(table: TableAt) -> Counter[Known]:
    """The rows: what is known of each."""
    transaction = snapshot_of(table)
    assert transaction.table is not None
    names = [column.name for column in transaction.table.columns]
    return Counter(
        frozenset(
            (name, None if cell is None else bytes(cell).decode())
            for name, cell in zip(names, change.new or (), strict=True)
            if cell is not UNCHANGED
        )
        for change in row_changes(table, transaction)
    )


def at(capture: Path, table: str, lsn: int, **more: Any) -> TableAt:
    return read_table(locate(str(capture)), table, Point(lsn=lsn), **more)


# -- real servers ------------------------------------------------------------------------------------------------------


@since(12)
def test_what_select_had_shown_at_twenty_commits(database: Database, tmp_path: Path) -> None:
    source, capture = Random(database.version), tmp_path / "capture"
    tables = workloads.tables(source)
    database.execute(*(statement for table in tables for statement in table.create))
    model.begin(database, two_phase=database.version >= 15)
    work = workloads.workload(source, tables, 200)
    transactions = list(workloads.interleaved(source, work, workloads.alterations(0)))
    moments = sorted(source.sample(range(len(transactions)), MOMENTS))
    selected: list[tuple[int, dict[str, Any]]] = []
    copied_ = False
    for number, transaction in enumerate(transactions):
        model.run(database, [transaction])
        if number >= len(transactions) // 2 and not copied_ and not database.value(_PREPARED):  # which a copy waits for
            copied_ = True
            model.record(database, capture, "--segment-size", "96KB", "--snapshot-table", "t*")
        if number in moments:
            end = parse_lsn(str(database.value("SELECT pg_current_wal_insert_lsn()")))
            lsn = end - 1  # a COMMIT PREPARED may begin at the end: its changes are in the WAL already
            locked = [name for (name,) in database.query(_LOCKED)]  # by a prepared TRUNCATE: SELECT would wait for it
            names = [table.name for table in source.sample(tables, 2) if table.name not in locked]
            selected.append((lsn, {name: model.texts(database, name) for name in names}))
    model.record(database, capture, "--segment-size", "96KB")
    rows, versions = model.committed(model.changes(capture)), model.relations(capture)
    from_snapshot, unknown = 0, 0
    for lsn, shown in selected:
        for name, (names_, expected) in shown.items():
            try:
                found = at(capture, name, lsn)
            except OptionError:
                assert not expected
                continue
            wanted = Counter({frozenset(zip(names_, row, strict=True)): n for row, n in expected.items()})
            assert known(found) == wanted, (name, lsn_text(lsn))
            from_snapshot += found.complete
        # The rows of tables that were altered: what is known of them, as the model has it.
        folds = model.folds([row for row in rows if row["position"] <= lsn], versions)
        for name in source.sample(("columns", "columns_now", "types", "identity", "full"), 2):
            if (fold := folds.get(f"alt0_{name}")) is None:
                continue
            altered = known(at(capture, f"alt0_{name}", lsn))
            assert altered == Counter(frozenset(row.values.items()) for row in fold.rows()), (name, lsn_text(lsn))
            unknown += sum(bool(fold.unknown(row)) for row in fold.rows())
    assert from_snapshot, "no moment was after the snapshot"
    assert unknown, "nothing was unknown"


def test_an_empty_snapshot_of_a_table_that_its_segment_only_repeats(newest_database: Database, tmp_path: Path) -> None:
    capture, db = tmp_path / "capture", newest_database
    db.execute("CREATE TABLE t (id int PRIMARY KEY, v int)", "CREATE TABLE other (body text)")
    model.begin(db)
    db.execute("INSERT INTO t VALUES (1, 0)", "DELETE FROM t")
    db.execute(*["INSERT INTO other VALUES (repeat('x', 50000))"] * 3)
    model.record(db, capture, "--segment-size", "96KB", "--snapshot-table", "t")
    assert len(segments(capture)) > 2
    found = read_table(locate(str(capture)), "t")
    assert found.complete
    assert [column.name for column in found.columns] == ["id", "v"]
    assert not len(found.rows)


def test_a_transaction_ends_in_a_segment_without_the_table(newest_database: Database, tmp_path: Path) -> None:
    capture, db = tmp_path / "capture", newest_database
    db.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE other (body text)")
    model.begin(db)
    db.execute("INSERT INTO t VALUES (1)")
    large = "INSERT INTO other VALUES (repeat('x', 50000))"
    model.run(db, [["BEGIN", "INSERT INTO t VALUES (2)", large, large, large, "COMMIT"], [large], [large], [large]])
    model.record(db, capture, "--segment-size", "96KB")
    commit = [row["position"] for row in model.changes(capture) if row["table"] == "t"][-1]
    _, second, *later = [SegmentName.parse(path.name.removesuffix(".pgcap")) for path in segments(capture)]
    assert second is not None
    assert second.position == commit
    assert later
    for lsn in (commit, commit + 1):
        assert table_at(capture, "t", at=lsn_text(lsn))["id"].to_pylist() == [1, 2]


def test_a_capture_ends_in_a_prepared_transaction_that_was_sent_late(newest_database: Database, tmp_path: Path) -> None:
    db = newest_database
    db.execute(*two_phase.SETUP, two_phase.CREATE_SLOT.format("s", "false"), "INSERT INTO t VALUES (1)")
    db.execute("BEGIN; INSERT INTO t VALUES (2), (3); PREPARE TRANSACTION 'p'")
    db.execute(two_phase.ADVANCE.format("s"), two_phase.SWITCH_ON.format("s"), "INSERT INTO t VALUES (4)")
    db.execute("COMMIT PREPARED 'p'")
    model.record(db, tmp_path / "whole")
    parts, shown = cut(tmp_path / "whole", tmp_path / "cut"), []
    (tmp_path / "cut" / "capture.json").unlink()
    for last in reversed(parts):
        shown.append(sorted(table_at(tmp_path / "cut", "t")["v"].to_pylist()))
        last.unlink()
    assert shown == [[2, 3, 4], [4], [4], [4], []]  # the first segment lacks the end of its transaction


def test_where_the_log_ended_is_before_the_commit_that_begins_there(newest_database: Database, tmp_path: Path) -> None:
    capture, db = tmp_path / "capture", newest_database
    db.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    model.begin(db)
    db.execute("INSERT INTO t VALUES (1, 0)")
    with db.connect() as session:
        session.execute("BEGIN")
        session.execute("UPDATE t SET v = 1")
        end = str(db.value("SELECT pg_current_wal_insert_lsn()"))
        assert db.value("SELECT v FROM t") == 0
        session.execute("COMMIT")
    model.record(db, capture)
    commit = model.changes(capture)[-1]["position"]
    assert commit >= parse_lsn(end)  # equal, unless the server's own processes wrote something
    assert table_at(capture, "t", before=end)["v"].to_pylist() == [0]
    assert table_at(capture, "t", at=lsn_text(commit))["v"].to_pylist() == [1]


# -- a made-up server --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=range(2))
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[copied.Server, Path]:
    """Twelve tables with rows from before the capture, snapshots of some of them, prepared transactions."""
    choose = Random(request.param)
    server, capture = copied.Server(choose, 12), tmp_path_factory.mktemp("made") / "capture"
    server.snapshot(server.tables)
    server.run(50)
    server.snapshot(server.tables[:6])
    server.run(50)
    copied.Recording(capture).record(server.steps)
    return server, capture


def fits(rows: Counter[Known], truth: copied.Rows) -> bool:
    """Whether for each row there is one of the truth with what is known of it."""
    left = [dict(row) for row in truth.elements()]
    for row in rows.elements():
        match = next((one for one in left if all(one.get(name, text) == text for name, text in row)), None)
        if match is None:
            return False
        left.remove(match)
    return not left


def test_rows_after_each_commit(made: tuple[copied.Server, Path]) -> None:
    server, capture = made
    for lsn, truth in Random(1).sample(server.truth, 5):
        for table in server.tables:
            found = at(capture, table.name, lsn)
            assert found.complete
            assert fits(known(found), truth[table.relid]), (table.name, lsn_text(lsn))


def test_before_a_commit_is_after_the_one_before_it(made: tuple[copied.Server, Path]) -> None:
    server, capture = made
    table = server.tables[0]
    (before, _), (lsn, _) = server.truth[20:22]
    assert table_at(capture, table.name, before=lsn_text(lsn)) == table_at(capture, table.name, at=lsn_text(before))
    assert table_at(capture, table.name, before=lsn_text(lsn)) == table_at(capture, table.name, at=lsn_text(lsn - 1))


def test_a_history_has_the_rows_of_each_moment(made: tuple[copied.Server, Path]) -> None:
    """The rows of a history that were valid at a moment are those that the table had then."""
    server, capture = made
    for table in server.tables:
        history = read_table(locate(str(capture)), table.name, history=True)
        for lsn, truth in Random(2).sample(server.truth, 20):
            since = pc.less_equal(history.rows["_valid_from_position"], lsn)
            until = pc.fill_null(pc.greater(history.rows["_valid_to_position"], lsn), True)
            valid = history._replace(rows=history.rows.filter(pc.and_(since, until)))
            rows = Counter(
                frozenset(cell for cell in row if not cell[0].startswith("_")) for row in known(valid).elements()
            )
            assert fits(rows, truth[table.relid]), (table.name, lsn_text(lsn))


def test_a_table_that_is_too_large_says_what_to_do(
    made: tuple[copied.Server, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_fold, "MOST_BYTES", 100)
    with pytest.raises(InputError, match="take more than 100 bytes in memory.*\n    pgtail spark state CAPTURE OUT"):
        table_at(made[1], made[0].tables[0].name)


def test_waiting_prepared_transactions_count_until_their_outcome(
    newest_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture, db = tmp_path / "capture", newest_database
    db.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    model.begin(db, two_phase=True)
    insert = "INSERT INTO t SELECT {0} * 100 + n, repeat('x', 1000) FROM generate_series(0, 19) n"
    prepare, roll_back = "PREPARE TRANSACTION 'p{0}'", "ROLLBACK PREPARED 'p{0}'"
    first, second = ([one.format(n) for one in ("BEGIN", insert, prepare, roll_back)] for n in range(2))
    model.run(db, [["INSERT INTO t VALUES (-1, '')"], first, second])
    model.record(db, capture)
    monkeypatch.setattr(table_fold, "MOST_BYTES", 50_000)
    assert table_at(capture, "t")["id"].to_pylist() == [-1]
    third, fourth = ([one.format(n) for one in ("BEGIN", insert, prepare)] for n in range(2, 4))
    model.run(db, [third, fourth])
    model.record(db, capture)
    with pytest.raises(InputError, match="the rows of public.t take more than"):
        table_at(capture, "t")


@pytest.mark.parametrize("history", [False, True])
def test_folded_in_many_parts_it_is_the_same(
    made: tuple[copied.Server, Path], monkeypatch: pytest.MonkeyPatch, history: bool
) -> None:
    server, capture = made
    whole = [table_at(capture, table.name, history=history) for table in server.tables]
    monkeypatch.setattr(table_fold, "_LEAST_BYTES", 0)
    assert [table_at(capture, table.name, history=history) for table in server.tables] == whole


# -- what is missing ---------------------------------------------------------------------------------------------------


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, "pgtail"):
        yield caplog


def test_without_a_snapshot_rows_may_be_missing(tmp_path: Path, warnings: pytest.LogCaptureFixture) -> None:
    server = copied.Server(Random(5), 12)
    server.run(30)
    copied.Recording(tmp_path / "capture").record(server.steps)
    changed = next(t for t in server.tables if t.identity == "d" and t.rows)
    found = read_table(locate(str(tmp_path / "capture")), changed.name)
    assert not found.complete
    assert "has no snapshot of" in warnings.text
    assert "only rows that were written since the capture began" in warnings.text


def test_a_missing_segment_and_a_gap_are_errors(tmp_path: Path) -> None:
    server = copied.Server(Random(6), 12)
    server.snapshot(server.tables)
    server.run(60)
    recording = copied.Recording(tmp_path / "capture")
    recording.record(server.steps)
    table, (early, _) = server.tables[0].name, server.truth[3]
    paths = segments(recording.directory)
    assert len(paths) > 3
    paths[-2].rename(tmp_path / "away")
    with pytest.raises(InputError, match=f"segment {paths[-2].name.removesuffix('.pgcap')} is missing before this one"):
        table_at(recording.directory, table)
    assert at(recording.directory, table, early).complete
    (tmp_path / "away").rename(paths[-2])
    done, end = len(server.steps), server.lsn
    server.run(10)
    recording.record(server.steps[done:], gap=(end + 8, end + 16))
    with pytest.raises(InputError, match=f"there is a gap before it.*; before {lsn_text(end + 8)} shows"):
        table_at(recording.directory, table)
    assert at(recording.directory, table, end).complete
    server.snapshot(server.tables)  # from there on everything is known again
    recording.record(server.steps[-1:])
    assert read_table(locate(str(recording.directory)), table).complete


def test_moments_that_cannot_be_shown(made: tuple[copied.Server, Path]) -> None:
    _, capture = made
    with pytest.raises(InputError, match="ends at .*, before F/0"):
        table_at(capture, "t0", at="F/0")
    with pytest.raises(OptionError, match=r"has no row of a table t99 up to then; did you mean t9\?"):
        table_at(capture, "t99")
    with pytest.raises(OptionError, match=r"^give one of them: at \(after a commit\), or before \(before it\)$"):
        table_at(capture, "t0", at="0/1", before="0/2")
    with pytest.raises(OptionError, match="at: 'noon' is neither an LSN"):
        table_at(capture, "t0", at="noon")
    with pytest.raises(InputError, match="pgcap: is not a directory, as a capture is"):
        table_at(segments(capture)[0], "t0")


# -- names and times ---------------------------------------------------------------------------------------------------


def test_renamed_tables_and_tables_that_take_their_names(newest_database: Database, tmp_path: Path) -> None:
    capture, db = tmp_path / "capture", newest_database
    db.execute("CREATE TABLE o (id int PRIMARY KEY, v text)", "CREATE TABLE other (id int)")
    model.begin(db)
    db.execute("INSERT INTO o VALUES (1, 'first')", "ALTER TABLE o RENAME TO orders", "INSERT INTO orders VALUES (2)")
    model.record(db, capture)
    assert sorted(table_at(capture, "orders")["id"].to_pylist()) == [1, 2]
    db.execute("ALTER TABLE orders RENAME TO former", "CREATE TABLE orders (id int PRIMARY KEY, v text)")
    db.execute("INSERT INTO former VALUES (3)", "INSERT INTO orders VALUES (9)")
    model.record(db, capture)
    assert sorted(table_at(capture, "orders")["id"].to_pylist()) == [9]
    assert sorted(table_at(capture, "public.former")["id"].to_pylist()) == [1, 2, 3]
    db.execute("CREATE SCHEMA s", "CREATE TABLE s.orders (id int PRIMARY KEY)", "INSERT INTO s.orders VALUES (7)")
    model.record(db, capture)
    with pytest.raises(OptionError, match=r"which table orders\? There are public.orders and s.orders"):
        table_at(capture, "orders")
    assert table_at(capture, "s.orders")["id"].to_pylist() == [7]


def test_a_time_is_after_the_last_commit_up_to_it(newest_database: Database, tmp_path: Path) -> None:
    capture, db = tmp_path / "capture", newest_database
    db.execute("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 0)")
    model.begin(db)
    model.record(db, capture, "--snapshot-table", "t")
    for value in (1, 2):
        db.execute(f"UPDATE t SET v = {value}")
    model.record(db, capture)
    history = table_at(capture, "t", history=True)
    times = history["_valid_from"].to_pylist()
    assert history["v"].to_pylist() == [0, 1, 2]
    for number, time in enumerate(times):
        assert table_at(capture, "t", at=time)["v"].to_pylist() == [number]
        if number:
            assert table_at(capture, "t", before=time)["v"].to_pylist() == [number - 1]
            assert table_at(capture, "t", at=time - datetime.timedelta(microseconds=1))["v"].to_pylist() == [number - 1]
    assert [xid is None for xid in history["_xid"].to_pylist()] == [True, False, False]
    assert history["_valid_to_xid"].to_pylist() == [*history["_xid"].to_pylist()[1:], None]
    assert table_at(capture, "t", where=["v > 0", "v < 2"], history=True)["v"].to_pylist() == [1]
