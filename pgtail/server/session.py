"""Floor 5, one replication session: START_REPLICATION and the COPY_BOTH that follows; no message, no policy."""

from __future__ import annotations

import contextlib
import math
import select
import time
from collections.abc import Callable, Sequence
from typing import Final

import psycopg
from psycopg import pq
from psycopg.errors import Diagnostic
from psycopg.pq.abc import PGconn, PGresult

from pgtail.errors import OptionError, ServerError
from pgtail.server.connection import Connection
from pgtail.server.copydata import BROKEN, AtOnce, reader
from pgtail.server.cures import Unreachable, server_error
from pgtail.server.interrupt import Interrupt
from pgtail.wire.walsender import StandbyStatusUpdate

_LONGEST: Final = 60.0
"""Seconds that the socket is waited for at a time."""


class Session:
    """A walsender connection.

    All methods raise ServerError, Unreachable where the connection broke or the server shut down.
    """

    def __init__(self, connection: Connection, interrupt: Interrupt, *, encoding: str = "utf-8") -> None:
        self._connection = connection
        self._encoding = encoding
        self._pgconn: PGconn = connection.pgconn
        self._interrupt = interrupt
        self._reader = reader()
        self._flushed = True
        self._may_hold_frames = True
        """Whether something was sent just now, or the stream begins: libpq may have read meanwhile, of which the socket
        does not tell."""
        self._failure: ServerError | None = None

    @property
    def backend_pid(self) -> int:
        return self._pgconn.backend_pid

    def on_notice(self, notice: Callable[[str, str, str], ServerError | None]) -> None:
        """Hear what the server says besides; an error that `notice` returns ends the stream at this point."""

        def heard(said: Diagnostic) -> None:
            error = notice(said.severity_nonlocalized or "", said.sqlstate or "", said.message_primary or "")
            self._fail(error)

        self._connection.add_notice_handler(heard)

    def query(
        self,
        command: str,
        *,
        doing: str | None = None,
        every: float | None = None,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> list[tuple[str, ...]]:
        """The rows of a command; while it takes long `meanwhile` is called `every` so many seconds.

        A request to stop cancels it and raises KeyboardInterrupt.
        """
        result = self._command(command, every, meanwhile)
        self._end_of_command()
        if result.status == pq.ExecStatus.TUPLES_OK:
            return [
                tuple(
                    (result.get_value(row, column) or b"").decode(errors="replace") for column in range(result.nfields)
                )
                for row in range(result.ntuples)
            ]
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
        """Whether something is still to be sent; next() sees to it."""
        return not self._flushed

    def next(
        self, others: Sequence[tuple[int, int]], seconds: float, at_once: AtOnce | None = None
    ) -> tuple[bytes, list[int]]:
        """Wait for frames, which `at_once` sees first, or one of the others: descriptors with poll()'s events.

        Returns the frames that have arrived, each behind its length, and which of the others are ready. Where the
        stream ends behind some frames they come first, and `check` tells of the end.
        """
        self.check()
        patience = 0 if self._may_hold_frames else math.ceil(min(seconds, _LONGEST) * 1000)
        self._may_hold_frames = False
        frames, outcome, writable, ready = self._reader.next(self._pgconn, not self._flushed, others, patience, at_once)
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

    def check(self) -> None:
        """Raise what ended the stream, if something did."""
        if self._failure is not None:
            raise self._failure

    def send(self, status: StandbyStatusUpdate) -> bool:
        """Send a status; False where the socket has no room: nothing was sent."""
        try:
            if self._pgconn.put_copy_data(status.encode()) == 0:
                self._flushed = False
                return False
            self._flush()
        except psycopg.Error as error:
            raise self._broken(error) from error
        return True

    def finish(self, seconds: float) -> bool:
        """End the stream in good order: CopyDone, and read on until the server has answered.

        Returns False where that took longer, or another request to stop came. The connection is to be closed then.
        """
        deadline = time.monotonic() + seconds
        stops = self._interrupt.count
        pgconn = self._pgconn

        def patient() -> bool:
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
                if length == 0 and not patient():
                    return False
            while True:
                while pgconn.is_busy():
                    if not patient():
                        return False
                result = pgconn.get_result()
                if result is None or result.status == pq.ExecStatus.FATAL_ERROR:
                    return result is None
        except (psycopg.Error, ServerError):
            return False

    def close(self) -> None:
        self._connection.close()

    # -- inside ------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Hand what is to be sent to the socket, as far as it takes it."""
        self._may_hold_frames = True
        try:
            self._flushed = self._pgconn.flush() == 0
        except psycopg.Error as error:
            raise self._broken(error) from error

    def _command(self, command: str, every: float | None, meanwhile: Callable[[], None]) -> PGresult:
        """Send a command and wait for its first result, without blocking signals."""
        pgconn = self._pgconn
        try:
            pgconn.send_query(self._encoded(command))
            while pgconn.is_busy():
                if not self._wait(every):
                    meanwhile()
                if self._interrupt.count:
                    self._cancel()
                    raise KeyboardInterrupt
                pgconn.consume_input()
            result = pgconn.get_result()
        except psycopg.Error as error:
            raise self._broken(error) from error
        if result is None:
            raise Unreachable("the server gave no answer")
        return result

    def _encoded(self, command: str) -> bytes:
        try:
            return command.encode(self._encoding)
        except UnicodeEncodeError as error:
            wrong = command[error.start : error.end]
            raise OptionError(f"--encoding {self._encoding} has no {wrong!r}, which a name has") from None

    def _wait(self, seconds: float | None) -> bool:
        """Wait for the socket or a request to stop; False where neither came in time."""
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

    def _end_of_command(self) -> None:
        while self._pgconn.get_result() is not None:
            pass

    def _why(self, outcome: int) -> ServerError:
        """What ended the stream."""
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
        field = pq.DiagnosticField
        sqlstate = result.error_field(field.SQLSTATE)
        text = (result.error_field(field.MESSAGE_PRIMARY) or result.error_message or b"").decode(errors="replace")
        detail = result.error_field(field.MESSAGE_DETAIL)
        if detail:
            text += f" ({detail.decode(errors='replace')})"
        role = (self._pgconn.user or b"").decode(errors="replace")
        state = None if sqlstate is None else sqlstate.decode()
        return server_error(state, text.strip(), role=role, doing=doing)

    def _broken(self, why: psycopg.Error | str) -> ServerError:
        lines = [line.strip() for line in str(why).splitlines() if line.strip()]
        return Unreachable(f"the connection broke: {lines[0] if lines else 'libpq does not say why'}")

    def _fail(self, error: ServerError | None) -> None:
        """The stream ends here: no further frame is read. What failed first counts."""
        self._failure = self._failure or error
        self._reader.stopped = self._failure is not None
