"""Reading frames from libpq: a real server's COPY, with errors and broken connections."""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import psycopg
import pytest
from psycopg.pq.abc import PGconn

from pgtail.pgoutput.frames import each
from pgtail.postgres.copy_reader import BROKEN, ENDED, MAX_BATCH, CopyReader
from tests.support.limits import within
from tests.support.render import WAYS, rows_by
from tests.support.servers import Database

TIMEOUT_MS = int(within(60) * 1000)
HANGS = "SELECT CASE WHEN n < 1000 THEN repeat('x', 100) ELSE pg_sleep(600)::text END FROM generate_series(1, 1000) n"
"""The server sends nothing, not even CopyOutResponse, before its buffer has 8 kB."""


@pytest.fixture(params=WAYS)
def of_libpq(request: pytest.FixtureRequest) -> Iterator[CopyReader]:
    with rows_by(request.param):
        yield CopyReader()


@contextmanager
def copying(database: Database, query: str, notice: Callable[[object], None] | None = None) -> Iterator[PGconn]:
    """A connection in the middle of COPY TO STDOUT."""
    with closing(psycopg.connect(database.conninfo(), autocommit=True)) as connection:
        pgconn = connection.pgconn
        pgconn.exec_(f"COPY ({query}) TO STDOUT".encode())
        pgconn.nonblocking = 1
        if notice is not None:
            connection.add_notice_handler(notice)
        yield pgconn


def read_all(of_libpq: CopyReader, pgconn: PGconn) -> tuple[list[bytes], int]:
    """The rows, and how it ended."""
    rows: list[bytes] = []
    outcome = 0
    deadline = time.monotonic() + TIMEOUT_MS / 1000
    while not outcome and not of_libpq.stopped:
        frames, outcome, _, ready = of_libpq.next(pgconn, False, [], TIMEOUT_MS)
        assert ready == []
        assert time.monotonic() < deadline
        rows += each(frames)
    return rows, outcome


def test_every_row_in_order(newest_database: Database, of_libpq: CopyReader) -> None:
    sizes = [number % 700 for number in range(30_000)]
    query = "SELECT repeat('x', number % 700) FROM generate_series(0, 29999) number"
    with copying(newest_database, query) as pgconn:
        rows, outcome = read_all(of_libpq, pgconn)
    assert outcome == ENDED
    assert [len(row) - 1 for row in rows] == sizes
    assert set(b"".join(rows)) == set(b"x\n")


def test_a_row_larger_than_a_batch(newest_database: Database, of_libpq: CopyReader) -> None:
    size = 3 * MAX_BATCH + 1
    query = f"SELECT repeat('a', {size}) UNION ALL SELECT 'b'"
    with copying(newest_database, query) as pgconn:
        rows, outcome = read_all(of_libpq, pgconn)
    assert outcome == ENDED
    assert rows == [b"a" * size + b"\n", b"b\n"]


def test_no_frames_after_stopped_is_set(newest_database: Database, of_libpq: CopyReader) -> None:
    newest_database.execute(
        "CREATE FUNCTION with_notice(n int) RETURNS int LANGUAGE plpgsql AS"
        " $$ BEGIN IF n = 5 THEN RAISE NOTICE 'here'; END IF; RETURN n; END $$"
    )

    def stop(notice: object) -> None:
        of_libpq.stopped = True

    with copying(newest_database, "SELECT with_notice(n) FROM generate_series(1, 100000) n", stop) as pgconn:
        rows, outcome = read_all(of_libpq, pgconn)
    assert (rows, outcome) == ([b"1\n", b"2\n", b"3\n", b"4\n"], 0)


def test_an_error_of_the_server(newest_database: Database, of_libpq: CopyReader) -> None:
    with copying(newest_database, "SELECT 9000000 / (3000 - n) FROM generate_series(1, 9000) n") as pgconn:
        rows, outcome = read_all(of_libpq, pgconn)
        assert (len(rows), rows[-1], outcome) == (2999, b"9000000\n", ENDED)
        pgconn.nonblocking = 0
        result = pgconn.get_result()
        assert result is not None
        assert b"division by zero" in result.error_message


def test_a_broken_connection(newest_database: Database, of_libpq: CopyReader) -> None:
    with copying(newest_database, HANGS) as pgconn:
        assert of_libpq.next(pgconn, False, [], TIMEOUT_MS // 100)[1] == 0
        with socket.socket(fileno=os.dup(pgconn.socket)) as ours:
            # Over TCP this closes with a reset; a Unix socket just ends.
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            ours.shutdown(socket.SHUT_RDWR)
        rows, outcome = read_all(of_libpq, pgconn)
        assert outcome == BROKEN
        assert b"server closed the connection unexpectedly" in pgconn.error_message
        assert set(rows) <= {b"x" * 100 + b"\n"}


def test_a_closed_connection(newest_database: Database, of_libpq: CopyReader) -> None:
    with copying(newest_database, "SELECT 1") as pgconn:
        pgconn.finish()
        assert of_libpq.next(pgconn, False, [], 0) == (b"", BROKEN, False, [])


def test_waiting_for_other_descriptors(newest_database: Database, of_libpq: CopyReader) -> None:
    read, write = os.pipe()
    with copying(newest_database, HANGS) as pgconn:
        others = [(read, select.POLLIN), (write, 0)]
        while of_libpq.next(pgconn, False, others, 500) != (b"", 0, False, []):
            pass
        os.write(write, b"x")
        assert of_libpq.next(pgconn, False, others, TIMEOUT_MS) == (b"", 0, False, [read])
        os.close(read)  # its reader is gone: poll() reports that for a pipe without being asked
        assert of_libpq.next(pgconn, False, others[1:], TIMEOUT_MS) == (b"", 0, False, [write])
        assert of_libpq.next(pgconn, True, [], TIMEOUT_MS) == (b"", 0, True, [])
        newest_database.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'COPY%'")
    os.close(write)
