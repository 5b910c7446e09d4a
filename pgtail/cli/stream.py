"""Floor 7, `pgtail stream`: a replication slot to tables or JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pgtail.cli.options import filter_options, limit_option, output_options, verbose_option
from pgtail.cli.stream_options import connection_options, protocol_options, range_options, slot_options
from pgtail.errors import OptionError, OutputError, PgtailError

if TYPE_CHECKING:
    from pgtail.cli.directory import DirectorySink
    from pgtail.cli.voice import StreamSink, Voice
    from pgtail.filters import Filter
    from pgtail.outputs.base import Output
    from pgtail.pipeline import Pipeline
    from pgtail.server.connection import Connector
    from pgtail.server.identity import Identity
    from pgtail.server.interrupt import Interrupt
    from pgtail.server.plan import Place, Plan, Request
    from pgtail.server.pump import Limits
    from pgtail.server.tail import MakeTaker, Tail
    from pgtail.server.worker import Worker
    from pgtail.values import Types


@click.command("stream", context_settings={"help_option_names": ["--help"]})
@connection_options
@slot_options
@range_options
@limit_option
@output_options
@filter_options
@protocol_options
@verbose_option
def command(**options: Any) -> None:
    """Tail a replication slot, as tables or JSON.

    DSN is a connection string, a URI or a database's name; what it leaves out comes from PG* variables, the service
    file and .pgpass. An existing slot is read without consuming anything unless --ack says so.

    \b
    pgtail stream shop                      database shop from now on
    pgtail stream shop -S cdc --until now   what slot cdc still holds
    pgtail stream shop --fork cdc           the same while it is in use
    pgtail stream shop -t orders | jq .new  one table, as JSON
    """
    from pgtail.cli.settings import given
    from pgtail.cli.standard import exit_statuses

    if options["fork"] is not None and not given("slot"):
        options["slot"] = None  # of the configuration

    with exit_statuses():
        raise SystemExit(1 if Stream(options).run() else 0)


class Stream:
    """One run of the command, or of another one that reads a slot; options that this one lacks have their defaults."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = {**command.make_context("stream", []).params, **options}

    def run(self) -> bool:
        """Tail until the end; returns whether something of the stream could not be shown.

        Raises PgtailError, and ClosedPipe where nobody reads the output any more.
        """
        import os

        from pgtail.cli.common import build_types
        from pgtail.cli.connecting import connector_of
        from pgtail.cli.directory import DirectorySink
        from pgtail.cli.formats import open_target
        from pgtail.cli.settings import words
        from pgtail.cli.voice import StreamSink, Voice
        from pgtail.server.interrupt import Interrupt

        options = self._options
        types = build_types(encoding=options["encoding"] or "utf-8", numbers=options["numbers"], declared=())
        filter_ = self._filter()
        request, connector = self._request(), connector_of(options)
        voice = Voice(options["verbose"])
        if settings := words():
            voice.detail(f"settings: {settings}")
        try:
            with Interrupt() as interrupt, open_target(options["file"], append=True) as file:
                if isinstance(file, DirectorySink):
                    return self._tail(connector, request, types, filter_, file, voice, interrupt)
                # A pipe that is stuck must not keep standard error from being written.
                sink = StreamSink(file.fd, file.name, voice if os.isatty(file.fd) else None)
                if options["file"] not in (None, "-"):
                    _go_on_in(sink)
                return self._tail(connector, request, types, filter_, sink, voice, interrupt)
        except KeyboardInterrupt:
            voice.tell("stopped before anything was read")
            return False
        finally:
            voice.close()

    def _tail(
        self,
        connector: Connector,
        request: Request,
        types: Types,
        filter_: Filter,
        sink: StreamSink | DirectorySink,
        voice: Voice,
        interrupt: Interrupt,
    ) -> bool:
        from pgtail.assembler import Assembler
        from pgtail.cli.common import no_quotes, show_of, tell_note
        from pgtail.cli.formats import check_acknowledged
        from pgtail.cli.standard import ClosedPipe
        from pgtail.pipeline import Pipeline
        from pgtail.server.pump import Ending
        from pgtail.server.tail import Tail

        plan = self._plan(connector, request, types, interrupt)
        check_acknowledged(self._options, plan)
        for warning in plan.warnings:
            voice.tell(f"warning: {warning}")
        assembler = Assembler(types, show=show_of(self._options))
        pipeline = Pipeline(
            assembler,
            self._output(sink, voice, plan),
            filter_=filter_,
            note=lambda note: tell_note(note, tell=voice.tell),
            limit=self._options["limit"],
            until=plan.until,
        )
        tail = Tail(
            plan,
            connector,
            interrupt,
            voice,
            self._limits(),
            self._make_taker(plan, pipeline, sink, interrupt),
            reconnect=self._options["reconnect"],
            ready=lambda position: self._ready(position, voice),
        )
        try:
            with no_quotes(self._options):
                ending = tail.run()
            if ending is Ending.CLOSED:
                raise ClosedPipe
        except PgtailError as error:
            self._last_words(tail, pipeline, filter_, voice, written=not isinstance(error, OutputError))
            raise
        finally:
            assembler.close()
        self._last_words(tail, pipeline, filter_, voice)
        return pipeline.damaged

    def _filter(self) -> Filter:
        from pgtail.cli.common import build_filter

        return build_filter(self._options)

    def _output(self, sink: StreamSink | DirectorySink, voice: Voice, plan: Plan) -> Output:
        from pgtail.cli.common import build_output

        return build_output(self._options, sink, tell=voice.tell, database=plan.server.database)

    def _ready(self, position: int, voice: Voice) -> None:
        """From this position on everything will be seen."""

    def _enough(self, pipeline: Pipeline) -> bool:
        """Whether what was asked for has come; looked at between transactions."""
        limit = self._options["limit"]
        return limit is not None and pipeline.shown >= limit

    def _last_words(
        self, tail: Tail, pipeline: Pipeline, filter_: Filter, voice: Voice, *, written: bool = True
    ) -> None:
        """What was shown, and where to go on; where it could not be `written`, nobody knows how much was."""
        from pgtail.cli.common import tell_filter
        from pgtail.server.words import count_text
        from pgtail.wire.scalars import lsn_text

        if tail.resume is None:
            return
        tell_filter(filter_, voice.tell)
        shown = f"{count_text(pipeline.shown, 'transaction')} shown; " if written else ""
        voice.tell(f"{shown}resume at {lsn_text(tail.resume)}")

    # -- options to objects ------------------------------------------------------------------------------------

    def _request(self) -> Request:
        from pgtail.server.options import Wanted
        from pgtail.server.plan import Request

        options = self._options
        if options["create_slot"] and options["slot"] is None:
            raise OptionError("--create-slot needs a name for the slot: --slot NAME")
        if options["fork"] is not None and options["slot"] is not None:
            raise OptionError("--fork reads a temporary copy, --slot the slot itself: give one of them")
        return Request(
            slot=options["slot"],
            create_slot=options["create_slot"],
            fork=options["fork"],
            publications=options["publications"],
            wanted=Wanted(
                proto_version=options["proto_version"],
                binary=options["binary"],
                messages=options["messages"],
                streaming=options["streaming"],
                two_phase=options["two_phase"],
                origin=options["origin"],
            ),
            ack=options["ack"],
            start=options["start"],
            until=until_of(options),
            tables=options["tables"],
            yes=options["yes"],
            allow_missing_publication=options["allow_missing_publication"],
            encoding=options["encoding"],
        )

    def _limits(self) -> Limits:
        import os
        import stat
        import sys

        from pgtail.server.pump import Limits

        options = self._options
        output = None
        if options["file"] in (None, "-") and not stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode):
            output = sys.stdout.fileno()
        return Limits(seconds=options["seconds"], idle=options["idle"], spill=options["spill_limit"], output=output)

    def _plan(self, connector: Connector, request: Request, types: Types, interrupt: Interrupt) -> Plan:
        """Ask the server, and decide."""
        from pgtail.server import facts
        from pgtail.server.plan import prepare

        with interrupt.raising(), connector.ordinary() as connection:
            plan = prepare(request, connection)
            if plan.options.binary:
                types.declare_enums(facts.enums(connection))
        return plan

    def _make_taker(
        self, plan: Plan, pipeline: Pipeline, sink: StreamSink | DirectorySink, interrupt: Interrupt
    ) -> MakeTaker:
        from pgtail.server.spool import Spool
        from pgtail.server.worker import Worker
        from pgtail.wire.decoder import Decoder

        options = self._options

        def decoder() -> Decoder:
            return Decoder(encoding=options["encoding"] or "utf-8")

        def make(spool: Spool, position: int, identity: Identity) -> Worker:
            return Worker(
                spool,
                pipeline,
                sink,
                decoder,
                interrupt.wake,
                position=position,
                durable=options["file"] not in (None, "-") and plan.ack != "none",
                until=plan.until,
                enough=lambda: self._enough(pipeline),
            )

        return make


def until_of(options: dict[str, Any]) -> Place:
    """Where to stop. Raises OptionError."""
    lsn: Place = options["until_lsn"]
    place: Place = options["until"]
    if lsn is not None and place is not None:
        raise OptionError("--until and --until-lsn say the same: give one of them")
    return place if lsn is None else lsn


def _go_on_in(sink: StreamSink) -> None:
    """A file that an earlier run left in the middle of a line goes on with a new one; its name outlives a crash."""
    import contextlib
    import os
    import stat

    if not stat.S_ISREG(os.fstat(sink.fd).st_mode):
        return
    with contextlib.suppress(OSError):
        directory = os.open(os.path.dirname(sink.name) or ".", os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    with contextlib.suppress(OSError), open(sink.name, "rb") as file:
        if file.seek(0, os.SEEK_END) > 0:
            file.seek(-1, os.SEEK_END)
            if file.read() != b"\n":
                sink.write(b"\n")
