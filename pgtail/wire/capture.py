"""Floor 1, what a capture adds to what the server sent."""

from __future__ import annotations

from typing import NamedTuple


class Continued(NamedTuple):
    """A segment begins in the middle of the transaction whose Begin it repeats: so many row changes and messages of it
    lie in earlier segments."""

    changes: int
    messages: int
