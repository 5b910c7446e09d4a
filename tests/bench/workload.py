"""The benchmark's workload: run once on an embedded PostgreSQL 16, its backlog kept in files that every program reads.

workload.sql makes the tables and procedures. The changes are made in three parts with fixed random seeds, so that the
rows are the same wherever they are made (times, xids and log positions are not).
"""

from __future__ import annotations

import select
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import psycopg
from psycopg import pq

from pgtail.demo.installation import Installation, embedded_installations
from pgtail.demo.server import EmbeddedServer
from pgtail.errors import ServerError

HERE = Path(__file__).parent
WORK = HERE / "work"
"""Everything the benchmark makes and installs; not in git."""

_SETUP = HERE / "workload.sql"
_MAJOR = 16
BASE_SLOT = "base"
_START = f"START_REPLICATION SLOT {BASE_SLOT} LOGICAL 0/0 (proto_version '1', publication_names 'pub')"
_XLOGDATA, _KEEPALIVE = b"wk"
HEADER = 25
"""Bytes of an XLogData frame before its message."""


@dataclass(frozen=True, slots=True)
class Size:
    """How many changes the three parts make."""

    name: str
    accounts: int
    wide: int
    big: int

    @property
    def changes(self) -> int:
        return self.accounts + self.wide + self.big

    @property
    def statements(self) -> list[str]:
        return [
            "SELECT setseed(0.42)",
            f"CALL small('accounts', {self.accounts})",
            "SELECT setseed(0.43)",
            f"CALL small('wide', {self.wide})",
            "SELECT setseed(0.44)",
            f"CALL big({self.big})",
        ]


SIZES = {
    "tenth": Size("tenth", 50_000, 30_000, 50_000),
    "full": Size("full", 500_000, 300_000, 500_000),
}


@dataclass(frozen=True, slots=True)
class Backlog:
    """One recording of the workload, in the two forms in which it is read."""

    size: Size

    @property
    def lengths(self) -> Path:
        """The walsender's frames, each after its length as an int32, as a reader of the slot gets them."""
        return WORK / f"{self.size.name}.lengths.bin"

    @property
    def recvlogical(self) -> Path:
        """The same messages as pg_recvlogical writes them: each with a newline after it, and nothing else."""
        return WORK / f"{self.size.name}.recv.bin"

    def is_there(self) -> bool:
        return self.lengths.exists() and self.recvlogical.exists()

    def record(self) -> None:
        """Run the workload on a new server, and keep what its slot holds. Raises ServerError."""
        WORK.mkdir(exist_ok=True)
        with EmbeddedServer(_installation(), settings=settings()) as server:
            make_changes(server, self.size)
            _keep(server, self)


def _installation() -> Installation:
    for installation in embedded_installations():
        if installation.major == _MAJOR:
            return installation
    raise ServerError(f"the embedded servers are there, but none is PostgreSQL {_MAJOR}")


def settings() -> dict[str, str | int]:
    """A server's settings for the workload."""
    return {"shared_buffers": f"{min(1024, _free_megabytes() // 4)}MB", "max_wal_size": "16GB", "wal_sender_timeout": 0}


def _free_megabytes() -> int:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return 1024


def make_changes(server: EmbeddedServer, size: Size | None) -> None:
    """The tables, a slot, and the changes that it will hold (None: no changes). Raises ServerError."""
    setup: list[str | Path] = [server.installation.program("psql"), "-X", "-q", "-d", server.conninfo(), "-f", _SETUP]
    psql = subprocess.run(setup, check=False, capture_output=True, text=True)
    if psql.returncode != 0:
        raise ServerError(f"the benchmark's tables could not be made: {psql.stderr.strip()}")
    with psycopg.connect(server.conninfo(), autocommit=True) as session:
        session.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [BASE_SLOT])
        for statement in [] if size is None else size.statements:
            session.execute(statement.encode())


def _keep(server: EmbeddedServer, backlog: Backlog) -> None:
    lengths, recvlogical = backlog.lengths.with_suffix(".part"), backlog.recvlogical.with_suffix(".part")
    with lengths.open("wb") as framed, recvlogical.open("wb") as plain:
        for frame in _frames(server):
            _write(frame, framed, plain)
    lengths.rename(backlog.lengths)
    recvlogical.rename(backlog.recvlogical)


def _frames(server: EmbeddedServer) -> Iterator[bytes]:
    """All that the slot holds now, read as fast as it comes and never acknowledged."""
    with psycopg.connect(server.conninfo(), autocommit=True) as session:
        row = session.execute("SELECT pg_current_wal_flush_lsn() - '0/0'::pg_lsn").fetchone()
        until = int(row[0]) if row else 0
        session.execute("SELECT pg_log_standby_snapshot()")  # something to read past the end
    connection = pq.PGconn.connect(server.conninfo(replication="database").encode())
    try:
        if connection.exec_(_START.encode()).status != pq.ExecStatus.COPY_BOTH:
            raise ServerError(f"the benchmark's slot cannot be read: {connection.get_error_message()}")
        while True:
            frame = bytes(_next_frame(connection))
            yield frame
            if frame[0] == _KEEPALIVE and int.from_bytes(frame[1:9], "big") >= until:
                return
    finally:
        connection.finish()


def _next_frame(connection: pq.abc.PGconn) -> memoryview:
    while True:
        size, frame = connection.get_copy_data(1)
        if size > 0:
            return frame
        if size < 0:
            raise ServerError(f"the server ended the benchmark's stream: {connection.get_error_message()}")
        select.select([connection.socket], [], [])
        connection.consume_input()


def _write(frame: bytes, framed: BinaryIO, plain: BinaryIO) -> None:
    framed.write(len(frame).to_bytes(4, "big"))
    framed.write(frame)
    if frame[0] == _XLOGDATA:
        plain.write(frame[HEADER:])
        plain.write(b"\n")
