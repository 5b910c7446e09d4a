"""Floor 4, a capture's segments in order for whoever decodes them, and what is to be said of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from pgtail.captures.reader import check, lost_end, segments


class Look:
    """One pass over a capture; `damaged` says that something is missing or is not what was written."""

    def __init__(self, directory: str, tell: Callable[[str], None]) -> None:
        self._directory = Path(directory)
        self._tell = tell
        self.damaged = False

    def files(self) -> Iterator[str]:
        """Each segment, checked just before it is to be read. Raises InputError."""
        found = segments(self._directory)
        for segment in found:
            if segment.missing:
                self._say(f"segment {segment.missing} is missing before this one", segment.path)
            problem = None if segment.open else check(segment.path)
            if problem is not None:
                self._say(problem, segment.path)
            yield str(segment.path)
        lost = lost_end(self._directory, found)
        if lost is not None:
            self._say(f"segment {lost} is missing at the end", self._directory)

    def _say(self, what: str, where: Path) -> None:
        self.damaged = True
        self._tell(f"damage: {where}: {what}")
