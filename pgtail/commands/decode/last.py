"""`pgtail decode --last N`: keeps the output of the last N transactions until the input ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from pgtail.commands.output.file_sink import FileSink
from pgtail.files.spool import SpoolFile
from pgtail.log import logger
from pgtail.pipeline.pipeline import Pipeline

if TYPE_CHECKING:
    from pgtail.storage import Location

_IN_MEMORY: Final = 64 << 20
"""Bytes that are kept in memory; more are in a temporary file."""
_PIECE: Final = 1 << 20
"""Bytes to read or write at once."""
_FARTHER: Final = 4
"""How many times as many transactions to look through, where too few of them are selected."""


class _Text(NamedTuple):
    """The output of a transaction (`counts`), or outside of transactions."""

    start: int
    header: int
    """The bytes of it that are the header of a file."""
    counts: bool


class LastTransactions(FileSink):
    """Writes the last `count` shown transactions, and all output after the first of them, to another sink.

    They are written by release(), or when this sink is flushed first if that `follows` an input: it is then at its end.
    After that everything is written at once.
    """

    def __init__(self, sink: FileSink, count: int, *, follows: bool, memory: int = _IN_MEMORY) -> None:
        super().__init__(sink.fd, sink.name)
        self._count, self._follows, self._memory = count, follows, memory
        self._spool: SpoolFile | None = SpoolFile("keep what is to be written", memory=memory)
        self._texts: deque[_Text] = deque()
        self._counted = self._shown = 0
        """How many of them are transactions, and how many the pipeline has shown."""
        self._open = _Text(0, 0, counts=True)
        """What is being written."""
        self._left_out = False
        """Whether something was left out because it came before the first transaction."""

    @property
    def kept(self) -> int:
        """Bytes that are kept, also of transactions that are not among the last ones any more."""
        return 0 if self._spool is None else self._spool.size

    def write(self, data: bytes) -> None:
        if self._spool is None:
            super().write(data)
        else:
            self._spool.write(data)

    def flush(self) -> None:
        if self._spool is not None and self._follows:
            self.release()
        if self._spool is None:
            super().flush()

    def take_text(self, pipeline: Pipeline) -> bool:
        """Call it after each run and message; returns whether a transaction has ended that is shown."""
        spool, (start, header, _) = self._spool, self._open
        ended = pipeline.shown > self._shown
        if spool is None or not (ended or (spool.size > start + header and not pipeline.inside)):
            return False
        self._shown = pipeline.shown
        if ended or self._texts:
            self._texts.append(self._open._replace(counts=ended))
            self._counted += ended
        else:
            self._left_out = True
            spool.truncate(start)
        while self._counted > self._count or (self._texts and not self._texts[0].counts):
            self._counted -= self._texts.popleft().counts
        self._move_down(spool)
        start = spool.size
        pipeline.new_file()  # it may be the first one that is written
        self._open = _Text(start, spool.size - start, counts=True)
        return ended

    def _move_down(self, spool: SpoolFile) -> None:
        """Free the space of dropped output once that is most of the file."""
        dead = self._texts[0].start if self._texts else spool.size
        if dead <= max(spool.size - dead, self._memory // 2):
            return
        for at in range(dead, spool.size, _PIECE):
            spool.write(spool.read(at, _PIECE), at - dead)
        spool.truncate(spool.size - dead)
        self._texts = deque([text._replace(start=text.start - dead) for text in self._texts])

    def release(self) -> None:
        """Write the last transactions. Raises ClosedPipe and OutputError."""
        spool, self._spool = self._spool, None
        if spool is None:
            return
        if self._left_out and not self._texts:
            logger.info("no transaction is selected (--last): what comes outside of transactions is not shown")
        texts = [*self._texts, self._open]
        for number, (text, stop) in enumerate(
            zip(texts, [*[text.start for text in texts[1:]], spool.size], strict=True)
        ):
            for at in range(text.start + (text.header if number else 0), stop, _PIECE):
                data = spool.read(at, min(_PIECE, stop - at))
                super().write(data if number or at > text.start else data.lstrip(b"\n"))  # between tables
        spool.close()
        super().flush()


def start_of_last(capture: Location, count: int, count_from: Callable[[int], int]) -> int | None:
    """The position of a segment from which so many transactions follow; None: its beginning.

    `count_from` counts those that are selected from a position on. Raises InputError.
    """
    from pgtail.capture.contents import read_contents  # the modules that read captures take long to import
    from pgtail.capture.reader import segments

    seen, wanted = 0, count
    for segment in reversed([one for one in segments(capture) if one.snapshot is None]):
        contents = None if segment.open else read_contents(segment.location)
        seen += 0 if contents is None else contents.transactions
        if seen < wanted:
            continue
        if count_from(segment.name.position) >= count:
            return segment.name.position
        wanted = seen * _FARTHER
    return None
