"""Floor 4, a capture's segments in order for whoever decodes them, and what is to be said of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from pgtail.captures.framing import gap_in
from pgtail.captures.position import remembered
from pgtail.captures.reader import Found, check, head, segments, settled


class Look:
    """One pass over captures; `damaged` says that something is missing or is not what was written."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self.damaged = False

    def capture(self, directory: str) -> Iterator[str]:
        """Each segment of a directory, checked just before it is to be read. Raises InputError."""
        known = remembered(Path(directory))  # before the names: a recorder may be at work
        before: str | None = None
        listed = segments(Path(directory))
        for segment in listed:
            found = settled(segment)
            if found is None:
                continue
            self._place(found, before)
            before = str(found.name)
            if found.open and segment is listed[-1]:  # all before it have an end
                yield str(found.path)
            else:
                yield from self._checked(str(found.path))
        if known is not None and known.last > (before or ""):
            self._say(f"segment {known.last} is missing at the end", directory)

    def segment(self, path: str) -> Iterator[str]:
        """One closed segment by itself. Raises InputError."""
        self._gap(path, gap_in(head(Path(path))))
        yield from self._checked(path)

    def _checked(self, path: str) -> Iterator[str]:
        problem = check(Path(path))
        if problem is not None:
            self._say(problem, path)
        yield path

    def _place(self, found: Found, before: str | None) -> None:
        """Whether it stands where it belongs. What its beginning does not tell, as it is damaged, check() does."""
        if found.predecessor is None:
            return
        self._gap(found.path, found.gap)
        if found.called != str(found.name):
            self._say(f"this is segment {found.called} under another name", found.path)
        elif before is None:
            if found.predecessor:
                self._tell(f"note: {found.path}: segment {found.predecessor} stood before it, and is not here")
        elif not found.predecessor:
            self._say(f"this is the first segment of another capture, behind {before}", found.path)
        elif found.predecessor != before:
            self._say(f"segment {found.predecessor} is missing before this one", found.path)

    def _gap(self, path: str | Path, gap: str) -> None:
        if gap:
            self._tell(f"note: {path}: a gap stands before it: what was committed {gap} is not in the capture")

    def _say(self, what: str, where: str | Path) -> None:
        self.damaged = True
        self._tell(f"damage: {where}: {what}")
