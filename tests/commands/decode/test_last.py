"""`pgtail decode --last` and `--follow: the end of files, pipes and captures, and a capture while it is recorded."""

from __future__ import annotations

import os
from pathlib import Path

import orjson
import pytest

from pgtail.capture.recorder import Recorder, Rotation
from pgtail.changes.assembler import Assembler
from pgtail.commands.decode.last import LastTransactions
from pgtail.commands.output.file_sink import FileSink
from pgtail.outputs import OutputOptions, open_output
from pgtail.pgoutput.decoder import Decoder
from pgtail.pipeline.pipeline import Pipeline
from pgtail.values import Types
from tests.support import encode
from tests.support.captures import lengths, segments, take
from tests.support.run import command, decode, here
from tests.support.tail import ids, tailing

COUNT = 40


def transaction(number: int, *, table: str = "t") -> list[bytes]:
    """A transaction with two rows of one table; the number is in the first one."""
    oid, lsn = 100 if table == "t" else 200, number << 8
    rows = [encode.insert(str(number), "one", oid=oid), encode.insert(str(-number), "two", oid=oid)]
    return [encode.begin(number, lsn), encode.relation(oid, table), *rows, encode.commit(lsn, lsn + 8)]


def frames(numbers: range) -> list[bytes]:
    """Every tenth transaction is of another table."""
    messages = [one for number in numbers for one in transaction(number, table="other" if number % 10 == 0 else "t")]
    return [encode.frame(one) for one in messages]


def record(folder: Path, *, compress: bool = True) -> Recorder:
    """A recorder that begins a segment every hundred bytes."""
    folder.mkdir(exist_ok=True)
    return Recorder(folder, {}, rotation=Rotation(size=100, sync_size=50), compress=compress)


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    path = tmp_path / "dump.bin"
    path.write_bytes(lengths(frames(range(1, COUNT + 1))))
    return path


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """A capture of the same."""
    recorder = record(tmp_path / "capture")
    take(recorder, frames(range(1, COUNT + 1)))
    recorder.close()
    assert len(segments(tmp_path / "capture")) == 3 * COUNT, "transactions go on in other segments"
    return tmp_path / "capture"


def shown(*arguments: str | Path, status: int = 0) -> list[int]:
    """The numbers of the transactions that are shown."""
    result = decode(*arguments)
    assert result.status == status, result.stderr
    return [int(line["new"]["id"]) for line in result.objects if line["new"]["v"] == "one"]


OTHERS = ("-t", "other")


def test_the_last_transactions_of_a_file(dump: Path) -> None:
    assert shown("--last", "3", dump) == [38, 39, 40]
    assert shown("--last", "3", *OTHERS, dump) == [20, 30, 40]
    assert shown("--last", "1000", dump) == list(range(1, COUNT + 1))
    assert shown("--last", "2", "--where", "id = 7", dump) == [7]
    assert shown("--last", "2", "--since", "0/2800", dump) == [40]
    assert shown("--last", "2", "--until", "0/600", dump) == [5, 6]
    piped = command("decode", "--last", "2", "--format-string", "%{id}", input=dump.read_bytes())
    assert (piped.status, piped.stdout, piped.stderr) == (0, b"39\n-39\n40\n-40\n", "")
    assert "0 of 40 transactions matched" in decode("--last", "2", "--where", "id = 99", dump).stderr


def test_the_last_transactions_before_damage_and_in_a_file_that_repeats(dump: Path, tmp_path: Path) -> None:
    whole = dump.read_bytes()
    dump.write_bytes(whole[:-10])
    assert shown("--last", "2", dump, status=1) == [38, 39, 40], "and what there is of the one after them"
    assert decode("--last", "2", dump).stderr.count("error") == 1
    dump.write_bytes(whole * 2)
    assert shown("--last", "2", dump) == [39, 40]


@pytest.mark.parametrize("output", ["json", "json-tx", "csv", "sql", "table", "line", "wal2json-v1"])
def test_what_a_file_begins_with_comes_before_the_last_transactions(output: str, dump: Path) -> None:
    """The output is that of a selection of the same transactions by their position."""
    options = ["-o", output, "-t", "t"]
    everything = decode(*options, dump)
    for count in (1, 2, 37, COUNT):
        numbers = [number for number in range(1, COUNT + 1) if number % 10][-count:]
        found = decode(*options, "--last", str(count), dump)
        assert found == decode(*options, "--since", f"0/{numbers[0] << 8:X}", dump)
        assert (found == everything) == (len(numbers) == COUNT - 4)


def test_the_kept_texts_are_few(tmp_path: Path) -> None:
    """Those in memory, and those in a file, of which the room of older ones is given back."""
    fd = os.open(tmp_path / "out", os.O_RDWR | os.O_CREAT)
    decoder = Decoder()
    for memory in (1 << 20, 0):
        last = LastTransactions(FileSink(fd, "out"), 3, follows=False, memory=memory)
        output = open_output("json", last, OutputOptions())
        pipeline = Pipeline(Assembler(Types()), output, note=print, one_by_one=True)
        for message in frames(range(1, 2000)):
            pipeline.feed(*decoder.frame(message, 0, len(message))[:2])
            last.take_text(pipeline)
            assert last.kept < max(memory, 4000)
        last.release()
        found = [orjson.loads(line)["xid"] for line in os.pread(fd, 1 << 20, 0).splitlines()]
        assert found == [1997, 1997, 1998, 1998, 1999, 1999]
        os.ftruncate(fd, 0)
        os.lseek(fd, 0, os.SEEK_SET)
    os.close(fd)


def test_the_last_transaction_is_streamed(tmp_path: Path) -> None:
    """It is written in parts; none of them is taken for what comes between transactions."""
    rows = [encode.insert(str(number), "x" * 70_000 * (number % 200 == 0), xid=7) for number in range(1000)]
    streamed = [encode.stream_start(), encode.relation(xid=7), *rows, encode.STREAM_STOP, encode.stream_commit()]
    (tmp_path / "dump.bin").write_bytes(lengths(map(encode.frame, streamed)))
    for variables in ({"PGTAIL_PURE": "1"}, {"PGTAIL_PURE": ""}):
        found = here("decode", "-o", "json", "--last", "1", tmp_path / "dump.bin", **variables)
        assert [line["new"]["id"] for line in found.objects] == [*range(1000)]


def test_what_last_refuses(dump: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    for options, words in {
        ("-o", "sql", "--undo"): "--since LSN selects what --last N shows",
        ("-o", "csv", "-f", f"{tmp_path}/out/"): "--last writes one file",
        ("-n", "2"): "give one of them",
    }.items():
        found = decode("--last", "2", *options, dump)
        assert (found.status, found.stdout) == (2, b"")
        assert words in found.stderr


def test_a_capture_is_read_from_its_end(capture: Path) -> None:
    """Of a file that is not read nobody sees that it is damaged."""
    damaged = segments(capture)[5]
    damaged.write_bytes(damaged.read_bytes()[:-60])
    assert shown("--last", "3", capture) == [38, 39, 40]
    assert shown("--last", "2", *OTHERS, capture) == [30, 40]
    assert shown("--last", "3", *OTHERS, "--resync", capture, status=1) == [20, 30, 40]
    assert shown("--last", "3", *OTHERS, capture, status=1) == [], "the last ones before the damage"


@pytest.mark.parametrize("compress", [True, False])
def test_a_capture_is_followed_while_it_is_recorded(tmp_path: Path, compress: bool) -> None:
    """Its open segment, which is closed under another name, and the segments that come after it."""
    recorder = record(tmp_path / "capture", compress=compress)
    first, second, third = (frames(range(number, number + 1)) for number in (1, 2, 3))
    take(recorder, [*first, *second[:3]])
    recorder.sync()
    with tailing(str(tmp_path / "capture"), "--follow", "-o", "json", command="decode") as running:
        running.wait_for_lines(3)
        take(recorder, [*second[3:]])
        running.wait_for_lines(4)
        take(recorder, third)
        running.wait_for_lines(6)
        words = running.stop()
        assert ids(running.changes) == [1, -1, 2, -2, 3, -3]
        assert ("is not compressed" in words) is not compress
        assert ("warning" in words, "error" in words, "damage" in words) == (False, False, False)
    recorder.close()
    with tailing(str(tmp_path / "capture"), "--follow", "--last", "1", "-o", "json", command="decode") as running:
        running.wait_for_lines(2)
        assert ids(running.changes) == [3, -3]
        running.stop()


def test_only_a_capture_is_followed(dump: Path, capture: Path) -> None:
    for arguments in ([dump], [capture, capture], ["-o", "sql", "--undo", capture]):
        result = decode("--follow", *arguments)
        assert (result.status, "--follow" in result.stderr) == (2, True)
