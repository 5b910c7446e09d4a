"""What a request to stop means while a source is read: an input with an end was then not read to it."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self

from pgtail.errors import Interrupted
from pgtail.files.stopping import status_after
from pgtail.inputs.base import Input
from pgtail.inputs.source.file import Source

_NOT_READ: Final = "the rest was not read"


class Reading:
    """A context in which a source is read, and then its `input_`.

    A request to stop raises Interrupted, unless the source is a pipe or a terminal: that may have no other end, so the
    context is just left, and `stopped` is set.
    """

    def __init__(self, source: Source) -> None:
        self.input_: Input | None = None
        self.stopped = False
        self._source = source

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> bool:
        if not isinstance(error, KeyboardInterrupt):
            return False
        if not self._source.live:
            reason = f"interrupted after about {self._amount()}; {_NOT_READ}"
            raise Interrupted(reason, status_after(error), source=self._source.name) from None
        self.stopped = True
        return True

    def _amount(self) -> str:
        """How much was used. Messages are read in large pieces, so it may have been more."""
        used = 0 if self.input_ is None else self.input_.position
        return f"{used} uncompressed bytes" if self._source.compressed else f"{used} of {self._source.size} bytes"


def interrupted(stopped: KeyboardInterrupt) -> Interrupted:
    """The error after a request to stop while no source is open."""
    return Interrupted(f"interrupted; {_NOT_READ}", status_after(stopped))
