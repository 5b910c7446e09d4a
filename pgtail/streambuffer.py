"""Floor 3, the changes of open streamed transactions: in memory, and past a limit in one private temporary file.

Knows no message: an entry is anything that pickles. Nothing but this process ever reads the file; it has no name.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterator
from typing import IO, Any

from pgtail.errors import OutputError

CHUNK = 256 * 1024
"""Bytes of entries that are pickled together."""


class StreamBuffer:
    """Entries by transaction, in order; `limit` is in bytes of entries over all transactions."""

    def __init__(self, limit: int = 32 * 1024 * 1024) -> None:
        self._limit = limit
        self._used = 0
        self._file: IO[bytes] | None = None
        self._open: dict[int, _Entries] = {}

    def __contains__(self, xid: int) -> bool:
        return xid in self._open

    def start(self, xid: int) -> None:
        """A transaction begins, or begins again after a reconnection: what it had is dropped."""
        self.drop(xid)
        self._open[xid] = _Entries()

    def add(self, xid: int, subxid: int, entry: Any, size: int) -> None:
        """One more entry of about `size` bytes, of subtransaction `subxid`.

        Raises OutputError where the temporary file cannot be written.
        """
        entries = self._open[xid]
        entries.add(subxid, entry, size)
        self._used += size
        if self._used > self._limit and entries.pending_size >= CHUNK:
            self._used -= entries.pending_size
            self._spill(entries)
        elif self._used > 2 * self._limit:
            # Many transactions with little each: all of them go.
            for other in self._open.values():
                self._spill(other)
            self._used = 0

    def abort(self, xid: int, subxid: int) -> bool:
        """Subtransaction `subxid` was rolled back: its entries and all after its first one are marked.

        Whatever was sent after its first entry happened inside it, so nothing else is taken. Returns False where
        nothing of it was seen.
        """
        return self._open[xid].abort(subxid)

    def drop(self, xid: int) -> None:
        """Forget a transaction."""
        entries = self._open.pop(xid, None)
        if entries is None:
            return
        self._used -= entries.pending_size
        if not self._open and self._file is not None:
            self._file.truncate(0)

    def take(self, xid: int) -> Iterator[Any]:
        """The entries of a transaction in order, without those that were rolled back; forgets them at the end."""
        entries = self._open[xid]
        index = 0
        for chunk in self._chunks(entries):
            for entry in chunk:
                if not entries.aborted(index):
                    yield entry
                index += 1
        self.drop(xid)

    def close(self) -> None:
        """Give the temporary file back to the system."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _chunks(self, entries: _Entries) -> Iterator[list[Any]]:
        for offset, size in entries.extents:
            assert self._file is not None
            self._file.seek(offset)
            yield pickle.loads(self._file.read(size))
        yield entries.pending

    def _spill(self, entries: _Entries) -> None:
        if not entries.pending:
            return
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="pgtail-")  # noqa: SIM115 -- lives as long as the buffer
            data = pickle.dumps(entries.pending, pickle.HIGHEST_PROTOCOL)
            offset = self._file.seek(0, 2)
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            raise OutputError(
                f"cannot keep a streamed transaction in {tempfile.gettempdir()}: {error.strerror}; set TMPDIR"
                " to a folder with room"
            ) from error
        entries.extents.append((offset, len(data)))
        entries.pending = []
        entries.pending_size = 0


class _Entries:
    """One transaction's entries: `extents` lie in the file, `pending` are the last ones, in memory."""

    __slots__ = ("_aborted", "_count", "_first", "extents", "pending", "pending_size")

    def __init__(self) -> None:
        self.extents: list[tuple[int, int]] = []
        self.pending: list[Any] = []
        self.pending_size = 0
        self._count = 0
        self._first: dict[int, int] = {}
        self._aborted: list[tuple[int, int]] = []

    def add(self, subxid: int, entry: Any, size: int) -> None:
        self._first.setdefault(subxid, self._count)
        self._count += 1
        self.pending.append(entry)
        self.pending_size += size

    def abort(self, subxid: int) -> bool:
        first = self._first.pop(subxid, None)
        if first is None:
            return False
        self._aborted.append((first, self._count))
        return True

    def aborted(self, index: int) -> bool:
        return any(first <= index < end for first, end in self._aborted)
