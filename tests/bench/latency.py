"""How long a lone commit takes from its commit timestamp to a reader of the program's standard output.

The server's own part, writing the log and waking the walsender, is in every program's figure alike.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator

import psycopg

from pgtail.pgoutput.scalars import UNIX_EPOCH_OFFSET
from tests.bench.live import Drain, Live

COMMITS = 1000
PER_SECOND = 20
_ids = itertools.count(10**9)
_COMMIT = re.compile(rb"C\0.{16}(.{8})(?=\nB|\n?\Z)", re.DOTALL)
"""The message at the end of a transaction, in front of the next one's first."""


def latency(live: Live, drain: Drain, commits: int = COMMITS) -> tuple[float, float]:
    """(median, 99th percentile) in milliseconds over so many commits."""
    with live.slot(drain.plugin, at_end=True):
        program = subprocess.Popen(drain.command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            found: list[float] = []
            read = _of_lines if drain.writes_json else _of_messages
            reader = threading.Thread(target=lambda: found.extend(_taken(program, read, commits)))
            live.wait_for_reader()
            reader.start()
            _commit(live, commits)
            reader.join(30)
        finally:
            program.terminate()
            program.wait()
    if len(found) < commits:
        raise AssertionError(f"{drain.name} showed {len(found)} of {commits} commits")
    return statistics.median(found), statistics.quantiles(found, n=100)[98]


def _commit(live: Live, commits: int) -> None:
    with psycopg.connect(live.server.conninfo(), autocommit=True) as session:
        for _ in range(commits):
            session.execute("INSERT INTO accounts VALUES (%s, 1, 1, 'lone')", [next(_ids)])
            time.sleep(1 / PER_SECOND)


def _taken(program: subprocess.Popen[bytes], times: Callable[[bytes], Iterator[int]], commits: int) -> Iterator[float]:
    """Milliseconds from each commit in the arriving data until now."""
    assert program.stdout is not None
    count = 0
    while count < commits and (data := os.read(program.stdout.fileno(), 1 << 16)):
        now = time.time_ns() // 1000
        for committed in times(data):
            count += 1
            yield (now - committed) / 1000


def _of_lines(data: bytes) -> Iterator[int]:
    """Commit times, in microseconds since 1970, of JSON lines; each commit has one row."""
    for line in data.splitlines():
        date = json.loads(line)["commit_ts"]
        seconds = int(time.mktime(time.strptime(date[:19], "%Y-%m-%dT%H:%M:%S"))) - time.timezone
        yield seconds * 1_000_000 + int(date[20:26])


def _of_messages(data: bytes) -> Iterator[int]:
    """The same of pgoutput's messages as pg_recvlogical writes them.

    The newline after a message is written separately, and may come later.
    """
    for commit in _COMMIT.finditer(data):
        yield int.from_bytes(commit[1]) + UNIX_EPOCH_OFFSET
