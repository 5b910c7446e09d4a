"""Select the messages that `inspect` shows, by number, LSN, kind and content."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from pgtail.changes.events import Outcome, changes_of, tables_of
from pgtail.changes.filters import Filter
from pgtail.errors import OptionError
from pgtail.hexview.fields import Scope
from pgtail.pgoutput.cursor import Buffer, Traced, spans_of
from pgtail.pgoutput.decoder import AnyFrame, FromClient
from pgtail.pgoutput.kinds import FRAMES, MESSAGES
from pgtail.pgoutput.rows import Delete, Insert, Truncate, Update
from pgtail.pgoutput.scalars import parse_lsn
from pgtail.pgoutput.schema import Relation as RelationMessage
from pgtail.pgoutput.transaction import Message
from pgtail.pgoutput.two_phase import CommitPrepared, RollbackPrepared

_KINDS: Final = {
    **{class_.__name__.lower(): class_.__name__ for class_ in [*MESSAGES.values(), *FRAMES.values()]},
    **{chr(tag): class_.__name__ for tag, class_ in MESSAGES.items()},
    "startreplication": "StartReplication",
    "unknown": "Unknown",
    "unknownframe": "UnknownFrame",
}
"""The arguments of --kind, without spaces and hyphens: names in any case, and the first bytes of messages."""

KIND_NAMES: Final = sorted({re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower() for name in _KINDS.values()})
"""The names as they are usually written: insert, stream-commit."""

_POINTER: Final = "Int64 (XLogRecPtr)"


def numbers(texts: Iterable[str]) -> list[range]:
    """Parse message numbers: `N` or `N-M`, several separated by commas. Raises OptionError."""
    ranges = []
    for text in ",".join(texts).split(","):
        match = re.fullmatch(r"\s*(\d{1,18})(?:\s*-\s*(\d{1,18}))?\s*", text)
        if match is None:
            raise OptionError(f"--message {text}: expected a number such as 7 or a range such as 7-9")
        range_ = range(int(match[1]), int(match[2] or match[1]) + 1)
        if not 1 <= range_.start < range_.stop:
            raise OptionError(f"--message {text}: messages are counted from 1, a range begins with its lower number")
        ranges.append(range_)
    return ranges


def lsns(texts: Iterable[str]) -> list[range]:
    """Parse log positions: `LSN` or `LSN-LSN` each. Raises OptionError."""
    ranges = []
    for text in texts:
        first, dash, last = text.partition("-")
        try:
            ranges.append(range(parse_lsn(first), parse_lsn(last if dash else first) + 1))
        except ValueError:
            raise OptionError(
                f"--lsn {text}: expected an LSN such as 0/1949A30 or a range such as 0/1949A30-0/1949B00"
            ) from None
    return ranges


def kinds(texts: Iterable[str]) -> set[str]:
    """Parse names of messages and frames, or first bytes of messages. Raises OptionError."""
    chosen = set()
    for text in ",".join(texts).split(","):
        name = re.sub(r"[ _-]", "", text)
        kind = _KINDS.get(name) or _KINDS.get(name.lower())
        if kind is None:
            known = ", ".join(sorted(set(_KINDS.values())))
            raise OptionError(f"--kind {text}: expected one of {known}, or the first byte of a message")
        chosen.add(kind)
    return chosen


class MessageSelection:
    """Decides for each message whether it is shown.

    A filter on operations or values passes changes only; a filter on tables also passes their Relation messages.
    """

    def __init__(
        self,
        *,
        numbers: Sequence[range],
        kinds: Iterable[str],
        lsns: Sequence[range],
        xids: Iterable[int],
        filter_: Filter,
        about_tables: bool,
        about_changes: bool,
    ) -> None:
        self._numbers = numbers
        self._kinds = frozenset(kinds)
        self._lsns = lsns
        self._xids = frozenset(xids)
        self._filter = filter_ if filter_.active else None
        self._about_tables = about_tables
        self._about_changes = about_changes

    def done(self, number: int) -> bool:
        """Whether no message from this number on can be selected."""
        return bool(self._numbers) and all(number >= wanted.stop for wanted in self._numbers)

    def wants(
        self, number: int, message: AnyFrame, lsn: int | None, buf: Buffer, trace: Sequence[Traced], scope: Scope
    ) -> bool:
        """Whether to show a message. Raises OptionError if a condition on values does not fit its column."""
        if self._numbers and not any(number in wanted for wanted in self._numbers):
            return False
        kind = type(message.message if isinstance(message, FromClient) else message).__name__
        if self._kinds and kind not in self._kinds:
            return False
        if self._lsns and not self._names_lsn(lsn, buf, trace):
            return False
        return self._filter is None or self._passes(self._filter, message, lsn, scope)

    def _names_lsn(self, lsn: int | None, buf: Buffer, trace: Sequence[Traced]) -> bool:
        """Whether the LSN of the message or of one of its fields is selected."""
        named = [int.from_bytes(buf[span.start : span.end]) for span in spans_of(trace) if span.type == _POINTER]
        if lsn is not None:
            named.append(lsn)
        return any(value in wanted for value in named for wanted in self._lsns)

    def _passes(self, filter_: Filter, message: AnyFrame, lsn: int | None, scope: Scope) -> bool:
        if isinstance(message, Insert | Update | Delete | Truncate | Message):
            tables = [scope.relation(oid) for oid in tables_of(message)]
            changes = changes_of(scope.transaction, message, lsn, tables)
            return any(filter_.passes(change) for change in changes)
        if isinstance(message, CommitPrepared | RollbackPrepared):
            op = "commit_prepared" if isinstance(message, CommitPrepared) else "rollback_prepared"
            return filter_.outcome_passes(Outcome(op, message.xid, message.gid, 0, 0, 0))
        if isinstance(message, RelationMessage):
            if self._about_changes or not filter_.table_passes(scope.relation(message.oid)):
                return False
        elif self._about_changes or self._about_tables:
            return False
        return not self._xids or scope.xid in self._xids
