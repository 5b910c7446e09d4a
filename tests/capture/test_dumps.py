"""`pgtail record --from`: a dump of any form becomes a capture with the same output."""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pgtail.cli import main
from tests.support import encode
from tests.support.captures import data_frames, lengths, read, segments
from tests.support.corpus import Capture, capture, captures
from tests.support.encode import message, recvlogical
from tests.support.forms import FORMS
from tests.support.render import WAYS, Way, rows_by
from tests.support.run import command, here

STREAMS = [
    found
    for found in captures()
    if "walsender.bin" in found.forms and found.scenario.version in ("pg14", "pg16", "pg18")
]

DML, STREAMED = capture("A_dml", "p1"), capture("C_stream", "p2_stream_msg")


def record(directory: Path, *arguments: str | Path) -> Result:
    command = ["record", "-D", str(directory), "--segment-size", "12000", *map(str, arguments)]
    return CliRunner().invoke(main, command, catch_exceptions=False)


@pytest.mark.parametrize("found", STREAMS[::4], ids=str)
def test_recorded_dump_has_its_lines(found: Capture, tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    dump.write_bytes(FORMS["lengths"](found))
    result = record(tmp_path / "capture", "--from", dump, "--encoding", found.encoding)
    assert result.exit_code == 0
    said = (
        rf"pgtail: \d+ transactions? \(.*\) recorded; the capture in {tmp_path}/capture ends at [0-9A-F]+/[0-9A-F]+\n"
    )
    assert re.fullmatch(said, result.stderr)
    assert record(tmp_path / "quiet", "-q", "--from", dump, "--encoding", found.encoding).stderr == ""
    again = read(tmp_path / "capture", options=("--encoding", found.encoding))
    assert again.stdout == read(dump, options=("--encoding", found.encoding)).stdout


@pytest.mark.parametrize("form", FORMS)
def test_a_dump_of_any_form(form: str, tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    dump.write_bytes(FORMS[form](STREAMED))
    assert record(tmp_path / "capture", "--from", dump).exit_code == 0
    assert len(segments(tmp_path / "capture")) > 1
    assert read(tmp_path / "capture").stdout == read(dump).stdout


def test_a_dump_given_twice_is_recorded_once(tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    dump.write_bytes(FORMS["recvlogical"](DML))
    assert record(tmp_path / "capture", "--from", dump, dump).exit_code == 0
    assert read(tmp_path / "capture").stdout == read(dump).stdout


def test_dumps_in_the_wrong_order(tmp_path: Path) -> None:
    frames = FORMS["recvlogical"](DML)
    middle = frames.index(b"\nB", len(frames) // 2) + 1
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(frames[:middle])
    second.write_bytes(frames[middle:])
    result = record(tmp_path / "capture", "--from", second, first)
    assert result.exit_code == 1
    assert "give the dumps in the order" in result.stderr


def test_messages_before_damage_are_kept(tmp_path: Path) -> None:
    data = FORMS["lengths"](DML)
    dump = tmp_path / "dump"
    dump.write_bytes(data[: len(data) * 2 // 3])
    result = record(tmp_path / "capture", "--from", dump, tmp_path / "next")
    assert result.exit_code == 1
    assert f"{dump}: byte" in result.stderr
    assert f"not in the capture: {tmp_path / 'next'}, after {dump}" in result.stderr
    whole, kept = read(dump), read(tmp_path / "capture")
    assert kept.status == 0
    assert kept.stdout
    assert whole.stdout.startswith(kept.stdout)


def test_a_dump_without_a_transaction_is_noted(tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    for number, (content, noted) in enumerate([(b"", True), (recvlogical(message(b"m", transactional=False)), False)]):
        dump.write_bytes(content)
        result = record(tmp_path / str(number), "--from", dump)
        words = f"note: nothing was recorded: there is no whole transaction in {dump}\n"
        assert (result.exit_code, result.stderr == f"pgtail: {words}") == (0, noted)
        assert bool(list((tmp_path / str(number)).glob("*.pgcap"))) != noted


def test_a_directory_that_contains_a_capture(tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    dump.write_bytes(FORMS["lengths"](DML))
    assert record(tmp_path / "capture", "--from", dump).exit_code == 0
    result = record(tmp_path / "capture", "--from", dump)
    assert result.exit_code == 2
    assert "holds a capture already" in result.stderr


def recorded_by(way: Way, directory: Path, *dumps: Path, encoding: str = "utf8") -> tuple[int, str, dict[str, bytes]]:
    """Exit status, what was told, and the files."""
    with rows_by(way):
        result = record(directory, "--no-compress", "--encoding", encoding, *(f"--from={dump}" for dump in dumps))
    files = {path.name: path.read_bytes() for path in directory.iterdir()} if directory.exists() else {}
    return result.exit_code, result.stderr.replace(str(directory), ""), files


def in_both_ways(folder: Path, *dumps: Path, encoding: str = "utf8") -> int:
    """Record these dumps with the scanner and without, and compare; returns the exit status."""
    found = [recorded_by(way, folder / way, *dumps, encoding=encoding) for way in WAYS]
    for way in WAYS:
        shutil.rmtree(folder / way, ignore_errors=True)
    assert found[0] == found[1]
    return found[0][0]


@pytest.mark.parametrize("form", ["lengths", "recvlogical", "copydata", "pgcap", "raw"])
@pytest.mark.parametrize("found", STREAMS[::9], ids=str)
def test_the_scanner_records_what_the_decoder_does(found: Capture, form: str, tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    dump.write_bytes(FORMS[form](found))
    assert in_both_ways(tmp_path, dump, encoding=found.encoding) == 0


@pytest.mark.parametrize("form", ["lengths", "recvlogical", "copydata"])
def test_the_scanner_stops_at_damage_where_the_decoder_does(form: str, tmp_path: Path) -> None:
    data, choose, statuses = FORMS[form](DML), random.Random(form), []
    dump = tmp_path / "dump"
    for _ in range(15):
        damaged = bytearray(data)
        damaged[choose.randrange(len(data))] = choose.choice((0, 0xFF, 0x7F, choose.randrange(256)))
        dump.write_bytes(damaged[: choose.choice([len(data), choose.randrange(len(data))])])
        statuses.append(in_both_ways(tmp_path, dump))
    assert {0, 1} <= {*statuses}


@pytest.mark.parametrize("seed", range(6))
def test_the_scanner_leaves_out_what_the_decoder_does(seed: int, tmp_path: Path) -> None:
    """Dumps that repeat transactions, lack some, or come in the wrong order."""
    choose, frames = random.Random(seed), [*data_frames(DML)]
    dumps = []
    for number in range(3):
        first, last = sorted(choose.sample(range(len(frames)), 2))
        dumps.append(tmp_path / f"{number}")
        dumps[-1].write_bytes(lengths(frames[: last if number == 0 else len(frames)][0 if number == 0 else first :]))
    in_both_ways(tmp_path, *dumps)


def test_the_positions_of_a_header_become_one(tmp_path: Path) -> None:
    """A dump may have been written by something that fills them differently."""
    dump = tmp_path / "dump"
    dump.write_bytes(lengths([one[:9] + bytes(8) + one[17:] for one in data_frames(DML)]))
    assert in_both_ways(tmp_path, dump) == 0


@pytest.mark.parametrize("pure", ["", "1"])
def test_an_end_with_another_time_than_its_beginning_is_damage(tmp_path: Path, pure: str) -> None:
    """It is told when the dump is recorded: Spark refuses the segment later."""
    messages = [encode.relation()]
    for at in range(1, 6):
        messages += [encode.begin(lsn=at << 8, time=at), encode.insert("1", "a")]
        messages.append(encode.commit(lsn=at << 8, end=(at << 8) + 8, time=7 if at == 3 else at))
    messages += [encode.begin_prepare(lsn=0x900, time=1), encode.prepare(lsn=0x900, time=2)]
    dump = tmp_path / "dump"
    dump.write_bytes(encode.recvlogical(*messages))
    found = command("record", "-D", tmp_path / "capture", "--from", dump, environment={"PGTAIL_PURE": pure})
    places = re.findall(r"warning: transaction at (\S+): time \S+ of \w+, but \S+ of its Begin", found.stderr)
    assert (found.status, places[0], len(places)) == (1, "0/300", 2)
    assert len(here("decode", "-o", "json", tmp_path / "capture").lines) == 5
