"""Loads the compiled fast path if it was built. Everything it does is also available in Python."""

from __future__ import annotations

import functools
import importlib
import os
from types import ModuleType
from typing import Protocol, TypeAlias

from pgtail.pgoutput.cursor import Buffer


@functools.cache
def compiled(name: str = "pgtail.native._rows") -> ModuleType | None:
    """The module `name`; None if it was not built or PGTAIL_PURE is set."""
    if os.environ.get("PGTAIL_PURE"):
        return None
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def implementation_name() -> str:
    """Which implementation is used, for --version."""
    if compiled() is not None:
        return "compiled rows"
    why = "PGTAIL_PURE is set" if os.environ.get("PGTAIL_PURE") else "installed without a C compiler"
    return f"rows in plain Python ({why})"


Parts: TypeAlias = tuple[bytes, bytes, bytes]
"""A transaction's part of each JSON line: xid; commit or prepare; origin, gid and state."""


class RowProcessor(Protocol):
    """Writes runs of ordinary row messages, with their Begin and Commit, straight from bytes.

    Implemented by Rows in pgtail.native._rows or, if that was not built, in outputs/ndjson_rows.py; and by StatsRows.
    Call enter() or leave() before take(); after it, the attributes describe the run.
    """

    inside: bool
    """Whether the stream is inside a transaction."""
    began: bool
    """Whether that transaction started in this run; then `transaction` is its xid, commit LSN and commit time."""
    passed: bool
    """Whether any of its rows was shown."""
    seq: int
    """The number of its last row."""
    rows: int
    """How many rows this run processed."""
    messages: int
    """How many messages this run processed, including Begin and Commit."""
    shown: int
    """How many transactions with shown rows ended in this run."""
    end_lsn: int
    """The end LSN of the last transaction that ended in this run, or 0."""
    most: int | None
    """Stop before the Commit that would raise `shown` to this number; None for no limit."""
    until: int | None
    """Stop before the Commit of a transaction that ends at or after this LSN; None for no limit."""

    @property
    def transaction(self) -> tuple[int, int, int]: ...
    def forget(self) -> None:
        """Drop cached tables: they may have changed."""

    def enter(self, parts: Parts, commit_lsn: int | None, commit_ts: int | None, seq: int, passed: bool) -> None:
        """The next run starts inside this transaction."""

    def leave(self) -> None:
        """The next run starts outside a transaction."""

    def take(self, buf: Buffer, pos: int, end: int, framing: int, in_stream: bool = False) -> int:
        """Process messages of buf[pos:end]; returns where the first one starts that must be decoded.

        `in_stream`: all messages are rows from stream segments and have an xid.
        """
