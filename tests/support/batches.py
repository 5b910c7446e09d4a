"""The entries of batches (native/core/index.pxd) as objects, to compare them."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, TypeVar

from pgtail.native.batch import Batch, BeginEntry
from pgtail.native.plan import ROW_OPS
from pgtail.pgoutput.cells import UNCHANGED, Binary, TupleData


class CommitEntry(NamedTuple):
    """A Commit; `start` is where its frame starts in the buffer."""

    start: int
    flags: int
    commit_lsn: int
    end_lsn: int
    commit_time: int


class TransactionEntry(NamedTuple):
    """A transaction, or what the batch has of it: its rows are those from `first_row` to before `end_row`."""

    begin: BeginEntry | None
    commit: CommitEntry | None
    first_row: int
    end_row: int


class RowEntry(NamedTuple):
    """A row message. Its frame or, without frames, the message with its newline, is buffer[start:stop].

    `tag` is that of the message, `xid` that of the (sub)transaction in a stream.
    """

    start: int
    stop: int
    lsn: int | None
    xid: int | None
    oid: int
    tag: str
    old_kind: str
    old: TupleData | None
    new: TupleData | None


class MarkEntry(NamedTuple):
    """A Relation, Type, Origin, Truncate, Message or Keepalive (tag k) after so many rows, for the decoder.

    Its frame or, without frames, the message with its newline, is buffer[start:stop].
    """

    start: int
    stop: int
    row: int
    tag: str


def fields(text: str) -> list[tuple[str, Any]]:
    """The fields of a C structure, as its declaration lists them: a letter for the type before the names of it."""
    types = {
        "B": ctypes.c_uint8,
        "H": ctypes.c_uint16,
        "I": ctypes.c_uint32,
        "Q": ctypes.c_uint64,
        "q": ctypes.c_int64,
        "n": ctypes.c_ssize_t,
        "p": ctypes.c_void_p,
    }
    found = []
    for word in text.split():
        if word in types:
            kind = types[word]
        else:
            found.append((word, kind))
    return found


class _Row(ctypes.Structure):
    _fields_ = fields("Q lsn I start stop oid xid cells H old_width new_width unchanged table B op hidden kind shape")


class _Cell(ctypes.Structure):
    _fields_ = fields("p data I size B kind")


class _Transaction(ctypes.Structure):
    _fields_ = fields(
        "n begin commit first_row end_row Q final_lsn q begin_time Q commit_lsn end_lsn q commit_time I xid B flags"
        " n shown not_sent"
    )


class _Mark(ctypes.Structure):
    _fields_ = fields("n start stop row B tag")


_Entry = TypeVar("_Entry", _Row, _Cell, _Transaction, _Mark)


def _entries(kind: type[_Entry], data: bytes) -> list[_Entry]:
    count, rest = divmod(len(data), ctypes.sizeof(kind))
    assert rest == 0
    return list((kind * count).from_buffer_copy(data))


def rows_of(batch: Batch) -> list[RowEntry]:
    """Its rows. The batch must be in use: cells refer to its buffer."""
    cells = _entries(_Cell, batch.arrays[1])

    def row(entry: Any) -> RowEntry:
        old_end = entry.cells + entry.old_width
        return RowEntry(
            entry.start,
            entry.stop,
            entry.lsn or None,
            entry.xid if batch.in_stream else None,
            entry.oid,
            ROW_OPS[entry.op][0].upper(),
            "" if chr(entry.kind) == "N" else chr(entry.kind),
            None if chr(entry.kind) == "N" else _tuple(cells[entry.cells : old_end]),
            None if ROW_OPS[entry.op] == "delete" else _tuple(cells[old_end : old_end + entry.new_width]),
        )

    return [row(entry) for entry in _entries(_Row, batch.arrays[0])]


def _tuple(cells: list[Any]) -> TupleData:
    def value(cell: Any) -> Any:
        if cell.data is None:
            return None if chr(cell.kind) == "n" else UNCHANGED
        data = ctypes.string_at(cell.data, cell.size)
        return data if chr(cell.kind) == "t" else Binary(data)

    return tuple(map(value, cells))


def transactions_of(batch: Batch) -> list[TransactionEntry]:
    """Its transactions."""

    def transaction(entry: Any) -> TransactionEntry:
        begin = BeginEntry(entry.begin, entry.final_lsn, entry.begin_time, entry.xid)
        commit = CommitEntry(entry.commit, entry.flags, entry.commit_lsn, entry.end_lsn, entry.commit_time)
        return TransactionEntry(
            begin if entry.begin >= 0 else None, commit if entry.commit >= 0 else None, entry.first_row, entry.end_row
        )

    return [transaction(entry) for entry in _entries(_Transaction, batch.arrays[2])]


def marks_of(batch: Batch) -> list[MarkEntry]:
    """Its marks."""
    entries = _entries(_Mark, batch.arrays[3])
    return [MarkEntry(entry.start, entry.stop, entry.row, chr(entry.tag)) for entry in entries]
