"""The fields of plans (native/plan.py) as text, read from a decoded change and its transaction."""

from __future__ import annotations

from collections.abc import Callable
from time import time_ns
from typing import Any, Final, TypeAlias, TypeVar

from pgtail.changes.events import Transaction
from pgtail.local_time import to_local, zone_text
from pgtail.native.plan import TRANSACTION_FIELDS, Field, Side, UndecodedValue, Value
from pgtail.pgoutput.cells import TupleData
from pgtail.pgoutput.scalars import UNIX_EPOCH_OFFSET, time_text

T = TypeVar("T")
Clock: TypeAlias = Callable[[], int]
"""The current time in nanoseconds since 1970-01-01 UTC."""


class PlanRow:
    """A row change or another event as plans see it: the source of fields, and both tuples.

    `clock` gives nanoseconds since 1970-01-01 UTC; `last_end` is the value of Field.LAST_END.
    """

    __slots__ = (
        *("_now", "aborted", "clock", "is_long", "known", "last_end", "lsn", "new", "not_sent", "old", "seq"),
        *("transaction", "undecoded"),
    )

    def __init__(
        self,
        transaction: Transaction,
        clock: Clock,
        last_end: int | None,
        lsn: int | None,
        *,
        aborted: bool = False,
        known: dict[object, Any] | None = None,
    ) -> None:
        self.transaction = transaction
        self.clock = clock
        self.last_end = last_end
        self.seq: int | None = None
        self.lsn = lsn
        self.aborted = aborted
        self.old: TupleData = ()
        self.new: TupleData = ()
        self.known = {} if known is None else known
        """What is the same for all rows of a transaction, by what makes it."""
        self.not_sent: tuple[tuple[Side, int, str], ...] = ()
        """Cells without a value: unchanged, filled from the other tuple, or absent (outside the replica identity)."""
        self.undecoded: tuple[UndecodedValue, ...] = ()
        self.is_long = False
        """Whether a part of its text is long: it is not joined then, to avoid copies in memory."""
        self._now = 0

    def now(self) -> int:
        """The time of the clock when it was first asked for."""
        self._now = self._now or self.clock()
        return self._now


def _number(value: int | None) -> bytes | None:
    return None if value is None else b"%d" % value


def _lsn(value: int | None) -> bytes | None:
    return None if value is None else b"%X/%X" % (value >> 32, value & 0xFFFFFFFF)


def _unix(transaction: Transaction, numerator: int, denominator: int) -> bytes | None:
    when = transaction.time
    return None if when is None else b"%d" % ((when + UNIX_EPOCH_OFFSET) * numerator // denominator)


def _of_time(
    text: Callable[[int], str], pick: Callable[[Transaction], int | None] = lambda transaction: transaction.commit_ts
) -> Callable[[PlanRow], bytes | None]:
    def text_of(row: PlanRow) -> bytes | None:
        when = pick(row.transaction)
        return None if when is None else text(when).encode()

    return text_of


def timestamp(time: int) -> str:
    """A commit time in UTC as PostgreSQL prints it (timestamptz_to_str)."""
    text = time_text(time)
    before_christ = " BC" if text.endswith(" BC") else ""
    date, _, clock = text.removesuffix(" BC").removesuffix("Z").partition("T")
    return f"{date} {clock.rstrip('0').rstrip('.')}+00{before_christ}"


def _blank(time: int) -> str:
    """A time with a blank in place of the T."""
    return time_text(time).replace("T", " ")


def local_time(time: int) -> str:
    """A time in local time, for people: 2026-11-22 10:00:00.123456+01."""
    return _blank(to_local(time)).replace("Z", zone_text(time))


def local_minute(time: int) -> str:
    """The same to the minute, without the offset: 2026-11-22 10:00."""
    text = _blank(to_local(time))
    return text.rpartition(":")[0] + (" BC" if text.endswith(" BC") else "")


def local_clock(time: int) -> str:
    """A time in local time, short: 10:00:00.123+01 today, 11-22 10:00:00+01 in this year, else with the year, too."""
    date, _, clock = time_text(to_local(time)).partition("T")
    today = time_text(to_local(time_ns() // 1000 - UNIX_EPOCH_OFFSET)).partition("T")[0]
    if date == today:
        return clock[: clock.index(".") + 4] + zone_text(time)
    year, before_christ = today[: today.index("-") + 1], " BC" if clock.endswith(" BC") else ""
    return f"{date.removeprefix(year)} {clock.partition('.')[0]}{zone_text(time)}{before_christ}"


def _state(row: PlanRow) -> bytes | None:
    state = "aborted" if row.aborted else row.transaction.state
    return None if state is None else state.encode()


FIELDS: Final[dict[Field, Callable[[PlanRow], bytes | None]]] = {
    Field.XID: lambda row: _number(row.transaction.xid),
    Field.COMMIT_LSN: lambda row: _lsn(row.transaction.commit_lsn),
    Field.COMMIT_TS: _of_time(time_text),
    Field.TIMESTAMP: _of_time(timestamp),
    Field.UNIX_MS: lambda row: _unix(row.transaction, 1, 1000),
    Field.UNIX_US: lambda row: _unix(row.transaction, 1, 1),
    Field.UNIX_NS: lambda row: _unix(row.transaction, 1000, 1),
    Field.END_LSN: lambda row: _lsn(row.transaction.end_lsn),
    Field.CHANGES: lambda row: _number(row.transaction.count if row.transaction.begun else None),
    Field.LAST_END: lambda row: _number(row.last_end),
    Field.SEQ: lambda row: _number(row.seq),
    Field.LSN: lambda row: _lsn(row.lsn),
    Field.LSN_NUMBER: lambda row: _number(row.lsn),
    Field.POSITION_NUMBER: lambda row: _number(row.transaction.lsn if row.lsn is None else row.lsn),
    Field.ABORTED: lambda row: b"true" if row.aborted else None,
    Field.NOW_MS: lambda row: b"%d" % (row.now() // 1_000_000),
    Field.NOW_US: lambda row: b"%d" % (row.now() // 1000),
    Field.NOW_NS: lambda row: b"%d" % row.now(),
    Field.COMMIT_TIME: _of_time(_blank),
    Field.STATE: _state,
    Field.TIME: _of_time(local_time, lambda transaction: transaction.time),
    Field.END_NUMBER: lambda row: _number(row.transaction.end_lsn),
    Field.CLOCK: _of_time(local_clock, lambda transaction: transaction.time),
}
"""Field -> its text; None if it is unknown."""


def function_of_value(piece: Value) -> Callable[[PlanRow], bytes]:
    """What returns a field of a row between its texts, or the replacement of a missing one."""
    read, before, after, missing = FIELDS[piece.field], piece.before, piece.after, piece.missing
    instead = (lambda row: missing) if isinstance(missing, bytes) else FIELDS[missing]
    if piece.field in TRANSACTION_FIELDS:
        read = once(read)

    def text_of(row: PlanRow) -> bytes:
        text = read(row)
        return (instead(row) or b"") if text is None else before + text + after

    return text_of


def once(function: Callable[[PlanRow], T]) -> Callable[[PlanRow], T]:
    """The function, called for the first of the rows of a transaction."""

    def result_of(row: PlanRow) -> T:
        if function not in row.known:
            row.known[function] = function(row)
        result: T = row.known[function]
        return result

    return result_of
