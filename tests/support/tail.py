"""Runs `pgtail stream` and similar commands in processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

from tests.support.fork_server import start
from tests.support.limits import within
from tests.support.schemas import MOST, check_output
from tests.support.servers import Database

COMMAND = [sys.executable, "-c", "from pgtail.__main__ import main; main()", "stream"]
PATIENCE = 30.0
"""Maximum seconds for any step on an idle machine; within() adapts it to this machine."""


def wait_for(what: str, condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Wait until the condition is true, at most `seconds` of an idle machine; returns its result."""
    begun = asked = time.monotonic()
    while not (found := condition()):
        now = time.monotonic()
        assert now - begun < within(seconds), f"no {what} within {within(seconds):.0f} s"
        time.sleep(max(0.01, 3 * (now - asked)))  # a condition that costs much takes a quarter of a processor at most
        asked = time.monotonic()
    return found


def wait_for_reader(database: Database, *, temporary: bool = False) -> None:
    """Wait until a slot is being read; with `temporary` a temporary one."""
    which = "temporary AND active" if temporary else "active"
    wait_for("reader of a slot", lambda: database.query(f"SELECT 1 FROM pg_replication_slots WHERE {which}"))


def wait_for_free_slots(database: Database) -> None:
    """Wait until no slot is being read."""
    wait_for("free slots", lambda: not database.query("SELECT 1 FROM pg_replication_slots WHERE active"))


def wait_until_received(database: Database) -> None:
    """Wait until pgtail has received all that was written so far."""
    end = database.value("SELECT pg_current_wal_flush_lsn()")
    received = f"SELECT 1 FROM pg_stat_replication WHERE application_name = 'pgtail' AND write_lsn >= '{end}'"
    wait_for("everything to be received", lambda: database.query(received))


def wait_until_processed(database: Database) -> None:
    """Wait until pgtail has received all that was written so far, and its other thread has had time for it."""
    wait_until_received(database)
    time.sleep(0.5)


class Tailing:
    """A running `pgtail stream`, or another `command`. Threads read standard error and, if it is a pipe, `stdout`.

    `pace` makes a slow reader: seconds of pause after every hundred lines.
    """

    def __init__(
        self, conninfo: str, *arguments: str, stdout: int | IO[bytes] = subprocess.PIPE, **options: Any
    ) -> None:
        environment = {**os.environ, **options.pop("env", {})}
        self._pace: float = options.pop("pace", 0.0)
        command = [options.pop("command", COMMAND[-1]), conninfo, *arguments]
        self._command = command
        self.process = start(command, environment, stdout, subprocess.PIPE, **options)
        self.out: list[bytes] = []
        self.err: list[bytes] = []
        self._threads = [self._reader(self.process.stderr, self.err)]
        if stdout == subprocess.PIPE:
            self._threads.append(self._reader(self.process.stdout, self.out))

    def _reader(self, stream: IO[bytes] | None, lines: list[bytes]) -> threading.Thread:
        assert stream is not None

        def read() -> None:
            for line in iter(stream.readline, b""):
                lines.append(line)
                if self._pace and len(lines) % 100 == 0:
                    time.sleep(self._pace)

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        return thread

    @property
    def stderr(self) -> str:
        return b"".join(self.err).decode()

    @property
    def changes(self) -> list[dict[str, Any]]:
        """The lines so far, with numbers as strings of digits."""
        return [parse(line) for line in self.out if line.endswith(b"\n")]

    def wait_for_lines(self, count: int) -> None:
        wait_for(f"{count} lines (stderr: {self.stderr})", lambda: len(self.out) >= count or self._over())
        assert len(self.out) >= count, self.stderr

    def changes_of(self, count: int) -> list[dict[str, Any]]:
        """The changes, as soon as there are so many lines."""
        self.wait_for_lines(count)
        return self.changes

    def wait_for_output(self, part: str) -> None:
        wait_for(f"{part!r} in a line", lambda: any(part.encode() in line for line in self.out) or self._over())
        assert any(part.encode() in line for line in self.out), self.stderr

    def wait_for_words(self, words: str) -> None:
        wait_for(f"{words!r} on stderr: {self.stderr}", lambda: words in self.stderr or self._over())
        assert words in self.stderr, (self.process.poll(), self.stderr)

    def wait_for_slot(self, database: Database, name: str) -> None:
        """Wait until the slot is in use. A slot that is still being created is active, too, but has no position."""
        query = (
            f"SELECT active FROM pg_replication_slots WHERE slot_name = '{name}' AND active"
            " AND confirmed_flush_lsn IS NOT NULL"
        )
        wait_for(f"reader of slot {name}: {self.stderr}", lambda: database.query(query))

    def _over(self) -> bool:
        return self.process.poll() is not None and not any(thread.is_alive() for thread in self._threads)

    def stop(self, sent: signal.Signals = signal.SIGINT, *, status: int = 0) -> str:
        """Send Ctrl-C (or `sent`) and wait for the end; returns standard error."""
        self.process.send_signal(sent)
        return self.end(status=status)

    def end(self, *, status: int = 0, timeout: float = PATIENCE) -> str:
        """Wait for the end; returns standard error."""
        try:
            self.process.wait(within(timeout))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"pgtail does not end: {self.stderr}") from None
        for thread in self._threads:
            thread.join(within(PATIENCE))
        assert self.process.returncode == status, (self.process.returncode, self.stderr)
        assert "Traceback" not in self.stderr
        check_output(self._command, b"".join(self.out[:MOST]), self.stderr)
        return self.stderr

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for thread in self._threads:
            thread.join(within(PATIENCE))
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


@contextmanager
def tailing(database: Database | str, *arguments: str, **options: Any) -> Iterator[Tailing]:
    """Run pgtail on a database (or a connection string), and kill it at the end if necessary."""
    conninfo = database if isinstance(database, str) else database.conninfo()
    started = Tailing(conninfo, *arguments, **options)
    try:
        yield started
    finally:
        started.kill()


def terminate(database: Database) -> None:
    """End pgtail's replication session."""
    database.query("SELECT pg_terminate_backend(pid) FROM pg_stat_replication WHERE application_name = 'pgtail'")


def stream(
    database: Database | str, *arguments: str, status: int = 0, **options: Any
) -> tuple[list[dict[str, Any]], str]:
    """Run pgtail until it ends; returns its lines and standard error."""
    with tailing(database, *arguments, **options) as started:
        started.end(status=status, timeout=2 * PATIENCE)
        return started.changes, started.stderr


def parse(line: str | bytes) -> dict[str, Any]:
    """A line of JSON, with numbers as strings of digits."""
    found: dict[str, Any] = json.loads(line, parse_int=str, parse_float=str)
    return found


def ids(lines: list[dict[str, Any]]) -> list[int]:
    """The column id of the new rows."""
    return [int(line["new"]["id"]) for line in lines]
