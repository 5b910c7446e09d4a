"""Reports a copy of tables: what it will read, its progress, and what it retains on the server."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from pgtail.errors import COMMAND, ServerError
from pgtail.humanize import counted, grouped, seconds_text, size_text, span_text
from pgtail.log import log_detail, logger
from pgtail.pgoutput.scalars import lsn_text
from pgtail.postgres import catalog
from pgtail.postgres.connection import SHORT_TIMEOUT
from pgtail.postgres.snapshot_plan import PublishedTable
from pgtail.replication.plan import Publisher
from pgtail.replication.snapshot import Progress

_LINE_EVERY: Final = 60.0
"""Seconds between two lines where there is no status line."""
_STATUS_EVERY: Final = 1.0


class SnapshotReport:
    """Reports one copy. `slot` is the slot from which the stream continues after it; None without a stream.

    `look_every`: seconds between two looks whether the slot is still valid.
    """

    def __init__(self, publisher: Publisher, slot: str | None, *, look_every: float = 10.0) -> None:
        self._look_every = look_every
        self._show_status = publisher.show_status
        self._service = publisher.progress
        self._connector = publisher.connector.without_asking()
        self._slot = slot
        self._begun = self._shown = self._logged = self._looked = time.monotonic()

    def begin(self, tables: Sequence[PublishedTable], lsn: int) -> None:
        """Say what will be copied, and what that holds back."""
        if not tables:
            logger.info(f"there is no table to copy as of {lsn_text(lsn)}")
            return
        size = size_text(sum(table.size for table in tables))
        safe = self._safe_wal()
        limit = "" if safe is None else f", at most {size_text(safe)} more (max_slot_wal_keep_size)"
        logger.info(
            f"copying {counted(len(tables), 'table')} ({size}) as of {lsn_text(lsn)}; until that is done,"
            f" the server cannot vacuum rows that are deleted meanwhile, and keeps WAL{limit}"
        )

    def progress(self, now: Progress) -> None:
        """Show how far the copy is: in the status line, where there is no terminal in a line a minute with -v.

        Raises ServerError if the slot was invalidated meanwhile.
        """
        moment = time.monotonic()
        if moment - self._looked >= self._look_every:
            self._looked = moment
            self._safe_wal()
        if moment - self._shown < _STATUS_EVERY:
            return
        self._shown = moment
        self._service.task = words = self._words(now, moment - self._begun)
        if self._show_status is not None:
            self._show_status(words)
        elif moment - self._logged >= _LINE_EVERY:
            self._logged = moment
            log_detail(" · ".join(words))

    def end(self, now: Progress) -> None:
        if not now.tables:
            return
        took = span_text(int((time.monotonic() - self._begun) * 1_000_000))
        logger.info(f"{counted(now.tables, 'table')} copied: {counted(now.rows, 'row')} in {took}")

    def _words(self, now: Progress, seconds: float) -> list[str]:
        words = [
            f"copied {now.tables} of {counted(now.all_tables, 'table')}",
            counted(now.rows, "row"),
            f"{size_text(now.bytes)} of {size_text(now.all_bytes)}",
        ]
        if now.bytes:  # at the rate so far
            left = seconds * (now.all_bytes - now.bytes) / now.bytes
            words.append(f"{seconds_text(int(left) + 1)} left")
        return [*words, f"{grouped(int(now.rows / max(seconds, 0.001)))} rows/s"]

    def _safe_wal(self) -> int | None:
        """How many bytes of WAL can still be written before the slot is invalidated; None without a limit.

        Raises ServerError if it is invalidated.
        """
        if self._slot is None:
            return None
        try:
            with self._connector.ordinary(connect_timeout=SHORT_TIMEOUT) as connection:
                slot = catalog.slot(connection, self._slot)
        except ServerError:
            return None  # not essential
        if slot is not None and slot.invalid is not None:
            raise ServerError(
                f"slot {slot.name} was invalidated ({slot.invalid}) while the tables were copied: the stream cannot go"
                " on after them.",
                cure="Raise max_slot_wal_keep_size, or give the server less to write meanwhile; then drop the slot,"
                f" and begin again:{COMMAND}pgtail slot drop {slot.name}",
            )
        return None if slot is None else slot.safe_wal_size
