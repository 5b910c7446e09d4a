"""The rows of `changes` against the lines of `-o json` by the long way, on every recording."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pgtail.arrow.decoding.batches import Batch
from pgtail.arrow.decoding.decode import SegmentChanges, changes_of, survey
from pgtail.arrow.decoding.slices import SliceRows
from pgtail.arrow.schemas import CHANGES
from pgtail.arrow.segments.ranges import EVERYWHERE, Place, Range
from pgtail.capture.recorder import Recorder, Rotation
from pgtail.changes.relations import Relation
from pgtail.errors import InputError
from pgtail.files import MAGIC
from pgtail.native import compiled, implementation_name
from pgtail.storage.local import LocalLocation
from tests.support import encode
from tests.support.corpus import Capture, capture, captures
from tests.support.spark.captures import Number, batches_of, exact, lines_of, record, rows_of, segments

SAME = (
    "op",
    "schema",
    "table",
    "origin",
    "gid",
    "state",
    "identity",
    "key",
    "unchanged",
    "cascade",
    "restart_identity",
)
LATER = ("commit_lsn", "commit_ts", "prepare_lsn", "prepare_ts", "lsn", "prefix", "transactional")


def line_of(row: dict[str, Any], relation: Relation | None, encoding: str) -> dict[str, Any]:
    """What `-o json` says of this row, from the row and the types of its table alone."""
    line = {name: row[name] for name in (*SAME, *LATER) if row[name] is not None}
    line |= {name: Number(row[name]) for name in ("xid", "seq") if row[name] is not None}
    if row["op"] == "message":
        try:
            line["content"] = row["content"].decode()
        except UnicodeDecodeError:
            line["content_base64"] = base64.b64encode(row["content"]).decode()
    if row["op"] in ("commit_prepared", "rollback_prepared"):
        line.pop("lsn", None)
    for name in ("old", "new"):
        if row[name] is not None and relation is not None:
            line[name] = {column: value(text, column, relation, row, encoding) for column, text in row[name].items()}
    if row["undecoded"] is not None:
        line["undecoded"] = row["undecoded"]
    return line


def value(text: str | None, column: str, relation: Relation, row: dict[str, Any], encoding: str) -> Any:
    """The JSON of a value that is told by its text, with all digits."""
    if text is None:
        return None
    if column in (row["undecoded"] or ()):
        return text
    [codec] = [found.codec for found in relation.columns if found.name == column]
    return exact(codec.json_text(text.encode(encoding)))


@pytest.mark.parametrize("recording", captures()[::3], ids=str)
def test_rows_are_what_the_long_way_says(recording: Capture, tmp_path: Path) -> None:
    rows = rows_of(record(recording, tmp_path / "capture"))
    lines = list(lines_of(recording))
    assert len(rows) == len(lines)
    for row, (line, relation) in zip(rows, lines, strict=True):
        if row["op"] in ("commit_prepared", "rollback_prepared"):
            line = {name: line[name] for name in line if name in row}
        assert line_of(row, relation, recording.encoding) == line


MANY = capture("D_twophase", "p3_2pc")
"""Prepared transactions, their outcomes, and large transactions that several segments share."""


def places(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(row["position"], row["ordinal"]) for row in rows]


@pytest.mark.parametrize("recording", [MANY, capture("A_msgs", "p1_msg"), capture("A_dml", "p1")], ids=str)
def test_the_order_of_places_is_the_order_of_the_stream(recording: Capture, tmp_path: Path) -> None:
    rows = rows_of(record(recording, tmp_path / "capture", size=20_000))
    assert [(row["position"], row["ordinal"], row["seq"] or 0) for row in rows] == sorted(
        (row["position"], row["ordinal"], row["seq"] or 0) for row in rows
    )
    assert all(row["lsn_number"] == lsn_number(row["lsn"]) for row in rows)


def lsn_number(text: str | None) -> int | None:
    return None if text is None else int(text.partition("/")[0], 16) << 32 | int(text.partition("/")[2], 16)


def test_a_survey_knows_where_a_segment_starts_and_ends_and_its_tables(tmp_path: Path) -> None:
    paths = record(MANY, tmp_path / "capture", size=20_000)
    assert len(paths) > 5
    whole = rows_of(paths)
    seen: dict[str, tuple[int, int]] = {}
    for path in paths:
        rows = rows_of([path])
        found = survey(io.BytesIO(path.read_bytes()), str(path))
        there = [one for one in (found.places, *found.late) if one is not None]
        assert min(there).first == places(rows)[0]
        assert max(there).end == Place(*places(rows)[-1]).next
        for relation in found.relations:
            seen.setdefault(relation["relation"], (relation["position"], relation["ordinal"]))
    for name, place in seen.items():
        of_it = [row for row in whole if row["relation"] == name]
        assert not of_it or place == min(places(of_it))


def test_parts_are_read_alone(tmp_path: Path) -> None:
    [path, *_] = record(MANY, tmp_path / "capture", size=10_000_000)
    data, rows = path.read_bytes(), rows_of([path])
    third, last = Place(*places(rows)[2]), Place(*places(rows)[-1])
    parts = (Range(third, Place(*places(rows)[30])), Range(last, last.next))
    batches = SegmentChanges(io.BytesIO(data), "one", parts=parts)
    found = [place for batch in batches for place in zip(*map(batch.column, ("position", "ordinal")), strict=True)]
    wanted = [place for place in places(rows) if any(first <= place < end for first, end in parts)]
    assert [(position.as_py(), ordinal.as_py()) for position, ordinal in found] == wanted


def test_only_some_tables(tmp_path: Path) -> None:
    paths = record(capture("A_dml", "p1"), tmp_path / "capture")
    rows = rows_of(paths)
    batches = batches_of(paths, ["t_toast*"])
    found = [(p, s) for b in batches for p, s in zip(b["position"].to_pylist(), b["seq"].to_pylist(), strict=True)]
    assert found == [(row["position"], row["seq"]) for row in rows if (row["table"] or "").startswith("t_toast")]
    assert found


@pytest.mark.parametrize("two_phase", ["off", "on"])
def test_a_segment_without_the_tables_is_not_read(two_phase: str, tmp_path: Path) -> None:
    """Unless it may have outcomes of prepared transactions: its end does not say that of those prepared in it."""
    recorder = Recorder(tmp_path, {"pgtail.two_phase": two_phase}, rotation=Rotation())
    for number, name in enumerate("ab", 1):
        lsn = 100 * number
        recorder.take_frame(encode.frame(encode.relation(number, name, [("id", 23), ("t", 25)]), lsn))
        recorder.sync()  # the rows are in a member of their own
        for message in (encode.begin(number, lsn), encode.insert("1", "x", oid=number), encode.commit(lsn, lsn + 8)):
            recorder.take_frame(encode.frame(message, lsn))
        recorder.follow({"pgtail.options": f"of segment {number + 1}"})
    recorder.close()
    first, second = segments(tmp_path)

    def read(tables: Sequence[str]) -> list[str]:
        found = [changes_of(LocalLocation(one), str(one), parts=EVERYWHERE, tables=tables) for one in (first, second)]
        return [name for batches in found for batch in batches for name in batch["table"].to_pylist()]

    assert [read(tables) for tables in ((), ("a",), ("public.b", "nosuch"), ("c*",))] == [["a", "b"], ["a"], ["b"], []]
    data = bytearray(second.read_bytes())
    data[data.index(MAGIC, 1) + 30] ^= 0xFF
    second.write_bytes(data)
    if two_phase == "off":
        assert read(["a"]) == ["a"]
    for tables in (["a"], ["b"])[two_phase == "off" :]:
        with pytest.raises(InputError, match=second.name):
            read(tables)


def test_batches_are_small_and_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = record(MANY, tmp_path / "capture", size=10_000_000)
    whole = rows_of(paths)
    monkeypatch.setattr("pgtail.arrow.decoding.batches.MOST_ROWS", 50)
    monkeypatch.setattr("pgtail.arrow.decoding.decode.compiled", lambda: None)
    assert max(batch.num_rows for batch in batches_of(paths)) == 50
    assert rows_of(paths) == whole


def test_a_flipped_bit_is_found_and_named(tmp_path: Path) -> None:
    path = record(capture("Z_small", "p1"), tmp_path / "capture")[0]
    good = path.read_bytes()
    rows = [row for batch in batches_of([path]) for row in batch.to_pylist()]
    for bit in range(0, len(good) * 8, 101):
        data = bytearray(good)
        data[bit // 8] ^= 1 << bit % 8
        found: list[dict[str, Any]] = []
        try:
            for batch in SegmentChanges(io.BytesIO(data), str(path)):
                found += batch.to_pylist()
            assert found == rows
        except InputError as error:
            assert str(path) in str(error)
        assert found == rows[: len(found)]


def test_a_segment_cut_anywhere_is_not_closed(tmp_path: Path) -> None:
    path = record(capture("Z_small", "p1"), tmp_path / "capture")[0]
    good = path.read_bytes()
    for size in range(0, len(good), 7):
        with pytest.raises(InputError, match="cut"):
            list(SegmentChanges(io.BytesIO(good[:size]), "cut"))


@pytest.mark.parametrize("of_row", [False, True])
def test_a_position_beyond_bigint_is_damage(of_row: bool, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, {}, rotation=Rotation())
    last, row = (1 << 64) - 16, encode.insert("1", "one")
    end = 9 if of_row else last
    for message in (encode.begin(lsn=end), encode.relation(), row, row):
        recorder.take_frame(encode.frame(message))
    recorder.take_frame(encode.frame(row, last if of_row else 0))
    recorder.take_frame(encode.frame(encode.commit(lsn=end)))
    recorder.close()
    with pytest.raises(InputError, match="a log position of FFFFFFFF/FFFFFFF0"):
        rows_of(segments(tmp_path))


needs_compiled = pytest.mark.skipif(compiled() is None, reason=implementation_name())


@needs_compiled
@pytest.mark.parametrize("recording", [one for one in captures() if one.scenario.version in ("pg14", "pg18")], ids=str)
def test_both_ways_give_the_same_batches(recording: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = record(recording, tmp_path / "capture")
    short = table_of(paths)
    monkeypatch.setattr("pgtail.arrow.decoding.decode.compiled", lambda: None)
    assert short.equals(table_of(paths))


@needs_compiled
@pytest.mark.parametrize("tables", [["public.t*"], ["*.nothing"], ["wide", "a*"]], ids=str)
def test_both_ways_filter_alike(tables: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = record(capture("A_dml", "p1"), tmp_path / "capture")
    short = table_of(paths, tables)
    monkeypatch.setattr("pgtail.arrow.decoding.decode.compiled", lambda: None)
    assert short.equals(table_of(paths, tables))


def lengths_at(monkeypatch: pytest.MonkeyPatch, owner: type, method: str) -> list[int]:
    """A list that gets the length of an object whenever this method of it is called."""
    lengths: list[int] = []
    way = getattr(owner, method)

    def counted(rows: Any, *arguments: Any) -> Any:
        lengths.append(len(rows))
        return way(rows, *arguments)

    monkeypatch.setattr(owner, method, counted)
    return lengths


@needs_compiled
def test_ordinary_rows_do_go_the_short_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = record(capture("C_stream", "p2_nostream"), tmp_path / "capture", size=10_000_000)
    rows = table_of(paths).num_rows
    seen = lengths_at(monkeypatch, SliceRows, "take_rows")
    table_of(paths)
    assert sum(seen) > rows * 0.9


@needs_compiled
def test_logical_messages_in_every_transaction_make_no_batch_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder, count = Recorder(tmp_path, {}, rotation=Rotation()), 500
    recorder.take_frame(encode.frame(encode.relation()))
    for lsn in range(100, 100 + 10 * count, 10):
        row = encode.insert(str(lsn), "x")
        for data in (encode.begin(lsn=lsn), row, encode.message(b"x"), row, encode.commit(lsn=lsn, end=lsn + 5)):
            recorder.take_frame(encode.frame(data, lsn))
    recorder.close()
    made = lengths_at(monkeypatch, Batch, "rows")
    assert table_of(segments(tmp_path)).num_rows == 3 * count
    assert len(made) < 5


@needs_compiled
def test_both_ways_read_rows_at_any_position(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a dump may have none."""
    recorder, row = Recorder(tmp_path, {}, rotation=Rotation()), encode.insert("1", "one")
    rows = [encode.frame(row, lsn) for lsn in (0, 0, 9, (1 << 63) - 1)]
    for frame in [*map(encode.frame, [encode.relation(), encode.begin()]), *rows, encode.frame(encode.commit())]:
        recorder.take_frame(frame)
    recorder.close()
    paths = segments(tmp_path)
    short = table_of(paths)
    assert short["lsn"].to_pylist() == [None, None, "0/9", "7FFFFFFF/FFFFFFFF"]
    monkeypatch.setattr("pgtail.arrow.decoding.decode.compiled", lambda: None)
    assert short.equals(table_of(paths))


@needs_compiled
@pytest.mark.parametrize("few", [1, 3, 4096])
@pytest.mark.parametrize("tables", [(), ("t*",), ("u",)], ids=str)
def test_rows_of_both_ways_and_of_special_transactions_are_in_order(
    few: int, tables: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of prepared transactions, those with an origin, a snapshot and others; cells that are no text are decoded."""
    row, other, odd = encode.insert("1", "one"), encode.insert("2", "x", oid=200), encode.insert("3", b"\xff")
    both = [*[row] * 5, odd, encode.message(b"m"), row, other, odd, odd, *[row] * 3, encode.truncate(100), other, row]
    ends = encode.begin(), encode.commit()
    messages = [encode.relation(), encode.relation(200, "u"), ends[0], *both, ends[1], ends[0], row, ends[1]]
    messages += [encode.begin(8), encode.origin("o"), *both, ends[1], encode.begin(9), row, odd, ends[1]]
    messages += [encode.begin_prepare(), *both, encode.prepare(), ends[0], *both, ends[1], encode.commit_prepared()]
    messages += [*encode.snapshot(("1", "a"), ("2", b"\xfe"), ("3", "c")), ends[0], encode.origin(""), *both, ends[1]]
    recorder = Recorder(tmp_path, {}, rotation=Rotation())
    for message in messages:
        recorder.take_frame(encode.frame(message, 0x90))
    recorder.close()
    paths = segments(tmp_path)
    monkeypatch.setattr("pgtail.arrow.decoding.change_rows.FEW", few)
    short = table_of(paths, tables)
    monkeypatch.setattr("pgtail.arrow.decoding.decode.compiled", lambda: None)
    assert short.to_pylist() == table_of(paths, tables).to_pylist()
    assert short.num_rows > 10


def table_of(paths: list[Path], tables: Sequence[str] = ()) -> pa.Table:
    """The rows of these segments; what Arrow may lay out in several ways is laid out anew."""
    batches = batches_of(paths, tables)
    for batch in batches:
        batch.validate(full=True)
    return pa.Table.from_batches(batches, schema=CHANGES).combine_chunks()
