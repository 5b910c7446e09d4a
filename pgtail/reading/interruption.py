"""Handles requests to stop while a source is read: an input with an end was then not read to it."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from types import TracebackType
from typing import Final, Self

from pgtail.errors import InputError, Interrupted, Malformed, Truncated
from pgtail.files.stopping import is_broken_off, postpone, status_after, stop_if_asked
from pgtail.humanize import counted
from pgtail.inputs.base import Chunk, Input
from pgtail.inputs.source.file import Source
from pgtail.log import log_damage
from pgtail.pgoutput.decoder import Decoded
from pgtail.terminal.escape import escape

_NOT_READ: Final = "the rest was not read"
BROKEN_OFF: Final = "interrupted while writing: the output may end inside a line"


class Reading:
    """A context in which a source is read, and then its `input_`.

    A request to stop raises Interrupted, unless the source is a pipe or a terminal: that may have no other end, so the
    context is just left, and `stopped` is set. It waits until the data read is written; a second request does not.
    """

    def __init__(self, source: Source) -> None:
        self.input_: Input | None = None
        self.stopped = False
        self._source = source
        self._items: Generator[Decoded | Chunk] | None = None
        self._outer = False

    def __enter__(self) -> Self:
        stop_if_asked()
        self._outer = postpone(True)
        return self

    def items(self) -> Iterator[Decoded | Chunk]:
        """The items of the input, up to a request to stop: the rest then begins with the item that was not yielded."""
        assert self.input_ is not None
        self._items = self.input_.items()
        for item in self._items:
            stop_if_asked()
            yield item

    def close_items(self) -> None:
        """After an error of the consumer: the input's position is then that of the message at which it failed."""
        if self._items is not None:
            self._items.close()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> bool:
        postpone(self._outer)
        if not isinstance(error, KeyboardInterrupt) or not error.args:  # it is raised without by Python's own handler
            return False
        self.close_items()
        if is_broken_off(error):
            raise Interrupted(BROKEN_OFF, status_after(error), source=self._source.name) from None
        if not self._source.live:
            reason = f"interrupted after {self._amount()}; {_NOT_READ}"
            raise Interrupted(reason, status_after(error), source=self._source.name) from None
        self.stopped = True
        return True

    def _amount(self) -> str:
        used = 0 if self.input_ is None else self.input_.position
        if self.input_ is not None and not self.input_.of_source:
            return f"{used} bytes of its messages"
        return f"{used} uncompressed bytes" if self._source.compressed else f"{used} of {self._source.size} bytes"


def interrupted(stopped: KeyboardInterrupt) -> Interrupted:
    """The error after a request to stop while no source is open."""
    reason = BROKEN_OFF if is_broken_off(stopped) else f"interrupted; {_NOT_READ}"
    return Interrupted(reason, status_after(stopped))


def skip_damage(input_: Input, error: InputError) -> bool:
    """Skip damage, and say so; returns whether a message decodes after it."""
    start = input_.position  # of the message, in which the error has its own place
    found = input_.resync()
    goes_on = "nothing decodes after that" if found is None else f"going on at byte {input_.position}"
    skipped = f"{counted(input_.skipped, 'byte')} from byte {start} on" if input_.skipped else "the rest of the member"
    log_damage(escape(f"{error}; skipped {skipped}, {goes_on}"))
    return found is not None


def name_cure(error: InputError, source: Source, skip: str = "--resync") -> None:
    """Add the cure to an error: for damage the option that skips it; nothing follows the end of a file."""
    if isinstance(error, Malformed):
        error.reason += f"; {skip} skips the damage"
    elif source.damage is not None and not source.cut_off:
        error.reason += f"; {skip} goes on at the next gzip member, if one follows"
    elif source.cut_off:
        error.reason += "" if source.live else "; the file was not copied whole, or is still being written"
    elif isinstance(error, Truncated):
        error.reason += f"; the input was cut off, is still being written, or is damaged here, which {skip} skips"
