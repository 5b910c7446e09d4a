"""Readers of the log while it is written: a walsender session, pg_recvlogical, and psql afterwards.

Imports no pgtail code: the contents of a capture must not depend on the code that it tests.
"""

from __future__ import annotations

import contextlib
import select
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
from psycopg import pq

from tests.support.servers import Database
from tests.tools.scenarios import Capture

_PATIENCE = 60.0
_KEEPALIVE = struct.Struct("!cQ")


def wait_for_walsenders(database: Database) -> None:
    """Wait until every walsender has read all of the log, including the changes of open transactions."""
    database.execute("CHECKPOINT")  # flushes it; walsenders read nothing else
    written = database.value("SELECT pg_current_wal_flush_lsn()")
    deadline = time.monotonic() + _PATIENCE
    query = f"SELECT bool_and(sent_lsn >= '{written}') FROM pg_stat_replication"
    while not database.value(query):
        assert time.monotonic() < deadline, f"the walsenders did not reach {written}"
        time.sleep(0.01)


def literal(text: str) -> str:
    """A string literal as both SQL and the replication grammar take it."""
    return "'" + text.replace("'", "''") + "'"


def start_replication(slot: str, capture: Capture) -> str:
    """The command that starts a capture."""
    options = ", ".join(f'"{name}" {literal(value)}' for name, value in capture.options.items())
    return f'START_REPLICATION SLOT "{slot}" LOGICAL 0/0 ({options})'


def peek(slot: str, capture: Capture) -> str:
    """The function call that reads the same from SQL."""
    options = ", ".join(literal(part) for option in capture.options.items() for part in option)
    return f"pg_logical_slot_peek_binary_changes({literal(slot)}, NULL, NULL, {options})"


class Walsender(threading.Thread):
    """A replication session that keeps every CopyData payload and answers nothing: its slot does not advance."""

    def __init__(self, database: Database, command: str) -> None:
        super().__init__(daemon=True)
        self.payloads: list[bytes] = []
        self._target: int | None = None
        self._error: str | None = None
        self._connection = pq.PGconn.connect(database.conninfo(replication="database").encode())
        assert self._connection.status == pq.ConnStatus.OK, self._connection.error_message
        result = self._connection.exec_(command.encode())
        assert result.status == pq.ExecStatus.COPY_BOTH, result.error_message
        self.start()

    def run(self) -> None:
        """Read until a keepalive says that the server has sent everything up to the target."""
        deadline = None
        while self._target is None or self._reached() < self._target:
            if self._target is not None:
                deadline = deadline or time.monotonic() + _PATIENCE
                if time.monotonic() > deadline:
                    self._error = f"the walsender did not come to {self._target:X}"
                    return
            select.select([self._connection.socket], [], [], 0.05)
            try:
                self._connection.consume_input()
            except psycopg.OperationalError as error:
                self._error = str(error)
                return
            while (read := self._connection.get_copy_data(1))[0] > 0:
                self.payloads.append(bytes(read[1]))
            if read[0] < 0:
                self._error = "the walsender ended"
                return

    def _reached(self) -> int:
        last = self.payloads[-1] if self.payloads else b""
        position: int = _KEEPALIVE.unpack_from(last)[1] if last[:1] == b"k" else 0
        return position

    def finish(self, target: int) -> bytes:
        """Read on up to a log position and leave; returns the frames, each an int32 length and the payload."""
        self._target = target
        self.join()
        assert self._error is None, self._error
        self._connection.finish()
        return b"".join(struct.pack("!i", len(payload)) + payload for payload in self.payloads)


@contextlib.contextmanager
def recvlogical(program: Path, database: Database, slot: str, capture: Capture, file: Path) -> Iterator[None]:
    """Run pg_recvlogical into a file while the block runs, and end it when it has confirmed all of the log."""
    command = [str(program), f"--dbname={database.conninfo()}", f"--slot={slot}", "--start", "--no-loop"]
    command += ["--status-interval=1", "--fsync-interval=1", f"--file={file}"]
    command += [f"--option={name}={value}" for name, value in capture.options.items()]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        try:
            yield
            _wait_until_confirmed(database, slot, process)
        finally:
            process.send_signal(signal.SIGINT)
        process.wait(_PATIENCE)


def _wait_until_confirmed(database: Database, slot: str, process: subprocess.Popen[bytes]) -> None:
    target = database.value("SELECT pg_current_wal_flush_lsn()")
    deadline = time.monotonic() + _PATIENCE
    query = f"SELECT confirmed_flush_lsn >= '{target}' FROM pg_replication_slots WHERE slot_name = {literal(slot)}"
    with contextlib.closing(psycopg.connect(database.conninfo(), autocommit=True)) as session:
        while not session.execute(query.encode()).fetchall()[0][0]:
            assert process.poll() is None, process.stderr.read() if process.stderr else b""
            assert time.monotonic() < deadline, f"pg_recvlogical did not reach {target}"
            time.sleep(0.1)


def psql_hex(program: Path, database: Database, slot: str, capture: Capture) -> bytes:
    """The output of `psql -A` for a peek in hex."""
    query = f"SELECT lsn, xid, encode(data, 'hex') FROM {peek(slot, capture)}"
    command = [str(program), "-X", "-A", "-d", database.conninfo(), "-c", query]
    return subprocess.run(command, check=True, capture_output=True, timeout=_PATIENCE).stdout
