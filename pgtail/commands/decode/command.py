"""`pgtail decode`: dumps of any form to one output."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from msgspec.structs import replace

from pgtail.capture.format import CLOSED, COMPLETE, OPEN, SNAPSHOT
from pgtail.changes.assembler import Assembler
from pgtail.changes.events import CHANGES, Note
from pgtail.changes.filters import Filter
from pgtail.commands.console.messages import handled_by
from pgtail.commands.console.pager import paged
from pgtail.commands.console.progress import progress
from pgtail.commands.decode.checksums import Coverage, verify
from pgtail.commands.decode.last import LastTransactions, start_of_last
from pgtail.commands.input.dump_settings import NOTE, DumpSettings
from pgtail.commands.input.interruption import Reading, interrupted, name_cure, skip_damage
from pgtail.commands.input.selection import (
    build_redaction,
    build_types,
    filter_arguments,
    folders,
    is_local_file,
    no_quotes,
    report_filter,
    report_note,
    report_nothing_passed,
    report_unmasked,
    without_change,
)
from pgtail.commands.options.common import DecodeOptions, FilterOptions
from pgtail.commands.output.build import (
    build_output,
    open_target,
    report_dropped,
    seen_rows_of,
    show_of,
    with_old_values,
)
from pgtail.commands.output.file_sink import FileSink, check_not_read
from pgtail.errors import AssemblyError, InputError, Interrupted, Malformed, OptionError
from pgtail.files.pipes import enlarge_pipe
from pgtail.files.stopping import begin, postpone
from pgtail.inputs.base import NOTHING_READ, Chunk, Input, SegmentsRead
from pgtail.inputs.recognition import open_input
from pgtail.inputs.source.file import PAUSE, Source
from pgtail.log import logger
from pgtail.native import compiled, keep_memory
from pgtail.outputs.base import Output
from pgtail.pgoutput.decoder import Decoder
from pgtail.pgoutput.scalars import Point, lsn_text
from pgtail.pipeline.pipeline import Pipeline
from pgtail.terminal.escape import escape

if TYPE_CHECKING:
    from pgtail.capture.verify import CaptureVerifier, SegmentsToRead
    from pgtail.changes.seen_rows import SeenRows
    from pgtail.commands.output.directory_sink import DirectorySink
    from pgtail.stats.collect import Statistics
    from pgtail.storage import Location

HINT_AFTER: Final = 10.0
"""Seconds of decoding after which a note says how to get the compiled scanner where it was not built."""
_STORE_PAUSE: Final = 5.0
"""Seconds after which a capture in a store is listed again."""
_HINT: Final = """this pgtail was installed without the compiled scanner, which takes about a hundredth of the time. \
To build it, install a C compiler and Python's headers (on Debian: apt install gcc python3-dev), then pgtail again."""


class Run(NamedTuple):
    """The parts of a run."""

    decoder: Decoder
    assembler: Assembler
    pipeline: Pipeline
    filter_: Filter
    output: Output
    sink: FileSink | DirectorySink


class Parallel(Protocol):
    """Reads files in several processes."""

    def read(self, decode: Decode, run: Run, /) -> bool:
        """Read all; returns whether to the end. Raises PgtailError and ClosedPipe."""


Divide: TypeAlias = "Callable[[tuple[str, ...], DecodeOptions, FileSink | DirectorySink], Parallel | None]"
"""Decides whether several processes decode these files into a sink; None: one does."""


class Decode:
    """One run over several files: one stream, one output.

    `stats` are in place of the output that the options ask for. With `divide`, several processes may decode.
    """

    def __init__(
        self, options: DecodeOptions, stats: Statistics | None = None, divide: Divide = lambda *_: None
    ) -> None:
        self._asked = options.format.takes_seen
        """Whether seen old values are asked for, not only taken where they are known to be right."""
        self.options = options
        self.redaction = build_redaction(options.filter) if stats is None else stats.redaction
        self._stats = stats
        self._divide = divide
        self._source: str | None = None
        """The file that is read."""
        self._segments = NOTHING_READ
        """The capture segment that was last read to its end."""
        self.damaged = False
        """Whether damage was skipped, or something of a capture is missing."""
        self._gap_end = 0
        """The LSN at which the last gap between what is selected ends; 0 if there is none."""
        self._error: InputError | None = None
        """The last error in the current file."""
        self._reported = True
        """Whether there was a message about that."""
        self._fed, self._changed = 0, False
        """How many messages the current file has, and whether it has a change."""
        self.shown = 0
        """How many transactions were shown, once run() has ended."""
        self.skipped = False
        """Whether a segment was left out, as nothing in it is selected."""
        self._last: LastTransactions | None = None
        """Keeps the last transactions (--last)."""
        self.noted = False
        """Whether there was a note about the input."""
        self._settings = DumpSettings()

    def run(self, files: tuple[str, ...]) -> bool:
        """Decode all files; returns whether damage was skipped or a column to mask did not occur.

        Raises PgtailError and ClosedPipe.
        """
        keep_memory()
        if any(name.endswith(CLOSED) or not is_local_file(name) for name in files):
            self.options = replace(self.options, format=with_old_values(self.options.format))
        if self.options.verbosity.settings:
            logger.debug(escape(f"settings: {self.options.verbosity.settings}"))
        self._filter()  # refuses wrong filters
        self._check(files)
        self._begin_with_last(files)
        options = self.options
        whole = unmasked = False
        try:
            paging = options.pager and options.format.file is None and not options.follow
            with paged(paging, files), open_target(options.format.file) as target:
                parallel = self._divide(files, options, target)
                if isinstance(target, FileSink):
                    enlarge_pipe(target.fd)
                run = self.build(target if options.last is None else self._keep_last(target, options.last))
                with _hint_if_not_built():
                    whole = self._read_files(lambda: self._every(files, run, parallel), run)
        finally:
            unmasked = report_unmasked(self.redaction, whole=whole)
        skipped = self.skipped or options.filter.since is not None
        report_nothing_passed(run.pipeline.seen, whole=whole and not skipped)
        report_filter(run.filter_)
        report_dropped(run.pipeline.seen_rows, options.format)
        return self.damaged or run.pipeline.damaged or unmasked

    def _filter(self) -> Filter:
        """Raises OptionError."""
        return Filter(**filter_arguments(self.options.filter, self.redaction, self.options.until))

    def build(self, sink: FileSink | DirectorySink) -> Run:
        """Build the parts of the run. Raises OptionError."""
        options, filter_ = self.options, self._filter()
        client = False if filter_.active and options.client is None else options.client
        types = build_types(encoding=options.dump.encoding, numbers=options.format.numbers, enums=options.dump.types)
        decoder = Decoder(encoding=options.dump.encoding)
        assembler = Assembler(
            types,
            strict=options.strict,
            show=show_of(options.format),
            tells_descriptions=options.format.takes_seen,
        )
        redaction = self.redaction if self._stats is None else None
        format_ = replace(options.format, client=client)
        output = self._stats or build_output(format_, sink, masked=redaction is not None)
        seen_rows = seen_rows_of(options.format, filter_, asked=self._asked)
        pipeline = Pipeline(
            assembler,
            output,
            filter_=filter_,
            redaction=redaction,
            note=self._note,
            limit=options.limit,
            seen_rows=seen_rows,
            one_by_one=options.last is not None,
        )
        return Run(decoder, assembler, pipeline, filter_, output, sink)

    def _check(self, files: tuple[str, ...]) -> None:
        """Check what is read, with --verify its checksums. Raises OptionError and InputError."""
        check_not_read(self.options.format.file, files)
        if self.options.follow:
            self._check_follow(files)
        if self.options.last is not None and self.options.limit is not None:
            raise OptionError("-n shows the first transactions, --last the last ones: give one of them")
        if self.options.last is not None and self.options.format.undo:
            raise OptionError("--undo undoes all that is selected: --since LSN selects what --last N shows")
        if self.options.dump.verify:
            verify(files, self.options.dump.storage)

    def _begin_with_last(self, files: tuple[str, ...]) -> None:
        """With --last, begin with the segment of a capture that enough transactions follow."""
        last = self.options.last
        captures = [] if last is None else list(folders(files, self.options.dump.storage))
        if last is None or (len(files), len(captures)) != (1, 1):
            return

        def since(position: int) -> FilterOptions:
            point = self.options.filter.since or Point()
            return replace(self.options.filter, since=replace(point, lsn=max(position, point.lsn or 0)))

        def count_from(position: int) -> int:
            counting = replace(
                self.options,
                format=replace(self.options.format, file=os.devnull),
                filter=since(position),
                dump=replace(self.options.dump, verify=False),
                limit=last,
                last=None,
                follow=False,
            )
            decode = Decode(counting)
            try:
                with handled_by(logging.NullHandler()):  # the pass that shows them says the same
                    decode.run(files)
            except Interrupted:
                raise
            except InputError:
                pass  # the pass that shows them reports it
            return decode.shown

        position = start_of_last(captures[0], last, count_from)
        if position is not None:
            self.options = replace(self.options, filter=since(position))

    def _keep_last(self, target: FileSink | DirectorySink, count: int) -> LastTransactions:
        """Raises OptionError."""
        if not isinstance(target, FileSink):
            raise OptionError(f"-f {target.name} is a directory: --last writes one file")
        self._last = LastTransactions(target, count, follows=self.options.follow)
        return self._last

    def _check_follow(self, files: tuple[str, ...]) -> None:
        """Raises OptionError."""
        if len(files) != 1 or not list(folders(files, self.options.dump.storage)):
            raise OptionError("--follow reads one capture: name the directory that pgtail record writes")
        if self.options.format.undo:
            raise OptionError("--undo writes at the end, which --follow does not wait for")

    def _every(self, files: tuple[str, ...], run: Run, parallel: Parallel | None) -> bool:
        """Read the files; returns whether to their end, which a capture that is followed does not have."""
        if parallel is not None:
            return parallel.read(self, run)
        every = all(self._file(*found, run) for found in self._expanded(files, run))
        return every and not self.options.follow

    def _read_files(self, read: Callable[[], bool], run: Run) -> bool:
        """Decode what `read` reads, and complete the output; returns whether it was read to the end, as `read` does."""
        try:
            return self._complete(read, run.pipeline)
        finally:
            self.shown = run.pipeline.shown
            if self._last is not None:
                self._last.release()
            run.sink.flush()
            run.assembler.close()

    def _complete(self, read: Callable[[], bool], pipeline: Pipeline) -> bool:
        every = False
        with self._completing(pipeline):
            begin()
            every = read()
            postpone()  # the remaining work is done
            if not every:
                pipeline.break_off()
            elif (self.damaged or self._gap_end) and self.options.format.undo and not self.options.resync:
                self.damaged = True
                end = lsn_text(self._gap_end)
                after = f", --since {end} those for what came after the gap" if self._gap_end else ""
                logger.warning(
                    "no statements were written: they would undo the older changes without those that are"
                    f" missing; pgtail decode --resync writes them{after}"
                )
            else:
                pipeline.finish()
        return every

    @contextlib.contextmanager
    def _completing(self, pipeline: Pipeline) -> Iterator[None]:
        """A context in which files are decoded: an error or a request to stop completes the output."""
        try:
            yield
        except (InputError, OptionError) as error:  # such as a value that does not fit a column's type
            self._incomplete(pipeline)
            if isinstance(error, InputError) and error.source is None:
                error.source = self._source
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
            logger.warning("no statements were written: they would undo the older changes without the newer ones")
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
            with self._verifying(run.pipeline) as verifier:
                for segment in verifier.capture(place, since, wait) if folder else verifier.segment(place):
                    yield segment, verifier

    def read_segments(self, segments: SegmentsToRead, run: Run) -> bool:
        """Read these segments of a capture; returns whether to read the next ones. Raises InputError."""
        if segments.begun:
            self._segments = SegmentsRead(segments.before or "")
        with self._verifying(run.pipeline) as verifier:
            return all(self._file(segment, verifier, run) for segment in verifier.read(segments))

    @contextlib.contextmanager
    def _verifying(self, pipeline: Pipeline) -> Iterator[CaptureVerifier]:
        """A context in which segments are read, with their verifier."""
        from pgtail.capture.verify import CaptureVerifier

        skipping = pipeline.may_skip and not self.options.strict
        skips, follows = pipeline.skips if skipping else None, pipeline.messages > 0
        verifier = CaptureVerifier(skips, self.options.dump.encoding, follows=follows)
        try:
            yield verifier
        finally:
            self.damaged = self.damaged or verifier.damaged
            since = self.options.filter.since
            if verifier.gap_end > ((since and since.lsn) or 0):
                self._gap_end = verifier.gap_end
            self.skipped = self.skipped or verifier.skipped

    def _file(
        self,
        name: str | Location,
        verifier: CaptureVerifier | None,
        run: Run,
    ) -> bool:
        """Decode one file, a segment with its verifier; returns whether to read the next one."""
        self._error, self._reported = None, True
        if verifier is None:  # else descriptions at its beginning show that something is missing before it
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
            verifier.conclude(self._error, reported=self._reported)
        return goes_on

    def _trust(self, seen_rows: SeenRows, verifier: CaptureVerifier | None) -> None:
        """Learn the tables with every change in the next file."""
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
            self._source = source.name
            form, quiet = self.options.dump.input_format, self.options.verbosity.quiet
            reading.input_ = input_ = open_input(source, run.decoder, format=form, read=self._segments)
            logger.debug(escape(f"{source.name}: {input_.name}"))
            with (
                contextlib.closing(input_),
                progress(source, self.options.format.file, lambda: pipeline.rows, "rows", quiet=quiet),
            ):
                before = pipeline.rows, pipeline.kept
                self._fed, self._changed = -pipeline.messages, False
                goes_on = self._read(reading, pipeline, source, verifier)
                self._segments = input_.read
                for note in input_.notes:
                    logger.info(escape(note))
                changed = self._changed or before != (pipeline.rows, pipeline.kept)
                if not changed and not source.name.endswith((CLOSED, OPEN)):
                    logger.info(escape(without_change(input_, self._fed + pipeline.messages)))
                return goes_on
        return False

    def _read(self, reading: Reading, pipeline: Pipeline, source: Source, verifier: CaptureVerifier | None) -> bool:
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
                    self._reported = verifier is None or verifier.may_lack_end  # else it is damage, reported as such
                    if self._reported:
                        logger.info(escape(str(error)))
                    return True
                if not self.options.resync:
                    name_cure(error, source)
                    raise
                if not self._skip(input_, pipeline, error):
                    return True

    def _messages(self, reading: Reading, pipeline: Pipeline, coverage: Coverage) -> bool:
        scan, feed, stop, changes = pipeline.scan, pipeline.feed, pipeline.stop, CHANGES
        limited, last, settings = stop.limited, self._last, self._settings
        with no_quotes(self.redaction):
            for item in reading.items():
                if isinstance(item, Chunk):
                    goes_on = not (settings.looks and settings.waits)
                    while goes_on:
                        item.pos = scan(item.buf, item.pos, item.end, item.framing, item.in_stream)
                        goes_on = last is not None and last.take_text(pipeline)
                    coverage.used(pipeline.end_lsn)
                    continue
                message, lsn, offset, _ = item
                if limited and stop.is_before(message):
                    self._changed = True  # the unread part has changes
                    return False
                self._fed += 1
                self._changed = self._changed or type(message) in changes
                feed(message, lsn, offset)
                if settings.looks and settings.show_others(message):
                    logger.info(NOTE)
                if last is not None:
                    last.take_text(pipeline)
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
        report_note(note, self._source)


@contextlib.contextmanager
def _hint_if_not_built() -> Iterator[None]:
    """Say how to get the compiled scanner if the body takes long without it; not if PGTAIL_PURE switched it off."""
    if compiled() is not None or os.environ.get("PGTAIL_PURE"):
        yield
        return
    timer = threading.Timer(HINT_AFTER, logger.info, [_HINT])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _pause(sink: FileSink | DirectorySink, capture: Location) -> Callable[[], None]:
    """The pause before a capture is listed again; longer for a store."""

    def pause() -> None:
        sink.flush()
        time.sleep(PAUSE if capture.path is not None else _STORE_PAUSE)

    return pause


def _is_unfinished(error: InputError, source: Source) -> bool:
    """Whether an error in an open segment is just that its end is not written yet."""
    return source.cut_off if source.damage is not None else not isinstance(error, Malformed)
