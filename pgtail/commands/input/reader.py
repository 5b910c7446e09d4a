"""The reader of files that options ask for, and the notes when it has read them; for decode, stats and the library."""

from __future__ import annotations

import logging
from collections.abc import Callable

from pgtail.changes.filters import Filter
from pgtail.changes.redaction import Redaction
from pgtail.commands.input.selection import filter_arguments, report_context, report_filter, report_nothing_passed
from pgtail.commands.options.common import DecodeOptions
from pgtail.commands.output.build import report_dropped
from pgtail.outputs.base import Output
from pgtail.reading.reader import Reader


def filter_of(options: DecodeOptions, redaction: Redaction | None) -> Filter:
    """The filter that the options ask for. Raises OptionError."""
    return Filter(**filter_arguments(options.filter, redaction, options.until))


def reader_of(
    options: DecodeOptions,
    output: Output,
    filter_: Filter,
    redaction: Redaction | None,
    *,
    masks: bool = False,
    asked: bool,
    on_wait: Callable[[], None] | None = None,
) -> Reader:
    """The reader; `filter_` is of filter_of(), the rest as in Reader. Raises OptionError."""
    return Reader(
        output,
        filter_,
        redaction=redaction,
        masks=masks,
        format=options.format,
        asked=asked,
        encoding=options.dump.encoding,
        enums=options.dump.types,
        input_format=options.dump.input_format,
        storage=options.dump.storage,
        strict=options.strict,
        resync=options.resync,
        follow=options.follow,
        limit=options.limit,
        one_by_one=options.last is not None,
        context=options.filter.context,
        on_wait=on_wait,
    )


def report_read(reader: Reader, options: DecodeOptions, *, whole: bool, level: int = logging.INFO) -> None:
    """Note filters that left nothing and the like, once the files were read; `whole`: all of them.

    `level` is as in report_filter().
    """
    whole = whole and not reader.skipped and options.filter.since is None
    report_nothing_passed(reader.pipeline.seen, whole=whole)
    report_filter(reader.filter_, level)
    report_context(options.filter, reader.pipeline.seen)
    report_dropped(reader.pipeline.seen_rows, options.format)
