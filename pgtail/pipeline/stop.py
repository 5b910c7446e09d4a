"""Where to stop reading a stream."""

from __future__ import annotations

from pgtail.changes.commit_range import PLACES
from pgtail.changes.filters import Filter
from pgtail.native.batch import Slice
from pgtail.pgoutput.decoder import AnyFrame


class Stop:
    """After `limit` shown transactions, at the LSN `until`, past the commits that `filter_` selects, or once it is met.

    None means no limit. With `one_by_one` slices end after each shown transaction.
    """

    def __init__(self, filter_: Filter, *, limit: int | None, until: int | None, one_by_one: bool = False) -> None:
        self._filter = filter_
        self._last_lsn, self._latest = filter_.commits.end
        self._is_ranged = filter_.commits.active
        self.one_by_one = one_by_one
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

    def cut(self, slice_: Slice) -> None:
        """End a slice before the first message that may reach `until`, or is past the commits that are selected."""
        if self._is_ranged or self.until is not None:
            slice_.end_before(self.until, self._last_lsn, self._latest)

    def cut_shown(self, slice_: Slice, shown: int) -> None:
        """End a slice before the Commit that reaches the limit, if so many transactions were shown before it."""
        left = self.left(shown)
        if self.one_by_one:
            slice_.end_shown(1, True)
        elif left is not None:
            slice_.end_shown(left)

    def left(self, shown: int) -> int | None:
        """How many more transactions to show."""
        return None if self.limit is None else self.limit - shown
