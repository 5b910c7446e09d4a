"""How a state is to be kept; imports no pyspark, so that the command line is checked before Spark starts."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Final, Literal

from pgtail.errors import OptionError
from pgtail.pgoutput.scalars import parse_lsn

RETAIN: Final = 3600.0
"""Seconds that replaced files are kept: for readers that opened an earlier version."""

BUCKET_SIZE: Final = 32 << 20
"""Bytes of Parquet that a bucket should have at most."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How to apply. `until` is an LSN or a time: what was committed later is left out, as in a recovery target.

    `wait`: where a segment is missing, apply what comes before it, and say so, in place of raising MissingSegment.
    """

    history: bool = False
    until: int | datetime.datetime | None = None
    allow_gap: bool = False
    wait: bool = False
    retain: float = RETAIN
    bucket_size: int = BUCKET_SIZE

    @property
    def kind(self) -> Literal["state", "history"]:
        """What is made."""
        return "history" if self.history else "state"


def until_of(text: str) -> int | datetime.datetime:
    """An LSN or a time (ISO 8601; UTC where it names no zone). Raises OptionError."""
    try:
        return parse_lsn(text)
    except ValueError:
        pass
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise OptionError(
            f"{text!r} is neither an LSN, such as 0/1949A30, nor a time, such as 2026-11-20T22:05:51Z"
        ) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=datetime.UTC)
