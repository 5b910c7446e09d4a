"""`pgtail record --from` with parts of streams: cut off, repeated, overlapping, without a beginning."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path

import pytest

from pgtail.capture.convert import DumpConverter
from pgtail.capture.recorder import Recorder, Rotation
from pgtail.errors import OutputError
from pgtail.pgoutput.rows import Insert
from pgtail.pgoutput.streaming import StreamStart
from tests.capture.test_dumps import record
from tests.support import encode
from tests.support.captures import data_frames, read, segments
from tests.support.captures import record as record_frames
from tests.support.corpus import capture
from tests.support.encode import STREAM_STOP, begin, commit, insert, lengths, stream_commit, stream_start
from tests.support.run import Result

FIRST = [begin(1, 0x100), encode.relation(), insert("1", "a"), insert("2", "a"), commit(0x100, 0x108)]
SECOND = [begin(2, 0x200), insert("3", "b"), insert("4", "b"), commit(0x200, 0x208)]


def rows(result: Result) -> list[tuple[int, int | None]]:
    """The ids of the rows in order, and their numbers in the transaction."""
    return [(one["new"]["id"], one.get("seq")) for one in result.objects if one["op"] == "insert"]


def recorded(folder: Path, *dumps: list[bytes], status: int = 0) -> tuple[Result, str]:
    """The output of a capture of these dumps, and the messages of `record`."""
    paths = [folder / f"dump{number}" for number in range(len(dumps))]
    for path, messages in zip(paths, dumps, strict=True):
        path.write_bytes(lengths(*messages))
    result = record(folder / "capture", "--from", *paths)
    assert result.exit_code == status, result.stderr
    again = read(folder / "capture")
    assert (again.status, "damage" in again.stderr) == (0, False)
    return again, result.stderr


def test_cut_off_transaction_that_is_repeated(tmp_path: Path) -> None:
    found, said = recorded(tmp_path, [*FIRST, *SECOND[:2]], [encode.relation(), *SECOND])
    assert rows(found) == [(1, 1), (2, 2), (3, 1), (4, 2)]
    assert re.fullmatch(r"pgtail: 2 transactions \(.*\) recorded; the capture in .* ends at 0/[0-9A-F]+\n", said)


def test_cut_off_transaction_that_is_never_repeated(tmp_path: Path) -> None:
    third = [begin(3, 0x300), insert("5", "c"), commit(0x300, 0x308)]
    found, said = recorded(tmp_path, [*FIRST, *SECOND[:2]], third, status=1)
    assert rows(found) == [(1, 1), (2, 2), (5, 1)]
    assert found.objects[-1]["table"] == "t"
    assert "not in the capture: a transaction without its end" in said


@pytest.mark.parametrize(
    "end", [stream_commit(5, 0x200, 0x208), encode.rollback_prepared(9, end=0x180)], ids=["stream", "outcome"]
)
def test_data_after_a_cut_off_transaction(end: bytes, tmp_path: Path) -> None:
    streamed = [stream_start(5), insert("9", "s", xid=5), STREAM_STOP]
    found, said = recorded(tmp_path, [*streamed, *FIRST[:3]], [end], status=1)
    assert "a transaction without its end" in said
    assert (1, 1) not in rows(found)


def test_streamed_transaction_that_is_repeated(tmp_path: Path) -> None:
    streamed = [stream_start(5), encode.relation(xid=5), insert("1", "x", xid=5), STREAM_STOP]
    rest = [stream_start(5, first=0), insert("2", "x", xid=5), STREAM_STOP, stream_commit(5)]
    found, _ = recorded(tmp_path, streamed, [*streamed, *rest])
    assert rows(found) == [(1, 1), (2, 2)]


def test_a_streamed_transaction_without_its_first_part(tmp_path: Path) -> None:
    rest = [stream_start(5, first=0), encode.relation(xid=5), insert("2", "x", xid=5), STREAM_STOP, stream_commit(5)]
    found, said = recorded(tmp_path, [*rest, *SECOND], status=1)
    assert rows(found) == [(3, 1), (4, 2)]
    assert "streamed transaction 5, whose beginning is missing" in said


def test_a_dump_that_begins_inside_a_streamed_part(tmp_path: Path) -> None:
    dump = [encode.relation(xid=5), *[insert(f"{i}", "x", xid=5) for i in range(9)], STREAM_STOP]
    path = tmp_path / "dump"
    path.write_bytes(lengths(*dump, *SECOND))
    result = record(tmp_path / "capture", "--from", path)
    assert (result.exit_code, "whose beginning is missing" in result.stderr) == (1, True)
    assert rows(read(tmp_path / "capture"))[-2:] == [(3, 1), (4, 2)]


def test_relations_in_a_part_that_was_rolled_back(tmp_path: Path) -> None:
    old = [begin(1, 0x80), encode.relation(columns=(("id", 23),)), insert("0"), commit(0x80, 0x88)]
    streamed = [
        *[stream_start(5), encode.relation(xid=6), insert("1", "gone", xid=6), STREAM_STOP, encode.stream_abort(5, 6)],
        *[stream_start(5, first=0), insert("2", "kept", xid=5), STREAM_STOP, stream_commit(5)],
    ]
    found, _ = recorded(tmp_path, [*old, *streamed])
    assert [one["new"] for one in found.objects] == [{"id": 0}, {"id": 2, "v": "kept"}]


def test_messages_outside_of_transactions_are_recorded_once(tmp_path: Path) -> None:
    """Its LSN, or the end LSN of a rolled-back prepared transaction, may be that of a commit record."""
    dump = [
        *FIRST[:3],
        commit(0x100, 0x108),
        encode.message(b"one", transactional=False, lsn=0x200),
        *SECOND,
        encode.rollback_prepared(9, end=0x300),
        *[begin(3, 0x300), insert("5", "c"), commit(0x300, 0x308)],
        encode.message(b"two", transactional=False, lsn=0x400),
    ]
    once, _ = recorded(tmp_path, dump)
    shutil.rmtree(tmp_path / "capture")
    twice, _ = recorded(tmp_path, dump, dump)
    assert [one["op"] for one in once.objects].count("message") == 2
    assert len(once.lines) == 7
    assert twice.lines == once.lines


def test_messages_of_a_transaction_without_its_beginning(tmp_path: Path) -> None:
    found, said = recorded(tmp_path, [encode.message(b"lost"), commit(0x80, 0x88), *FIRST], status=1)
    assert rows(found) == [(1, 1), (2, 2)]
    assert "Message of a transaction whose beginning is missing" in said


def test_a_segment_that_continues_a_transaction(tmp_path: Path) -> None:
    stream = capture("A_big", "p1_msg")
    record_frames(tmp_path / "first", data_frames(stream))
    paths = segments(tmp_path / "first")
    inside = next(path for path in paths[1:] if not path.name.endswith("-0000000001.pgcap"))
    result = record(tmp_path / "part", "--from", inside, *paths[paths.index(inside) + 1 :])
    assert (result.exit_code, "whose beginning is in a segment that is not here" in result.stderr) == (1, True)
    whole, kept = read(tmp_path / "first"), read(tmp_path / "part")
    assert kept.lines
    assert whole.stdout.endswith(kept.stdout)
    assert record(tmp_path / "all", "--from", *paths).exit_code == 0
    assert read(tmp_path / "all").stdout == whole.stdout


def test_no_room_for_a_streamed_transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    converter = DumpConverter(Recorder(tmp_path, {}, rotation=Rotation()))
    converter.feed(StreamStart(5, 1), stream_start(5), None, None)
    with pytest.raises(OutputError, match="set TMPDIR to a directory with free space"):
        converter.feed(Insert(5, 16384, (b"1",)), bytes(9 << 20), None, None)
    converter.finish()
