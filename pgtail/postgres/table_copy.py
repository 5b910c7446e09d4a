"""Copies one part of a published table under a snapshot: COPY TO STDOUT, each row an Insert message in a frame."""

from __future__ import annotations

import contextlib
import select
import threading
import time
from collections.abc import Generator, Sequence
from typing import Final, NamedTuple

import psycopg
from msgspec import Struct
from psycopg import pq
from psycopg.pq.abc import PGresult

from pgtail.errors import COMMAND, ServerError
from pgtail.pgoutput.walsender import XLogData
from pgtail.postgres import rows
from pgtail.postgres.copy_reader import wait_to_read
from pgtail.postgres.copy_rows import ENDED, RowFrames, kinds_of
from pgtail.postgres.errors import (
    STANDBY_CONFLICT,
    Cure,
    RecoveryConflict,
    Unreachable,
    reported,
    server_error,
    why_broken,
)
from pgtail.postgres.pgoutput_options import identifier
from pgtail.postgres.snapshot import SnapshotSession
from pgtail.postgres.snapshot_plan import CopySource, Part, PublishedTable
from pgtail.terminal.escape import escape, sql_identifier

BATCH: Final = 1 << 20
"""Bytes of frames that are returned together; one row more. A capture's gzip members have as many."""
_LOOK: Final = 100
"""Milliseconds between two looks at the request to stop."""
_ATTEMPTS: Final = 5
"""How often a table is looked for that is renamed at the same time."""

_NOW: Final = "SELECT c.oid::regclass::text AS name, pg_relation_filenode(c.oid) AS relfilenode FROM pg_class c"
_OTHERS: Final = """
SELECT EXISTS (
    SELECT FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'relation' AND relation >= 16384
        AND relation <> {oid} AND pg_get_indexdef(relation) IS NULL AND relation::regclass::text NOT LIKE 'pg_toast.%'
) AS others
"""
"""Whether the transaction has locked another table: ALTER SCHEMA ... RENAME gives one a name without its lock."""
_KEEPS_LOCK: Final = 130000
"""The server version since which COPY of a table keeps its lock to the end of the transaction; COPY of a query does."""
_GONE: Final = {"42P01", "42703", "42704", "3F000"}
"""undefined_table, undefined_column, undefined_object, invalid_schema_name."""
_CURES: Final[tuple[Cure, ...]] = (
    Cure("42501", "row-level security", "The copy would lack the rows that row-level security hides, which the stream"
         f" has. Let the role see them all:{COMMAND}ALTER ROLE {{role}} BYPASSRLS;"),
)  # fmt: skip


class TableChanged(ServerError):
    """The table was truncated, rewritten, altered or dropped after the snapshot: copy it at a later position."""


class CopyStopped(Exception):
    """The copy was canceled by a request to stop."""


class RowBatch(NamedTuple):
    """Whole frames, and how many rows are in them."""

    frames: bytes
    rows: int


class CopyForm(Struct, frozen=True):
    """How rows are copied: as binary cells, as the stream has them, or as text; the frames' header and framing."""

    binary: bool
    header: XLogData
    framing: int
    """LENGTHS or COPY_DATA of pgoutput/frames.py."""
    sample: int | None = None
    """Millionths of the keys whose rows are copied; None for all. A table without a key is copied whole."""


def copy_part(
    session: SnapshotSession,
    table: PublishedTable,
    part: Part,
    form: CopyForm,
    *,
    stop: threading.Event,
    batch_bytes: int = BATCH,
    patience: float = 5,
) -> Generator[RowBatch, None, None]:
    """The rows of a part as Insert messages, in batches; between them nothing is read from the server.

    Raises TableChanged if the table has not stayed as the snapshot has it, RecoveryConflict, Unreachable, ServerError,
    and CopyStopped soon after `stop` is set, or after `patience` seconds if the server does not answer. After an error,
    and when the iterator is closed early, the session still has its snapshot, unless it ended (RecoveryConflict,
    Unreachable). The lock on the table ends with the iterator.
    """
    source = part.source
    if source is None:
        return
    command = _Command(session, source, stop, patience)
    command.run("SAVEPOINT part")
    try:
        name = _locked(command, table, source)
        kinds = kinds_of([column.has_send for column in table.columns]) if form.binary else None
        frames = RowFrames(table.oid, len(table.columns), kinds, form.header, form.framing)
        keeps_lock = session.connection.info.server_version >= _KEEPS_LOCK
        statement = copy_statement(table, part, name, kinds, form.sample, of_table=keeps_lock)
        yield from command.copy(statement, frames, batch_bytes)
        if command.row(_OTHERS.format(oid=source.oid)).boolean("others"):
            raise _changed(command.table, "another table had its name for a moment, and was read")
    finally:
        command.leave()


def _locked(command: _Command, table: PublishedTable, source: CopySource) -> str:
    """Lock a source, and return its name now. Raises TableChanged.

    A SELECT locks the table as LOCK TABLE does, but needs the right to read these columns only. The description of its
    result has the current catalog, while its reads of catalogs see the snapshot.
    """
    columns = ", ".join([identifier(column.description.name) for column in table.columns])
    for _ in range(_ATTEMPTS):
        now = command.row(f"{_NOW} WHERE c.oid = {source.oid}")
        name = command.session.name(now, "name")
        if name.isdecimal():
            break  # it is gone: otherwise such a name would be quoted
        result = command.run(f"SELECT {columns} FROM ONLY {name} LIMIT 0", renamed=True)
        if result is None:
            continue  # it was renamed in between
        if any(result.ftable(at) != source.oid for at in range(result.nfields)):
            command.leave(again=True)  # another table has its name
            continue
        described = [(result.ftablecol(at), result.ftype(at)) for at in range(result.nfields)]
        expected = zip(source.attnums, [column.base_type for column in table.columns], strict=True)
        now = command.row(f"{_NOW} WHERE c.oid = {source.oid}")
        if command.session.name(now, "name") != name:
            continue
        if described != list(expected):
            raise _changed(command.table, "its columns were altered")
        if now.optional_integer("relfilenode") != source.relfilenode:
            raise _changed(command.table, "it was truncated or rewritten")
        return name
    raise _changed(command.table, "it was renamed, altered or dropped")


def _changed(table: str, how: str) -> TableChanged:
    return TableChanged(
        f"table {table} has changed since the snapshot ({how}).",
        cure="Run the command again: it copies the table as it is then.",
    )


def copy_statement(
    table: PublishedTable, part: Part, name: str, kinds: bytes | None, sample: int | None, *, of_table: bool
) -> str:
    """The COPY of a part; `of_table`, of the table itself, if nothing is left out: COPY of a query costs more."""
    columns = [identifier(column.description.name) for column in table.columns]
    conditions = [f"ctid >= '({part.first_page},0)'"] if part.first_page else []
    conditions += [f"ctid < '({part.end_page},0)'"] if part.end_page is not None else []
    conditions += [f"({table.row_filter})"] if table.row_filter is not None else []
    conditions += [sample_condition(table.key, sample)] if table.key and sample is not None else []
    as_text = kinds is not None and b"t" in kinds
    options = "" if kinds is None else " (FORMAT binary)"
    whole = not conditions and not any(column.generated for column in table.columns)
    if of_table and whole and columns and not as_text:
        return f"COPY {name} ({', '.join(columns)}) TO STDOUT{options}"
    if as_text:
        columns = [
            one if column.has_send else f"CASE WHEN {one} IS NOT NULL THEN format('%s', {one}) END"
            for one, column in zip(columns, table.columns, strict=True)
        ]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"COPY (SELECT {', '.join(columns)} FROM ONLY {name}{where}) TO STDOUT{options}"


def sample_condition(key: Sequence[str], millionths: int) -> str:
    """The SQL condition of the rows in a sample: by the MD5 of the key's texts in UTF8, joined by commas.

    format() has the texts of the types' output functions, as the stream has them; a cast to text does not always.
    """
    texts = f"format('{','.join(['%s'] * len(key))}', {', '.join(map(identifier, key))})"
    number = f"('x' || left(md5(convert_to({texts}, 'UTF8')), 8))::bit(32)::bigint"
    return f"{number} * 1000000 < {millionths}::bigint << 32"


class _Command:
    """Runs statements on a session, for one table; a request to stop cancels them."""

    def __init__(self, session: SnapshotSession, source: CopySource, stop: threading.Event, patience: float) -> None:
        self.session = session
        self._pgconn = session.connection.pgconn
        self.table = escape(f"{source.schema}.{source.name}")
        self._quoted = f"{sql_identifier(source.schema)}.{sql_identifier(source.name)}"
        self._on_standby = self._pgconn.parameter_status(b"in_hot_standby") == b"on"
        self._doing = f"table {self.table} cannot be copied"
        self._stop = stop
        self._patience = patience

    def run(self, statement: str, *, renamed: bool = False) -> PGresult | None:
        """Run a statement; with `renamed`, None if the name that it has does not exist any more."""
        result = self._first(statement)
        self._read_to_end()
        if result.status in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
            return result
        if renamed and reported(result)[0] in _GONE:
            self.leave(again=True)
            return None
        raise self._failed(result)

    def row(self, statement: str) -> rows.Row:
        result = self.run(statement)
        assert result is not None
        return rows.single(f"table {self.table}", rows.of_result(f"table {self.table}", result))

    def copy(self, statement: str, frames: RowFrames, batch_bytes: int) -> Generator[RowBatch, None, None]:
        """The rows of a COPY in batches."""
        result = self._first(statement)
        if result.status != pq.ExecStatus.COPY_OUT:
            self._read_to_end()
            raise self._failed(result)
        parts: list[bytes] = []
        size = count = 0
        length = 0
        while length != ENDED:
            if self._stop.is_set():
                raise CopyStopped
            try:
                taken, added, length = frames.receive(self._pgconn, batch_bytes - size, _LOOK)
            except psycopg.Error as error:
                raise self._broken(error) from error
            except ValueError as error:
                raise rows.unreadable(f"table {self.table}", str(error)) from None
            parts.append(taken)
            size, count = size + len(taken), count + added
            del taken  # while the next row is read, this one may be large
            if count and (size >= batch_bytes or length == ENDED):
                yield RowBatch(parts[0] if len(parts) == 1 else b"".join(parts), count)
                parts, size, count = [], 0, 0
        final = self._result()
        self._read_to_end()
        if final is not None and final.status != pq.ExecStatus.COMMAND_OK:
            raise self._failed(final)

    def leave(self, *, again: bool = False) -> None:
        """Return to the savepoint, which unlocks the table; a COPY that has not ended is canceled.

        Closes the session if the server does not end it soon.
        """
        with contextlib.suppress(psycopg.Error):
            if self._pgconn.transaction_status == pq.TransactionStatus.ACTIVE and not self._cancel():
                self.session.close()
                return
            self._pgconn.exec_(b"ROLLBACK TO SAVEPOINT part" if again else b"ROLLBACK TO part; RELEASE part")

    # -- inside ------------------------------------------------------------------------------------------------

    def _first(self, statement: str) -> PGresult:
        try:
            self._pgconn.send_query(self.session.encoded(statement))
        except psycopg.Error as error:
            raise self._broken(error) from error
        result = self._result()
        if result is None:
            raise Unreachable("the server did not answer")
        return result

    def _result(self) -> PGresult | None:
        """Wait for the next result; None after the last one."""
        try:
            while self._pgconn.is_busy():
                if self._stop.is_set():
                    raise CopyStopped
                wait_to_read(self._pgconn, _LOOK)
                self._pgconn.consume_input()
            return self._pgconn.get_result()
        except psycopg.Error as error:
            raise self._broken(error) from error

    def _read_to_end(self) -> None:
        """Read what follows the first result, so that the session is ready for the next statement.

        If the connection breaks here, as after a FATAL error, the first result has the reason.
        """
        with contextlib.suppress(Unreachable):
            while self._result() is not None:
                pass

    def _cancel(self) -> bool:
        """Cancel the running statement, and read what it still sends; returns whether it has ended."""
        self.session.connection.cancel_safe(timeout=self._patience)
        deadline, in_copy = time.monotonic() + self._patience, False
        poll = select.poll()
        poll.register(self._pgconn.socket, select.POLLIN)
        while (left := deadline - time.monotonic()) > 0:
            wait = False
            if in_copy:
                length, _ = self._pgconn.get_copy_data(1)
                in_copy, wait = length >= 0, length == 0
            elif self._pgconn.is_busy():
                wait = True
            else:
                result = self._pgconn.get_result()
                if result is None:
                    return True
                in_copy = result.status == pq.ExecStatus.COPY_OUT
            if wait and poll.poll(left * 1000):
                self._pgconn.consume_input()
        return False

    def _failed(self, result: PGresult) -> ServerError:
        sqlstate, text = reported(result)
        if sqlstate in _GONE:
            return _changed(self.table, escape(text))
        role = (self._pgconn.user or b"").decode(errors="replace")
        cures = _CURES
        if sqlstate == "42501":
            cures += (Cure("42501", "", f"Let the role read it:{COMMAND}GRANT SELECT ON {self._quoted} TO {{role}};"),)
        return server_error(sqlstate, text.strip(), role=role, doing=self._doing, first=cures)

    def _broken(self, why: psycopg.Error) -> ServerError:
        """The error for a broken connection. The server's last message, if any, has the reason."""
        with contextlib.suppress(psycopg.Error):
            while self._pgconn.get_copy_data(1)[0] > 0:
                pass
        with contextlib.suppress(psycopg.Error):
            last = self._pgconn.get_result()
            if last is not None and reported(last)[0] is not None:
                return self._failed(last)
        cause = why_broken(why).removeprefix("consuming input failed: ")
        reason = f"{self._doing}: the connection broke: {cause}"
        if self._on_standby:  # before 17 it ends the session without a message, if that waits to send
            return RecoveryConflict(reason, cure=STANDBY_CONFLICT)
        return Unreachable(reason)
