"""Floor 4, whether bytes are likely messages: for the search after damage and for the start of an unknown source.

Nothing that is decoded here is shown. It is stricter than the decoder, which must take whatever a server may send.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from pgtail.errors import DecodeError, Truncated
from pgtail.wire.decoder import AnyFrame, Decoder, Unknown
from pgtail.wire.rows import Delete, Insert, Truncate, Update
from pgtail.wire.schema import Relation, Type
from pgtail.wire.stream import StreamAbort, StreamStart, StreamStop
from pgtail.wire.transaction import Message, Origin
from pgtail.wire.walsender import Keepalive, StandbyStatusUpdate, UnknownFrame

ENOUGH: Final = 3
"""This many messages in a row are no chance."""

_MANY: Final = 8
"""No more are looked at to decide between two readings."""

MESSAGE_START: Final = re.compile(
    rb"[EARYKPpr]|[BOb]\0|C\0\0|c.{4}\0\0|S.{4}[\0\1]"
    rb"|I.{4}(?:.{4})?N[\0-\6]|U.{4}(?:.{4})?[KON][\0-\6]|D.{4}(?:.{4})?[KO][\0-\6]"
    rb"|T(?:.{4})?\0.{3}[\0-\3]|M(?:.{4})?[\0\1]\0",
    re.DOTALL,
)
"""How a message may begin: flags are 0, log positions have a high byte of 0, no table has 1792 columns."""

_ALWAYS: Final = Keepalive | StandbyStatusUpdate
_INSIDE: Final = Insert | Update | Delete | Truncate | Relation | Type | Message | Origin | StreamStop | _ALWAYS
"""What may stand inside a stream segment."""

_LIGHT: Final = StreamStart | StreamStop | StreamAbort | Origin | Type
"""What many bytes could be by chance: a letter with a few numbers and names."""

_LSNS: Final = range(1 << 50)
"""A thousand terabytes of log."""

_TIMES: Final = range(-(1 << 50), 1 << 54)
"""From 1964 to 2570, in microseconds from 2000 on."""

_XIDS: Final = range(3, 1 << 32)
_PLAUSIBLE: Final[dict[str, range]] = {
    "final_lsn": _LSNS,
    "commit_lsn": _LSNS,
    "end_lsn": _LSNS,
    "prepare_lsn": _LSNS,
    "prepare_end_lsn": _LSNS,
    "rollback_end_lsn": _LSNS,
    "lsn": _LSNS,
    "origin_lsn": _LSNS,
    "abort_lsn": _LSNS,
    "abort_time": _TIMES,
    "commit_time": _TIMES,
    "prepare_time": _TIMES,
    "rollback_time": _TIMES,
    "clock": _TIMES,
    "xid": _XIDS,
    "subxid": _XIDS,
    "relation": range(1, 1 << 32),
    "oid": range(1, 1 << 32),
    "flags": range(2),
    "first_segment": range(2),
    "options": range(4),
    "reply_requested": range(2),
}
"""What fields are on any server there is, by their names; None is always right."""


_NAMES: Final = frozenset(("name", "namespace", "gid"))
_NO_NAME: Final = re.compile(r"[\0-\x1f\x7f]|.{800}")
"""What hardly stands in a name, though it may."""


class Run(NamedTuple):
    """What was found from some place on: so many `messages` in a row, and how they ended.

    `weight` counts those that many bytes cannot be by chance. `ended`: at the end of what is there, whole.
    `short`: inside a message that may be right.
    """

    messages: int
    weight: int
    ended: bool
    short: bool

    @property
    def rank(self) -> tuple[int, bool]:
        """Which of two runs is the better reading."""
        return self.messages, self.ended or self.short

    def credible(self, *, final: bool) -> bool:
        """Whether this is no chance; `final` says that nothing follows what is there."""
        return self.weight > 0 and (self.messages >= ENOUGH or (final and self.ended))


NextUnit = Callable[[Decoder, int], tuple[AnyFrame, int]]
"""Decodes what stands at a position of some buffer: the message, and where it ends with all that belongs to it.

Raises Truncated where the buffer is too short for it, Malformed where it is none.
"""


def run(unit: NextUnit, decoder: Decoder, pos: int, end: int, *, in_stream: bool) -> Run:
    """Follow messages from `pos` to `end`, read as inside a stream segment or not; `decoder` itself is not used."""
    scratch = Decoder(assume=decoder.assume)
    scratch.separator, scratch.in_stream = decoder.separator, in_stream
    count = weight = 0
    try:
        while count < _MANY and pos < end:
            inside = scratch.in_stream is True
            message, pos = unit(scratch, pos)
            if not _plausible(message, inside):
                return Run(count, weight, ended=False, short=False)
            count += 1
            weight += not isinstance(message, _LIGHT)
    except Truncated:
        return Run(count, weight, ended=False, short=True)
    except DecodeError:
        return Run(count, weight, ended=False, short=False)
    return Run(count, weight, ended=pos >= end, short=False)


def best_run(unit: NextUnit, decoder: Decoder, pos: int, end: int) -> tuple[Run, bool]:
    """The better of the runs inside and outside of a stream segment, and whether it is the one inside.

    Where both are as good, the decoder's own state counts.
    """
    outside = run(unit, decoder, pos, end, in_stream=False)
    inside = run(unit, decoder, pos, end, in_stream=True)
    if outside.rank == inside.rank:
        return (inside, True) if decoder.in_stream else (outside, False)
    return (inside, True) if inside.rank > outside.rank else (outside, False)


def _plausible(message: AnyFrame, inside: bool) -> bool:
    """Whether a server would send this here."""
    if isinstance(message, Unknown | UnknownFrame):
        return False
    if not isinstance(message, _INSIDE) if inside else isinstance(message, StreamStop):
        return False
    for name, value in zip(message._fields, message, strict=True):
        if value is not None and name in _PLAUSIBLE and value not in _PLAUSIBLE[name]:
            return False
        if name in _NAMES and isinstance(value, str) and (_NO_NAME.search(value) or not (value or name == "namespace")):
            return False
    return True
