"""`pgtail decode`: dumps of any form to one output."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from pgtail.capture.format import CLOSED, COMPLETE, OPEN, SNAPSHOT
from pgtail.changes.assembler import Assembler
from pgtail.changes.events import CHANGES, Note
from pgtail.changes.filters import Filter
from pgtail.commands.checksums import Coverage, verify
from pgtail.commands.dump_settings import DumpSettings
from pgtail.commands.options import DecodeOptions
from pgtail.commands.output import (
    build_output,
    open_target,
    seen_rows_of,
    show_of,
    tell_dropped,
    with_old_values,
)
from pgtail.commands.pager import paged
from pgtail.commands.progress import progress
from pgtail.commands.reading import Reading, interrupted, name_cure, skip_damage
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
from pgtail.commands.stderr import say, tell
from pgtail.errors import AssemblyError, InputError, Interrupted, Malformed, OptionError
from pgtail.files.pipes import enlarge_pipe
from pgtail.files.stopping import begin, postpone
from pgtail.inputs.base import NOTHING_READ, Chunk, Input
from pgtail.inputs.recognition import open_input
from pgtail.inputs.source.file import PAUSE, Source
from pgtail.native import compiled, keep_memory
from pgtail.outputs import OutputOptions
from pgtail.outputs.base import Output
from pgtail.pgoutput.decoder import Decoder
from pgtail.pgoutput.scalars import lsn_text
from pgtail.pipeline.pipeline import Pipeline, Seen
from pgtail.records import NamedTuple, replace

if TYPE_CHECKING:
    from pgtail.capture.verify import CaptureVerifier
    from pgtail.changes.seen_rows import SeenRows
    from pgtail.commands.directory_sink import DirectorySink
    from pgtail.stats.collect import Statistics
    from pgtail.storage import Location
    from pgtail.values import Types

HINT_AFTER: Final = 10.0
"""Seconds of decoding after which a note tells how to get the compiled scanner where it was not built."""
_STORE_PAUSE: Final = 5.0
"""Seconds after which a capture in a store is listed again."""
_HINT: Final = """note: this pgtail was installed without the compiled scanner, which is up to 60 times faster. \
To build it, install a C compiler and Python's headers (on Debian: apt install gcc python3-dev), then pgtail again."""


class Run(NamedTuple):
    """What a run consists of."""

    decoder: Decoder
    assembler: Assembler
    pipeline: Pipeline
    filter_: Filter
    output: Output
    sink: FileSink | DirectorySink


class Division(Protocol):
    """Decodes an input in several processes.

    `sink` is where the output goes in each of them. Run() returns whether they have decoded everything: else `left`
    decodes the rest in this process, or, if it is None, all files. `elsewhere`: others tell what is told at the end.
    """

    elsewhere: bool
    left: Callable[[], bool] | None

    @property
    def sink(self) -> FileSink: ...
    def run(self, run: Run, /) -> bool: ...


Divide: TypeAlias = "Callable[[Decode, tuple[str, ...], FileSink | DirectorySink], Division | None]"
"""Decides whether several processes decode these files into a sink; None: one does."""


class Decode:
    """One run over several files: one stream, one output (`output`, else the one that the options ask for).

    `stats` are in place of an output. With `divide`, several processes may decode or count.
    """

    def __init__(
        self,
        options: DecodeOptions,
        output: Output | None = None,
        stats: Statistics | None = None,
        divide: Divide = lambda *_: None,
    ) -> None:
        self._asked = options.format.takes_seen
        """Whether seen old values are asked for, not only taken where they are known to be right."""
        self.options = options
        self.redaction = build_redaction(options.filter) if stats is None else stats.redaction
        self.stats = stats
        self.types: Types
        """The types of the stream."""
        self._given_output = output or stats
        self._divide = divide
        self.source: str | None = None
        """The file that is read."""
        self.segments = NOTHING_READ
        """The capture segment that was last read to its end."""
        self.damaged = False
        """Whether damage was skipped, or something of a capture is missing."""
        self._gap_end = 0
        """The LSN at which the last gap between what is selected ends; 0 if there is none."""
        self._error: InputError | None = None
        """The last error in the current file."""
        self._told = True
        """Whether that was told."""
        self.fed, self.changed = 0, False
        """How many messages the current file has, and whether it has a change."""
        self.skipped = False
        """Whether a segment was left out, as nothing in it is selected."""
        self.noted = False
        """Whether there was a note about the input."""
        self.settings = DumpSettings()

    def run(self, files: tuple[str, ...]) -> bool:
        """Decode all files; returns whether damage was skipped or a column to mask did not occur.

        Raises PgtailError and ClosedPipe.
        """
        keep_memory()
        if any(name.endswith(CLOSED) or not is_local_file(name) for name in files):
            self.options = replace(self.options, format=with_old_values(self.options.format))
        options, dump = self.options, self.options.dump
        if options.verbosity.verbose and options.verbosity.settings:
            tell(f"settings: {options.verbosity.settings}")
        self.types = build_types(encoding=dump.encoding, numbers=options.format.numbers, enums=dump.types)
        filter_ = Filter(**filter_arguments(options.filter, self.redaction, options.until))
        self._check(files)
        client = False if filter_.active and options.client is None else options.client
        format_ = replace(options.format, client=client)
        whole = unmasked = False
        division: Division | None = None
        try:
            paging = options.pager and format_.file is None and not options.follow
            with paged(paging, files), open_target(format_.file) as target:
                division = self._divide(self, files, target)
                if isinstance(target, FileSink):
                    enlarge_pipe(target.fd)
                run = self._build(format_, filter_, target if division is None else division.sink)
                try:
                    whole = self._run(files, run, division)
                finally:
                    run.sink.flush()
                    run.assembler.close()
        finally:
            tells = division is None or not division.elsewhere  # else the other processes do
            if tells:
                unmasked = tell_unmasked(self.redaction, whole=whole)
        if tells:
            self.tell_nothing_passed(run.pipeline.seen, whole=whole)
            tell_filter(filter_)
        tell_dropped(run.pipeline.seen_rows, options.format)
        return self.damaged or run.pipeline.damaged or unmasked

    def _run(self, files: tuple[str, ...], run: Run, division: Division | None) -> bool:
        """Decode; returns whether this process has read to the end of the last file."""
        if division is not None and division.run(run):
            return False
        left = None if division is None else division.left
        self.settings.looks = left is None  # else another process has looked
        with _hint_if_not_built():
            return self.files(left or (lambda: self.every(files, run)), run.pipeline)

    def tell_nothing_passed(self, seen: Seen, *, whole: bool) -> None:
        """Tell if the filters left nothing of what was read, which was all of the input or not."""
        skipped = self.skipped or self.options.filter.since is not None
        tell_nothing_passed(seen, whole=whole and not skipped)

    def _build(self, format_: OutputOptions, filter_: Filter, sink: FileSink | DirectorySink) -> Run:
        """What the run consists of. Raises OptionError."""
        options = self.options
        decoder = Decoder(encoding=options.dump.encoding)
        assembler = Assembler(
            self.types,
            strict=options.strict,
            show=show_of(options.format),
            tells_descriptions=options.format.takes_seen,
        )
        redaction = self.redaction if self._given_output is None else None
        output = self._given_output or build_output(format_, sink, masked=redaction is not None)
        seen_rows = seen_rows_of(options.format, filter_, asked=self._asked)
        pipeline = Pipeline(
            assembler,
            output,
            filter_=filter_,
            redaction=redaction,
            note=self._note,
            limit=options.limit,
            seen_rows=seen_rows,
        )
        return Run(decoder, assembler, pipeline, filter_, output, sink)

    def _check(self, files: tuple[str, ...]) -> None:
        """Check what is read, with --verify its checksums. Raises OptionError and InputError."""
        check_not_read(self.options.format.file, files)
        if self.options.follow:
            self._check_follow(files)
        if self.options.dump.verify:
            verify(files, self.options.dump.storage)

    def _check_follow(self, files: tuple[str, ...]) -> None:
        """Raises OptionError."""
        if len(files) != 1 or not list(folders(files, self.options.dump.storage)):
            raise OptionError("--follow reads one capture: name the directory that pgtail record writes")
        if self.options.format.undo:
            raise OptionError("--undo writes at the end, which --follow does not wait for")

    def every(self, files: tuple[str, ...], run: Run) -> bool:
        """Read the files; returns whether to their end, which a capture that is followed does not have."""
        every = all(self.file(*found, run) for found in self._expanded(files, run))
        return every and not self.options.follow

    def files(self, read: Callable[[], bool], pipeline: Pipeline) -> bool:
        """Decode what `read` reads, and complete the output; returns whether it was read to the end, as `read` does."""
        every = False
        with self.completing(pipeline):
            begin()
            every = read()
            postpone()  # what is left to do is done
            if not every:
                pipeline.break_off()
            elif (self.damaged or self._gap_end) and self.options.format.undo and not self.options.resync:
                self.damaged = True
                end = lsn_text(self._gap_end)
                after = f", --since {end} those for what came after the gap" if self._gap_end else ""
                tell(
                    "warning: no statements were written: they would undo the older changes without those that are"
                    f" missing; pgtail decode --resync writes them{after}"
                )
            else:
                pipeline.finish()
        return every

    @contextlib.contextmanager
    def completing(self, pipeline: Pipeline) -> Iterator[None]:
        """A context in which files are decoded: an error or a request to stop completes the output."""
        try:
            yield
        except (InputError, OptionError) as error:  # such as a value that does not fit a column's type
            self._incomplete(pipeline)
            if isinstance(error, InputError) and error.source is None:
                error.source = self.source
            raise
        except KeyboardInterrupt as stopped:
            self._incomplete(pipeline)
            if not self.options.follow:
                raise interrupted(stopped) from None

    def _incomplete(self, pipeline: Pipeline) -> None:
        """Complete the output, of which the rest is missing.

        Statements that undo the older changes alone would overwrite the newer ones with old values.
        """
        if self.options.format.undo:
            tell("warning: no statements were written: they would undo the older changes without the newer ones")
        else:
            pipeline.break_off()

    def _expanded(self, names: tuple[str, ...], run: Run) -> Iterator[tuple[str | Location, CaptureVerifier | None]]:
        """The files; a folder is replaced by the segments of the capture in it that are to be read."""
        for name in names:
            if is_local_file(name) and not name.endswith(CLOSED):
                yield name, None
                continue
            from pgtail.storage import locate

            place = locate(name, self.options.dump.storage)
            folder = place.is_folder()
            if not (folder or name.endswith(CLOSED)):
                yield place, None
                continue
            since, wait = self.options.filter.since, _pause(run.sink, place) if self.options.follow else None
            with self.verifying(run.pipeline) as verifier:
                for segment in verifier.capture(place, since, wait) if folder else verifier.segment(place):
                    yield segment, verifier

    @contextlib.contextmanager
    def verifying(self, pipeline: Pipeline) -> Iterator[CaptureVerifier]:
        """A context in which segments are read, with what verifies them."""
        from pgtail.capture.verify import CaptureVerifier

        skipping = pipeline.may_skip and not self.options.strict
        skips, follows = pipeline.skips if skipping else None, pipeline.messages > 0
        verifier = CaptureVerifier(tell, skips, self.options.dump.encoding, follows=follows)
        try:
            yield verifier
        finally:
            self.damaged = self.damaged or verifier.damaged
            since = self.options.filter.since
            if verifier.gap_end > ((since and since.lsn) or 0):
                self._gap_end = verifier.gap_end
            self.skipped = self.skipped or verifier.skipped

    def file(
        self,
        name: str | Location,
        verifier: CaptureVerifier | None,
        run: Run,
    ) -> bool:
        """Decode one file, a segment with its verifier; returns whether to read the next one."""
        self._error, self._told = None, True
        if verifier is None:  # else what is missing before it shows as descriptions at its beginning
            run.pipeline.forget_rows("another file begins")
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
        elif verifier.head is not None:
            from pgtail.changes.complete_tables import CompleteTables

            head = verifier.head
            complete = CompleteTables.parse(head.parameters.get(COMPLETE, ""))
            if not head.repeats:
                seen_rows.begin_session()
            if complete is not None or SNAPSHOT not in head.parameters:
                seen_rows.trust(complete)

    def _decode(
        self,
        name: str | Location,
        verifier: CaptureVerifier | None,
        run: Run,
    ) -> bool:
        pipeline = run.pipeline
        check = None if verifier is None else verifier.check
        follow = self.options.follow and str(name).endswith(OPEN)
        with Source(name, on_wait=run.sink.flush, check=check, follow=follow) as source, Reading(source) as reading:
            self.source = source.name
            form = self.options.dump.input_format
            reading.input_ = input_ = open_input(source, run.decoder, format=form, read=self.segments)
            if self.options.verbosity.verbose:
                tell(f"{source.name}: {input_.name}")
            with (
                contextlib.closing(input_),
                progress(source, self.options.format.file, lambda: pipeline.rows, "rows"),
            ):
                before = pipeline.rows, pipeline.kept
                self.fed, self.changed = -pipeline.messages, False
                goes_on = self.read(reading, pipeline, source, verifier)
                self.segments = input_.read
                for note in input_.notes:
                    tell(f"note: {note}")
                changed = self.changed or before != (pipeline.rows, pipeline.kept)
                if not changed and not source.name.endswith((CLOSED, OPEN)):
                    tell(f"note: {without_change(input_, self.fed + pipeline.messages)}")
                return goes_on
        return False

    def read(self, reading: Reading, pipeline: Pipeline, source: Source, verifier: CaptureVerifier | None) -> bool:
        """Read an open input to its end, past damage with --resync; returns whether to read the next one."""
        coverage, input_ = Coverage(source), reading.input_
        assert input_ is not None
        while True:
            try:
                return self._messages(reading, pipeline, coverage)
            except AssemblyError:
                raise
            except InputError as error:
                self._error = error
                coverage.explain(error)
                if source.name.endswith(OPEN) and _is_unfinished(error, source):
                    self._told = verifier is None or verifier.may_lack_end  # else it is damage, and told as such
                    if self._told:
                        tell(f"note: {error}")
                    return True
                if not self.options.resync:
                    name_cure(error, source)
                    raise
                if not self._skip(input_, pipeline, error):
                    return True

    def _messages(self, reading: Reading, pipeline: Pipeline, coverage: Coverage) -> bool:
        scan, feed, stop, changes = pipeline.scan, pipeline.feed, pipeline.stop, CHANGES
        limited, settings = stop.limited, self.settings
        with no_quotes(self.redaction):
            for item in reading.items():
                if isinstance(item, Chunk):
                    if not (settings.looks and settings.waits):
                        item.pos = scan(item.buf, item.pos, item.end, item.framing, item.in_stream)
                    coverage.used(pipeline.end_lsn)
                    continue
                message, lsn, offset, _ = item
                if limited and stop.is_before(message):
                    self.changed = True  # what is not read has changes
                    return False
                self.fed += 1
                self.changed = self.changed or type(message) in changes
                feed(message, lsn, offset)
                if settings.looks and (text := settings.take(message)):
                    tell(f"note: {text}")
                coverage.used(pipeline.end_lsn)
                if limited and stop.is_after(pipeline.shown):
                    return False
        return True

    def _skip(self, input_: Input, pipeline: Pipeline, error: InputError) -> bool:
        """Skip damage; returns whether a message decodes after it."""
        self.damaged = True
        pipeline.lost()
        return skip_damage(input_, error)

    def _note(self, note: Note) -> None:
        self.noted = True
        tell_note(note, self.source)


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


def _pause(sink: FileSink | DirectorySink, capture: Location) -> Callable[[], None]:
    """What waits before a capture is listed again; a store is not asked that often."""

    def pause() -> None:
        sink.flush()
        time.sleep(PAUSE if capture.path is not None else _STORE_PAUSE)

    return pause


def _is_unfinished(error: InputError, source: Source) -> bool:
    """Whether an error in an open segment is just that its end is not written yet."""
    return source.cut_off if source.damage is not None else not isinstance(error, Malformed)
