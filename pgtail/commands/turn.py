"""What the processes that decode the parts of one input share: tasks, counts, and the output of each in its turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from pgtail.commands.sinks import FileSink
from pgtail.files.spool import SpoolFile
from pgtail.pipeline.parts import Described, Part
from pgtail.pipeline.pipeline import Seen
from pgtail.records import NamedTuple, Record

if TYPE_CHECKING:
    from pgtail.capture.verify import SegmentsToRead

IN_MEMORY: Final = 32 << 20
"""Bytes of output that wait in the memory of one process; more are in a temporary file."""
_PIECE: Final = 1 << 20
"""Bytes to write at once of those."""


class Task(NamedTuple):
    """A part to decode, and what its process has to know first."""

    part: Part
    known: Sequence[Described] = ()
    """The messages on which its tables depend, as far as its process does not know them."""
    once: tuple[tuple[str, object], ...] = ()
    """What the output has done once in the parts before, as far as it is known (outputs/written.py)."""
    content: SegmentsToRead | None = None
    """What is to be read, if the part does not say it."""
    room: int = 0
    """How many transactions it may show in any case, whatever those before show."""


class Counts(Record):
    """What all parts up to here have in common. `settled`: the next one depends on none of them."""

    settled: bool = True
    ended: bool = False
    """Whether nothing is read after them."""
    damaged: bool = False
    """Whether the exit status says so."""
    skipped: bool = False
    """Whether a segment was left out, as nothing in it is selected."""
    fed: int = 0
    """How many messages were read."""
    rows: int = 0
    shown: int = 0
    """How many transactions were shown."""
    changed: bool = False
    not_sent: int = 0
    seen: Seen = Seen()
    written: frozenset[tuple[str, str]] = frozenset()
    """Schema and name of tables whose rows were written, if the output needs to know."""
    once: tuple[tuple[str, object], ...] = ()
    """What the output has done once."""
    left_out: int = 0
    """How many changes or messages the output could not write."""


class Turn(Protocol):
    """Whether this process writes now: all parts before its own were written."""

    def has_turn(self) -> bool:
        """Whether this process writes now."""

    def wait_for_turn(self) -> Counts:
        """Wait until this process writes; returns what the parts before have in common."""


class Alone:
    """The turn of a process that decodes part after part itself."""

    def __init__(self, before: Counts) -> None:
        self._before = before

    def has_turn(self) -> bool:
        return True

    def wait_for_turn(self) -> Counts:
        return self._before


class TurnSink(FileSink):
    """Keeps what is written until this process has the turn. In the parent it is a FileSink."""

    muted = False
    """Whether nothing is kept."""

    def __init__(self, sink: FileSink) -> None:
        super().__init__(sink.fd, sink.name)
        self.has_turn: Callable[[], bool] = lambda: True
        self._waiting: list[bytes] = []
        self._waiting_size = 0
        self._spool: SpoolFile | None = None

    def follow(self, link: Turn) -> None:
        """This process is not the parent, and `link` gives it the turn."""
        self.has_turn = link.has_turn

    def _flush(self) -> None:
        if self.muted:
            self._parts, self._size = [], 0
        elif self.has_turn():
            if self._waiting or self._spool is not None:
                self._release()
            super()._flush()
        else:
            self._keep()

    def _keep(self) -> None:
        self._waiting += self._parts
        self._waiting_size += self._size
        self._parts, self._size = [], 0
        if self._waiting_size > IN_MEMORY:
            self._spool = self._spool or SpoolFile("keep what is to be written")
            for data in self._waiting:
                self._spool.write(data)
            self._waiting, self._waiting_size = [], 0

    def _release(self) -> None:
        if self._spool is not None:
            for at in range(0, self._spool.size, _PIECE):
                self._write_all(self._spool.read(at, _PIECE))
            self._spool.close()
            self._spool = None
        waiting, self._waiting, self._waiting_size = self._waiting, [], 0
        for data in waiting:
            self._write_all(data)
