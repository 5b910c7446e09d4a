"""Loads the compiled scanner if it was built. Everything it does is also available in Python."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
from types import ModuleType
from typing import Any, Final, NamedTuple, Protocol

from pgtail.pgoutput.cursor import Buffer

_SCANNER: Final = "pgtail.native._scanner"


@functools.cache
def compiled(name: str = _SCANNER) -> ModuleType | None:
    """The module `name`; None if it was not built or PGTAIL_PURE is set."""
    if os.environ.get("PGTAIL_PURE"):
        return None
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def keep_memory() -> None:
    """Make the allocator keep freed buffers, if the module was built: see its keep_memory()."""
    module = compiled()
    if module is not None:
        module.keep_memory()


def implementation_name() -> str:
    """Which implementation is used, for --version."""
    pure = os.environ.get("PGTAIL_PURE")
    if not pure and importlib.util.find_spec(_SCANNER) is not None:  # loading it takes long
        return "compiled scanner"
    why = "PGTAIL_PURE is set" if pure else "installed without a C compiler"
    return f"plain Python ({why})"


class Written(NamedTuple):
    """The state on which a row's text depends: passed to the scanner before a run, and back after it."""

    elements: int
    """How many elements of the open transaction were written; 0 outside."""
    counts: dict[str, int]
    """The executions of each Count in the open transaction; empty outside."""
    ended: dict[str, int]
    """The same for transactions that ended in the run."""


class Scanner(Protocol):
    """Processes runs of ordinary row messages, with their Begin and Commit, straight from bytes.

    Call enter() or leave() before scan(); after it, the attributes describe the run.
    """

    inside: bool
    """Whether the stream is inside a transaction."""
    began: bool
    """Whether that transaction started in this run; then `begun` is its xid, commit LSN and commit time."""
    started: bool
    """Whether its start was written."""
    seq: int
    """The number of its last row."""
    rows: int
    """How many rows this run processed."""
    left_out: int
    """How many of them do not pass the filter."""
    messages: int
    """How many messages this run processed, including Begin and Commit."""
    shown: int
    """How many transactions with shown rows ended in this run."""
    transactions: int
    """How many transactions ended in this run; `first_ts` and `last_ts` are the least and the greatest time of them."""
    first_ts: int
    last_ts: int
    not_sent: int
    """How many rows could not be tested, because the server did not send the value."""
    resume_at: int
    """The end LSN of the last transaction that ended in this run, or 0."""
    most: int | None
    """Stop before the Commit that would raise `shown` to this number; None for no limit."""
    until: int | None
    """Stop before the Commit of a transaction that ends at or after this LSN; None for no limit."""
    single: bool
    """Whether a run ends after the Commit of a transaction with shown rows."""
    written: Written | None
    """The written tables; None if the output keeps them itself."""

    @property
    def begun(self) -> tuple[int, int, int]: ...
    def remember(self, seen: Any) -> None:
        """Fill in old rows from these SeenRows, and remember rows there."""

    def forget(self) -> None:
        """Drop cached tables: they may have changed."""

    def rows_by_table(self) -> dict[tuple[str, str], list[int]]:
        """The number of rows, shown or not, by schema and table, in the order of ROW_OPS. Any thread may ask."""

    def enter(self, transaction: Any, started: bool) -> None:
        """The next run starts inside this Transaction; `started` says whether its start was written."""

    def leave(self) -> None:
        """The next run starts outside a transaction."""

    def scan(self, buf: Buffer, pos: int, end: int, framing: int, in_stream: bool = False) -> int:
        """Process messages of buf[pos:end]; returns where the first one starts that must be decoded.

        `in_stream`: all messages are rows from stream segments and have an xid.
        """
