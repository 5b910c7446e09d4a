"""`pgtail record --from`: a dump of any form becomes a capture with the same output."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pgtail.cli import main
from tests.support.captures import read, segments
from tests.support.corpus import Capture, capture, captures
from tests.support.every import every
from tests.support.forms import FORMS

STREAMS = [
    found
    for found in captures()
    if "walsender.bin" in found.forms and found.scenario.version in ("pg14", "pg16", "pg18")
]

DML, STREAMED = capture("A_dml", "p1"), capture("C_stream", "p2_stream_msg")


def record(directory: Path, *arguments: str | Path) -> Result:
    command = ["record", "-D", str(directory), "--segment-size", "3000", *map(str, arguments)]
    return CliRunner().invoke(main, command, catch_exceptions=False)


@pytest.mark.parametrize("found", STREAMS[:: every(2)], ids=str)
def test_recorded_dump_has_its_lines(found: Capture, tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    dump.write_bytes(FORMS["lengths"](found))
    result = record(tmp_path / "capture", "--from", dump, "--encoding", found.encoding)
    assert (result.exit_code, result.stderr) == (0, "")
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


def test_a_directory_that_contains_a_capture(tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    dump.write_bytes(FORMS["lengths"](DML))
    assert record(tmp_path / "capture", "--from", dump).exit_code == 0
    result = record(tmp_path / "capture", "--from", dump)
    assert result.exit_code == 2
    assert "holds a capture already" in result.stderr
