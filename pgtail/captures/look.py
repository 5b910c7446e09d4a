"""Floor 4, a capture's segments in order for whoever decodes them, and what is to be said of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from pgtail.captures.reader import check, lost_end, segments


class Look:
    """One pass over captures; `damaged` says that something is missing or is not what was written."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self.damaged = False

    def capture(self, directory: str) -> Iterator[str]:
        """Each segment of a directory, checked just before it is to be read. Raises InputError."""
        found = segments(Path(directory))
        for segment in found:
            if segment.missing:
                self._say(f"segment {segment.missing} is missing before this one", segment.path)
            if segment.open:
                yield str(segment.path)
            else:
                yield from self.segment(str(segment.path))
        lost = lost_end(Path(directory), found)
        if lost is not None:
            self._say(f"segment {lost} is missing at the end", directory)

    def segment(self, path: str) -> Iterator[str]:
        """One closed segment by itself. Raises InputError."""
        problem = check(Path(path))
        if problem is not None:
            self._say(problem, path)
        yield path

    def _say(self, what: str, where: str | Path) -> None:
        self.damaged = True
        self._tell(f"damage: {where}: {what}")
