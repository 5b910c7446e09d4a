"""Floor 3, streamed transactions as they come, before their end is known: a segment's changes are shown at once.

They are shown again, numbered, when their transaction ends; what is kept until then is not looked at here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pgtail.changes import ChangeMessage, changes_of, unnumbered
from pgtail.relations import Relation
from pgtail.transaction import Ended, Event, Started, Transaction


class Show(NamedTuple):
    """What is told of streamed transactions beside those that were committed or prepared, at their end."""

    aborted: bool = False
    """What was rolled back."""
    uncommitted: bool = False
    """Each change at once."""


class Uncommitted:
    """One segment after another, each told as a part of its transaction whose `state` is "open"."""

    def __init__(self) -> None:
        self._part = Transaction(None)
        self._told = False

    def start(self, transaction: Transaction) -> None:
        """A segment of this transaction begins."""
        self._part = Transaction(
            transaction.xid, origin=transaction.origin, state="open", begun=transaction.begun, streamed=True
        )
        self._told = False

    def origin(self, name: str) -> None:
        self._part.origin = name

    def change(self, message: ChangeMessage, lsn: int | None, relations: Sequence[Relation]) -> Iterator[Event]:
        """What a message of the segment tells; its first one that the segment began."""
        if not self._told:
            self._told = True
            yield Started(self._part)
        yield from unnumbered(self._part, changes_of(self._part, message, lsn, relations))

    def stop(self, *, complete: bool) -> list[Event]:
        """The segment ends, or was broken off."""
        told, self._told = self._told, False
        return [Ended(self._part, complete=complete)] if told else []
