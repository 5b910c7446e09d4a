"""pgtail.follow(): the transactions of a slot as they are committed, also for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, Unpack

from msgspec.structs import replace

from pgtail.api.arguments import FollowArguments, check_form, keywords, record_of, takes
from pgtail.api.arrow import stream_reader
from pgtail.api.live import LiveEvents
from pgtail.api.records import Change, Reading, Transaction, Transactions
from pgtail.api.values import Form
from pgtail.changes.filters import Filter
from pgtail.changes.redaction import Redaction
from pgtail.commands.input.selection import build_redaction
from pgtail.commands.options.server import StreamOptions
from pgtail.commands.stream.following import stream_filter

if TYPE_CHECKING:
    import pyarrow as pa

R = TypeVar("R")
_AT_ONCE: Final = 256
"""Changes that the thread of a task takes at a time."""


class Stream(Transactions):
    """The transactions of a slot, in the order of their commits. Enter it with `with` or `async with`, and iterate.

    Once it is entered, every later commit will come. It is for one thread, or one task. What the program has not taken
    yet waits in memory, and in temporary files if it is much, so a slow program does not block the server. Within one
    stream nothing comes twice, also after a reconnection. The iteration raises errors of the server.
    """

    def __init__(self, options: StreamOptions, filter_: Filter, redaction: Redaction | None, form: Form) -> None:
        self._live = LiveEvents(options, filter_, redaction)
        super().__init__(self._live, Reading(options.format, form))
        self._thread: ThreadPoolExecutor | None = None
        """The thread that waits for a task, which entered it with `async with`."""
        self._taking: asyncio.Future[Transaction | None] | None = None

    @property
    def warnings(self) -> list[str]:
        """The warnings that were logged when it was entered, for example of tables that are not published."""
        return self._live.warnings

    def __repr__(self) -> str:
        return f"<stream of {self._live.slot}>"

    @keywords()
    def __enter__(self) -> Self:
        """Connect. Raises OptionError and ServerError."""
        try:
            self._live.start()
        except BaseException:
            self._live.close()
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        """End the session; what was acknowledged has then reached the server, unless this raises ServerError."""
        with contextlib.suppress(*[Exception] if any(raised) else ()):
            self.close()
        self._reading.finish()

    def next(self, timeout: float | None = None) -> Transaction | None:
        """The next transaction; None after the last one. What is left of the one before is skipped.

        Raises TimeoutError if no change came after so many seconds, and PgtailError.
        """
        self._live.deadline = None if timeout is None else time.monotonic() + timeout
        try:
            return next(self, None)
        finally:
            self._live.deadline = None

    def acknowledge(self, transaction: Transaction | None = None) -> None:
        """The server need not send this transaction again, nor any before it; without one, all that were taken.

        What is left of it is skipped. The position of the slot follows within a second, at the latest when the stream
        is left. As long as everything taken is acknowledged, so is what follows and is left out by filters. Raises
        ValueError for a transaction that is not complete.
        """
        if not isinstance(transaction, Transaction | None):
            raise TypeError(f"acknowledge() needs a transaction of this stream, or nothing, not {transaction!r}")
        if transaction is not None and self.current is transaction:
            self.skip()
        if transaction is not None and transaction.end_lsn is None:
            raise ValueError(f"{transaction!r} is not complete")
        self._live.consumer.acknowledge(None if transaction is None else transaction.end_lsn)

    def read_arrow(self, table: str | None = None, *, old: bool = False) -> pa.RecordBatchReader:
        """The transactions that follow as pgtail.read_arrow() has changes, in batches as they come, within a second.

        A transaction may be in several of them. Once a batch is stored, acknowledge() covers every whole one in it.
        """
        self.skip()
        return stream_reader(self._live, table, old=old)

    # -- asyncio -------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._thread = ThreadPoolExecutor(1, "pgtail")
        try:
            return await self._in_thread(self.__enter__)
        except BaseException as error:
            await self.__aexit__(error)
            raise

    async def __aexit__(self, *raised: object) -> None:
        self._live.abandon()  # the thread may wait for a transaction
        try:
            await asyncio.shield(self._in_thread(self.__exit__, *raised))
        finally:
            if self._thread is not None:
                self._thread.shutdown(wait=False)
            if self._taking is not None and self._taking.done():
                self._taking.exception()  # nobody waits for it: else asyncio writes that

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Transaction:
        if self._taking is None:  # else the wait for it was cancelled
            self._taking = self._in_thread(self.next)
        transaction = await asyncio.shield(self._taking)
        self._taking = None
        if transaction is None:
            raise StopAsyncIteration
        return transaction

    async def changes_async(self, transaction: Transaction) -> AsyncIterator[Change]:
        changes = iter(transaction)
        error: Exception | None = None
        while error is None:
            some, error = await asyncio.shield(self._in_thread(_take_some, changes))
            for change in some:
                yield change
        if not isinstance(error, StopIteration):
            raise error

    def _in_thread(self, function: Callable[..., R], *arguments: Any) -> asyncio.Future[R]:
        """The result of a call in the thread of this stream. Raises RuntimeError if it has none."""
        if self._thread is None:
            raise RuntimeError("async for needs a stream that was entered with async with")
        return asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)


def _take_some(changes: Iterator[Change]) -> tuple[list[Change], Exception | None]:
    """The next changes, and the error after them: StopIteration at the end, None if there may be more."""
    some: list[Change] = []
    try:
        while len(some) < _AT_ONCE:
            some.append(next(changes))
    except Exception as error:  # noqa: BLE001 -- raised in the task
        return some, error
    return some, None


@takes(FollowArguments, StreamOptions, "pgtail stream")
def follow(conninfo: str = "", *, values: Form = "python", **arguments: Unpack[FollowArguments]) -> Stream:
    """Follow a slot: `with pgtail.follow("service=shop", slot="audit") as stream:`, then iterate over transactions.

    `conninfo` is a connection string, a URI or the name of a database, as for psql; PG* variables count. Without a
    slot, a temporary one is made. Nothing is acknowledged unless Stream.acknowledge() is called. `values="text"` makes
    all values PostgreSQL's text. Raises TypeError for an argument that does not exist and OptionError for a wrong one;
    entering and iterating raise ServerError. See pgtail-follow(3).
    """
    options = stream_options(conninfo, record_of(StreamOptions, arguments))
    redaction = build_redaction(options.filter)
    return Stream(options, stream_filter(options, redaction), redaction, check_form(values))


def stream_options(conninfo: str, options: StreamOptions) -> StreamOptions:
    """The options with this connection, in which acknowledge() alone acknowledges, which needs no confirmation."""
    return replace(
        options,
        connection=replace(options.connection, dsn=conninfo or options.connection.dsn),
        request=replace(options.request, ack="commit", yes=True),
        format=replace(options.format, context=options.filter.context),
    )
