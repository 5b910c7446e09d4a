"""How a slot is followed, from options to the plan, the pipeline and the tail: for commands and the library alike."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from pgtail.changes.assembler import Assembler
from pgtail.changes.complete_tables import CompleteTables
from pgtail.changes.filters import Filter
from pgtail.changes.redaction import Redaction
from pgtail.changes.stream_buffer import StreamBuffer
from pgtail.commands.input.selection import check_range, filter_arguments
from pgtail.commands.options.server import EndOptions, StreamOptions
from pgtail.commands.stream.column_check import check_columns
from pgtail.errors import OptionError
from pgtail.files.spool import SpoolLimit
from pgtail.files.stopping import Wakeup
from pgtail.local_time import clock
from pgtail.log import logger
from pgtail.outputs.base import Output
from pgtail.pgoutput.scalars import Point
from pgtail.pipeline.pipeline import Pipeline
from pgtail.pipeline.table_rows import TableRowCounter
from pgtail.postgres import catalog
from pgtail.postgres.connection import Connector
from pgtail.reading.build import seen_rows_of, show_of
from pgtail.reading.notes import report_note
from pgtail.replication.consumer import Consumer
from pgtail.replication.identity import Identity
from pgtail.replication.loop import Limits
from pgtail.replication.pipeline_consumer import Feed
from pgtail.replication.plan import Plan, Publisher, prepare
from pgtail.replication.probe import complete_since_start
from pgtail.replication.queue import FrameQueue
from pgtail.replication.request import LsnOrNow, Request
from pgtail.replication.same_tables import SameTables
from pgtail.replication.stream_snapshot import StreamSnapshot
from pgtail.replication.tail import Tail
from pgtail.values import Types


class Following:
    """One run. Raises OptionError for options that do not fit each other; they fit the server if prepare() returns.

    `asked`: old values are to be taken from seen rows, not only where they are known to be right.
    """

    def __init__(self, options: StreamOptions, filter_: Filter, *, asked: bool) -> None:
        request = request_of(options.request, options.end)
        exists = request.fork is not None or (request.slot is not None and not request.create_slot)
        if options.snapshot.wanted and exists:
            raise OptionError(
                "--snapshot copies the tables as they are where a new slot begins: read a temporary slot (without"
                " --slot and --fork), or a new one (--create-slot); with a slot that exists, pgtail record --snapshot"
                " copies them"
            )
        self._options = options
        self._request = replace(request, tables=options.filter.tables, exclude=options.filter.exclude)
        self._filter = filter_
        self._asked = asked
        self._types = Types(encoding=request.encoding or "utf-8", numbers=options.format.numbers, own_session=True)
        self._complete: CompleteTables | None = None
        """The tables of which the stream has every change, as far as known, for old values."""

    def prepare(self, connector: Connector, wakeup: Wakeup) -> Plan:
        """Check the options against the server. Raises OptionError, ServerError, KeyboardInterrupt."""
        options = self._options
        with wakeup.raising(), connector.ordinary() as connection:
            plan = prepare(self._request, connection)
            plan.warnings.extend(check_columns(connection, plan, options.filter, self._filter))
            if options.format.takes_seen:
                if self._asked and plan.options.origin == "none":
                    raise OptionError(
                        "--old-values seen needs every change of a table, and --origin none leaves some out"
                    )
                self._complete = complete_since_start(connection, plan)
            if plan.options.binary:
                self._types.declare_enums(catalog.enums(connection))
        if options.filter.context is not None and not plan.options.messages:
            raise OptionError("--context needs logical messages: PostgreSQL 14 or later, without --no-messages")
        if plan.source is None:
            _check_since(options.filter.since)
        return plan

    def assembler(self, spool: SpoolLimit) -> Assembler:
        """The assembler of the pipeline. Close it."""
        format_ = self._options.format
        return Assembler(
            self._types,
            buffer=StreamBuffer(spool=spool),
            show=show_of(format_),
            tells_descriptions=format_.takes_seen,
        )

    def feed(self, publisher: Publisher, assembler: Assembler, output: Output, redaction: Redaction | None) -> Feed:
        """The pipeline, from this assembler to this output, in which `redaction` masks values."""
        plan, options = publisher.plan, self._options
        same_tables = self._same_tables(publisher)
        is_same = None if same_tables is None else same_tables.is_same
        seen_rows = seen_rows_of(options.format, self._filter, asked=self._asked, is_same=is_same)
        if seen_rows is not None:
            seen_rows.trust(self._complete, until=plan.server.position)
        pipeline = Pipeline(
            assembler,
            output,
            filter_=self._filter,
            redaction=redaction,
            note=report_note,
            limit=options.limit,
            until=None if options.snapshot.wanted else plan.until,
            seen_rows=seen_rows,
            counter=TableRowCounter(),
            context=options.filter.context,
        )
        return Feed(publisher, pipeline, same_tables)

    def tail(
        self,
        feed: Feed,
        limits: Limits,
        make_consumer: Callable[[FrameQueue, int], Consumer],
        ready: Callable[[int], None],
    ) -> Tail:
        """Follows the slot; `make_consumer` makes the consumer for a queue from a position on."""
        request, same_tables, copies = self._request, feed.same_tables, self._options.snapshot.wanted

        def make(queue: FrameQueue, position: int, identity: Identity) -> Consumer:
            if same_tables is not None:
                if copies:
                    same_tables.copied(position)
                same_tables.begin(identity)
            return make_consumer(queue, position)

        return Tail(
            feed.publisher,
            limits,
            make,
            reconnect=self._options.end.reconnect,
            snapshot=StreamSnapshot(feed.publisher, request.tables, request.exclude) if copies else None,
            ready=ready,
        )

    def _same_tables(self, publisher: Publisher) -> SameTables | None:
        """The check that tables stay the same after a snapshot and over reconnections; None if no row is remembered
        over one.
        """
        copies = self._options.snapshot.wanted
        if not self._options.format.takes_seen or (publisher.plan.temporary and not copies):
            return None
        same_tables = SameTables(publisher)
        if copies:
            with publisher.interrupt.raising():
                same_tables.before_slot()
        return same_tables


def report_plan(plan: Plan) -> None:
    """Report what the plan warns of and notes."""
    for warning in plan.warnings:
        logger.warning(warning)
    for note in plan.notes:
        logger.info(note)


def stream_filter(options: StreamOptions, redaction: Redaction | None) -> Filter:
    """The filter of these options. Raises OptionError."""
    time_ = until_time_of(options.end)
    lsn = until_of(options.end)
    check_range(options.filter.since, Point(time=clock()) if lsn == "now" else Point(lsn=lsn))
    return Filter(**filter_arguments(options.filter, redaction, Point(time=time_), margin=0))


def request_of(request: Request, end: EndOptions) -> Request:
    """The options as a request of a slot, with the position to stop at. Raises OptionError."""
    if request.create_slot and request.slot is None:
        raise OptionError("--create-slot needs a name for the slot: --slot NAME")
    if request.fork is not None and request.slot is not None:
        raise OptionError("--fork reads a temporary copy, --slot the slot itself: give one of them")
    return replace(request, until=until_of(end), until_time=until_time_of(end))


def _check_since(since: Point | None) -> None:
    """Check that a temporary slot, which begins now, can show the requested changes. Raises OptionError."""
    if since is not None and since.time is not None and since.time < clock():
        raise OptionError(
            "--since names a time before now, but a temporary slot begins now: no earlier change can be read from it;"
            " read a slot that exists (--slot NAME, --fork NAME), or a capture (pgtail decode)"
        )


def until_of(options: EndOptions) -> LsnOrNow:
    """The position at which to stop. Raises OptionError."""
    if options.until_lsn is not None and options.until is not None:
        raise OptionError("--until and --until-lsn mean the same: give one of them")
    if isinstance(options.until, Point):
        return options.until.lsn
    return options.until if options.until_lsn is None else options.until_lsn


def until_time_of(options: EndOptions) -> int | None:
    """The commit time at which to stop."""
    return options.until.time if isinstance(options.until, Point) else None


def limits_of(options: EndOptions, plan: Plan, *, output: int | None = None) -> Limits:
    """When to end; `output` is the descriptor of a pipe or terminal whose closing also ends the stream."""
    return Limits(
        seconds=options.seconds,
        until=plan.until if plan.until is not None and plan.until <= plan.server.position else None,
        until_passes=plan.until_passes,
        idle=options.idle,
        spill=options.spill_limit,
        output=output,
    )
