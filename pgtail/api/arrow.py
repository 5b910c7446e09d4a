"""pgtail.read_arrow() and pgtail.table_at(): changes, and the rows of a table as they were, as Arrow has them."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Generator
from glob import escape as literally
from typing import TYPE_CHECKING, Final, Unpack

from msgspec.structs import replace

from pgtail.api.arguments import ReadArrowArguments, TableAtArguments, named, record_of, takes
from pgtail.api.read import Readable, readable
from pgtail.arrow import check_installed
from pgtail.changes.events import LogicalMessage, RowChange, SchemaChange, TableTruncate
from pgtail.changes.filters import Filter
from pgtail.commands.input.reader import filter_of, reader_of, report_read
from pgtail.commands.input.selection import build_redaction, report_filter, report_unmasked
from pgtail.commands.options.common import DecodeOptions
from pgtail.commands.options.show import ShowOptions
from pgtail.errors import OptionError, PgtailError
from pgtail.reading.checksums import verify
from pgtail.storage import locate

if TYPE_CHECKING:
    import pyarrow as pa

    from pgtail.api.live import LiveEvents

_SECONDS: Final = 0.5
"""For so long a batch of a stream waits for more changes."""


@takes(ReadArrowArguments, DecodeOptions, "pgtail decode")
def read_arrow(
    *sources: Readable, table: str | None = None, old: bool = False, **arguments: Unpack[ReadArrowArguments]
) -> pa.RecordBatchReader:
    """Read the changes of dumps and captures as a stream of Arrow record batches.

    With `table`, SCHEMA.TABLE or TABLE, they are typed: the columns are the table's own and `_op`, `_xid`, `_seq`,
    `_position`, `_commit_lsn`, `_commit_ts`, `_unchanged`, `_undecoded` and `_rescued`; with `old` also `_old` and
    `_old_rescued`. Without it they are those of `changes` in pgtail-spark-changes(1), with maps of texts.

    Raises TypeError for an argument that does not exist, OptionError for a wrong one, also if nothing of the table
    comes; reading raises InputError where the input is damaged or cannot be read, after everything before it.
    """
    check_installed("read_arrow()")
    from pgtail.arrow.output import ArrowOutput
    from pgtail.arrow.read_arrow import batches_of, changes_reader, table_reader, versions_in

    if not sources:
        raise TypeError("read_arrow() needs what it is to read")
    options = record_of(DecodeOptions, arguments)
    if table is not None:
        if options.filter.tables or options.filter.exclude:
            raise OptionError("table names the only one: give it without tables and exclude")
        options = replace(options, filter=replace(options.filter, tables=(literally(table),)))
    names = [*map(readable, sources)]
    if options.dump.verify:
        verify(names, options.dump.storage)
    redaction = build_redaction(options.filter)
    output = ArrowOutput(utf8=options.dump.encoding == "utf-8" and redaction is None, committed=table is not None)
    reader = reader_of(options, output, filter_of(options, redaction), redaction, asked=False)

    def reported() -> Generator[pa.RecordBatch]:
        """All batches; at the end it is reported what the filters and masks did not meet."""
        yield from batches_of(reader, output, names)
        report_unmasked(redaction)
        report_read(reader, options, whole=True, level=logging.WARNING)

    if table is None:
        return changes_reader(named(reported()))
    described = names if redaction is None else ()  # what is masked is known when it comes
    places = [locate(name, options.dump.storage) for name in described if isinstance(name, str) and name != "-"]
    versions = [version for place in places if place.is_folder() for version in versions_in(place, table)]
    return table_reader(named(reported()), output, reader.filter_, table, versions, old=old)


def stream_reader(events: LiveEvents, table: str | None, *, old: bool) -> pa.RecordBatchReader:
    """The changes of a stream, as read_arrow() has those of a dump."""
    check_installed("read_arrow()")
    from pgtail.arrow.output import ArrowOutput
    from pgtail.arrow.read_arrow import changes_reader, table_reader

    filter_ = Filter(tables=() if table is None else (literally(table),))
    output = ArrowOutput(utf8=False, committed=False)

    def batches() -> Generator[pa.RecordBatch]:
        """Whoever has a batch has every change that was taken of the events until then."""
        event, error = None, None
        while error is None:
            if output.batch and events.deadline is None:
                events.deadline = time.monotonic() + _SECONDS
            try:
                event = next(events)
            except (TimeoutError, StopIteration, PgtailError) as raised:
                event, error = None, None if isinstance(raised, TimeoutError) else raised
            if isinstance(event, SchemaChange):
                passes = filter_.described(event)
            else:
                passes = isinstance(event, RowChange | TableTruncate | LogicalMessage) and filter_.passes(event)
            if event is not None and passes:
                output.event(event)
            if event is None or (events.deadline is not None and time.monotonic() >= events.deadline):
                events.deadline = None
                output.finish()
            yield from output.take_batches()
        if isinstance(error, PgtailError):
            raise error

    return changes_reader(batches()) if table is None else table_reader(batches(), output, filter_, table, old=old)


@takes(TableAtArguments, ShowOptions, "pgtail show")
def table_at(capture: str | os.PathLike[str], table: str, **arguments: Unpack[TableAtArguments]) -> pa.Table:
    """The rows of SCHEMA.TABLE, or TABLE, in a capture as they were at a moment, or with `history` all up to it.

    Its columns are the table's own and those of a state or a history, see pgtail-spark-state(1) and
    pgtail-spark-history(1): `_unknown` names the columns of a row that are not known, which are NULL. A warning is
    logged if rows may be missing. Raises TypeError, OptionError and InputError.
    """
    check_installed("table_at()")
    from pgtail.arrow.row_events import matching
    from pgtail.arrow.table_at import moment, read_table

    options = record_of(ShowOptions, arguments)
    place, filter_ = locate(os.fspath(capture), options.storage), Filter(where=options.filter.where)
    at = moment(options.at, options.before)
    found = read_table(place, table, at, history=options.history, ddl=options.ddl)
    if not filter_.active:
        return found.rows
    rows = matching(found, filter_)
    report_filter(filter_, logging.WARNING)
    return rows
