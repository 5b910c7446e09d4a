"""Reads files, one after another, as one stream into one output: decode, stats, and pgtail.read().

It gives control back after each run of messages, so that its caller shows progress or takes what the output
collected.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

from pgtail.capture.format import CLOSED, COMPLETE, OPEN, SNAPSHOT
from pgtail.changes.assembler import Assembler
from pgtail.changes.commit_range import ANYWHERE
from pgtail.changes.events import CHANGES, Note
from pgtail.errors import AssemblyError, DecodeError, InputError, Interrupted, Malformed, OptionError
from pgtail.files.stopping import begin, postpone
from pgtail.inputs.base import NOTHING_READ, Chunk, SegmentsRead
from pgtail.inputs.recognition import open_input
from pgtail.inputs.source.file import PAUSE, Source
from pgtail.inputs.source.opened import Content, Opened
from pgtail.log import logger
from pgtail.outputs import OutputOptions
from pgtail.outputs.base import Output
from pgtail.pgoutput.decoder import Decoder
from pgtail.pgoutput.scalars import lsn_text
from pgtail.pgoutput.schema import Relation
from pgtail.pgoutput.streaming import StreamCommit
from pgtail.pgoutput.two_phase import CommitPrepared, StreamPrepare
from pgtail.pipeline.pipeline import Pipeline
from pgtail.reading.build import build_types, seen_rows_of, show_of
from pgtail.reading.checksums import Coverage
from pgtail.reading.dump_settings import NOTE, DumpSettings
from pgtail.reading.interruption import Reading, name_cure, skip_damage
from pgtail.reading.names import is_local_file
from pgtail.reading.notes import no_quotes, report_note, without_change
from pgtail.storage.options import NO_OPTIONS, StorageOptions
from pgtail.terminal.escape import escape

if TYPE_CHECKING:
    from pgtail.capture.verify import CaptureVerifier, SegmentsToRead
    from pgtail.changes.filters import Filter
    from pgtail.changes.redaction import Redaction
    from pgtail.changes.seen_rows import SeenRows
    from pgtail.storage import Location

_STORE_PAUSE: Final = 5.0
"""Seconds after which a capture in a store is listed again."""

_STEP: Final = 64 * 1024
"""Bytes of messages after which a step ends, where their source has more at once: a step costs a microsecond."""

_ENDS: Final = frozenset((StreamCommit, StreamPrepare, CommitPrepared))
"""Messages that may be followed by all changes of a transaction."""

Readable: TypeAlias = "str | Location | Content | Opened"
"""What a Source reads."""
Steps: TypeAlias = "Generator[Source | None, None, bool]"
"""Reading, step by step: yields the source that is read, None between sources; returns whether to read on."""


class Reader:
    """One run over several files: one stream, one output.

    `redaction` masks values in messages and, unless the output `masks` them itself, in what the output receives.
    `format` says what the output receives: streamed transactions, seen old rows; `asked`, whether these are asked for,
    not only taken where they are known to be right. With `one_by_one` a step has at most one transaction that is shown.
    `context` is as in Pipeline. `on_wait` is called before a read that has to wait.
    """

    def __init__(
        self,
        output: Output,
        filter_: Filter,
        *,
        redaction: Redaction | None = None,
        masks: bool = False,
        format: OutputOptions,  # noqa: A002 -- as DecodeOptions calls it
        asked: bool = False,
        encoding: str = "utf-8",
        enums: Iterable[str] = (),
        input_format: str | None = None,
        storage: StorageOptions = NO_OPTIONS,
        strict: bool = False,
        resync: bool = False,
        follow: bool = False,
        limit: int | None = None,
        one_by_one: bool = False,
        context: str | None = None,
        on_wait: Callable[[], None] | None = None,
    ) -> None:
        """Raises OptionError."""
        self.output, self.filter_ = output, filter_
        self._redaction, self._format = redaction, format
        self._encoding, self._input_format, self._storage = encoding, input_format, storage
        self._strict, self._resync, self._follow = strict, resync, follow
        self._one_by_one, self._on_wait = one_by_one, on_wait
        self._since = None if filter_.commits.since == ANYWHERE else filter_.commits.since
        self._decoder = Decoder(encoding=encoding)
        self._assembler = Assembler(
            build_types(encoding=encoding, numbers=format.numbers, enums=enums),
            strict=strict,
            show=show_of(format),
            tells_descriptions=format.takes_seen,
        )
        self.pipeline = Pipeline(
            self._assembler,
            output,
            filter_=filter_,
            redaction=None if masks else redaction,
            note=self._note,
            limit=limit,
            seen_rows=seen_rows_of(format, filter_, asked=asked),
            one_by_one=one_by_one,
            context=context,
        )
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
        self.skipped = False
        """Whether a segment was left out, as nothing in it is selected."""
        self.noted = False
        """Whether there was a note about the input."""
        self._settings = DumpSettings()

    def close(self) -> None:
        self._assembler.close()

    # -- what is read --------------------------------------------------------------------------------------------------

    def read(self, names: Iterable[str | Content | Opened]) -> Steps:
        """Read all of these; returns whether to their end, which a capture that is followed does not have."""
        for name, verifier in self._expanded(names):
            if not (yield from self._file(name, verifier)):
                return False
        return not self._follow

    def read_segments(self, segments: SegmentsToRead) -> Steps:
        """Read these segments of a capture; returns whether to read the next ones. Raises InputError."""
        if segments.begun:
            self._segments = SegmentsRead(segments.before or "")
        with self._verifying() as verifier:
            for segment in verifier.read(segments):
                if not (yield from self._file(segment, verifier)):
                    return False
        return True

    def complete(self, steps: Steps) -> Steps:
        """The same steps, after which the output is complete, also if they end with an error or a request to stop."""
        try:
            begin()
            every = yield from steps
            postpone()  # the remaining work is done
            if not every:
                self.pipeline.break_off()
            elif (self.damaged or self._gap_end) and self._format.undo and not self._resync:
                self.damaged = True
                end = lsn_text(self._gap_end)
                after = f", --since {end} those for what came after the gap" if self._gap_end else ""
                logger.warning(
                    "no statements were written: they would undo the older changes without those that are"
                    f" missing; pgtail decode --resync writes them{after}"
                )
            else:
                self.pipeline.finish()
        except (InputError, OptionError) as error:  # such as a value that does not fit a column's type
            self._incomplete()
            if isinstance(error, InputError) and error.source is None:
                error.source = self._source
            raise
        except KeyboardInterrupt:
            self._incomplete()
            raise
        return every

    def _incomplete(self) -> None:
        """Complete the output, of which the rest is missing.

        Statements that undo the older changes alone would overwrite the newer ones with old values.
        """
        if self._format.undo:
            logger.warning("no statements were written: they would undo the older changes without the newer ones")
        else:
            self.pipeline.break_off()

    def _expanded(self, names: Iterable[str | Content | Opened]) -> Iterator[tuple[Readable, CaptureVerifier | None]]:
        """The files; a folder is replaced by the segments of the capture in it that are to be read."""
        for name in names:
            if not isinstance(name, str) or (is_local_file(name) and not name.endswith(CLOSED)):
                yield name, None
                continue
            from pgtail.storage import locate

            place = locate(name, self._storage)
            folder = place.is_folder()
            if not (folder or name.endswith(CLOSED)):
                yield place, None
                continue
            wait = self._pause(place) if self._follow else None
            with self._verifying() as verifier:
                for segment in verifier.capture(place, self._since, wait) if folder else verifier.segment(place):
                    yield segment, verifier

    def _pause(self, capture: Location) -> Callable[[], None]:
        """The pause before a capture is listed again; longer for a store."""

        def pause() -> None:
            if self._on_wait is not None:
                self._on_wait()
            time.sleep(PAUSE if capture.path is not None else _STORE_PAUSE)

        return pause

    @contextlib.contextmanager
    def _verifying(self) -> Iterator[CaptureVerifier]:
        """A context in which segments are read, with their verifier."""
        from pgtail.capture.verify import CaptureVerifier

        pipeline = self.pipeline
        skipping = pipeline.may_skip and not self._strict
        skips, follows = pipeline.skips if skipping else None, pipeline.messages > 0
        verifier = CaptureVerifier(skips, self._encoding, follows=follows)
        try:
            yield verifier
        finally:
            self.damaged = self.damaged or verifier.damaged
            since = self._since
            if verifier.gap_end > ((since and since.lsn) or 0):
                self._gap_end = verifier.gap_end
            self.skipped = self.skipped or verifier.skipped

    # -- one file ------------------------------------------------------------------------------------------------------

    def _file(self, name: Readable, verifier: CaptureVerifier | None) -> Steps:
        self._error, self._reported = None, True
        if verifier is None:  # else descriptions at its beginning show that something is missing before it
            self.pipeline.forget_rows("another file begins")
        if self.pipeline.seen_rows is not None:
            self._trust(self.pipeline.seen_rows, verifier)
        try:
            goes_on = yield from self._open(name, verifier)
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

    def _open(self, name: Readable, verifier: CaptureVerifier | None) -> Steps:
        pipeline, check = self.pipeline, None if verifier is None else verifier.check
        follow = self._follow and str(name).endswith(OPEN)
        with Source(name, on_wait=self._on_wait, check=check, follow=follow) as source, Reading(source) as reading:
            self._source = source.name
            reading.input_ = input_ = open_input(source, self._decoder, format=self._input_format, read=self._segments)
            logger.debug(escape(f"{source.name}: {input_.name}"))
            yield source
            with contextlib.closing(input_):
                before = pipeline.rows, pipeline.kept
                self._fed, self._changed = -pipeline.messages, False
                goes_on = yield from self._read(reading, source, verifier)
                self._segments = input_.read
                for note in input_.notes:
                    logger.info(escape(note))
                changed = self._changed or before != (pipeline.rows, pipeline.kept)
                if not changed and not source.name.endswith((CLOSED, OPEN)):
                    logger.info(escape(without_change(input_, self._fed + pipeline.messages)))
            yield None
            return goes_on
        return False

    def _read(self, reading: Reading, source: Source, verifier: CaptureVerifier | None) -> Steps:
        """Read an open input to its end, past damage with --resync."""
        coverage, input_ = Coverage(source), reading.input_
        assert input_ is not None
        while True:
            try:
                return (yield from self._messages(reading, source, coverage))
            except AssemblyError:
                raise
            except InputError as error:
                reading.close_items()
                if isinstance(error, DecodeError) and error.source is None:  # of the output
                    error.located(source.name, input_.position)
                self._error = error
                coverage.explain(error)
                if source.name.endswith(OPEN) and _is_unfinished(error, source):
                    self._reported = verifier is None or verifier.may_lack_end  # else it is damage, reported as such
                    if self._reported:
                        logger.info(escape(str(error)))
                    return True
                if not self._resync:
                    name_cure(error, source)
                    raise
                self.damaged = True
                self.pipeline.lost()
                if not skip_damage(input_, error):
                    return True

    def _messages(self, reading: Reading, source: Source, coverage: Coverage) -> Steps:
        pipeline = self.pipeline
        take, feed, stop, changes, ends = pipeline.take_buffer, pipeline.feed, pipeline.stop, CHANGES, _ENDS
        limited, settings = stop.limited, self._settings
        often, due = self._one_by_one or source.live, 0
        with no_quotes(self._redaction):
            for item in reading.items():
                if isinstance(item, Chunk):
                    goes_on = not (settings.looks and settings.waits)
                    while goes_on:
                        shown = pipeline.shown
                        item.pos = take(item.buf, item.pos, item.end, item.framing, item.in_stream)
                        goes_on = self._one_by_one and pipeline.shown > shown
                        yield source
                    coverage.used(pipeline.end_lsn)
                    continue
                message, lsn, offset, _ = item
                if limited and stop.is_before(message):
                    self._changed = True  # the unread part has changes
                    return False
                self._fed += 1
                self._changed = self._changed or type(message) in changes
                if type(message) in ends:
                    for _ in pipeline.feed_in_parts(message, lsn, offset):
                        yield source
                    due = 0  # what follows is the next step
                else:
                    feed(message, lsn, offset)
                looks = settings.looks and (settings.waits or message.__class__ is Relation)
                if looks and settings.show_others(message):
                    logger.info(NOTE)
                coverage.used(pipeline.end_lsn)
                if often or offset >= due:
                    due = offset + _STEP
                    yield source
                if limited and stop.is_after(pipeline.shown):
                    return False
        return True

    def _note(self, note: Note) -> None:
        self.noted = True
        report_note(note, self._source)


def _is_unfinished(error: InputError, source: Source) -> bool:
    """Whether an error in an open segment is just that its end is not written yet."""
    return source.cut_off if source.damage is not None else not isinstance(error, Malformed)
