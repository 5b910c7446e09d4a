"""Divides a dump into parts that can be decoded independently of each other, if the tables before them are known."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from pgtail.changes.assembler import Assembler
from pgtail.changes.events import Event, Note, Transaction
from pgtail.changes.filters import Filter
from pgtail.changes.relations import Relation
from pgtail.errors import InputError
from pgtail.inputs.base import Chunk, Input
from pgtail.native import compiled
from pgtail.outputs.base import Output
from pgtail.pgoutput.decoder import XLOG_DATA, XLOG_HEADER_SIZE, AnyFrame
from pgtail.pgoutput.kinds import TAGS, Role, messages
from pgtail.pgoutput.streaming import StreamStart
from pgtail.pgoutput.transaction import Begin
from pgtail.pgoutput.two_phase import StreamPrepare
from pgtail.pipeline.pipeline import Pipeline
from pgtail.records import replace
from pgtail.values import Types

FIRST_SIZE = 256 * 1024
"""Bytes of the first part, which is short, so that its output comes soon; each one after it is four times as long."""
SIZE = 4 << 20
"""Bytes of the longest parts, unless their last transaction ends later."""

_STEP: Final = 256 * 1024
"""Bytes of streamed rows to skip at once."""

DESCRIBES: Final = messages(Role.DESCRIPTION, Role.SEGMENT, Role.STREAM_END) - {StreamPrepare}
"""Messages on which the tables depend."""
_SNAPSHOT: Final = "the snapshot of a table"
_BEGINS: Final = (TAGS[Begin], TAGS[StreamStart])
"""Tags of the messages with which a part may begin outside of transactions."""
_ROWS: Final = tuple([TAGS[kind] for kind in messages(Role.ROW)])
"""Tags of the messages with which a part may begin inside a transaction."""

Described: TypeAlias = tuple[AnyFrame, int | None]
"""A message on which the tables depend, and its LSN."""


class Part(NamedTuple):
    """Bytes of a source, `stop` None: to the end. `before` and `after` count the descriptions before these offsets.

    `ended`: how many transactions end before `stop`, at most: -n counts none that is rolled back. 0 for the last part.
    """

    start: int
    stop: int | None
    before: int
    after: int
    alone: bool = False
    """Whether it depends on what all parts before it have written, because it may have the snapshot of a table."""
    begins_in: Transaction | None = None
    """The transaction inside of which it begins, as it is there."""
    ends_in: Transaction | None = None
    ended: int = 0

    def rest(self) -> Part:
        """All that follows this one."""
        assert self.stop is not None
        return Part(self.stop, None, self.after, self.after, alone=True, begins_in=self.ends_in)


class Walk:
    """One pass over an Input that decodes no row. Needs the compiled scanner.

    A part ends only where no stream segment is open, no prepared transaction is without an outcome, and, unless
    `divides`, no other transaction is open. At anything unusual the walk ends: `why` is then what it is, and the rest
    is one part. With `trusts` that excludes what is wrong inside the frame of a row: the part with it ends there.
    """

    def __init__(self, input_: Input, types: Types, *, divides: bool = False, trusts: bool = False) -> None:
        self.descriptions: list[Described] = []
        """The messages on which the tables depend, in the order of the stream."""
        self.why: str | None = None
        self._input = input_
        self._divides = divides
        self._assembler = Assembler(types)
        self._output = _Nothing(trusts=trusts)
        self._pipeline = Pipeline(self._assembler, self._output, note=self._note)
        self._start, self._before = input_.position, 0
        self._size = FIRST_SIZE
        self._inside: Transaction | None = None
        """The transaction inside of which the next part begins."""

    def parts(self) -> Iterator[Part | None]:
        """Yield the parts in order, and None after every other step, so that the caller can do something else."""
        try:
            for item in self._input.items():
                if isinstance(item, Chunk):
                    yield from self._chunk(item)
                    yield None
                else:
                    self._feed(item[0], item[1])
                if self.why is not None:
                    break
        except InputError:  # its part reports it
            self.why = "damage"
        finally:
            self._assembler.close()
        yield Part(self._start, None, self._before, len(self.descriptions), self.why is not None, self._inside)

    def _chunk(self, chunk: Chunk) -> Iterator[Part]:
        """Skip messages of a chunk, and yield the parts that end in it."""
        base = self._input.offset_of(chunk.buf, 0)
        assert base is not None
        while True:
            limit = min(max(self._start + self._size - base, chunk.pos), chunk.end)
            self._skip(chunk, limit, stop=False)
            if limit == chunk.end:
                return
            inside = self._to_divide()
            if inside is None:
                self._skip(chunk, chunk.end, stop=self._assembler.settled)
            at = base + chunk.pos
            enough = at - self._start >= max(self._size // 2, 1)
            if not (enough and self._pipeline.settled(inside) and _begins(chunk, _ROWS if inside else _BEGINS)):
                return
            places, ended = (self._start, at, self._before, len(self.descriptions)), self._pipeline.transactions
            yield Part(*places, begins_in=self._inside, ends_in=inside, ended=ended)
            self._start, self._before, self._size = at, len(self.descriptions), min(4 * self._size, SIZE)
            self._inside = inside

    def _to_divide(self) -> Transaction | None:
        """The open transaction as it is here, if it may be divided."""
        open_ = self._assembler.started_transaction
        if not self._divides or open_ is None or open_.snapshot or open_.state is not None or not open_.changes:
            return None
        return replace(open_)

    def _skip(self, chunk: Chunk, limit: int, *, stop: bool) -> None:
        """Skip messages up to the offset `limit`, or one that must be decoded; `stop`: or outside of transactions."""
        fast = compiled()
        assert fast is not None
        if self._assembler.decodes_next:
            return
        if not chunk.in_stream:
            self._output.skipping.stops_outside = stop
            chunk.pos = self._pipeline.scan(chunk.buf, chunk.pos, limit, chunk.framing, chunk.in_stream)
            return
        before = -1
        while before < chunk.pos:
            before = chunk.pos
            chunk.pos = fast.rows_of_one(chunk.buf, chunk.pos, limit, chunk.framing, _STEP)[0]

    def _feed(self, message: AnyFrame, lsn: int | None) -> None:
        self.descriptions += described_by(self._assembler, message, lsn)
        self._pipeline.feed(message, lsn)
        if isinstance(message, StreamPrepare):
            self.why = "a streamed transaction that is prepared"
        elif isinstance(message, Begin) and not message.xid:
            self.why = _SNAPSHOT

    def _note(self, note: Note) -> None:
        self.why = self.why or note.text


def described_by(assembler: Assembler, message: AnyFrame, lsn: int | None) -> list[Described]:
    """What a message says about the tables; the assembler gets it next."""
    found: list[Described] = [(message, lsn)] if type(message) in DESCRIBES else []
    partition = assembler.relations.partition_of(message)
    return found if partition is None else [*found, (partition, None)]


def _begins(chunk: Chunk, tags: Container[int]) -> bool:
    """Whether the next message of a chunk, with which a part is to begin, has one of these tags."""
    pos, framing = chunk.pos + chunk.framing, chunk.framing
    if framing and (pos >= chunk.end or chunk.buf[pos] != XLOG_DATA):
        return False
    pos += XLOG_HEADER_SIZE if framing else 0
    return pos < chunk.end and chunk.buf[pos] in tags


class _Nothing(Output):
    """Writes nothing."""

    def __init__(self, *, trusts: bool) -> None:
        self._trusts = trusts
        self.skipping: Any

    def event(self, event: Event) -> None:
        return

    def finish(self) -> None:
        return

    def scanner(self, find: Callable[[int], Relation | None], filter_: Filter | None, mask: object = None) -> Any:
        fast = compiled()
        assert fast is not None
        self.skipping = fast.SkippingScanner(find, filter_)
        self.skipping.trusts = self._trusts
        return self.skipping
