"""Statistics that several processes count: each sends its own to the parent in its turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgtail.commands.sinks import FileSink
from pgtail.stats.collect import Statistics
from pgtail.stats.parts import Counted, PartStatistics, join
from pgtail.values import Types

if TYPE_CHECKING:
    from pgtail.commands.jobs import Link


class TurnStats(FileSink):
    """In place of a TurnSink, to which nothing is written: flush() sends what `stats` have counted.

    The parent joins that. `types` are those of the stream.
    """

    muted = False
    """Whether nothing of what was counted is sent."""

    def __init__(self, sink: FileSink, stats: Statistics, types: Types) -> None:
        super().__init__(sink.fd, sink.name)
        self._stats, self._types = stats, types
        self._link: Link | None = None
        """None in the parent, which counts the first part itself."""
        self._part: PartStatistics

    def follow(self, link: Link) -> None:
        """This process is not the parent, and `link` gives it the turn."""
        self._link = link
        self._part = PartStatistics(self._stats, self._types, self._full)

    def _flush(self) -> None:
        """Send what was counted, if this process has the turn."""
        if self._link is None:
            return
        if self.muted:
            self._part.take()
        elif self._link.has_turn():
            self._link.counted(self._part.take())

    def join(self, counted: Counted) -> None:
        """Take what a process has sent."""
        join(self._stats, counted, self._types)

    def _full(self) -> None:
        """Wait for the turn: what was counted becomes too much to keep."""
        assert self._link is not None
        self._link.wait_for_turn()
        self.flush()
