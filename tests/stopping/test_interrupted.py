"""A request to stop while dumps are read: a file was not read to its end, and that shows; a pipe has no other end."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import pytest

from tests.stopping.trial import PROGRAM
from tests.support.encode import INT4, begin, commit, insert, recvlogical, relation
from tests.support.limits import within

_TABLE = recvlogical(begin(), relation(columns=[("id", INT4)]), commit())
_TRANSACTION = recvlogical(begin(), *[insert("1")] * 50, commit())
_BEFORE = 0.3
"""Seconds of reading before the signal; all of the input takes several without the compiled scanner."""


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
    while stdin is None and file not in [path.readlink() for path in descriptors.iterdir() if path.is_symlink()]:
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(within(_BEFORE))
    process.send_signal(sent)
    out, err = process.communicate(timeout=within(30))
    return process.returncode, out, err.decode()


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
    assert f"pgtail: error: {dump}: interrupted after about " in err
    assert f" of {size} bytes; the rest was not read\n" in err
    assert status == 130
    written = Path("OUT").read_bytes() if "OUT" in command else out
    if "--undo" in command:
        assert written == b""
        assert "warning: no statements were written: they would undo the older changes without the newer ones\n" in err
    elif command[0] == "stats":
        assert 0 < json.loads(written)["transactions"]["count"] < 10_000
    elif command[0] == "decode":
        # Nobody read the pipe: the signal may have interrupted a write to it.
        lines = written.splitlines() if "OUT" in command else written[: written.rfind(b"\n")].splitlines()
        assert {json.loads(line)["table"] for line in lines} == {"t"}


def test_other_signals_and_compressed_files(tmp_path: Path, dump: Path) -> None:
    file = tmp_path / "changes.bin.gz"
    file.write_bytes(gzip.compress(dump.read_bytes(), 1))
    status, _, err = _interrupt(["decode", file], file, signal.SIGTERM)
    assert status == 143
    assert f"{file}: interrupted after about " in err
    assert " uncompressed bytes; the rest was not read\n" in err


def test_standard_input(dump: Path) -> None:
    """A regular file has an end; for a pipe a request to stop is the end, and what was read is complete."""
    with dump.open("rb") as file:
        status, _, err = _interrupt(["decode", "-v", "-"], dump, signal.SIGINT, file)
    assert (status, "<stdin>: interrupted after about " in err) == (130, True)
    read, write = os.pipe()
    with os.fdopen(read, "rb") as pipe, os.fdopen(write, "wb", buffering=0) as feed:
        feed.write(_TABLE + _TRANSACTION)
        status, out, err = _interrupt(["decode", "-o", "sql", "--undo", "-v", "-"], dump, signal.SIGINT, pipe)
    assert (status, out.count(b"DELETE"), err) == (0, 50, "")
