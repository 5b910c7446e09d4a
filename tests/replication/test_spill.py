"""The temporary files of streamed transactions: private, within --spill-limit, and on a disk that may be full."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers import Database
from tests.support.tail import stream, tailing, wait_for

ROWS = 60_000
"""Of more than 16 MB, which stay in memory."""
STREAMED = "-c logical_decoding_work_mem=64kB"


@pytest.fixture
def streaming(newest_database: Database) -> Database:
    """A database whose slot s streams large transactions."""
    newest_database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE PUBLICATION p FOR TABLE t")
    newest_database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    return newest_database


def insert(rows: int) -> str:
    return f"INSERT INTO t SELECT i, repeat('x', 300) FROM generate_series(1, {rows}) i"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount(8)")
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted: {mounted.stderr.decode()}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def temporary_files(pid: int) -> list[os.stat_result]:
    """The regular files without a name that a process has open."""
    found = []
    for one in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            found.append(os.stat(one))
    return [one for one in found if stat.S_ISREG(one.st_mode) and not one.st_nlink]


@pytest.mark.skipif(sys.platform != "linux", reason="/proc shows the files of a process")
def test_files_of_an_open_transaction_are_private_and_limited(streaming: Database) -> None:
    where = streaming.conninfo(options=STREAMED)
    with streaming.connect() as session, session.transaction():
        session.execute(insert(ROWS))
        with tailing(where, "-S", "s") as running:
            wait_for("file", lambda: any(one.st_size for one in temporary_files(running.process.pid)))
            for one in temporary_files(running.process.pid):
                assert (stat.S_IMODE(one.st_mode), one.st_uid) == (0o600, os.geteuid())
            running.stop()
    words = stream(where, "-S", "s", "--ack", "commit", "--spill-limit", "1MB", status=4)[1]
    assert "cannot keep a streamed transaction: more than 1.0 MB would be on disk" in words
    assert "--spill-limit" in words
    assert "--streaming off" in words
    with tailing(where, "-S", "s", "--until", "now", "--spill-limit", "1MB", "--streaming", "off") as running:
        running.end()
        assert len(running.out) == ROWS


def test_a_full_disk_is_an_error_and_acknowledges_nothing(streaming: Database, small_disk: Path) -> None:
    where = streaming.conninfo(options=STREAMED)
    streaming.execute(insert(ROWS))
    confirmed = "SELECT confirmed_flush_lsn FROM pg_replication_slots"
    before = streaming.value(confirmed)
    lines, words = stream(where, "-S", "s", "--ack", "commit", env={"TMPDIR": str(small_disk)}, status=4)
    assert lines == []
    assert f"cannot keep a streamed transaction in {small_disk}: No space left on device; set TMPDIR to a dir" in words
    assert streaming.value(confirmed) == before
    assert not list(small_disk.iterdir())
