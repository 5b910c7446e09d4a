"""`pgtail stream`: a replication slot to one output; the base of other commands that read a slot."""

from __future__ import annotations

import os
import stat
import sys
from typing import Any

from pgtail.changes.assembler import Assembler
from pgtail.changes.filters import Filter
from pgtail.changes.redaction import Redaction
from pgtail.commands.column_check import check_columns
from pgtail.commands.connect import connector_of
from pgtail.commands.options import EndOptions, StreamOptions
from pgtail.commands.output import build_output, check_acknowledged, open_target, show_of
from pgtail.commands.selection import (
    build_redaction,
    filter_arguments,
    no_quotes,
    tell_filter,
    tell_note,
    tell_unmasked,
)
from pgtail.commands.sinks import DirectorySink, FileSink, continue_file
from pgtail.commands.stderr import StderrThread
from pgtail.errors import ClosedPipe, OptionError, OutputError, PgtailError
from pgtail.files.signals import Interrupt
from pgtail.humanize import counted, grouped
from pgtail.outputs.base import Output
from pgtail.pgoutput.decoder import Decoder
from pgtail.pgoutput.scalars import Point, lsn_text
from pgtail.pipeline.pipeline import Pipeline
from pgtail.postgres import catalog
from pgtail.postgres.connection import Connector
from pgtail.postgres.pgoutput_options import Wanted
from pgtail.replication.consumer import Stopped
from pgtail.replication.identity import Identity
from pgtail.replication.loop import Ending, Limits
from pgtail.replication.plan import LsnOrNow, Plan, Request, prepare
from pgtail.replication.queue import FrameQueue
from pgtail.replication.render_thread import RenderThread
from pgtail.replication.tail import MakeConsumer, Tail
from pgtail.values import Types


class StreamSink(FileSink):
    """A file sink that another thread can stop, and that keeps the status line apart from the output."""

    def __init__(self, fd: int, name: str, stderr: StderrThread | None) -> None:
        super().__init__(fd, name)
        self.stopped = False
        self._stderr = stderr

    def flush(self) -> None:
        """Write what is buffered, as FileSink does. Raises Stopped once `stopped` is set."""
        if self.stopped:
            raise Stopped
        if self._stderr is None or not self._parts:
            super().flush()
            return
        with self._stderr.quiet():
            super().flush()


class Stream:
    """One run of the command. Other commands override what is shown, and the summary."""

    def __init__(self, options: StreamOptions, redaction: Redaction | None = None) -> None:
        self._options = options
        self._redaction = redaction or build_redaction(options.filter)

    def run(self) -> bool:
        """Tail until the end; returns whether a part of the stream could not be shown, or not be masked.

        Raises PgtailError, and ClosedPipe if the reader of the output is gone.
        """
        options, file = self._options, self._options.format.file
        types = Types(encoding=options.encoding or "utf-8", numbers=options.format.numbers, own_session=True)
        filter_ = self._filter()
        request, connector = self._request(), connector_of(options.connection)
        stderr = self._open_stderr()
        if options.settings:
            stderr.detail(f"settings: {options.settings}")
        try:
            with Interrupt() as interrupt, open_target(file, append=True) as target:
                if isinstance(target, DirectorySink):
                    return self._tail(connector, request, types, filter_, target, stderr, interrupt)
                # Only a terminal shares the screen with the status line: a full pipe must not block standard error.
                sink = StreamSink(target.fd, target.name, stderr if os.isatty(target.fd) else None)
                if file not in (None, "-"):
                    continue_file(sink, stderr.tell)
                return self._tail(connector, request, types, filter_, sink, stderr, interrupt)
        except KeyboardInterrupt:
            stderr.tell("stopped before anything was read")
            return False
        finally:
            stderr.close()

    def _tail(
        self,
        connector: Connector,
        request: Request,
        types: Types,
        filter_: Filter,
        sink: StreamSink | DirectorySink,
        stderr: StderrThread,
        interrupt: Interrupt,
    ) -> bool:
        options = self._options
        plan = self._plan(connector, request, types, filter_, interrupt)
        check_acknowledged(options.format, plan)
        if options.filter.since is not None and plan.slot is not None and plan.ack != "none" and not options.yes:
            raise OptionError(
                "--since together with --ack permanently skips earlier changes of the slot, also for its other readers;"
                " --yes confirms this"
            )
        for warning in plan.warnings:
            stderr.tell(f"warning: {warning}")
        for note in plan.notes:
            stderr.tell(f"note: {note}")
        assembler = Assembler(types, show=show_of(options.format))
        pipeline = Pipeline(
            assembler,
            self._output(sink, stderr, plan),
            filter_=filter_,
            note=lambda note: tell_note(note, tell=stderr.tell),
            limit=options.limit,
            until=plan.until,
        )
        tail = Tail(
            plan,
            connector,
            interrupt,
            stderr,
            limits_of(options.end, plan, output=_watched_output(options.format.file)),
            self._make_consumer(plan, pipeline, sink, interrupt),
            reconnect=options.end.reconnect,
            ready=lambda position: self._ready(position, stderr),
        )
        try:
            with no_quotes(self._redaction):
                ending = tail.run()
            if ending is Ending.CLOSED:
                raise ClosedPipe
        except PgtailError as error:
            self._summarize(tail, pipeline, filter_, stderr, error)
            raise
        finally:
            assembler.close()
            unmasked = tell_unmasked(self._redaction, stderr.tell)
        self._summarize(tail, pipeline, filter_, stderr)
        return pipeline.damaged or unmasked

    def _plan(
        self, connector: Connector, request: Request, types: Types, filter_: Filter, interrupt: Interrupt
    ) -> Plan:
        with interrupt.raising(), connector.ordinary() as connection:
            plan = prepare(request, connection)
            plan.warnings.extend(check_columns(connection, plan, self._options.filter, filter_))
            if plan.options.binary:
                types.declare_enums(catalog.enums(connection))
        return plan

    def _open_stderr(self) -> StderrThread:
        return StderrThread(self._options.verbose)

    def _render_thread(self, pipeline: Pipeline, *args: Any, **kwargs: Any) -> RenderThread:
        """The thread that feeds `pipeline`, with the arguments of RenderThread."""
        return RenderThread(*args, **kwargs)

    def _filter(self) -> Filter:
        until = Point(time=until_time_of(self._options.end))
        return Filter(**filter_arguments(self._options.filter, self._redaction, until, margin=0))

    def _output(self, sink: StreamSink | DirectorySink, stderr: StderrThread, plan: Plan) -> Output:
        database = plan.server.database
        return build_output(self._options.format, sink, self._redaction, tell=stderr.tell, database=database)

    def _ready(self, position: int, stderr: StderrThread) -> None:
        """Called once the stream has started: every commit from `position` on will be seen."""

    def _summarize(
        self,
        tail: Tail,
        pipeline: Pipeline,
        filter_: Filter,
        stderr: StderrThread,
        error: PgtailError | None = None,
    ) -> None:
        """Print what was shown and where to resume; after an error of the output, how much was shown is unknown."""
        if tail.resume is None:
            return
        tell_filter(filter_, stderr.tell)
        shown = f"{counted(pipeline.shown, 'transaction')} shown"
        if pipeline.left_out:
            selected = counted(pipeline.rows - pipeline.left_out, "row")
            shown = f"{shown}, {selected} selected of {grouped(pipeline.rows)} read"
        before = "" if isinstance(error, OutputError) else f"{shown}; "
        broken_off = pipeline.broken_off
        if broken_off is not None and not self._options.format.undo:
            changes = counted(broken_off.changes, "change")
            stderr.tell(
                f"note: stopped inside transaction {broken_off.xid}: of its first {changes} those selected were shown"
                if pipeline.left_out
                else f"note: stopped inside transaction {broken_off.xid}: its first {changes} were shown"
            )
        stderr.inform(f"{before}resume at {lsn_text(tail.resume)}")

    def _request(self) -> Request:
        options, content = self._options, self._options.content
        if options.create_slot and options.slot is None:
            raise OptionError("--create-slot needs a name for the slot: --slot NAME")
        if options.fork is not None and options.slot is not None:
            raise OptionError("--fork reads a temporary copy, --slot the slot itself: give one of them")
        return Request(
            slot=options.slot,
            create_slot=options.create_slot,
            fork=options.fork,
            publications=options.publication.publications,
            wanted=Wanted(
                proto_version=options.proto_version,
                binary=content.binary,
                messages=content.messages,
                streaming=options.streaming,
                two_phase=content.two_phase,
                origin=content.origin,
            ),
            ack=options.ack,
            start=options.start,
            until=until_of(options.end),
            until_time=until_time_of(options.end),
            tables=options.filter.tables,
            exclude=options.filter.exclude,
            yes=options.yes,
            allow_missing_publication=options.publication.allow_missing_publication,
            encoding=options.encoding,
        )

    def _make_consumer(
        self,
        plan: Plan,
        pipeline: Pipeline,
        sink: StreamSink | DirectorySink,
        interrupt: Interrupt,
    ) -> MakeConsumer:
        options = self._options

        def make(spool: FrameQueue, position: int, identity: Identity) -> RenderThread:
            return self._render_thread(
                pipeline,
                spool,
                pipeline,
                sink,
                lambda: Decoder(encoding=options.encoding or "utf-8"),
                interrupt.wake,
                position=position,
                durable=options.format.file not in (None, "-") and plan.ack != "none",
            )

        return make


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
        until_passes=plan.until_passes,
        idle=options.idle,
        spill=options.spill_limit,
        output=output,
    )


def _watched_output(file: str | None) -> int | None:
    """The descriptor of standard output, if that is the output and no regular file."""
    if file in (None, "-") and not stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode):
        return sys.stdout.fileno()
    return None
