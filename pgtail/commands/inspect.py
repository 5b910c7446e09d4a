"""`pgtail inspect`: the bytes and fields of a dump."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from pgtail.changes.filters import Filter
from pgtail.commands.console.pager import paged
from pgtail.commands.console.progress import progress
from pgtail.commands.console.styling import to_terminal, wants_color
from pgtail.commands.input.selection import build_redaction, filter_arguments, report_filter, report_unmasked
from pgtail.commands.options.common import InspectOptions
from pgtail.commands.output.file_sink import FileSink, check_not_read, open_sink
from pgtail.errors import DecodeError, InputError, OptionError
from pgtail.files.stopping import begin
from pgtail.hexview.fields import FieldDescriber, Scope
from pgtail.hexview.json_view import JsonView
from pgtail.hexview.selection import MessageSelection, kinds, lsns, numbers
from pgtail.hexview.text_view import TextView
from pgtail.hexview.views import MessageLocation, locate_damage
from pgtail.humanize import counted
from pgtail.inputs.base import NOTHING_READ, Chunk, Input
from pgtail.inputs.recognition import open_input
from pgtail.inputs.source.file import Source
from pgtail.inputs.text.base import TextInput
from pgtail.log import logger
from pgtail.pgoutput.cursor import Buffer, Traced, TracedCursor, spans_of
from pgtail.pgoutput.decoder import AnyFrame, Decoder, FromClient
from pgtail.reading.build import build_types
from pgtail.reading.checksums import Coverage, verify
from pgtail.reading.interruption import Reading, interrupted, name_cure, skip_damage
from pgtail.reading.names import check_readable, expanded, folders
from pgtail.reading.notes import no_quotes, without_change
from pgtail.terminal.escape import EscapingSink, escape
from pgtail.terminal.values import ValueStyle

if TYPE_CHECKING:
    from pgtail.storage import Location


class _Candidate(Struct):
    """A decoded message that waits for the offset of the next one, which may decide whether it is shown."""

    message: AnyFrame
    place: MessageLocation
    buf: Buffer
    trace: list[Traced]


class Inspect:
    """One run over several files, read as one stream."""

    def __init__(self, options: InspectOptions) -> None:
        """Raises OptionError."""
        self._options = options
        self._redaction = build_redaction(options.filter)
        self._filter = Filter(**filter_arguments(options.filter, self._redaction))
        self._pick = MessageSelection(
            numbers=numbers(options.numbers) if options.numbers else (),
            kinds=kinds(options.kinds) if options.kinds else (),
            lsns=lsns(options.lsns),
            xids=options.filter.xids,
            filter_=self._filter,
            about_tables=bool(options.filter.tables),
            about_changes=bool(options.filter.ops or options.filter.where),
        )
        self._offsets = [_byte(text) for text in options.offsets]
        dump = options.dump
        types = build_types(encoding=dump.encoding, enums=dump.types)
        self._scope = Scope(types, self._redaction)
        limit = options.max_bytes if options.report.output == "table" else None
        self._fields = FieldDescriber(self._scope, ValueStyle(limit), encoding=dump.encoding)
        self._cursor = TracedCursor()
        self._decoder = Decoder(encoding=dump.encoding, cursor=self._cursor)
        self._view: JsonView | TextView
        self._waiting: _Candidate | None = None
        self._number = self._shown = self._end = 0
        self._seen: list[Traced] = []
        self._damaged = False
        self._segments = NOTHING_READ
        """The capture segment that was last read to its end."""

    def run(self, files: tuple[str, ...]) -> bool:
        """Show the files; returns whether damage was skipped, a segment is missing or a column to mask did not occur.

        Raises PgtailError and ClosedPipe.
        """
        check_not_read(self._options.report.file, files)
        file = self._options.report.file
        if self._options.dump.verify:
            verify(files, self._options.dump.storage)
        if file is not None:
            check_readable(files, self._options.dump.storage)
        whole = unmasked = False
        try:
            with paged(self._options.pager and file is None, files), open_sink(file) as sink:
                self._view = self._open_view(sink)
                try:
                    begin()
                    whole = all(self._file(source, sink) for source in self._sources(files))
                    if self._number and not self._shown:
                        logger.info(f"nothing matched in {counted(self._number, 'message')}, up to byte {self._end}")
                except KeyboardInterrupt as stopped:
                    raise interrupted(stopped) from None
                finally:
                    sink.flush()
        finally:
            unmasked = report_unmasked(self._redaction, whole=whole)
        report_filter(self._filter)
        return self._damaged or unmasked

    def _open_view(self, sink: FileSink) -> JsonView | TextView:
        options = self._options.report
        if options.output == "json":  # values cannot control a terminal; the other output escapes them everywhere
            return JsonView(EscapingSink(sink, json=True) if sink.on_terminal else sink)
        terminal = to_terminal(options.file)
        return TextView(
            sink,
            width=shutil.get_terminal_size((80 if terminal else 120, 24)).columns,  # a terminal may not know its own
            color=wants_color(options.color, terminal=terminal),
            max_bytes=self._options.max_bytes,
            colors=options.colors,
        )

    def _sources(self, files: tuple[str, ...]) -> Iterator[str | Location]:
        """Source's arguments for these names: for a folder the segments of the capture in it, which may lack some."""
        storage = self._options.dump.storage
        for file in files:
            folder = next(folders([file], storage), None)
            if folder is None:
                yield from expanded([file], storage)
                continue
            from pgtail.capture.verify import CaptureVerifier

            verifier = CaptureVerifier()
            try:
                yield from verifier.capture(folder)
            finally:
                self._damaged = self._damaged or verifier.damaged

    def _file(self, file: str | Location, sink: FileSink) -> bool:
        """Show one file; returns whether to read the next one."""
        with Source(file, on_wait=sink.flush) as source, Reading(source) as reading:
            form = self._options.dump.input_format
            reading.input_ = input_ = open_input(source, self._decoder, format=form, read=self._segments)
            with (
                contextlib.closing(input_),
                progress(source, self._options.report.file, lambda: self._number, "messages"),
            ):
                before = self._number
                goes_on = self._read(reading, input_, source)
                self._segments = input_.read
                for note in input_.notes:
                    logger.info(escape(note))
                self._end = input_.position
                if goes_on and self._number == before:
                    logger.info(escape(without_change(input_, 0)))
                return goes_on
        return False

    def _read(self, reading: Reading, input_: Input, source: Source) -> bool:
        """Read an open input to its end, past damage with --resync; returns whether to read the next one."""
        coverage = Coverage(source)
        while True:
            try:
                with no_quotes(self._redaction):
                    return self._messages(reading, input_)
            except InputError as error:
                coverage.explain(error)
                self._damage(input_, error)
                if not self._options.resync:
                    name_cure(error, source)
                    raise
                self._damaged = True
                self._scope.lost()
                if not skip_damage(input_, error):
                    return True

    def _messages(self, reading: Reading, input_: Input) -> bool:
        """Show the remaining messages; returns False once everything that was asked for has been shown."""
        for item in reading.items():
            if isinstance(item, Chunk):
                continue
            message, lsn, offset, _ = item
            self._show_waiting(offset)
            if self._done():
                return False
            if self._offsets and offset > max(self._offsets):
                break
            self._number += 1
            self._scope.enter(message)
            self._waiting = self._candidate(input_, message, lsn, offset)
            if not self._offsets:
                self._show_waiting(None)
        self._show_waiting(input_.position)
        return not self._done()

    def _done(self) -> bool:
        limit = self._options.limit
        return self._pick.done(self._number + 1) or (limit is not None and self._shown >= limit)

    def _candidate(self, input_: Input, message: AnyFrame, lsn: int | None, offset: int) -> _Candidate:
        cursor, trace = self._cursor, self._cursor.trace
        self._seen = trace
        if isinstance(message, FromClient):
            kind = type(message.message).__name__
            place = MessageLocation(self._number, kind, None, trace[0][0], cursor.pos, sent=message)
        else:
            base = None if isinstance(input_, TextInput) else offset
            place = MessageLocation(self._number, type(message).__name__, offset, trace[0][0], cursor.pos, base, lsn)
        return _Candidate(message, place, cursor.buf, trace)

    def _show_waiting(self, following: int | None) -> None:
        """Show the waiting message if it is selected; `following` is the offset of the next one or of the end."""
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            return
        place, message = waiting.place, waiting.message
        if self._at_offset(place.offset, following) and self._pick.wants(
            place.number, message, place.lsn, waiting.buf, waiting.trace, self._scope
        ):
            fields = list(self._fields.describe(waiting.buf, spans_of(waiting.trace)))
            place.relation = self._fields.relation
            self._view.message(place, waiting.buf, fields)
            self._shown += 1
        self._scope.leave(message)

    def _at_offset(self, offset: int | None, following: int | None) -> bool:
        """Whether the message from `offset` (None: it is not in the file) to `following` is selected by --offset."""
        if not self._offsets:
            return True
        return offset is not None and any(
            offset <= at and (following is None or at < following) for at in self._offsets
        )

    # -- damage ------------------------------------------------------------------------------------------------

    def _damage(self, input_: Input, error: InputError) -> None:
        """Show the fields of a damaged message up to the damage, and the bytes that do not decode."""
        cursor = self._cursor
        buf, spans = cursor.buf, cursor.spans
        if not spans or cursor.trace is self._seen:
            self._show_waiting(error.offset)
            return  # no field of the message was read
        base = input_.offset_of(buf, spans[0].start)
        self._show_waiting(error.offset if base is None else base)
        if not isinstance(error, DecodeError):
            return
        self._number += 1
        bad = None if base is None else error.offset - base + spans[0].start
        good, damage = locate_damage(error, list(self._fields.describe(buf, spans)), cursor.pos, bad)
        damage.field = self._fields.named(damage.field)
        damage.masked = self._redaction is not None
        at = error.offset if base is None else base
        place = MessageLocation(self._number, error.message or "?", at, spans[0].start, damage.end, base)
        place.relation = self._fields.relation
        self._view.message(place, buf, good, damage)


def _byte(text: str) -> int:
    """A byte offset, decimal or 0x.... Raises OptionError."""
    try:
        return int(text, 0)
    except ValueError:
        raise OptionError(f"--offset {text}: expected a byte offset such as 1043 or 0x413") from None
