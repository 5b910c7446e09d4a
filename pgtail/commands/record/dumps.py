"""Converts dumps of any form to a capture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pgtail.capture.convert import DumpConverter
from pgtail.capture.format import DUMPS
from pgtail.capture.recorder import Recorder, Rotation
from pgtail.commands.options.common import DumpOptions
from pgtail.errors import InputError
from pgtail.humanize import counted, size_text
from pgtail.inputs.base import NOTHING_READ, Chunk
from pgtail.inputs.recognition import open_input
from pgtail.inputs.source.file import Source
from pgtail.log import log_outcome, log_summary, logger
from pgtail.pgoutput.cursor import Cursor
from pgtail.pgoutput.decoder import AnyMessage, Decoder
from pgtail.pgoutput.scalars import lsn_text
from pgtail.reading.checksums import Coverage
from pgtail.reading.interruption import Reading, name_cure
from pgtail.storage import is_uri, locate
from pgtail.terminal.escape import escape


class RawDecoder(Decoder):
    """A decoder that keeps the bytes of the last message in `raw`."""

    raw = b""

    def _read(self, cur: Cursor) -> AnyMessage:
        start = cur.pos
        message = super()._read(cur)
        self.raw = bytes(cur.buf[start : cur.pos])
        return message


def record_dumps(
    files: Sequence[str], directory: Path, dump: DumpOptions, *, rotation: Rotation, compress: bool
) -> bool:
    """Record files, one after another, as one stream. Returns whether the capture lacks something or has damage.

    Raises InputError if one is damaged or not read to its end (the capture then has the complete transactions before
    that), OutputError.
    """
    head = {"client_encoding": dump.encoding, DUMPS: "dumps, streamed transactions as whole ones"}
    recorder = Recorder(directory, head, rotation=rotation, compress=compress)
    converter = DumpConverter(recorder)
    recording = _Recording(converter, dump)
    left = list(files)
    try:
        while left:
            place = locate(left[0], dump.storage) if is_uri(left[0]) else left[0]
            with Source(place) as source, Reading(source) as reading:
                recording.add(reading, source)
            if reading.stopped:
                break
            del left[0]
    finally:
        converter.finish()
        if left[1:]:
            log_outcome(escape(f"not in the capture: {', '.join(left[1:])}, after {left[0]}"))
        if converter.recorded:
            log_summary(escape(summary(converter.recorded, recorder, str(directory))))
    if not converter.recorded:
        logger.info(escape(f"nothing was recorded: there is no whole transaction in {', '.join(files)}"))
    return converter.left_out > 0 or converter.damaged


def summary(position: int, recorder: Recorder, directory: str) -> str:
    """A summary of the recording."""
    transactions = counted(recorder.transactions, "transaction")
    recorded = f"{transactions} ({size_text(recorder.bytes)}) recorded"
    return f"{recorded}; the capture in {directory} ends at {lsn_text(position)}"


class _Recording:
    """Feeds files to a converter, one after another."""

    def __init__(self, converter: DumpConverter, dump: DumpOptions) -> None:
        self._converter = converter
        self._decoder = RawDecoder(encoding=dump.encoding)
        self._form = dump.input_format
        self._read = NOTHING_READ
        """The segments of captures that were read before."""

    def add(self, reading: Reading, source: Source) -> None:
        """Record one file. Raises InputError, OutputError."""
        converter, decoder, coverage = self._converter, self._decoder, Coverage(source)
        try:
            reading.input_ = input_ = open_input(source, decoder, format=self._form, read=self._read)
            for item in reading.items():
                if isinstance(item, Chunk):
                    if item.in_stream is False:
                        item.pos = converter.take_run(item.buf, item.pos, item.end, item.framing)
                        coverage.used(converter.recorded or None)
                    continue
                message, lsn, _, clock = item
                converter.feed(message, decoder.raw, lsn, clock)
                coverage.used(converter.recorded or None)
                decoder.raw = b""
            for note in input_.notes:
                logger.info(escape(note))
            self._read = input_.read
        except InputError as error:
            if error.source is None:
                error.source = source.name
            coverage.explain(error)
            name_cure(error, source, "pgtail decode --resync")
            raise
