"""`pgtail show`: the rows of a table as they were."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from pgtail.arrow import check_installed
from pgtail.changes.events import Ended, Event, Started
from pgtail.changes.filters import Filter
from pgtail.changes.redaction import Redaction
from pgtail.changes.relations import Relation
from pgtail.commands.console.pager import paged
from pgtail.commands.input.selection import build_redaction, report_filter, report_unmasked, unknown_columns
from pgtail.commands.options.show import ShowOptions
from pgtail.commands.output.build import build_output
from pgtail.commands.output.file_sink import FileSink, open_sink
from pgtail.errors import Interrupted, OptionError
from pgtail.files.stopping import begin, status_after
from pgtail.log import logger
from pgtail.storage import locate


def _learn(redaction: Redaction, relations: Sequence[Relation]) -> Relation:
    """Let redaction learn the versions of a table, the last of which it returns: their numbers are of many streams."""
    before = None
    for number, relation in enumerate(relations):
        now = replace(relation, version=number)
        redaction.learn(before, now)
        before = now
    assert before is not None
    return before


def run(place: str, table: str, options: ShowOptions) -> bool:
    """Show the rows; returns whether some may be missing. Raises PgtailError and ClosedPipe."""
    check_installed("pgtail show")
    if options.history and options.format.output == "sql":
        raise OptionError("--history has rows that no table had at one time: -o sql cannot write them")
    from pgtail.arrow.row_events import VALIDITY, relation_of, row_changes, snapshot_of
    from pgtail.arrow.table_at import moment, read_table

    redaction = build_redaction(options.filter)
    filter_ = Filter(where=options.filter.where, redaction=redaction)
    capture, at = locate(place, options.storage), moment(options.at, options.before)
    format_ = replace(options.format, max_rows=0)
    if format_.file is not None:  # before it is opened, which empties it
        build_output(format_, FileSink(-1, format_.file), masked=redaction is not None)
    shown = 0
    begin()
    try:
        found = read_table(capture, table, at, history=options.history, ddl=options.ddl)
        with paged(options.pager and format_.file is None, (place,)), open_sink(format_.file) as sink:
            output = build_output(format_, sink, masked=redaction is not None)

            def emit(event: Event) -> None:
                output.event(event if redaction is None else redaction.event(event))

            transaction = snapshot_of(found)
            if redaction is not None:  # it masks a column also under the name that it has now
                transaction.table = _learn(redaction, [*found.relations, relation_of(found)])
            emit(Started(transaction))
            for change in row_changes(found, transaction):
                if filter_.passes(change):
                    shown += 1
                    emit(change)
            emit(Ended(transaction))
            output.finish()
            sink.flush()
    except KeyboardInterrupt as stopped:
        raise Interrupted("interrupted", status_after(stopped), source=str(capture)) from None
    if not shown and len(found.rows):
        logger.info(f"0 of {len(found.rows)} rows matched")
    report_filter(filter_)
    for column, *_ in () if options.history else unknown_columns(filter_):
        if column in VALIDITY:
            logger.info(f"{column} is a column of --history")
    return report_unmasked(redaction) or not found.complete
