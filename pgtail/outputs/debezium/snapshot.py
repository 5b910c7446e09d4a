"""Write the rows of snapshots with source.snapshot, which says which of them are the first and the last ones.

Source: RelationalSnapshotChangeEventSource.java (setSnapshotMarker), EventDispatcher.java (completeSnapshot).
"""

from __future__ import annotations

from typing import Final

from pgtail.changes.events import Transaction
from pgtail.outputs.rows import Write

MARK: Final = b"\0"
"""Stands in rows for their value of source.snapshot. JSON has no such byte."""
_FIRST, _FIRST_OF_TABLE = b"first", b"first_in_data_collection"
_LAST, _LAST_OF_TABLE = b"last", b"last_in_data_collection"
_OTHER: Final = b"true"


class SnapshotRows:
    """Writes the rows of one snapshot after another to `write`.

    It delays one row, because the last row is known only when the snapshot has ended, as in the connector.
    """

    def __init__(self, write: Write) -> None:
        self._write = write
        self._held: list[bytes] = []
        """The parts of the row that is held back."""
        self._complete = False
        """Whether these are all of its parts."""
        self._lsn: int | None = None
        self._mark = self._next = _OTHER
        """What the row that is held back gets or, if there is none, the next one; and the one after that."""

    def begin_table(self, transaction: Transaction) -> None:
        """The next rows are of this table."""
        if transaction.commit_lsn != self._lsn:
            self._lsn, self._mark = transaction.commit_lsn, _FIRST
        elif self._held:
            self._next = _FIRST_OF_TABLE
        elif self._mark != _FIRST:
            self._mark = _FIRST_OF_TABLE

    def write(self, text: bytes) -> None:
        """Write rows, or a part of one."""
        if self._complete:
            self._release()
        start = text.rfind(b"\n", 0, -1) + 1
        if start:
            self._held.append(text[:start])
            self._release()
        self._held.append(text[start:])
        self._complete = text.endswith(b"\n")

    def end_table(self) -> None:
        """Mark the delayed row, if any, as the last one of its table."""
        if self._held and self._mark != _FIRST:
            self._mark = _LAST_OF_TABLE

    def end(self, *, complete: bool) -> None:
        """The snapshot ended, or broke off."""
        if self._held:
            self._mark = _LAST if complete else self._mark
            self._release()
        self._lsn = None

    def _release(self) -> None:
        """Write the delayed text: `_mark` is for its first row."""
        mark: bytes | None = self._mark
        for part in self._held:
            if mark is not None and MARK in part:
                part = part.replace(MARK, mark, 1)
                mark = None
            self._write(part.replace(MARK, _OTHER))
        self._held.clear()
        self._complete = False
        self._mark, self._next = self._next, _OTHER
