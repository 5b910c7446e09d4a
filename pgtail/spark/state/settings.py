"""The settings of a state; imports no pyspark, so that the command line is checked before Spark starts."""

from __future__ import annotations

import datetime
from typing import Final, Literal

from msgspec import Struct

from pgtail.errors import OptionError
from pgtail.pgoutput.scalars import Point

_EPOCH: Final = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)


class Settings(Struct, frozen=True):
    """The settings of a state. `until` is an LSN or a time: later commits are left out, as with a recovery target.

    `wait`: if a segment is missing, apply what comes before it, and return MissingSegment in place of raising it.
    """

    history: bool = False
    until: int | datetime.datetime | None = None
    allow_gap: bool = False
    wait: bool = False
    ddl: bool = False
    """Whether the messages of `pgtail ddl` say what ALTER TABLE did; that holds for the life of a state."""
    retain: float = 3600.0
    """Seconds that replaced files are kept: for readers that opened an earlier version."""
    bucket_size: int = 512 << 10
    """Bytes of Parquet that a bucket should have at most."""

    @property
    def kind(self) -> Literal["state", "history"]:
        return "history" if self.history else "state"


def bound_of(point: Point) -> int | datetime.datetime:
    """The value of `until` for an LSN or a time. Raises OptionError."""
    try:
        return _EPOCH + datetime.timedelta(microseconds=point.time or 0) if point.lsn is None else point.lsn
    except OverflowError as error:
        raise OptionError(f"--until: {error}") from None
