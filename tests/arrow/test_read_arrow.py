"""Changes as Arrow record batches: beside what pgtail.read() and the segments of a capture give."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pgtail
from pgtail import InputError, OptionError, read_arrow
from pgtail.arrow.schemas import CHANGES
from pgtail.native import compiled
from tests.support import captures as recorded
from tests.support import encode
from tests.support.corpus import Capture, captures
from tests.support.servers import Database
from tests.support.spark import model
from tests.support.spark.captures import batches_of, plain, record

OF_SEGMENTS = ("ordinal", "bytes")
"""The columns of `changes` that only segments have."""
INT4, TEXT, NUMERIC = 23, 25, 1700


def dump(*transactions: Sequence[bytes]) -> bytes:
    """Frames of pg_recvlogical's form without a header: transactions of these messages."""
    found = b""
    for number, messages in enumerate(transactions, 1):
        lsn = 0x1000 * number
        whole = [encode.begin(700 + number, lsn, number), *messages, encode.commit(lsn, lsn + 8, number)]
        found += encode.lengths(*whole, lsn=lsn)
    return found


@pytest.fixture(params=["compiled", "plain"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways through the rows."""
    if request.param == "plain":
        monkeypatch.setattr("pgtail.pipeline.pipeline.compiled", lambda: None)
    elif compiled() is None:
        pytest.skip("the compiled scanner was not built")


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("recorded", [one for one in captures() if one.encoding == "utf-8"][:12], ids=str)
def test_all_changes_of_a_recording_are_those_of_the_segments(recorded: Capture, tmp_path: Path) -> None:
    segments = record(recorded, tmp_path / "capture")
    expected = plain(pa.Table.from_batches(batches_of(segments), schema=CHANGES).drop(OF_SEGMENTS))
    reader = read_arrow(tmp_path / "capture")
    assert reader.schema == CHANGES
    found = reader.read_all()
    assert plain(found.drop(OF_SEGMENTS)) == expected
    assert all(found[name].null_count == len(found) for name in OF_SEGMENTS)


@pytest.mark.usefixtures("way")
def test_a_table_is_typed_as_its_values_are(newest_database: Database, tmp_path: Path) -> None:
    db = newest_database
    db.execute("CREATE TABLE t (id int PRIMARY KEY, n numeric(6,2), at timestamptz, body text, tags int[], b bytea)")
    db.execute("ALTER TABLE t ALTER body SET STORAGE EXTERNAL", "CREATE TABLE u (id int)")
    model.begin(db)
    db.execute(
        "INSERT INTO t VALUES (1, 1.50, '2026-11-28 10:00+00', repeat('x', 3000), '{1,NULL}', '\\x00ff')",
        "INSERT INTO u VALUES (1)",
        "INSERT INTO t VALUES (2, 'NaN', 'infinity', 'y', '{{1},{2}}', NULL)",
        "UPDATE t SET n = 2 WHERE id = 1",
        "UPDATE t SET id = 7 WHERE id = 2",
        "DELETE FROM t WHERE id = 1",
        "TRUNCATE t",
    )
    model.record(db, tmp_path / "capture")
    found = read_arrow(tmp_path / "capture", table="t", old=True).read_all()
    rows = found.to_pylist(maps_as_pydicts="strict")
    assert [row["_op"] for row in rows] == ["insert", "insert", "update", "update", "delete", "truncate"]
    assert found.schema.field("n").type == pa.decimal128(6, 2)
    assert (rows[0]["tags"], rows[0]["b"], rows[0]["_rescued"]) == ([1, None], b"\x00\xff", None)
    assert rows[1]["n"] is rows[1]["at"] is rows[1]["tags"] is None
    assert rows[1]["_rescued"] == {"n": "NaN", "at": "infinity", "tags": "{{1},{2}}"}
    assert (rows[2]["body"], rows[2]["_unchanged"]) == (None, ["body"])
    assert (rows[3]["id"], rows[3]["_old"]["id"], rows[4]["id"], rows[4]["_old"]["id"]) == (7, 2, 1, 1)
    assert rows[5]["id"] is rows[5]["_old"] is None
    changes = [change for transaction in pgtail.read(tmp_path / "capture", tables="t") for change in transaction]
    assert [(row["_xid"], row["_seq"], row["_commit_lsn"]) for row in rows][:5] == [
        (change.transaction.xid, change.seq, str(change.transaction.commit_lsn)) for change in changes[:5]
    ]
    without = read_arrow(tmp_path / "capture", table="public.t").read_all()
    assert without == found.drop(["_old", "_old_rescued"])
    assert read_arrow(tmp_path / "capture", table="t", where="n > 1.6", op="update").read_all()["id"].to_pylist() == [
        1,
        7,
    ]
    assert read_arrow(tmp_path / "capture", table="t", limit=1).read_all().num_rows == 1


def test_bytes_files_and_paths(tmp_path: Path) -> None:
    data = dump([encode.relation(5, "t", [("id", INT4)]), encode.insert("1", oid=5), encode.insert("2", oid=5)])
    (tmp_path / "t.bin").write_bytes(data)
    for source in (data, io.BytesIO(data), tmp_path / "t.bin", str(tmp_path / "t.bin")):
        assert read_arrow(source, table="t", input_format="lengths").read_all()["id"].to_pylist() == [1, 2]


def described(*columns: tuple[str, int]) -> bytes:
    return encode.relation(5, "t", columns)


def test_a_version_that_does_not_fit_names_its_column() -> None:
    first = [described(("id", INT4), ("v", INT4)), encode.insert("1", "2", oid=5)]
    fewer = [described(("id", INT4)), encode.insert("3", oid=5)]
    other = [described(("id", INT4), ("v", TEXT)), encode.insert("4", "x", oid=5)]
    more = [described(("id", INT4), ("v", INT4), ("w", TEXT)), encode.insert("4", "5", "x", oid=5)]
    reader = read_arrow(dump(first, fewer), table="t", input_format="lengths")
    assert reader.read_all()["v"].to_pylist() == [2, None]
    for last, name in ((other, "v of public.t is text"), (more, "w of public.t is text")):
        reader = read_arrow(dump(first, last), table="t", input_format="lengths")
        with pytest.raises(InputError, match=f"column {name} from here on, which the reader's columns cannot have"):
            reader.read_all()


def test_of_a_capture_all_versions_are_known_before(newest_database: Database, tmp_path: Path) -> None:
    db = newest_database
    db.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    model.begin(db)
    db.execute("INSERT INTO t VALUES (1, 1)", "ALTER TABLE t ADD w text, ALTER v TYPE bigint")
    model.record(db, tmp_path / "capture")
    db.execute("INSERT INTO t VALUES (2, 3000000000, 'x')")
    model.record(db, tmp_path / "capture")
    found = read_arrow(tmp_path / "capture", table="t").read_all()
    assert found.select(["id", "v", "w"]).to_pylist() == [
        {"id": 1, "v": 1, "w": None},
        {"id": 2, "v": 3_000_000_000, "w": "x"},
    ]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("filters", [{"where": "id > 9"}, {"since": "1/0"}, {"op": "truncate"}], ids=str)
def test_a_table_of_which_no_row_passes_has_its_columns(filters: dict[str, Any]) -> None:
    found = read_arrow(dump([described(("id", INT4)), encode.insert("1", oid=5)]), table="t", **filters).read_all()
    assert (found.num_rows, found.schema.names[:2], found.schema.field("id").type) == (0, ["id", "_op"], pa.int32())


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("capture", [False, True])
def test_masked_columns_are_text(capture: bool, tmp_path: Path) -> None:
    fits = [encode.insert("1", "a"), encode.update(["2", "b"], ["1", None]), encode.delete("2", None)]
    messages = [encode.begin(), encode.relation(), *fits, encode.insert("3", "secret", "more"), encode.commit()]
    source: Any = encode.lengths(*messages)
    if capture:
        source = tmp_path / "capture"
        recorded.record(source, [encode.frame(message, 0x100) for message in messages])
    table = read_arrow(source, table="t", redact="id").read_all()
    assert (table.schema.field("id").type, table.schema.field("v").type) == (pa.string(), pa.string())
    mask = "(redacted)"
    assert table.select(["id", "v"]).to_pylist() == [
        {"id": mask, "v": "a"}, {"id": mask, "v": "b"}, {"id": mask, "v": None}, {"id": mask, "v": mask}
    ]  # fmt: skip
    rows = read_arrow(source, redact=["v"]).read_all()
    assert "secret" not in str(rows.to_pylist())
    assert rows["new"][0].as_py() == [("id", "1"), ("v", mask)]


def test_prepared_transactions_come_when_they_are_committed() -> None:
    table = [described(("id", INT4)), encode.insert("1", oid=5)]
    prepared = [encode.begin_prepare(9, "g", 0x9000, 0x9008, 9), encode.insert("2", oid=5)]
    prepared += [encode.prepare(9, "g", 0x9000, 0x9008, 9)]
    data = dump(table) + encode.lengths(*prepared, lsn=0x9000)
    for outcome, ids in (
        (encode.commit_prepared(9, "g", 0xA000, 0xA008, 10), [1, 2]),
        (encode.rollback_prepared(9, "g", 0, 0xA008, 9, 10), [1]),
    ):
        whole = data + encode.lengths(outcome, lsn=0xA000)
        found = read_arrow(whole, table="t", input_format="lengths").read_all()
        assert found["id"].to_pylist() == ids
        assert len(ids) == 1 or found["_position"].to_pylist() == [0x1000, 0xA000]
        assert read_arrow(whole, input_format="lengths").read_all()["state"].to_pylist()[1] == "prepared"


@pytest.mark.usefixtures("way")
def test_damage_comes_after_all_that_was_whole() -> None:
    data = dump([described(("id", INT4)), encode.insert("1", oid=5)], [encode.insert("2", oid=5)])
    reader = read_arrow(data + b"\0\0\0\x05w", table="t", input_format="lengths")
    assert reader.read_next_batch()["id"].to_pylist() == [1, 2]
    with pytest.raises(InputError, match="<bytes>: byte"):
        reader.read_next_batch()


def test_wrong_arguments() -> None:
    data = dump([described(("id", INT4)), encode.insert("1", oid=5)])
    with pytest.raises(TypeError, match=r"read_arrow\(\) has no argument 'tabels'; did you mean tables\?"):
        read_arrow(data, tabels="t")  # type: ignore[call-arg]
    with pytest.raises(OptionError, match=r"no change of a table public.tt; did you mean public.t\?"):
        read_arrow(data, table="public.tt", input_format="lengths")
    with pytest.raises(OptionError, match="table names the only one"):
        read_arrow(data, table="t", tables="u")


def test_names_in_errors_are_escaped() -> None:
    name, shown = "t\x1b[31m", r"t\\x1b\[31m"
    first = [encode.relation(5, name, [("id", INT4)]), encode.insert("1", oid=5)]
    with pytest.raises(OptionError, match=rf"no change of a table t\[31m; did you mean {shown}\?$"):
        read_arrow(dump(first), table="t[31m", input_format="lengths")
    more = [encode.relation(5, name, [("id", INT4), (name, TEXT)]), encode.insert("2", "x", oid=5)]
    with pytest.raises(InputError, match=rf"column {shown} of public\.{shown} is text"):
        read_arrow(dump(first, more), table=name, input_format="lengths").read_all()
    other = [encode.relation(6, name, [("id", INT4)], schema="s\x1b"), encode.insert("3", oid=6)]
    with pytest.raises(OptionError, match=rf"which table\? There are public\.{shown} and s\\x1b\.{shown}$"):
        read_arrow(dump(first, other), table=name, input_format="lengths").read_all()


def test_without_pyarrow_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "pyarrow" else object())
    with pytest.raises(
        OptionError, match=r"read_arrow\(\) needs pyarrow, of pgtail's extra `arrow`[^`]*pip install '\.\[arrow\]'"
    ):
        read_arrow(b"")


def test_polars_and_duckdb_take_it(tmp_path: Path) -> None:
    polars, duckdb = pytest.importorskip("polars"), pytest.importorskip("duckdb")
    data = dump([described(("id", INT4), ("v", TEXT)), *(encode.insert(str(n), "x", oid=5) for n in range(5000))])
    reader: Any = read_arrow(data, table="t", input_format="lengths")
    assert polars.from_arrow(reader.read_all())["id"].sum() == sum(range(5000))
    reader = read_arrow(data, table="t", input_format="lengths")
    assert duckdb.sql("SELECT count(*), sum(id) FROM reader").fetchall() == [(5000, sum(range(5000)))]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("forged", ["time", "commit_lsn", "lsn"])
def test_forged_times_and_positions_end_neither_the_rows_before_nor_those_after(forged: str) -> None:
    """No column of Arrow holds them: they are errors of their messages alone, which `resync` skips."""
    frames = encode.lengths(encode.relation())
    for xid in range(1, 9):
        bad = forged if xid == 5 else ""
        time, commit_lsn = 9_223_000_000_000_000_000 if bad == "time" else xid, 0x100 * xid
        commit_lsn += (1 << 63) if bad == "commit_lsn" else 0
        rows = encode.insert(str(xid), "x"), encode.insert(str(xid), "y")
        messages = encode.begin(xid, commit_lsn, time), *rows, encode.commit(commit_lsn, commit_lsn + 8, time)
        frames += encode.lengths(*messages, lsn=1 << 63 if bad == "lsn" else 0x80 * xid)
    xids = [row["xid"] for row in read_arrow(frames, resync=True).read_all().to_pylist()]
    assert [xid for xid in xids if xid not in (None, 5)] == [1, 1, 2, 2, 3, 3, 4, 4, 6, 6, 7, 7, 8, 8]
    assert read_arrow(frames, xid=[8]).read_all()["xid"].to_pylist() == [8, 8]
    with pytest.raises(InputError, match="byte 9[0-9][0-9]: "):
        read_arrow(frames).read_all()
