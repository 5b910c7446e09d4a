"""The fields of plans (native/plan.py) as text, read from a decoded change and its transaction."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final, Protocol

from pgtail.changes.events import Transaction
from pgtail.native.plan import Field
from pgtail.outputs.cells import timestamp
from pgtail.pgoutput.scalars import time_text, unix_micros


class Known(Protocol):
    """What fields are read from."""

    transaction: Transaction
    seq: int | None
    lsn: int | None
    aborted: bool
    last_end: int | None

    def now(self) -> int:
        """The current time in nanoseconds since 1970-01-01 UTC, the same whenever it is asked for."""


def _number(value: int | None) -> bytes | None:
    return None if value is None else b"%d" % value


def lsn_bytes(value: int) -> bytes:
    """An LSN as PostgreSQL prints it."""
    return b"%X/%X" % (value >> 32, value & 0xFFFFFFFF)


def _lsn(value: int | None) -> bytes | None:
    return None if value is None else lsn_bytes(value)


def _unix(transaction: Transaction, numerator: int, denominator: int) -> bytes | None:
    when = transaction.time
    return None if when is None else b"%d" % (unix_micros(when) * numerator // denominator)


def _of_time(
    text: Callable[[int], str], pick: Callable[[Transaction], int | None] = lambda transaction: transaction.commit_ts
) -> Callable[[Known], bytes | None]:
    encoded = lru_cache(maxsize=16)(lambda when: text(when).encode())  # many rows have the same time

    def field(run: Known) -> bytes | None:
        when = pick(run.transaction)
        return None if when is None else encoded(when)

    return field


def _blank(time: int) -> str:
    """A time with a blank in place of the T."""
    return time_text(time).replace("T", " ")


def _clock(time: int) -> str:
    clock = time_text(time).partition("T")[2]
    return clock[: clock.index(".") + 4] + "Z"


def _state(run: Known) -> bytes | None:
    state = "aborted" if run.aborted else run.transaction.state
    return None if state is None else state.encode()


def _position(run: Known) -> int | None:
    return run.transaction.lsn if run.lsn is None else run.lsn


FIELDS: Final[dict[Field, Callable[[Known], bytes | None]]] = {
    Field.XID: lambda run: _number(run.transaction.xid),
    Field.COMMIT_LSN: lambda run: _lsn(run.transaction.commit_lsn),
    Field.COMMIT_TS: _of_time(time_text),
    Field.TIMESTAMP: _of_time(timestamp),
    Field.UNIX_MS: lambda run: _unix(run.transaction, 1, 1000),
    Field.UNIX_US: lambda run: _unix(run.transaction, 1, 1),
    Field.UNIX_NS: lambda run: _unix(run.transaction, 1000, 1),
    Field.END_LSN: lambda run: _lsn(run.transaction.end_lsn),
    Field.CHANGES: lambda run: _number(run.transaction.changes if run.transaction.begun else None),
    Field.LAST_END: lambda run: _number(run.last_end),
    Field.SEQ: lambda run: _number(run.seq),
    Field.LSN: lambda run: _lsn(run.lsn),
    Field.LSN_NUMBER: lambda run: _number(run.lsn),
    Field.POSITION_NUMBER: lambda run: _number(_position(run)),
    Field.ABORTED: lambda run: b"true" if run.aborted else None,
    Field.NOW_MS: lambda run: b"%d" % (run.now() // 1_000_000),
    Field.NOW_US: lambda run: b"%d" % (run.now() // 1000),
    Field.NOW_NS: lambda run: b"%d" % run.now(),
    Field.COMMIT_TIME: _of_time(_blank),
    Field.STATE: _state,
    Field.TIME: _of_time(_blank, lambda transaction: transaction.time),
    Field.END_NUMBER: lambda run: _number(run.transaction.end_lsn),
    Field.CLOCK: _of_time(_clock, lambda transaction: transaction.time),
}
"""Field -> its text; None if it is unknown."""
