"""Where to stop reading a stream."""

from __future__ import annotations

from pgtail.changes.commit_range import PLACES
from pgtail.changes.filters import Filter
from pgtail.pgoutput.decoder import AnyFrame


class Stop:
    """After `limit` shown transactions, at the LSN `until`, past the commits that `filter_` selects, or once it is met.

    None means no limit.
    """

    def __init__(self, filter_: Filter, *, limit: int | None, until: int | None) -> None:
        self._filter = filter_
        self.limit = limit
        self.until = until
        """Another thread may set it."""
        self.past: int | None = None
        """The commit time of the first transaction after those that the filter selects by time, once it was met."""

    @property
    def limited(self) -> bool:
        """Whether there is a limit now."""
        return (self.limit, self.until) != (None, None) or self._filter.commits.active

    def is_before(self, message: AnyFrame) -> bool:
        """Whether to stop before this message: it and all that follow are past the end."""
        place = PLACES.get(type(message))
        if place is None:
            return False
        lsn, time = place(message)
        if self._filter.commits.is_past(lsn, time):
            self.past = time
            return True
        return self.until is not None and lsn > self.until

    def is_after(self, shown: int, position: int = 0) -> bool:
        """Whether to stop after so many shown transactions, at this LSN; ask outside transactions."""
        left = self.left(shown)
        return (
            (left is not None and left <= 0) or (self.until is not None and position >= self.until) or self._filter.met
        )

    def left(self, shown: int) -> int | None:
        """How many more transactions to show."""
        return None if self.limit is None else self.limit - shown
