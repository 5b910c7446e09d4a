"""`pgtail decode`: dumps of any form to one output."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from pgtail.capture.format import CLOSED, COMPLETE, OPEN
from pgtail.changes.assembler import Assembler
from pgtail.changes.events import CHANGES, Note
from pgtail.changes.filters import Filter
from pgtail.commands.checksums import Coverage, verify
from pgtail.commands.options import DecodeOptions
from pgtail.commands.output import (
    build_output,
    open_target,
    seen_rows_of,
    show_of,
    takes_seen,
    tell_dropped,
    with_old_values,
)
from pgtail.commands.pager import paged
from pgtail.commands.progress import progress
from pgtail.commands.reading import Reading, interrupted
from pgtail.commands.selection import (
    build_redaction,
    build_types,
    filter_arguments,
    folders,
    is_local_file,
    no_quotes,
    tell_filter,
    tell_note,
    tell_nothing_passed,
    tell_unmasked,
    without_change,
)
from pgtail.commands.sinks import FileSink, check_not_read
from pgtail.commands.stderr import say
from pgtail.errors import AssemblyError, InputError, Interrupted, Malformed, OptionError
from pgtail.files.stopping import Stoppable
from pgtail.inputs.base import NOTHING_READ, Chunk, Input
from pgtail.inputs.recognition import open_input
from pgtail.inputs.source.file import PAUSE, Source
from pgtail.inputs.source.window import Window
from pgtail.native import compiled
from pgtail.outputs.base import Output
from pgtail.pgoutput.decoder import Decoder
from pgtail.pipeline.pipeline import Pipeline, Seen
from pgtail.records import NamedTuple, replace
from pgtail.terminal.escape import escape

if TYPE_CHECKING:
    from pgtail.capture.verify import CaptureVerifier
    from pgtail.changes.redaction import Redaction
    from pgtail.changes.seen_rows import SeenRows
    from pgtail.commands.directory_sink import DirectorySink
    from pgtail.commands.jobs import Counts, Link, Task, TurnSink
    from pgtail.pipeline.parts import Described, Part
    from pgtail.storage import Location

LARGE: Final = 64 << 20
"""Bytes of a file from which on it is divided by default."""
HINT_AFTER: Final = 10.0
"""Seconds of decoding after which a note tells how to get the compiled scanner where it was not built."""
_STORE_PAUSE: Final = 5.0
"""Seconds after which a capture in a store is listed again."""
_HINT: Final = """note: this pgtail was installed without the compiled scanner, which is up to 60 times faster. \
To build it, install a C compiler and Python's headers (on Debian: apt install gcc python3-dev), then pgtail again."""


class _Run(NamedTuple):
    """What a run consists of."""

    decoder: Decoder
    assembler: Assembler
    pipeline: Pipeline
    filter_: Filter
    output: Output
    sink: FileSink | DirectorySink


class Decode:
    """One run over several files: one stream, one output (`output`, else the one that the options ask for).

    `redaction` is that of `output`.
    """

    def __init__(
        self, options: DecodeOptions, output: Output | None = None, redaction: Redaction | None = None
    ) -> None:
        self._asked = takes_seen(options.format)
        """Whether seen old values are asked for, not only taken where they are known to be right."""
        self._options = options
        self._redaction = redaction or build_redaction(options.filter)
        self._given_output = output
        self._source: str | None = None
        self._segments = NOTHING_READ
        """The capture segment that was last read to its end."""
        self._damaged = False
        self._error: InputError | None = None
        """The last error in the current file."""
        self._told = True
        """Whether that was told."""
        self._fed, self._changed = 0, False
        self._skipped = False
        """Whether a segment was left out, as nothing in it is selected."""
        self._noted = False
        """Whether there was a note about the input."""

    def run(self, files: tuple[str, ...]) -> bool:
        """Decode all files; returns whether damage was skipped or a column to mask did not occur.

        Raises PgtailError and ClosedPipe.
        """
        fast = compiled()
        if fast is not None:
            fast.keep_memory()
        if any(name.endswith(CLOSED) or not is_local_file(name) for name in files):
            self._options = replace(self._options, format=with_old_values(self._options.format))
        options, dump = self._options, self._options.dump
        if options.verbosity.verbose and options.verbosity.settings:
            _tell(f"settings: {options.verbosity.settings}")
        types = build_types(encoding=dump.encoding, numbers=options.format.numbers, enums=dump.types)
        filter_ = Filter(**filter_arguments(options.filter, self._redaction, options.until))
        decoder = Decoder(assume=dump.assume, encoding=dump.encoding)
        assembler = Assembler(
            types,
            strict=options.strict,
            show=show_of(options.format),
            tells_descriptions=takes_seen(options.format),
        )
        check_not_read(options.format.file, files)
        if options.follow:
            self._check_follow(files)
        if dump.verify:
            verify(files, dump.storage)
        client = False if filter_.active and options.client is None else options.client
        format_ = replace(options.format, client=client)
        whole = unmasked = divided = False
        try:
            paging = options.pager and format_.file is None and not options.follow
            with paged(paging, files), open_target(format_.file) as target:
                count = self._processes(files, target)
                turns = self._turns(target) if count > 1 else None
                sink = target if turns is None else turns
                output = self._given_output or build_output(format_, sink, self._redaction)
                seen_rows = seen_rows_of(options.format, asked=self._asked)
                pipeline = Pipeline(
                    assembler, output, filter_=filter_, note=self._note, limit=options.limit, seen_rows=seen_rows
                )
                run = _Run(decoder, assembler, pipeline, filter_, output, sink)
                try:
                    divided = turns is not None and self._divided(files[0], count, run, turns)
                    if not divided:
                        with _hint_if_not_built():
                            whole = self._files(lambda: self._every(files, run), pipeline)
                finally:
                    sink.flush()
                    assembler.close()
        finally:
            unmasked = tell_unmasked(self._redaction, whole=whole)
        if not divided:  # else other processes have told it
            self._tell_nothing_passed(pipeline.seen, whole=whole)
        tell_filter(filter_)
        tell_dropped(pipeline.seen_rows, options.format)
        return self._damaged or pipeline.damaged or unmasked

    def _tell_nothing_passed(self, seen: Seen, *, whole: bool) -> None:
        skipped = self._skipped or self._options.filter.since is not None
        tell_nothing_passed(seen, whole=whole and not skipped)

    def _check_follow(self, files: tuple[str, ...]) -> None:
        """Raises OptionError."""
        if len(files) != 1 or not list(folders(files, self._options.dump.storage)):
            raise OptionError("--follow reads one capture: name the directory that pgtail record writes")
        if self._options.format.undo:
            raise OptionError("--undo writes at the end, which --follow does not wait for")

    def _every(self, files: tuple[str, ...], run: _Run) -> bool:
        """Read the files; returns whether to their end, which a capture that is followed does not have."""
        every = all(self._file(*found, run) for found in self._expanded(files, run))
        return every and not self._options.follow

    def _files(self, read: Callable[[], bool], pipeline: Pipeline) -> bool:
        """Decode what `read` reads, and complete the output; returns whether it was read to the end, as `read` does."""
        every = False
        try:
            with Stoppable():
                every = read()
            if every:
                pipeline.finish()
            else:
                pipeline.break_off()
        except (InputError, OptionError) as error:  # such as a value that does not fit a column's type
            self._incomplete(pipeline)
            if isinstance(error, InputError) and error.source is None:
                error.source = self._source
            raise
        except KeyboardInterrupt as stopped:
            self._incomplete(pipeline)
            if not self._options.follow:
                raise interrupted(stopped) from None
        return every

    def _incomplete(self, pipeline: Pipeline) -> None:
        """Complete the output, of which the rest is missing.

        Statements that undo the older changes alone would overwrite the newer ones with values of before.
        """
        if self._options.format.undo:
            _tell("warning: no statements were written: they would undo the older changes without the newer ones")
        else:
            pipeline.break_off()

    def _expanded(self, names: tuple[str, ...], run: _Run) -> Iterator[tuple[str | Location, CaptureVerifier | None]]:
        """The files; a folder is replaced by the segments of the capture in it that are to be read."""
        pipeline, follow = run.pipeline, self._options.follow
        skipping = pipeline.may_skip and not self._options.strict
        for name in names:
            if is_local_file(name) and not name.endswith(CLOSED):
                yield name, None
                continue
            from pgtail.capture.verify import CaptureVerifier
            from pgtail.storage import locate

            place = locate(name, self._options.dump.storage)
            folder = place.is_folder()
            if not (folder or name.endswith(CLOSED)):
                yield place, None
                continue
            verifier = CaptureVerifier(_tell, pipeline.skips if skipping else None, self._options.dump.encoding)
            since, wait = self._options.filter.since, _pause(run.sink, place) if follow else None
            try:
                for segment in verifier.capture(place, since, wait) if folder else verifier.segment(place):
                    yield segment, verifier
            finally:
                self._damaged = self._damaged or verifier.damaged
                self._skipped = self._skipped or verifier.skipped

    def _file(
        self,
        name: str | Location,
        verifier: CaptureVerifier | None,
        run: _Run,
    ) -> bool:
        """Decode one file, a segment with its verifier; returns whether to read the next one."""
        self._error, self._told = None, True
        if verifier is None:  # else what is missing before it shows as descriptions at its beginning
            run.pipeline.forget_rows()
        if run.pipeline.seen_rows is not None:
            self._trust(run.pipeline.seen_rows, verifier)
        try:
            goes_on = self._decode(name, verifier, run)
        except InputError as error:
            if verifier is not None and not isinstance(error, Interrupted):
                verifier.conclude(error)
            raise
        if goes_on and verifier is not None:
            verifier.conclude(self._error, told=self._told)
        return goes_on

    def _trust(self, seen_rows: SeenRows, verifier: CaptureVerifier | None) -> None:
        """Learn of which tables the next file has every change."""
        if verifier is None:
            seen_rows.trust(None)
        elif verifier.parameters is not None:
            from pgtail.changes.complete_tables import CompleteTables

            seen_rows.trust(CompleteTables.parse(verifier.parameters.get(COMPLETE, "")))

    def _decode(
        self,
        name: str | Location,
        verifier: CaptureVerifier | None,
        run: _Run,
    ) -> bool:
        pipeline = run.pipeline
        check = None if verifier is None else verifier.check
        follow = self._options.follow and str(name).endswith(OPEN)
        with Source(name, on_wait=run.sink.flush, check=check, follow=follow) as source, Reading(source) as reading:
            self._source = source.name
            form = self._options.dump.input_format
            reading.input_ = input_ = open_input(source, run.decoder, format=form, read=self._segments)
            if self._options.verbosity.verbose:
                _tell(f"{source.name}: {input_.name}")
            with (
                contextlib.closing(input_),
                progress(source, self._options.format.file, lambda: pipeline.rows, "rows"),
            ):
                before = pipeline.rows, pipeline.kept
                self._fed, self._changed = -pipeline.messages, False
                goes_on = self._read(input_, pipeline, source, verifier)
                self._segments = input_.read
                for note in input_.notes:
                    _tell(f"note: {note}")
                changed = self._changed or before != (pipeline.rows, pipeline.kept)
                if not changed and not source.name.endswith((CLOSED, OPEN)):
                    _tell(f"note: {without_change(input_, self._fed + pipeline.messages)}")
                return goes_on
        return False

    # -- in several processes ----------------------------------------------------------------------------------

    def _processes(self, files: tuple[str, ...], target: FileSink | DirectorySink) -> int:
        """In how many processes to decode, if the content of the files allows it."""
        if self._options.jobs == 1 or (self._options.jobs is None and not _is_large(files)):
            return 1
        from pgtail.commands.division import processes, why_one  # not loaded for small files

        count = processes(self._options)
        why = None if count == 1 else why_one(files, self._options, target)
        if why is not None:
            self._tell_one(why)
        return count if why is None else 1

    def _turns(self, target: FileSink | DirectorySink) -> TurnSink:
        """What several processes write to."""
        from pgtail.commands.jobs import TurnSink

        assert isinstance(target, FileSink)
        return TurnSink(target)

    def _tell_one(self, why: str) -> None:
        if self._options.verbosity.verbose:
            _tell(f"decoded in one process (--jobs): {why}")

    def _divided(self, name: str, count: int, run: _Run, sink: TurnSink) -> bool:
        """Decode a file in several processes; returns whether that is possible."""
        from pgtail.commands.division import why_whole

        dump = self._options.dump
        try:
            with Stoppable(), Source(name) as source:
                input_ = open_input(
                    source, Decoder(assume=dump.assume, encoding=dump.encoding), format=dump.input_format
                )
                why = why_whole(source, input_)
                if why is not None:
                    self._tell_one(why)
                    return False
                self._walk(name, source, input_, count, run, sink)
        except KeyboardInterrupt as stopped:
            raise interrupted(stopped) from None
        return True

    def _walk(self, name: str, source: Source, input_: Input, count: int, run: _Run, sink: TurnSink) -> None:
        """Divide a source, and decode its parts in several processes."""
        from pgtail.commands.division import Decoded
        from pgtail.commands.jobs import Jobs, Task
        from pgtail.pipeline.parts import Part, Walk

        verbose = self._options.verbosity.verbose
        walk = Walk(input_, build_types(encoding=self._options.dump.encoding))
        decoded = Decoded(source.name, source.size)
        once: tuple[tuple[str, object], ...] = ()

        def task_of(part: Part, last: Part | None) -> Task[Part]:
            return Task(part, walk.descriptions[0 if last is None else last.after : part.before], once)

        def advanced(part: Part, counts: Counts) -> None:
            nonlocal once
            once = counts.once
            decoded.consumed, decoded.rows = part.stop or decoded.consumed, counts.rows
            if part.stop is None and walk.why is not None and verbose:
                self._tell_one(f"from byte {part.start} of {source.name}, which has {walk.why}")

        if verbose:
            _tell(f"{source.name}: {input_.name}")
        with (
            Jobs(
                count,
                walk.parts(),
                lambda link: self._work(link, name, type(input_), run, sink),
                task_of=task_of,
                rest_of=Part.rest,
                advanced=advanced,
            ) as jobs,
            progress(decoded, self._options.format.file, lambda: decoded.rows, "rows"),
        ):
            self._damaged = jobs.run().damaged

    def _work(self, link: Link[Part], name: str, form: type[Input], run: _Run, sink: TurnSink) -> None:
        """What a process does: decode parts until the last one of the input. Raises PgtailError and ClosedPipe."""
        from pgtail.commands.jobs import Counts

        sink.has_turn = link.has_turn
        counts, pipeline, reported = Counts(), run.pipeline, 0
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
                task = link.task()
                goes_on, counts = self._part(name, task, link, form, run, sink)
                counts = replace(counts, seen=seen())
                if not counts.ended:
                    sink.flush()
                    link.done(counts)
            return goes_on

        try:
            try:
                whole = self._files(read, pipeline)
            finally:
                sink.flush()
                run.assembler.close()
        finally:
            unmasked = tell_unmasked(self._redaction, whole=whole)
        self._tell_nothing_passed(seen(), whole=whole)
        tell_filter(run.filter_)
        link.done(replace(counts, damaged=self._damaged or pipeline.damaged or unmasked))

    def _part(
        self, name: str, task: Task[Part], link: Link[Part], form: type[Input], run: _Run, sink: TurnSink
    ) -> tuple[bool, Counts]:
        """Decode one part, and wait for the turn; returns whether to read on, and what is known after it."""
        from pgtail.commands.jobs import Counts

        pipeline, filter_, output, part, goes_on = run.pipeline, run.filter_, run.output, task.part, False
        rows, kept, not_sent = pipeline.rows, pipeline.kept, filter_.not_sent
        output.left_out = 0
        self._fed, self._changed = -pipeline.messages, False
        written, once = output.written.names, output.once
        try:
            if part.alone:
                written |= link.wait_for_turn().written
            with Source(name) as source, Reading(source) as reading:
                self._source = source.name
                source.restrict(part.start, part.stop)
                if part.start:
                    self._describe(task.known, pipeline, output, sink)
                    run.decoder.in_stream = False
                once.done.update(task.once)
                once.before = lambda: link.wait_for_turn().once
                reading.input_ = input_ = form(Window(source), run.decoder)
                goes_on = self._read(input_, pipeline, source, None)
        finally:
            before = link.wait_for_turn()  # also to report an error
            once.before = None
            once.done.update(before.once)
            output.left_out += before.left_out
        counts = Counts(
            settled=pipeline.settled and not self._noted,
            ended=part.stop is None or not goes_on,
            fed=before.fed + self._fed + pipeline.messages,
            rows=before.rows + pipeline.rows - rows,
            changed=before.changed or self._changed or (rows, kept) != (pipeline.rows, pipeline.kept),
            not_sent=before.not_sent + filter_.not_sent - not_sent,
            seen=before.seen,
            written=before.written | written,
            once=tuple(once.done.items()),
            left_out=output.left_out,
        )
        if counts.ended:
            filter_.not_sent = counts.not_sent
            if not counts.changed:
                _tell(f"note: {without_change(input_, counts.fed)}")
        return goes_on, counts

    def _describe(self, messages: Iterable[Described], pipeline: Pipeline, output: Output, sink: TurnSink) -> None:
        """Learn the tables that were described before a part, and show nothing of that."""
        once = output.once
        done = dict(once.done)
        sink.muted = True
        for message, lsn in messages:
            pipeline.describe(message, lsn)
        sink.flush()
        sink.muted = False
        once.done = done

    def _read(self, input_: Input, pipeline: Pipeline, source: Source, verifier: CaptureVerifier | None) -> bool:
        """Read an open input to its end, past damage with --resync; returns whether to read the next one."""
        coverage = Coverage(source)
        while True:
            try:
                return self._messages(input_, pipeline, coverage)
            except AssemblyError:
                raise
            except InputError as error:
                self._error = error
                coverage.explain(error)
                if source.name.endswith(OPEN) and _is_unfinished(error, source):
                    self._told = verifier is None or verifier.may_lack_end  # else it is damage, and told as such
                    if self._told:
                        _tell(f"note: {error}")
                    return True
                if not self._options.resync:
                    raise
                if not self._skip(input_, pipeline, error):
                    return True

    def _messages(self, input_: Input, pipeline: Pipeline, coverage: Coverage) -> bool:
        scan, feed, stop, changes = pipeline.scan, pipeline.feed, pipeline.stop, CHANGES
        limited = stop.limited
        with no_quotes(self._redaction):
            for item in input_.items():
                if isinstance(item, Chunk):
                    item.pos = scan(item.buf, item.pos, item.end, item.framing, item.in_stream)
                    coverage.used(pipeline.end_lsn)
                    continue
                message, lsn, offset, _ = item
                if limited and stop.is_before(message):
                    return False
                self._fed += 1
                self._changed = self._changed or type(message) in changes
                feed(message, lsn, offset)
                coverage.used(pipeline.end_lsn)
                if limited and stop.is_after(pipeline.shown):
                    return False
        return True

    def _skip(self, input_: Input, pipeline: Pipeline, error: InputError) -> bool:
        """Skip damage; returns whether a message decodes after it."""
        self._damaged = True
        pipeline.lost()
        found = input_.resync()
        goes_on = "nothing decodes after that" if found is None else f"going on at byte {input_.position}"
        _tell(f"damage: {error}; skipped {input_.skipped} bytes, {goes_on}")
        return found is not None

    def _note(self, note: Note) -> None:
        self._noted = True
        tell_note(note, self._source)


@contextlib.contextmanager
def _hint_if_not_built() -> Iterator[None]:
    """Tell how to get the compiled scanner if the body takes long without it; not if PGTAIL_PURE switched it off."""
    if compiled() is not None or os.environ.get("PGTAIL_PURE"):
        yield
        return
    timer = threading.Timer(HINT_AFTER, say, [_HINT])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _is_large(files: tuple[str, ...]) -> bool:
    """Whether this is one file of LARGE bytes or more."""
    try:
        return len(files) == 1 and os.stat(files[0]).st_size >= LARGE
    except OSError:
        return False


def _pause(sink: FileSink | DirectorySink, capture: Location) -> Callable[[], None]:
    """What waits before a capture is listed again; a store is not asked that often."""

    def pause() -> None:
        sink.flush()
        time.sleep(PAUSE if capture.path is not None else _STORE_PAUSE)

    return pause


def _is_unfinished(error: InputError, source: Source) -> bool:
    """Whether an error in an open segment is just that its end is not written yet."""
    return source.cut_off if source.damage is not None else not isinstance(error, Malformed)


def _tell(text: str) -> None:
    say(escape(text))
