"""What an output writes or tells once in a stream, of which several processes may write parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable


class Once:
    """The things that were done, by a name, each with a value that never changes."""

    def __init__(self) -> None:
        self.done: dict[str, object] = {}
        self.before: Callable[[], Iterable[tuple[str, object]]] | None = None
        """Waits for what was done in the parts before this one; None if all of that is in `done`."""

    def first(self, name: str, value: object = True) -> object:
        """Do a thing: returns None if this is the first time, else the value of that time."""
        if name not in self.done and self.before is not None:
            before, self.before = self.before, None
            self.done.update(before())
        if name in self.done:
            return self.done[name]
        self.done[name] = value
        return None
