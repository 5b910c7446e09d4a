"""A request to stop while dumps are read: a file was not read to its end, and that shows; a pipe has no other end."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

import pytest

from tests.stopping.trial import PROGRAM
from tests.support.encode import INT4, begin, commit, insert, recvlogical, relation
from tests.support.limits import within
from tests.support.tail import wait_for

_TABLE = recvlogical(begin(), relation(columns=[("id", INT4)]), commit())
_TRANSACTION = recvlogical(begin(), *[insert("1")] * 50, commit())
_BEFORE = 0.3
"""Seconds of reading before the signal; all of the input takes several without the compiled scanner."""
_TICKS = os.sysconf("SC_CLK_TCK")


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("interrupted") / "changes.bin"
    file.write_bytes(_TABLE + _TRANSACTION * 10_000)
    return file


def _interrupt(
    arguments: Sequence[str | Path], file: Path, sent: signal.Signals, stdin: IO[bytes] | None = None
) -> tuple[int, bytes, str]:
    """Send a signal to a command that is reading a file, or with -v `stdin`; returns its status and outputs."""
    process = subprocess.Popen(
        [*PROGRAM, *arguments],
        stdin=stdin or subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PGTAIL_PURE": "1"},
    )
    descriptors = Path(f"/proc/{process.pid}/fd")
    if stdin is not None:
        assert process.stderr is not None
        assert process.stderr.readline() == b"pgtail: <stdin>: recvlogical\n"
    while stdin is None and file not in _open_files(descriptors):
        assert process.poll() is None
        time.sleep(0.01)
    begun = _processor_time(process.pid)
    wait_for("some reading", lambda: _processor_time(process.pid) >= begun + _BEFORE or _waits(process.pid))
    process.send_signal(sent)
    out, err = process.communicate(timeout=within(30))
    return process.returncode, out, err.decode()


def _processor_time(pid: int) -> float:
    """Seconds that a process has used."""
    return sum(map(int, _stat(pid)[11:13])) / _TICKS


def _waits(pid: int) -> bool:
    """Whether a process does nothing for a while: its output is not read, or its input has no more."""
    before = _stat(pid)
    time.sleep(0.1)
    return before[0] == "S" and before[:13] == _stat(pid)[:13]


def _stat(pid: int) -> list[str]:
    """The fields of proc_pid_stat(5) from the state on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _open_files(descriptors: Path) -> Iterator[Path]:
    for path in descriptors.iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed in the meantime
            yield path.readlink()


@pytest.mark.parametrize(
    "command",
    [
        ["decode"],
        ["decode", "-f", "OUT"],
        ["decode", "-o", "sql", "--undo"],
        ["decode", "-o", "sql", "--undo", "-f", "OUT"],
        ["stats", "-o", "json"],
        ["inspect"],
        ["record", "-D", "capture", "--from"],
    ],
    ids=" ".join,
)
def test_a_file(command: list[str], dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = _interrupt([*command, dump], dump, signal.SIGINT)
    size = dump.stat().st_size
    assert f"pgtail: error: {dump}: interrupted after " in err
    assert f" of {size} bytes; the rest was not read\n" in err
    assert status == 130
    written = Path("OUT").read_bytes() if "OUT" in command else out
    if "--undo" in command:
        assert written == b""
        assert "warning: no statements were written: they would undo the older changes without the newer ones\n" in err
    elif command[0] == "stats":
        assert 0 < json.loads(written)["transactions"]["count"] < 10_000
    elif command[0] == "decode":
        assert written.endswith(b"\n")
        assert {json.loads(line)["table"] for line in written.splitlines()} == {"t"}


def test_other_signals_and_compressed_files(tmp_path: Path, dump: Path) -> None:
    file = tmp_path / "changes.bin.gz"
    file.write_bytes(gzip.compress(dump.read_bytes(), 1))
    status, _, err = _interrupt(["decode", file], file, signal.SIGTERM)
    assert status == 143
    assert f"{file}: interrupted after " in err
    assert " uncompressed bytes; the rest was not read\n" in err


def test_standard_input(dump: Path) -> None:
    """A regular file has an end; for a pipe a request to stop is the end, and what was read is complete."""
    with dump.open("rb") as file:
        status, _, err = _interrupt(["decode", "-v", "-"], dump, signal.SIGINT, file)
    assert (status, "<stdin>: interrupted after " in err) == (130, True)
    read, write = os.pipe()
    with os.fdopen(read, "rb") as pipe, os.fdopen(write, "wb", buffering=0) as feed:
        feed.write(_TABLE + _TRANSACTION)
        status, out, err = _interrupt(["decode", "-o", "sql", "--undo", "-v", "-"], dump, signal.SIGINT, pipe)
    assert (status, out.count(b"DELETE"), err) == (0, 50, "")


def _blocked(*arguments: str | Path, pure: bool = False) -> subprocess.Popen[bytes]:
    """A `pgtail decode` of a file that waits in a write, because nobody reads what it writes to its pipe."""
    process = subprocess.Popen(
        [*PROGRAM, "decode", "-o", "json", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PGTAIL_PURE": "1" if pure else ""},
    )
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], within(30))[0]
    time.sleep(_BEFORE)
    return process


def _as_hex(data: bytes) -> bytes:
    """The messages of the dump as lines of hexadecimal digits."""
    return b"".join([b"\\x" + message.hex().encode() + b"\n" for message in data.split(b"\n") if message])


@pytest.mark.parametrize(
    ("pure", "form"),
    [(False, bytes), (True, bytes), (False, gzip.compress), (False, _as_hex)],
    ids=["binary", "without the scanner", "gzip", "text"],
)
def test_a_slow_reader_gets_whole_lines_of_all_that_was_read(
    pure: bool, form: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    content = _TABLE + _TRANSACTION * 3000 if form is not _as_hex else _as_hex(_TABLE + _TRANSACTION * 1000)
    file = tmp_path / "changes"
    file.write_bytes(content if form is _as_hex else form(content))
    with _blocked(file, pure=pure) as process:
        process.send_signal(signal.SIGINT)
        time.sleep(_BEFORE)
        out, err = process.communicate(timeout=within(30))
    found = re.search(rb"interrupted after (\d+) (uncompressed|of \d+) bytes; the rest was not read\n", err)
    assert (process.returncode, found is not None) == (130, True), err
    assert found is not None
    read = int(found[1])
    assert 0 < read < len(content)
    whole = subprocess.run(
        [*PROGRAM, "decode", "-o", "json", "-"], input=content[:read], capture_output=True, check=False
    )
    assert out.endswith(b"\n")
    assert out == whole.stdout


def test_a_second_request_does_not_wait_for_a_reader(dump: Path) -> None:
    with _blocked(dump) as process:
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1.1)  # what comes earlier is the same request
        process.send_signal(signal.SIGINT)
        assert process.wait(within(30)) == 130
        assert process.stderr is not None
        assert process.stderr.read().endswith(b"interrupted while writing: the output may end inside a line\n")
