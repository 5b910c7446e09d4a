"""A walsender session: commands, START_REPLICATION and the stream that follows."""

from __future__ import annotations

import contextlib
import math
import select
import time
from collections.abc import Callable, Sequence
from typing import Final, Self

import psycopg
from psycopg import pq
from psycopg.pq.abc import PGconn, PGresult

from pgtail.errors import OptionError, ServerError
from pgtail.files.stopping import Wakeup
from pgtail.pgoutput.walsender import StandbyStatusUpdate
from pgtail.postgres import rows
from pgtail.postgres.connection import Connection, Connector
from pgtail.postgres.copy_reader import BROKEN, CopyReader
from pgtail.postgres.errors import Unreachable, reported, server_error, why_broken
from pgtail.postgres.rows import Row

_LONGEST: Final = 60.0
"""Maximum seconds of one wait for the socket."""
_COPY: Final = (pq.ExecStatus.COPY_IN, pq.ExecStatus.COPY_OUT, pq.ExecStatus.COPY_BOTH)
"""PQgetResult() returns these again and again until the COPY has ended."""


class Session:
    """A walsender connection.

    All methods raise ServerError, and Unreachable if the connection broke or the server shut down.
    """

    def __init__(self, connection: Connection, interrupt: Wakeup, *, encoding: str = "utf-8") -> None:
        self._connection = connection
        self._encoding = encoding
        self._pgconn: PGconn = connection.pgconn
        self._interrupt = interrupt
        self._reader = CopyReader()
        self._flushed = True
        self._may_hold_frames = True
        """Whether libpq may already have read frames, which poll() on the socket does not show: after sending, and at
        the start of the stream."""
        self._failure: ServerError | None = None
        self.on_notice(lambda *_: None)

    @classmethod
    def open(cls, connector: Connector, interrupt: Wakeup, encoding: str | None = None) -> Self:
        """Connect; `encoding` is the stream's (--encoding): with it the server sends text as it stores it.

        Raises KeyboardInterrupt after a request to stop.
        """
        with interrupt.raising():
            connection = connector.replication(passthrough=encoding is not None)
        return cls(connection, interrupt, encoding=encoding or "utf-8")

    @property
    def backend_pid(self) -> int:
        return self._pgconn.backend_pid

    def on_notice(self, notice: Callable[[str, str, str], ServerError | None]) -> None:
        """Call `notice` (severity, SQLSTATE, text) for each notice; an error that it returns ends the stream there."""

        field = pq.DiagnosticField

        def handle(result: PGresult) -> None:
            severity = result.error_field(field.SEVERITY_NONLOCALIZED) or result.error_field(field.SEVERITY)
            if severity == b"FATAL":  # the server ends the session while no command runs
                self._fail(self._failed(result, None))
                return
            parts = (severity, result.error_field(field.SQLSTATE), result.error_field(field.MESSAGE_PRIMARY))
            self._fail(notice(*[(part or b"").decode(errors="replace") for part in parts]))

        # psycopg's own handler trusts the client_encoding that the server names.
        self._pgconn.notice_handler = handle

    def query(
        self,
        purpose: str,
        command: str,
        *,
        doing: str | None = None,
        interval: float | None = None,
        on_wait: Callable[[], None] = lambda: None,
    ) -> list[Row]:
        """The rows of a command. Calls `on_wait` every `interval` seconds until it finishes.

        `purpose` names the result in errors, `doing` what failed. A request to stop cancels the command and raises
        KeyboardInterrupt.
        """
        result = self._command(command, interval, on_wait)
        following: PGresult | None = result
        while following is not None:
            if following.status in _COPY:
                raise self._failed(following, doing)
            following = self._result(interval, on_wait)
        if result.status == pq.ExecStatus.TUPLES_OK:
            return rows.of_result(purpose, result)
        if result.status == pq.ExecStatus.COMMAND_OK:
            return []
        raise self._failed(result, doing)

    def start(self, command: str) -> None:
        """Send START_REPLICATION and wait for the stream to open."""
        result = self._command(command, None, lambda: None)
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise self._failed(result, None)
        self._pgconn.nonblocking = 1

    def fileno(self) -> int:
        try:
            return self._pgconn.socket
        except psycopg.Error as error:
            raise self._broken(error) from error

    @property
    def wants_to_write(self) -> bool:
        """Whether libpq still has data to send; next() sends it."""
        return not self._flushed

    def next(self, others: Sequence[tuple[int, int]], seconds: float) -> tuple[bytes, list[int]]:
        """Wait for frames, or for one of the others (descriptors and poll() events).

        Returns the received frames, each preceded by its length, and which of the others are ready. If the stream ends
        after some frames, this returns them, and check() raises the reason.
        """
        self.check()
        milliseconds = 0 if self._may_hold_frames else math.ceil(min(seconds, _LONGEST) * 1000)
        self._may_hold_frames = False
        frames, outcome, writable, ready = self._reader.next(self._pgconn, not self._flushed, others, milliseconds)
        if outcome:
            self._fail(self._why(outcome))
            if not frames:
                self.check()
        if writable:
            try:
                self._flush()
            except ServerError as error:
                self._fail(error)
        return frames, ready

    def check_idle(self) -> None:
        """Raise the reason if the server has ended the session while no command runs; does not wait."""
        try:
            self._pgconn.consume_input()
            self._pgconn.is_busy()  # lets libpq pass the server's last message to the handler of notices
        except psycopg.Error as error:
            self._fail(self._broken(error))
        self.check()

    def check(self) -> None:
        """Raise the reason if the stream or the session has ended."""
        if self._failure is not None:
            raise self._failure

    def send(self, status: StandbyStatusUpdate) -> bool:
        """Send a status. Returns False if the socket's buffer is full; then nothing was sent."""
        try:
            if self._pgconn.put_copy_data(status.encode()) == 0:
                self._flushed = False
                return False
            self._flush()
        except psycopg.Error as error:
            raise self._broken(error) from error
        return True

    def finish(self, seconds: float) -> bool:
        """End the stream in good order: send CopyDone and read until the server has answered.

        Returns False on an error, after `seconds`, or after another request to stop. Close the connection then.
        """
        deadline = time.monotonic() + seconds
        stops = self._interrupt.count
        pgconn = self._pgconn

        def wait() -> bool:
            left = deadline - time.monotonic()
            if left <= 0 or self._interrupt.count > stops:
                return False
            self._wait(left)
            pgconn.consume_input()
            return True

        try:
            pgconn.put_copy_end(None)
            self._flush()
            while (length := pgconn.get_copy_data(1)[0]) >= 0:
                if length == 0 and not wait():
                    return False
            while True:
                while pgconn.is_busy():
                    if not wait():
                        return False
                result = pgconn.get_result()
                if result is None or result.status in (pq.ExecStatus.FATAL_ERROR, *_COPY):
                    return result is None
        except (psycopg.Error, ServerError):
            return False

    def close(self) -> None:
        self._connection.close()

    # -- inside ------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        self._may_hold_frames = True
        try:
            self._flushed = self._pgconn.flush() == 0
        except psycopg.Error as error:
            raise self._broken(error) from error

    def _command(self, command: str, interval: float | None, on_wait: Callable[[], None]) -> PGresult:
        """Send a command and wait for its first result."""
        try:
            self._pgconn.send_query(self._encoded(command))
        except psycopg.Error as error:
            raise self._broken(error) from error
        result = self._result(interval, on_wait)
        if result is None:
            raise Unreachable("the server did not answer")
        return result

    def _result(self, interval: float | None, on_wait: Callable[[], None]) -> PGresult | None:
        """Wait for the next result of a command, None after the last one; signals are handled while waiting."""
        pgconn = self._pgconn
        try:
            while pgconn.is_busy():
                if not self._wait(interval):
                    on_wait()
                if self._interrupt.count:
                    self._cancel()
                    raise KeyboardInterrupt
                pgconn.consume_input()
            return pgconn.get_result()
        except psycopg.Error as error:
            raise self._broken(error) from error

    def _encoded(self, command: str) -> bytes:
        try:
            return command.encode(self._encoding)
        except UnicodeEncodeError as error:
            wrong = command[error.start : error.end]
            raise OptionError(f"--encoding {self._encoding} cannot encode {wrong!r}, which is part of a name") from None

    def _wait(self, seconds: float | None) -> bool:
        """Wait for the socket or a request to stop. Returns False if neither happened in time."""
        poll = select.poll()
        poll.register(self._pgconn.socket, select.POLLIN | (0 if self._flushed else select.POLLOUT))
        poll.register(self._interrupt.fileno(), select.POLLIN)
        ready = poll.poll(None if seconds is None else seconds * 1000)
        self._interrupt.clear()
        if not self._flushed:
            self._flush()
        return bool(ready)

    def _cancel(self) -> None:
        """Cancel the running command and wait until it has ended."""
        with contextlib.suppress(psycopg.Error):
            self._connection.cancel_safe(timeout=5)
        while self._pgconn.is_busy():
            if not self._wait(5):
                return
            self._pgconn.consume_input()

    def _why(self, outcome: int) -> ServerError:
        if outcome == BROKEN:
            return self._broken(self._pgconn.error_message.decode(errors="replace"))
        try:
            self._pgconn.nonblocking = 0
            result = self._pgconn.get_result()
        except psycopg.Error as error:
            return self._broken(error)
        if result is None or result.status == pq.ExecStatus.COMMAND_OK:
            # CommandComplete without CopyDone (src/backend/replication/walsender.c, WalSndDone).
            return Unreachable("the server is shutting down")
        return self._failed(result, None)

    def _failed(self, result: PGresult, doing: str | None) -> ServerError:
        sqlstate, text = reported(result)
        detail = result.error_field(pq.DiagnosticField.MESSAGE_DETAIL)
        if detail:
            text += f" ({detail.decode(errors='replace')})"
        role = (self._pgconn.user or b"").decode(errors="replace")
        status = pq.ExecStatus(result.status).name
        return server_error(
            sqlstate, text.strip() or f"unexpected result from the server ({status})", role=role, doing=doing
        )

    def _broken(self, why: psycopg.Error | str) -> ServerError:
        return Unreachable(f"the connection broke: {why_broken(why)}")

    def _fail(self, error: ServerError | None) -> None:
        """End the stream here: read no further frames. The first error is kept."""
        self._failure = self._failure or error
        self._reader.stopped = self._failure is not None
