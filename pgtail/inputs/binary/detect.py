"""Whether bytes are probably messages: used to search after damage and to recognise a source.

Stricter than the decoder, which must accept whatever a server may send. Nothing decoded here is shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from pgtail.errors import DecodeError, Truncated
from pgtail.pgoutput.decoder import AnyFrame, Decoder, Unknown
from pgtail.pgoutput.kinds import IN_STREAM, KINDS, MESSAGES
from pgtail.pgoutput.streaming import StreamStop
from pgtail.pgoutput.walsender import Keepalive, StandbyStatusUpdate, UnknownFrame

ENOUGH: Final = 3
"""Consecutive messages that rule out coincidence."""

_MANY: Final = 8
"""Messages to examine at most when comparing two readings."""

_BY_START: Final = {
    kind.start: bytes([tag for tag, other in KINDS.items() if other.start == kind.start]) for kind in KINDS.values()
}
MESSAGE_START: Final = re.compile(
    b"|".join([b"[%b]%b" % (tags, start) for start, tags in _BY_START.items()]), re.DOTALL
)
"""How a message may begin."""

_INSIDE: Final = (*[MESSAGES[tag] for tag in IN_STREAM], StreamStop, Keepalive, StandbyStatusUpdate)
"""The messages that may occur inside a stream segment."""

_LIGHT: Final = frozenset([kind.message for kind in KINDS.values() if kind.light])

_LSNS: Final = range(1 << 50)
"""A thousand terabytes of WAL."""

_TIMES: Final = range(-(1 << 50), 1 << 54)
"""From 1964 to 2570, in microseconds since 2000."""

_XIDS: Final = range(3, 1 << 32)
_PLAUSIBLE: Final[dict[str, range]] = {
    **dict.fromkeys(("final_lsn", "commit_lsn", "end_lsn", "prepare_lsn", "prepare_end_lsn"), _LSNS),
    **dict.fromkeys(("rollback_end_lsn", "lsn", "origin_lsn", "abort_lsn"), _LSNS),
    **dict.fromkeys(("abort_time", "commit_time", "prepare_time", "rollback_time", "clock"), _TIMES),
    **dict.fromkeys(("xid", "subxid"), _XIDS),
    "relation": range(1, 1 << 32),
    "oid": range(1, 1 << 32),
    "flags": range(2),
    "first_segment": range(2),
    "options": range(4),
    "reply_requested": range(2),
}
"""Values of fields that occur on real servers, by field name. None is always valid."""


_NAMES: Final = frozenset(("name", "namespace", "gid"))
_NO_NAME: Final = re.compile(r"[\0-\x1f\x7f]|.{800}")
"""What real names do not contain, though they may."""


class Run(NamedTuple):
    """The number of consecutive `messages` from some position, and how they end.

    `weight` counts those that are not in _LIGHT. `ended`: the bytes end after a complete message. `short`: they end
    inside a message that may be valid.
    """

    messages: int
    weight: int
    ended: bool
    short: bool

    @property
    def rank(self) -> tuple[int, bool]:
        """The better reading has the higher rank."""
        return self.messages, self.ended or self.short

    def credible(self, *, final: bool) -> bool:
        """Whether this is not a coincidence. `final`: nothing follows the bytes."""
        return self.weight > 0 and (self.messages >= ENOUGH or (final and self.ended))


NextUnit = Callable[[Decoder, int], tuple[AnyFrame, int]]
"""Decodes the message at a position of some buffer; returns it and the end of its frame.

Raises Truncated if the buffer is too short, Malformed if there is no message.
"""


def best_run(
    unit: NextUnit, decoder: Decoder, pos: int, end: int, *, separator: bytes | None = None
) -> tuple[Run, bool]:
    """The better of the runs inside and outside of a stream segment, and whether it is the one inside.

    If both are equal, the decoder's own state decides; it does not change. `separator` is as Decoder.separator.
    """
    scratch = Decoder()
    scratch.separator = separator
    outside = _run(unit, scratch, pos, end, in_stream=False)
    inside = _run(unit, scratch, pos, end, in_stream=True)
    if outside.rank == inside.rank:
        return (inside, True) if decoder.in_stream else (outside, False)
    return (inside, True) if inside.rank > outside.rank else (outside, False)


def _run(unit: NextUnit, scratch: Decoder, pos: int, end: int, *, in_stream: bool) -> Run:
    """Decode messages from `pos` to `end`, as inside a stream segment or not."""
    scratch.in_stream = in_stream
    count = weight = 0
    try:
        while count < _MANY and pos < end:
            inside = scratch.in_stream is True
            message, pos = unit(scratch, pos)
            if not _plausible(message, inside):
                return Run(count, weight, ended=False, short=False)
            count += 1
            weight += type(message) not in _LIGHT
    except Truncated:
        return Run(count, weight, ended=False, short=True)
    except DecodeError:
        return Run(count, weight, ended=False, short=False)
    return Run(count, weight, ended=pos >= end, short=False)


def _plausible(message: AnyFrame, inside: bool) -> bool:
    """Whether a server would send this message here."""
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
