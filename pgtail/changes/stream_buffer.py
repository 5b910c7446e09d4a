"""Buffers the entries of open streamed transactions: in memory, and beyond a limit in a temporary file.

An entry is anything that can be pickled.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import chain
from typing import Any

from pgtail.files.spool import SpoolFile, SpoolLimit

MEMORY = 16 * 1024 * 1024
"""Bytes of entries to keep in memory."""
CHUNK = 256 * 1024
"""Bytes of entries to pickle together."""


class StreamBuffer:
    """Entries of transactions, in order.

    `limit`: bytes of entries to keep in memory, over all transactions; `spool` limits the temporary file.
    """

    def __init__(
        self, limit: int = MEMORY, *, purpose: str = "keep a streamed transaction", spool: SpoolLimit | None = None
    ) -> None:
        self._limit = limit
        self.used = 0
        """Bytes of the entries in memory."""
        self.file = SpoolFile(purpose, limit=spool)
        self._free: list[tuple[int, int]] = []
        self._open: dict[int, _Entries] = {}

    def __contains__(self, xid: int) -> bool:
        return xid in self._open

    def start(self, xid: int) -> None:
        """Begin a transaction. After a reconnection it may begin again: its old entries are dropped."""
        self.drop(xid)
        self._open[xid] = _Entries()

    def add(self, xid: int, subxid: int, entry: Any, size: int) -> None:
        """Add an entry of about `size` bytes, of subtransaction `subxid`.

        Raises OutputError if the temporary file cannot be written, or would be too large.
        """
        entries = self._open[xid]
        entries.add(subxid, entry, size)
        self.used += size
        if self.used > self._limit and entries.pending_size >= CHUNK:
            self.used -= entries.pending_size
            self._spill(entries)
        elif self.used > 2 * self._limit:
            # Many transactions with few entries each: write all of them.
            for other in self._open.values():
                self._spill(other)
            self.used = 0

    def abort(self, xid: int, subxid: int) -> bool:
        """Mark all entries since the first one of the rolled-back subtransaction `subxid`.

        All later entries happened inside it (PostgreSQL: stream_abort_internal in worker.c). Returns False if it has no
        entries.
        """
        return self._open[xid].abort(subxid)

    def drop(self, xid: int) -> None:
        entries = self._open.pop(xid, None)
        if entries is None:
            return
        self.used -= entries.pending_size
        if self._open:
            self._free = _merged([*self._free, *entries.extents])
        else:
            self._free.clear()
            self.file.truncate()

    def take_entries(self, xid: int) -> Iterator[Any]:
        """Yield the entries of a transaction that were not rolled back, in order; drop it at the end."""
        return (entry for entry, aborted in self.take_all(xid) if not aborted)

    def take_all(self, xid: int) -> Iterator[tuple[Any, bool]]:
        """As take_entries(), for all entries: yield (entry, whether it was rolled back)."""
        entries = self._open[xid]
        first, after = 0, 0
        aborted = iter([*entries.aborted, (sys.maxsize, sys.maxsize)])
        for index, entry in enumerate(chain.from_iterable(self._chunks(entries))):
            while index >= after:
                first, after = next(aborted)
            yield entry, index >= first
        self.drop(xid)

    def close(self) -> None:
        self.file.close()

    def _chunks(self, entries: _Entries) -> Iterator[list[Any]]:
        for offset, size in entries.extents:
            import pickle

            yield pickle.loads(self.file.read(offset, size))
        yield entries.pending

    def _spill(self, entries: _Entries) -> None:
        if not entries.pending:
            return
        import pickle

        data = pickle.dumps(entries.pending, pickle.HIGHEST_PROTOCOL)
        entries.extents.append((self.file.write(data, self._free_space(len(data))), len(data)))
        entries.pending = []
        entries.pending_size = 0

    def _free_space(self, size: int) -> int | None:
        """The offset of `size` bytes that an ended transaction has freed; None if there is no such space."""
        for index, (offset, length) in enumerate(self._free):
            if length >= size:
                self._free[index] = (offset + size, length - size)
                return offset
        return None


def _merged(extents: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join neighbouring extents, (offset, size), of a file."""
    merged: list[tuple[int, int]] = []
    for offset, size in sorted(extents):
        if merged and sum(merged[-1]) == offset:
            merged[-1] = (merged[-1][0], merged[-1][1] + size)
        elif size:
            merged.append((offset, size))
    return merged


class _Entries:
    """One transaction's entries: `extents` of the file, then `pending` in memory."""

    __slots__ = ("_count", "_first", "aborted", "extents", "pending", "pending_size")

    def __init__(self) -> None:
        self.extents: list[tuple[int, int]] = []
        self.pending: list[Any] = []
        self.pending_size = 0
        self._count = 0
        self._first: dict[int, int] = {}
        self.aborted: list[tuple[int, int]] = []
        """Half-open ranges of rolled-back entries, in order."""

    def add(self, subxid: int, entry: Any, size: int) -> None:
        self._first.setdefault(subxid, self._count)
        self._count += 1
        self.pending.append(entry)
        self.pending_size += size

    def abort(self, subxid: int) -> bool:
        first = self._first.get(subxid)
        if first is None:
            return False
        # This includes nested subtransactions: a later abort of one of them must not mark anything more.
        while self._first and next(reversed(self._first.values())) >= first:
            self._first.popitem()
        while self.aborted and self.aborted[-1][0] >= first:
            self.aborted.pop()
        self.aborted.append((first, self._count))
        return True
