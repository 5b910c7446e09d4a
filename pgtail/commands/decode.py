"""`pgtail decode`: dumps of any form to one output."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from pgtail.capture.format import CLOSED, OPEN
from pgtail.capture.verify import CaptureVerifier
from pgtail.changes.assembler import Assembler
from pgtail.changes.events import CHANGES, Note
from pgtail.changes.filters import Filter
from pgtail.changes.redaction import Redaction
from pgtail.commands.checksums import Coverage, verify
from pgtail.commands.options import DecodeOptions
from pgtail.commands.output import build_output, open_target, show_of
from pgtail.commands.pager import paged
from pgtail.commands.progress import progress
from pgtail.commands.reading import Reading, interrupted
from pgtail.commands.selection import (
    build_redaction,
    build_types,
    filter_arguments,
    no_quotes,
    tell_filter,
    tell_note,
    tell_unmasked,
    without_change,
)
from pgtail.commands.sinks import DirectorySink, FileSink, check_not_read
from pgtail.commands.stderr import say
from pgtail.errors import AssemblyError, InputError, Interrupted, Malformed, OptionError
from pgtail.files.stopping import Stoppable
from pgtail.inputs.base import NOTHING_READ, Chunk, Input
from pgtail.inputs.recognition import open_input
from pgtail.inputs.source.file import Source
from pgtail.native import compiled
from pgtail.outputs.base import Output
from pgtail.pgoutput.decoder import Decoder
from pgtail.pipeline.pipeline import Pipeline
from pgtail.storage import Location, is_uri, locate
from pgtail.terminal.escape import escape

HINT_AFTER: Final = 10.0
"""Seconds of decoding after which a note tells how to get the compiled scanner where it was not built."""
_HINT: Final = """note: this pgtail was installed without the compiled scanner, which is up to 60 times faster. \
To build it, install a C compiler and Python's headers (on Debian: apt install gcc python3-dev), then pgtail again."""


class Decode:
    """One run over several files: one stream, one output (`output`, else the one that the options ask for).

    `redaction` is that of `output`.
    """

    def __init__(
        self, options: DecodeOptions, output: Output | None = None, redaction: Redaction | None = None
    ) -> None:
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

    def run(self, files: tuple[str, ...]) -> bool:
        """Decode all files; returns whether damage was skipped or a column to mask did not occur.

        Raises PgtailError and ClosedPipe.
        """
        fast = compiled()
        if fast is not None:
            fast.keep_memory()
        options, dump = self._options, self._options.dump
        if options.verbosity.verbose and options.verbosity.settings:
            _tell(f"settings: {options.verbosity.settings}")
        types = build_types(encoding=dump.encoding, numbers=options.format.numbers, enums=dump.types)
        filter_ = Filter(**filter_arguments(options.filter, self._redaction, options.until))
        decoder = Decoder(assume=dump.assume, encoding=dump.encoding)
        assembler = Assembler(types, strict=options.strict, show=show_of(options.format))
        check_not_read(options.format.file, files)
        if dump.verify:
            verify(files, dump.storage)
        client = False if filter_.active and options.client is None else options.client
        format_ = replace(options.format, client=client)
        whole = unmasked = False
        try:
            with paged(options.pager and format_.file is None, files), open_target(format_.file) as sink:
                output = self._given_output or build_output(format_, sink, self._redaction)
                pipeline = Pipeline(assembler, output, filter_=filter_, note=self._note, limit=options.limit)
                try:
                    with _hint_if_not_built():
                        whole = self._files(files, decoder, pipeline, sink)
                finally:
                    sink.flush()
                    assembler.close()
        finally:
            unmasked = tell_unmasked(self._redaction, whole=whole)
        tell_filter(filter_)
        return self._damaged or pipeline.damaged or unmasked

    def _files(
        self, files: tuple[str, ...], decoder: Decoder, pipeline: Pipeline, sink: FileSink | DirectorySink
    ) -> bool:
        """Decode the files; returns whether they were read to the end."""
        every = False
        try:
            with Stoppable():
                every = all(self._file(*found, decoder, pipeline, sink) for found in self._expanded(files, pipeline))
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

    def _expanded(
        self, names: tuple[str, ...], pipeline: Pipeline
    ) -> Iterator[tuple[str | Location, CaptureVerifier | None]]:
        """The files; a folder is replaced by the segments of the capture in it that are to be read."""
        skipping = pipeline.may_skip and not self._options.strict
        for name in names:
            place = locate(name, self._options.dump.storage)
            folder = name != "-" and place.is_folder()
            if not (folder or name.endswith(CLOSED)):
                yield place if is_uri(name) else name, None
                continue
            verifier = CaptureVerifier(_tell, pipeline.skips if skipping else None, self._options.dump.encoding)
            since = self._options.filter.since
            for segment in verifier.capture(place, since) if folder else verifier.segment(place):
                yield segment, verifier
            self._damaged = self._damaged or verifier.damaged

    def _file(
        self,
        name: str | Location,
        verifier: CaptureVerifier | None,
        decoder: Decoder,
        pipeline: Pipeline,
        sink: FileSink | DirectorySink,
    ) -> bool:
        """Decode one file, a segment with its verifier; returns whether to read the next one."""
        self._error, self._told = None, True
        try:
            goes_on = self._decode(name, verifier, decoder, pipeline, sink)
        except InputError as error:
            if verifier is not None and not isinstance(error, Interrupted):
                verifier.conclude(error)
            raise
        if goes_on and verifier is not None:
            verifier.conclude(self._error, told=self._told)
        return goes_on

    def _decode(
        self,
        name: str | Location,
        verifier: CaptureVerifier | None,
        decoder: Decoder,
        pipeline: Pipeline,
        sink: FileSink | DirectorySink,
    ) -> bool:
        check = None if verifier is None else verifier.check
        with Source(name, on_wait=sink.flush, check=check) as source, Reading(source) as reading:
            self._source = source.name
            form = self._options.dump.input_format
            reading.input_ = input_ = open_input(source, decoder, format=form, read=self._segments)
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


def _is_unfinished(error: InputError, source: Source) -> bool:
    """Whether an error in an open segment is just that its end is not written yet."""
    return source.cut_off if source.damage is not None else not isinstance(error, Malformed)


def _tell(text: str) -> None:
    say(escape(text))
