"""pgtail.read(): the transactions of dumps and captures."""

from __future__ import annotations

import logging
import os
from collections.abc import Generator
from typing import TypeAlias, Unpack

from msgspec.structs import replace

from pgtail.api.arguments import ReadArguments, check_form, named, record_of, takes
from pgtail.api.collect import Collected
from pgtail.api.records import Reading, Transactions
from pgtail.api.values import Form
from pgtail.changes.events import Event
from pgtail.commands.input.reader import filter_of, reader_of, report_read
from pgtail.commands.input.selection import build_redaction, report_unmasked
from pgtail.commands.options.common import DecodeOptions
from pgtail.errors import InputError
from pgtail.inputs.source.opened import BinaryFile, Content, Opened
from pgtail.reading.checksums import verify

Readable: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryFile"
"""What read() reads: the path of a file or a capture, a URI, the bytes of a dump, or a binary file object."""


@takes(ReadArguments, DecodeOptions, "pgtail decode")
def read(*sources: Readable, values: Form = "python", **arguments: Unpack[ReadArguments]) -> Transactions:
    """Read dumps and captures, one after another as one stream; returns an iterator over their transactions.

    `values="text"` makes all values PostgreSQL's text. Raises TypeError for an argument that does not exist,
    OptionError for a wrong one; the iterator raises InputError where the input is damaged or cannot be read, after
    everything before it. See pgtail(3).
    """
    if not sources:
        raise TypeError("read() needs what it is to read")
    form = check_form(values)
    options = record_of(DecodeOptions, arguments)
    names = [*map(readable, sources)]
    context = options.filter.context
    reading = Reading(replace(options.format, context=context), form)
    output = Collected(contexts=context is not None)
    redaction = build_redaction(options.filter)
    reader = reader_of(options, output, filter_of(options, redaction), redaction, asked=options.format.takes_seen)

    def events() -> Generator[Event]:
        """The events of each step of reading, which are to be used before the next one."""
        if options.dump.verify:
            verify(names, options.dump.storage)
        steps, whole = reader.complete(reader.read(names)), False
        try:
            while not whole:
                try:
                    next(steps)
                except StopIteration:
                    whole = True
                except InputError:
                    yield from output.take()
                    raise
                yield from output.take()
        finally:
            steps.close()
            reader.close()
            report_unmasked(redaction, whole=whole)
        report_read(reader, options, whole=whole, level=logging.WARNING)
        reading.finish()

    return Transactions(named(events()), reading)


def readable(source: Readable) -> str | Content | Opened:
    """What a reader reads of a source. Raises TypeError."""
    if isinstance(source, str | os.PathLike):
        return os.fspath(source)
    if isinstance(source, bytes | bytearray | memoryview):
        return Content(bytes(source))
    if hasattr(source, "read"):
        return Opened(source)
    raise TypeError(f"read() reads a path, a URI, bytes or a binary file object, not {type(source).__name__}")
