"""Pipes that hold more."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pgtail.files.pipes import SIZE, enlarge_pipe
from tests.support.corpus import CAPTURES

_LIMIT = Path("/proc/sys/fs/pipe-max-size")

pytestmark = pytest.mark.skipif(
    not _LIMIT.exists() or int(_LIMIT.read_text()) < SIZE, reason="this system does not let a pipe hold so much"
)


def test_a_pipe_is_enlarged_and_never_made_smaller() -> None:
    reading, writing = os.pipe()
    try:
        assert fcntl.fcntl(writing, fcntl.F_GETPIPE_SZ) < SIZE
        enlarge_pipe(writing)
        assert fcntl.fcntl(reading, fcntl.F_GETPIPE_SZ) == SIZE
        os.close(writing)
        writing = os.open(os.devnull, os.O_WRONLY)
        enlarge_pipe(writing)  # it is no pipe
    finally:
        os.close(reading)
        os.close(writing)


def test_decode_enlarges_what_it_reads_and_writes() -> None:
    capture = CAPTURES / "pg16" / "Z_small" / "p1.walsender.bin"
    command = [sys.executable, "-m", "pgtail", "decode"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as decoding:
        assert decoding.stdin is not None
        assert decoding.stdout is not None
        decoding.stdin.write(capture.read_bytes())
        decoding.stdin.flush()
        head = decoding.stdout.read(1)
        sizes = [fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ) for pipe in (decoding.stdin, decoding.stdout)]
        decoding.stdin.close()
        assert (head, sizes) == (b"{", [SIZE, SIZE])
        decoding.stdout.read()
