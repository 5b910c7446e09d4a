"""Floor 3, the changes of open streamed transactions: in memory, and past a limit in one private temporary file.

Knows no message: an entry is anything that pickles. Nothing but this process ever reads the file; it has no name.
"""

from __future__ import annotations

import pickle
import sys
import tempfile
from collections.abc import Iterator
from itertools import chain
from typing import IO, Any

from pgtail.errors import OutputError

CHUNK = 256 * 1024
"""Bytes of entries that are pickled together."""


class StreamBuffer:
    """Entries by transaction, in order; `limit` is in bytes of entries over all transactions."""

    def __init__(self, limit: int = 16 * 1024 * 1024) -> None:
        self._limit = limit
        self._used = 0
        self._file: IO[bytes] | None = None
        self._free: list[tuple[int, int]] = []
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
        if self._open:
            self._free = _merged([*self._free, *entries.extents])
        elif self._file is not None:
            self._free.clear()
            self._file.truncate(0)

    def take(self, xid: int) -> Iterator[Any]:
        """The entries of a transaction in order, without those that were rolled back; forgets them at the end."""
        return (entry for entry, aborted in self.take_all(xid) if not aborted)

    def take_all(self, xid: int) -> Iterator[tuple[Any, bool]]:
        """The same with those, each with whether it was rolled back."""
        entries = self._open[xid]
        first, after = 0, 0
        aborted = iter([*entries.aborted, (sys.maxsize, sys.maxsize)])
        for index, entry in enumerate(chain.from_iterable(self._chunks(entries))):
            while index >= after:
                first, after = next(aborted)
            yield entry, index >= first
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
            offset = self._room(self._file, len(data))
            self._file.seek(offset)
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

    def _room(self, file: IO[bytes], size: int) -> int:
        """Where `size` bytes may be written: where a transaction that has ended lay, else at the file's end."""
        for index, (offset, length) in enumerate(self._free):
            if length >= size:
                self._free[index] = (offset + size, length - size)
                return offset
        return file.seek(0, 2)


def _merged(extents: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Stretches of a file, (offset, size), with neighbours as one."""
    found: list[tuple[int, int]] = []
    for offset, size in sorted(extents):
        if found and sum(found[-1]) == offset:
            found[-1] = (found[-1][0], found[-1][1] + size)
        elif size:
            found.append((offset, size))
    return found


class _Entries:
    """One transaction's entries: `extents` lie in the file, `pending` are the last ones, in memory."""

    __slots__ = ("_count", "_first", "aborted", "extents", "pending", "pending_size")

    def __init__(self) -> None:
        self.extents: list[tuple[int, int]] = []
        self.pending: list[Any] = []
        self.pending_size = 0
        self._count = 0
        self._first: dict[int, int] = {}
        self.aborted: list[tuple[int, int]] = []
        """Ranges of entries, in order, that do not count."""

    def add(self, subxid: int, entry: Any, size: int) -> None:
        self._first.setdefault(subxid, self._count)
        self._count += 1
        self.pending.append(entry)
        self.pending_size += size

    def abort(self, subxid: int) -> bool:
        first = self._first.get(subxid)
        if first is None:
            return False
        # What began inside it went with it: an abort of that by itself, coming later, must take nothing more.
        while self._first and next(reversed(self._first.values())) >= first:
            self._first.popitem()
        while self.aborted and self.aborted[-1][0] >= first:
            self.aborted.pop()
        self.aborted.append((first, self._count))
        return True
