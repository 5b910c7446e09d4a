"""Decodes the parts of one input in several processes: the output, messages and exit status are those of one."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

from pgtail.commands.decode import Decode, Run
from pgtail.commands.progress import progress
from pgtail.commands.reading import Reading, interrupted
from pgtail.commands.selection import build_types, tell_filter, tell_unmasked, without_change
from pgtail.commands.stderr import tell
from pgtail.commands.turn import Alone, Counts, Task, Turn, TurnSink
from pgtail.files.stopping import begin
from pgtail.inputs.base import Input, SegmentsRead
from pgtail.inputs.recognition import open_input
from pgtail.inputs.source.file import Source
from pgtail.inputs.source.window import Window
from pgtail.pgoutput.decoder import Decoder
from pgtail.pipeline.parts import Described, Part, Walk
from pgtail.pipeline.pipeline import Seen
from pgtail.records import Record, replace

if TYPE_CHECKING:
    from pgtail.capture.verify import SegmentsToRead
    from pgtail.commands.jobs import Link
    from pgtail.commands.turn_stats import TurnStats


class Decoded(Record, frozen=False):
    """How much of an input was decoded, for the progress bar."""

    name: str
    size: int | None
    consumed: int = 0
    rows: int = 0


class Parts(ABC):
    """The parts of one input."""

    first_here: ClassVar[bool] = False
    """Whether the parent decodes the first part, which is short, before there are other processes."""
    known_late: bool = False
    """Whether the parent may not look at the input before there are other processes."""
    skips_end: bool = False
    """Whether the end of the last part was left out because of what it contains."""
    name: str
    descriptions: list[Described]
    """What was found so far of that on which the tables depend."""

    @abstractmethod
    def walk(self, *, divides: bool) -> AbstractContextManager[Iterator[Part | None]]:
        """A context with the parts of the input, or one that is everything; `divides`: also within transactions."""

    def begin(self) -> None:  # noqa: B027 -- segments are told one by one
        """Tell what is told before the first part."""

    def content(self, part: Part) -> SegmentsToRead | None:
        """What a process must know of a part to read it."""
        return None

    @abstractmethod
    def read(self, task: Task, run: Run, *, goes_on: bool) -> bool:
        """Read a part; returns whether to read the next one. `goes_on`: this process has read all parts before it."""

    def end(self, counts: Counts) -> None:  # noqa: B027 -- a segment may be without changes
        """Tell what is told after the last part."""

    @abstractmethod
    def size(self) -> int | None:
        """The size of the input in bytes; None if that is not known yet."""

    @abstractmethod
    def consumed(self, part: Part) -> int:
        """Bytes of the input up to the end of a part."""

    @abstractmethod
    def why_rest(self, part: Part) -> str | None:
        """Why the rest of the input, from this part on, is one part; None if it is not divided for its size."""


class PartsDecoder:
    """Decodes an input in `count` processes.

    The parent decodes the first part of a dump, so that its output comes as soon as that of one process, and forks the
    others then. Of a capture, a part may be most of it: the others decode all.
    """

    def __init__(
        self,
        decode: Decode,
        parts: Parts,
        count: int,
        sink: TurnSink | TurnStats,
        counted: Callable[[Any], None] | None = None,
    ) -> None:
        self.sink = sink
        self.elsewhere = False
        """Whether other processes decode, and tell what is told at the end."""
        self.left: Callable[[], bool] | None = None
        """What decodes the rest in this process; None: all files, as if there were no parts."""
        self._decode = decode
        self._parts = parts
        self._count = count
        self._counted = counted
        """What takes what other processes have counted."""
        self._read_until: int | None = 0
        """Up to where this process has decoded all parts."""

    def run(self, run: Run) -> bool:
        """Decode in several processes; returns whether these have decoded everything.

        Raises PgtailError and ClosedPipe.
        """
        try:
            begin()
            with self._parts.walk(divides=run.pipeline.may_resume) as parts:
                return self._run(parts, run)
        except KeyboardInterrupt as stopped:
            raise interrupted(stopped) from None

    def _run(self, parts: Iterator[Part | None], run: Run) -> bool:
        counts, first = Counts(), None
        if not self._parts.known_late:
            first = next(part for part in parts if part is not None)
            if first.stop is None:
                self._tell_rest(first)
                return False
        if first is not None and self._parts.first_here:
            counts = self._first(first, run)
            if counts.ended or not counts.settled:
                self.left = lambda: not counts.ended and self._part(Task(first.rest()), Alone(counts), run)[0]
                return False
        elif first is not None:
            parts, first = chain([first], parts), None
        self._divide(parts, first, counts, run)
        return True

    def _first(self, part: Part, run: Run) -> Counts:
        """Decode the first part in this process."""
        self._parts.begin()
        with self._decode.completing(run.pipeline):
            _, counts = self._part(Task(part), Alone(Counts()), run)
            self.sink.flush()
        return replace(counts, seen=run.pipeline.seen)

    def _divide(self, parts: Iterator[Part | None], first: Part | None, counts: Counts, run: Run) -> None:
        """Decode the parts after the first one, if that was decoded, in other processes."""
        from pgtail.commands.jobs import Jobs

        self.elsewhere = True
        decoded, once = Decoded(self._parts.name, self._parts.size()), counts.once
        ended = 0 if first is None else first.ended
        unshown, limit = ended - counts.shown, self._decode.options.limit or 0

        def task_of(part: Part, last: Part | None) -> Task:
            nonlocal ended
            # Also those in its last part: it may have left out the segment that has them.
            start = 0 if last is None else last.after if last.stop == part.start else last.before
            known = self._parts.descriptions[start : part.before]
            # At least one: if those before show as many as the limit, this part is not needed.
            room = 0 if part.alone else max(limit - (ended - unshown), 1)
            ended = part.ended
            return Task(part, known, once, self._parts.content(part), room)

        def advanced(part: Part, counts: Counts) -> None:
            nonlocal once, unshown
            once, unshown = counts.once, part.ended - counts.shown
            decoded.consumed, decoded.rows = self._parts.consumed(part), counts.rows
            if part.stop is None:
                self._tell_rest(part)

        with (
            Jobs(
                self._count,
                parts,
                lambda link: self._work(link, counts, run),
                task_of=task_of,
                advanced=advanced,
                counted=self._counted,
                before=first,
                counts=counts,
            ) as jobs,
            progress(decoded, self._decode.options.format.file, lambda: decoded.rows, "rows"),
        ):
            self._decode.damaged = jobs.run().damaged

    def _tell_rest(self, part: Part) -> None:
        why = self._parts.why_rest(part)
        if why is not None and self._decode.options.verbosity.verbose:
            tell_one(why)

    # -- in each process ---------------------------------------------------------------------------------------

    def _work(self, link: Link, counts: Counts, run: Run) -> None:
        """What a process does: decode parts until the last one of the input. Raises PgtailError and ClosedPipe."""
        decode, sink, pipeline = self._decode, self.sink, run.pipeline
        sink.follow(link)
        reported = pipeline.transactions
        whole = unmasked = False

        def seen() -> Seen:
            """What all parts up to here have seen, the end of the output included."""
            nonlocal reported
            own = pipeline.seen._replace(transactions=pipeline.transactions - reported)
            reported = pipeline.transactions
            return counts.seen.joined(own)

        def read() -> bool:
            nonlocal counts
            goes_on = True
            while not counts.ended:
                goes_on, counts = self._part(link.task(), link, run)
                counts = replace(counts, seen=seen())
                if not counts.ended:
                    sink.flush()
                    link.done(counts)
            return goes_on

        try:
            try:
                whole = decode.files(read, pipeline)
            finally:
                sink.flush()
                run.assembler.close()
        finally:
            unmasked = tell_unmasked(decode.redaction, whole=whole)
        decode.skipped = counts.skipped
        decode.tell_nothing_passed(seen(), whole=whole)
        tell_filter(run.filter_)
        link.done(replace(counts, damaged=decode.damaged or pipeline.damaged or unmasked))

    def _part(self, task: Task, turn: Turn, run: Run) -> tuple[bool, Counts]:
        """Decode one part, and wait for the turn; returns whether to read on, and what is known after it."""
        decode, pipeline, filter_, output = self._decode, run.pipeline, run.filter_, run.output
        part, goes_on = task.part, False
        rows, kept, shown, not_sent = pipeline.rows, pipeline.kept, pipeline.shown, filter_.not_sent
        output.left_out = 0
        decode.fed, decode.changed = -pipeline.messages, False
        decode.settings.looks = part.before == 0
        written, once = output.written.names, output.once
        try:
            self._limit(task.room, turn, run)
            if part.alone:
                written |= turn.wait_for_turn().written
            continues, self._read_until = part.start == self._read_until, part.stop
            if not continues:
                pipeline.resume(None)
            self._describe(task.known, run)
            if not continues and part.begins_in is not None:
                pipeline.resume(replace(part.begins_in))
            once.done.update(task.once)
            once.before = lambda: turn.wait_for_turn().once
            goes_on = self._parts.read(task, run, goes_on=continues)
        finally:
            before = turn.wait_for_turn()  # also to report an error
            once.before = None
            once.done.update(before.once)
            output.left_out += before.left_out
        counts = Counts(
            settled=pipeline.settled(None if self._parts.skips_end else part.ends_in)
            and not (decode.noted or decode.damaged),
            ended=part.stop is None or not goes_on,
            skipped=before.skipped or decode.skipped,
            fed=before.fed + decode.fed + pipeline.messages,
            rows=before.rows + pipeline.rows - rows,
            shown=before.shown + pipeline.shown - shown,
            changed=before.changed or decode.changed or (rows, kept) != (pipeline.rows, pipeline.kept),
            not_sent=before.not_sent + filter_.not_sent - not_sent,
            seen=before.seen,
            written=before.written | written,
            once=tuple(once.done.items()),
            left_out=output.left_out,
        )
        if counts.ended:
            filter_.not_sent = counts.not_sent
            self._parts.end(counts)
        return goes_on, counts

    def _limit(self, room: int, turn: Turn, run: Run) -> None:
        """Show so many transactions of the next part, and then wait for the turn to know how many more."""
        limit, shown, stop = self._decode.options.limit, run.pipeline.shown, run.pipeline.stop
        if limit is not None:
            stop.limit, stop.exact = shown + room, lambda: limit + shown - turn.wait_for_turn().shown

    def _describe(self, messages: Iterable[Described], run: Run) -> None:
        """Learn the tables that were described before a part, and show nothing of that."""
        once = run.output.once
        done = dict(once.done)
        self.sink.muted = True
        for message, lsn in messages:
            run.pipeline.describe(message, lsn)
        self.sink.flush()
        self.sink.muted = False
        once.done = done


def tell_one(why: str) -> None:
    """Tell why an input, or the rest of it, is decoded in one process."""
    tell(f"decoded in one process (--jobs): {why}")


class DumpParts(Parts):
    """The parts of a plain file."""

    first_here = True

    def __init__(self, decode: Decode, name: str) -> None:
        self.name = name
        self.descriptions = []
        self._decode = decode
        self._size: int | None = None
        self._form: type[Input] | None = None
        self._walk: Walk | None = None
        self._why: str | None = None
        self._last: Input | None = None

    @contextlib.contextmanager
    def walk(self, *, divides: bool) -> Iterator[Iterator[Part | None]]:
        """The parts of the file. Raises InputError if it cannot be read."""
        dump = self._decode.options.dump
        with Source(self.name) as source:
            self.name, self._size = source.name, source.size
            decoder = Decoder(encoding=dump.encoding)
            input_ = open_input(source, decoder, format=dump.input_format)
            self._form, self._why = type(input_), _why_whole(source, input_)
            if self._why is not None:
                yield iter([Part(0, None, 0, 0)])
                return
            types, trusts = build_types(encoding=dump.encoding), not self._decode.options.resync
            self._walk = walk = Walk(input_, types, divides=divides, trusts=trusts)
            self.descriptions = walk.descriptions
            yield walk.parts()

    def begin(self) -> None:
        if self._decode.options.verbosity.verbose and self._form is not None:
            tell(f"{self.name}: {self._form.name}")

    def read(self, task: Task, run: Run, *, goes_on: bool) -> bool:
        part, form = task.part, self._form
        assert form is not None
        with Source(self.name) as source, Reading(source) as reading:
            self._decode.source = source.name
            source.restrict(part.start, part.stop)
            if part.start:
                run.decoder.in_stream = False
            reading.input_ = self._last = form(Window(source), run.decoder)
            return self._decode.read(reading, run.pipeline, source, None)
        return False

    def end(self, counts: Counts) -> None:
        if not counts.changed and self._last is not None:
            tell(f"note: {without_change(self._last, counts.fed)}")

    def size(self) -> int | None:
        return self._size

    def consumed(self, part: Part) -> int:
        return part.stop or self._size or 0

    def why_rest(self, part: Part) -> str | None:
        if self._walk is None or self._walk.why is None:
            return self._why
        return f"from byte {part.start} of {self.name}, which has {self._walk.why}"


def _why_whole(source: Source, input_: Input) -> str | None:
    """Why a file cannot be divided; None if it can."""
    if not source.plain:
        return "it is compressed" if source.compressed else "it is a pipe"
    if input_.framing is None or input_.name == "pgcap":
        return f"the form {input_.name} is not divided"
    return None


class CaptureParts(Parts):
    """The parts of a capture, or of several segments. With `known_late` they are in an object store."""

    def __init__(self, decode: Decode, names: tuple[str, ...], *, known_late: bool) -> None:
        from pgtail.pipeline.capture_parts import CaptureWalk
        from pgtail.storage import locate

        options = decode.options
        self.known_late = known_late
        self.name = names[0]
        self._decode, self._names = decode, names
        places = [locate(name, options.dump.storage) for name in names]
        self._walk = CaptureWalk(places, options.filter.since, options.dump.encoding)
        self.descriptions = self._walk.descriptions

    @contextlib.contextmanager
    def walk(self, *, divides: bool) -> Iterator[Iterator[Part | None]]:
        """The parts of the capture."""
        yield self._walk.parts(divides=divides)

    def content(self, part: Part) -> SegmentsToRead | None:
        return self._walk.segments_of(part)

    def read(self, task: Task, run: Run, *, goes_on: bool) -> bool:
        decode, content = self._decode, task.content
        if content is None:
            return decode.every(self._names, run)
        with decode.verifying(run.pipeline) as verifier:
            if not goes_on:
                decode.segments = SegmentsRead(content.before or "" if content.begun else "")
            try:
                return all(decode.file(segment, verifier, run) for segment in verifier.read(content))
            finally:
                self.skips_end = verifier.skipped_last

    def size(self) -> int | None:
        return self._walk.ends[-1] if self._walk.ends else None

    def consumed(self, part: Part) -> int:
        return self._walk.ends[(part.stop or 0) - 1] if self._walk.ends else 0

    def why_rest(self, part: Part) -> str | None:
        return None if self._walk.why is None else f"from {self._walk.why}"
