"""Snapshots of real servers, and what the walsender itself sends of the same tables."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg

from pgtail.files.stopping import Interrupt
from pgtail.pgoutput.decoder import XLOG_HEADER_SIZE
from pgtail.pgoutput.frames import LENGTHS, each
from pgtail.pgoutput.walsender import XLogData
from pgtail.postgres.connection import Connector, parameters
from pgtail.postgres.pgoutput_options import Wanted, resolve
from pgtail.postgres.slots import Creation, temporary_name
from pgtail.postgres.snapshot import SnapshotSession
from pgtail.postgres.snapshot_plan import PublishedTable
from pgtail.postgres.table_copy import CopyForm, copy_part
from pgtail.postgres.walsender import Session
from tests.support.limits import within
from tests.support.servers import Database
from tests.support.tail import wait_for


def connector_to(database: Database, **more: str) -> Connector:
    return Connector(parameters(database.conninfo(**more)))


@contextlib.contextmanager
def snapshot_of(
    database: Database, *, encoding: str | None = None, **more: str
) -> Iterator[tuple[SnapshotSession, int]]:
    """A session with the snapshot of a temporary slot, whose own session has ended, and the slot's consistent point."""
    connector = connector_to(database)
    creation = Creation(connector, temporary_name(), temporary=True, export=True)
    with Interrupt() as interrupt:
        exporting, created = creation.create(interrupt, creation.prepare())
        with contextlib.closing(exporting):
            assert created.snapshot is not None
            session = SnapshotSession.open(connector_to(database, **more), created.snapshot, encoding=encoding)
    with session:
        yield session, created.consistent_point


def wait_for_walsender(database: Database, session: psycopg.Connection[Any]) -> None:
    """Until a walsender that creates a slot waits for the session's transaction."""
    blocked = f"{session.info.backend_pid} = ANY(pg_blocking_pids(pid)) AND backend_type = 'walsender'"
    wait_for("session that waits", lambda: database.query(f"SELECT 1 FROM pg_stat_activity WHERE {blocked}"))


def copied(
    session: SnapshotSession,
    table: PublishedTable,
    *,
    binary: bool = False,
    sample: int | None = None,
    stop: threading.Event | None = None,
) -> list[bytes]:
    """The Insert messages of a table."""
    form = CopyForm(binary, XLogData(1, 2, 3), LENGTHS, sample)
    frames = []
    for part in table.parts:
        for batch in copy_part(session, table, part, form, stop=stop or threading.Event()):
            of_batch = list(each(batch.frames))
            assert len(of_batch) == batch.rows
            frames += of_batch
    return [frame[XLOG_HEADER_SIZE:] for frame in frames]


def streamed(
    database: Database, slot: str, publications: Sequence[str], *, binary: bool = False, encoding: str | None = None
) -> list[bytes]:
    """The messages that START_REPLICATION sends from a slot, up to the server's position now."""
    target = database.value("SELECT (pg_current_wal_flush_lsn() - '0/0')::text")
    options = resolve(Wanted(proto_version=1, binary=binary), database.version, publications)
    found = []
    with Interrupt() as interrupt:
        connection = connector_to(database).replication(passthrough=encoding is not None)
        session = Session(connection, interrupt, encoding=encoding or "utf-8")
        with contextlib.closing(session):
            session.start(options.start_replication(slot, 0))
            deadline, reached = time.monotonic() + within(30), 0
            while reached < int(target):
                assert time.monotonic() < deadline
                frames, _ = session.next([], 1)
                for frame in each(frames):
                    reached = max(reached, int.from_bytes(frame[1:9]))
                    if frame[:1] == b"w":
                        found.append(frame[XLOG_HEADER_SIZE:])
    return found


def described(messages: Sequence[bytes]) -> dict[int, list[bytes]]:
    """For each table the Type messages before its last Relation message, and that."""
    found: dict[int, list[bytes]] = {}
    types: list[bytes] = []
    for message in messages:
        if message[:1] == b"Y":
            types.append(message)
        elif message[:1] == b"R":
            found[int.from_bytes(message[1:5])] = [*types, message]
            types = []
    return found


def inserted(messages: Sequence[bytes]) -> dict[int, list[bytes]]:
    """The Insert messages of each table."""
    found: dict[int, list[bytes]] = {}
    for message in messages:
        if message[:1] == b"I":
            found.setdefault(int.from_bytes(message[1:5]), []).append(message)
    return found
