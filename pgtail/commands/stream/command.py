"""`pgtail stream`: a replication slot to one output; the base of other commands that read a slot."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import sys
import threading
from collections.abc import Collection, Iterator
from functools import partial
from types import FrameType
from typing import Final

from msgspec.structs import replace

from pgtail import __version__
from pgtail.changes.filters import Filter
from pgtail.changes.redaction import Redaction
from pgtail.commands.connect import connector_of, with_name_cure
from pgtail.commands.console.pager import paged, pager_in_use
from pgtail.commands.console.stderr_thread import StderrThread
from pgtail.commands.console.styling import is_pipe
from pgtail.commands.input.selection import (
    build_redaction,
    report_context,
    report_filter,
    report_nothing_passed,
    report_unmasked,
)
from pgtail.commands.options.server import StreamOptions
from pgtail.commands.output.build import build_output, check_acknowledged, report_dropped, with_old_values
from pgtail.commands.output.file_sink import FileSink, check_appended, continue_file, open_sink
from pgtail.commands.service.service import Service
from pgtail.commands.stream.following import Following, limits_of, report_plan, stream_filter
from pgtail.errors import COMMAND, ClosedPipe, OptionError, OutputError, PgtailError, ServerError
from pgtail.files.spool import SpoolLimit
from pgtail.files.stopping import Interrupt
from pgtail.humanize import counted, grouped
from pgtail.log import log_detail, log_outcome, log_summary, logger
from pgtail.outputs.base import Output
from pgtail.pgoutput.scalars import lsn_text
from pgtail.pipeline.pipeline import Pipeline
from pgtail.postgres import publications
from pgtail.postgres.connection import SHORT_TIMEOUT, Connector
from pgtail.reading.notes import no_quotes
from pgtail.replication.consumer import Stopped
from pgtail.replication.loop import Ending
from pgtail.replication.pipeline_consumer import Feed
from pgtail.replication.plan import Plan, Publisher
from pgtail.replication.queue import FrameQueue
from pgtail.replication.render_thread import Rendering, RenderThread
from pgtail.replication.tail import Tail
from pgtail.service.progress import SlotProgress
from pgtail.terminal.escape import escape

STREAM_SPILLS_MORE = f"{COMMAND} stream --spill-limit allows more"
"""The cure of commands that have no such option."""
_MOST_KEPT: Final = 16 << 20
"""Bytes: many times more than is made of the messages that are processed at once, unless a transaction ends."""
_LAST_PAUSE: Final = 2.0
"""Seconds to wait at the end for the server to say what publications leave out."""


class StreamSink(FileSink):
    """A file sink that another thread can stop, and that keeps the status line apart from the output.

    Once `stopped`, it writes nothing, and keeps what the output makes of the messages that are being processed: an
    output that is broken off inside of these cannot be completed.
    SIGUSR1 reopens a file, for programs that rotate logs.
    """

    def __init__(self, fd: int, name: str, stderr: StderrThread | None) -> None:
        super().__init__(fd, name)
        self.stopped = False
        self._stderr = stderr
        self._is_pipe = is_pipe(fd)
        self._reopen_asked = False

    def write(self, data: bytes) -> None:
        """As FileSink does. Raises Stopped if too much would be kept."""
        super().write(data)
        if self.stopped and self._size > _MOST_KEPT:
            raise Stopped

    def flush(self) -> None:
        """Write the buffer, as FileSink does, unless `stopped` is set."""
        if self.stopped:
            return
        if self._stderr is None or not self._parts:
            super().flush()
        elif self._is_pipe:  # it may be full, which must not block standard error
            with self._stderr.quiet():
                pass
            super().flush()
        else:
            with self._stderr.quiet():
                super().flush()

    @contextlib.contextmanager
    def following(self) -> Iterator[None]:
        """A context in which a file is appended to, and SIGUSR1 asks to reopen it. Enter it in the main thread."""
        continue_file(self)

        def ask(number: int, frame: FrameType | None) -> None:
            self._reopen_asked = True

        before = signal.signal(signal.SIGUSR1, ask)
        try:
            yield
        finally:
            signal.signal(signal.SIGUSR1, before)

    def reopen(self) -> bool:
        """If that was asked for, go on in the file that has the name now, or a new one. Returns whether it did.

        Earlier output is then on disk. Raises OutputError.
        """
        if not self._reopen_asked:
            return False
        self._reopen_asked = False
        self.sync()
        try:
            fd = os.open(self.name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise OutputError(f"cannot write to {self.name}: {error.strerror}") from error
        os.dup2(fd, self.fd, inheritable=False)
        os.close(fd)
        continue_file(self)
        return True


class Stream:
    """One run of the command. Other commands override what is shown, and the summary."""

    _filter: Filter
    _connector: Connector
    _stderr: StderrThread | None = None
    """The writer of messages, if it is a thread with a status line."""
    _around: contextlib.ExitStack
    """Contexts that end after the stream: a pager, which may stay open when everything else has ended."""
    _pipeline: Pipeline
    _tail: Tail
    _published: list[str]
    """The names of the publications that are read."""
    _resumable: bool
    """Whether the slot, or the one that was copied, still exists at the end."""
    _following: Following
    _copied = True
    """Whether the copy of the tables was complete, if there was one."""
    _name = "stream"
    _masks = True
    """Whether the output receives masked values."""
    _spool_cure = "allow more with --spill-limit, or leave them to the server with --streaming off"

    def __init__(self, options: StreamOptions, redaction: Redaction | None = None) -> None:
        self._asked = options.format.takes_seen
        """Whether seen old values are asked for, not only taken where they are known to be right."""
        self._options = replace(options, format=with_old_values(options.format))
        self._redaction = redaction or build_redaction(options.filter)
        self._progress = SlotProgress()

    def run(self) -> bool:
        """Tail until the end; returns whether a part of the stream could not be shown, or not be masked.

        Raises PgtailError, and ClosedPipe if the reader of the output is gone.
        """
        options = self._options
        check_appended(options.format.file)
        self._filter = self._make_filter()
        self._following = Following(options, self._filter, asked=self._asked)
        self._connector = connector_of(options.connection)
        with contextlib.ExitStack() as self._around, self._open_messages() as self._stderr:
            if options.verbosity.settings:
                log_detail(f"settings: {options.verbosity.settings}")
            return self._run()

    def _run(self) -> bool:
        options, request = self._options, self._options.request
        info = {"command": self._name, "version": __version__, "slot": request.slot or request.fork or ""}
        try:
            with (
                Service(options.service, self._progress, info),
                Interrupt() as interrupt,
                open_sink(options.format.file, append=True) as target,
                self._shared(target) as sink,
            ):
                return self._follow(sink, interrupt)
        except ServerError as error:
            raise with_name_cure(error, options.connection.dsn, self._name) from None
        except KeyboardInterrupt:
            if not self._copied:
                log_outcome("stopped while the tables were copied: the output has only a part of their rows")
                return True
            log_outcome("stopped before anything was read")
            return False

    def _open_messages(self) -> contextlib.AbstractContextManager[StderrThread | None]:
        """A context in which messages are written, and a status line."""
        return StderrThread(quiet=self._options.verbosity.quiet)

    @contextlib.contextmanager
    def _shared(self, target: FileSink) -> Iterator[StreamSink]:
        """The target, for a thread that shares a terminal with the status line."""
        # A terminal shares the screen with the status line, and so does what a pipe's reader probably writes.
        shares = os.isatty(target.fd) or is_pipe(target.fd)
        sink = StreamSink(target.fd, target.name, self._stderr if shares else None)
        if self._options.format.file in (None, "-"):
            yield sink
            return
        with sink.following():
            yield sink

    def _follow(self, sink: StreamSink, interrupt: Interrupt) -> bool:
        """Write the stream to its end; returns whether something was damaged, or shown unmasked."""
        following = self._following
        plan = following.prepare(self._connector, interrupt)
        self._page(plan)
        self._resumable = not plan.temporary or plan.fork is not None
        self._published = list(plan.options.publications)
        spool = SpoolLimit(self._options.end.spill_limit, self._spool_cure)
        output = self._output(sink, plan, spool)
        self._check(plan, output)
        report_plan(plan)
        self._report_repeated(plan, sink)
        show_status = None if self._stderr is None else self._stderr.show_status
        publisher = Publisher(plan, self._connector, interrupt, self._progress, show_status)
        with contextlib.closing(following.assembler(spool)) as assembler:
            feed = following.feed(publisher, assembler, output, self._redaction if self._masks else None)
            self._pipeline = feed.pipeline
            limits = limits_of(self._options.end, plan, output=_watched_output(self._options.format.file))
            self._tail = following.tail(feed, limits, partial(self._consumer, feed, sink), self._ready)
            return self._read()

    def _consumer(self, feed: Feed, sink: StreamSink, queue: FrameQueue, position: int) -> RenderThread:
        durable = self._options.format.file not in (None, "-") and feed.publisher.plan.ack != "none"
        rendering = Rendering(feed.publisher, feed.pipeline, feed.same_tables, sink=sink, durable=durable)
        return self._render_thread(rendering, queue, position)

    def _page(self, plan: Plan) -> None:
        """Use a pager from now on if the server has everything already that is to be shown."""
        options, bounded = self._options, plan.until is not None and plan.until <= plan.server.position
        if bounded and options.pager and options.format.file is None and self._stderr is not None:
            self._around.callback(self._stderr.wait)  # for output that a full pager did not accept before it ended
            self._around.enter_context(paged(True))
            if pager_in_use():
                self._stderr.show_status = None

    def _check(self, plan: Plan, output: Output) -> None:
        """Raises OptionError if the options do not fit each other and the slot."""
        since = self._options.filter.since
        check_acknowledged(self._options.format, plan, output)
        if self._options.format.undo and self._options.end.reconnect and plan.temporary:
            raise OptionError(
                "--undo needs every change, and a temporary slot misses some when --reconnect makes another one: omit"
                " --reconnect, or read a slot that stays (--slot NAME)"
            )
        if since is not None and plan.slot is not None and plan.ack != "none" and not self._options.request.yes:
            raise OptionError(
                "--since together with --ack permanently skips earlier changes of the slot, also for its other readers;"
                " --yes confirms this"
            )

    def _report_repeated(self, plan: Plan, sink: StreamSink) -> None:
        """Say from which position on a file may have the changes already: a killed run acknowledges nothing."""
        if plan.slot is None or plan.ack == "none" or self._options.format.file in (None, "-"):
            return
        if os.fstat(sink.fd).st_size:
            position = lsn_text(max(plan.start, plan.slot.confirmed))
            logger.info(
                f"{sink.name} may have changes of transactions that commit at or after {position} already, if the"
                " run before was killed: they are written again"
            )

    def _read(self) -> bool:
        try:
            with no_quotes(self._redaction):
                ending = self._tail.run()
            if ending is Ending.CLOSED:
                raise ClosedPipe
        except PgtailError as error:
            self._summarize(error)
            raise
        finally:
            self._copied = self._tail.copied
            unmasked = report_unmasked(self._redaction)
        self._summarize()
        self._report_withheld()
        return self._pipeline.damaged or unmasked

    def _render_thread(self, rendering: Rendering, queue: FrameQueue, position: int) -> RenderThread:
        return RenderThread(rendering, queue, position=position)

    def _make_filter(self) -> Filter:
        return stream_filter(self._options, self._redaction)

    def _output(self, sink: StreamSink, plan: Plan, spool: SpoolLimit) -> Output:
        format_ = replace(self._options.format, spool=spool, context=self._options.filter.context)
        masked = self._redaction is not None
        return build_output(format_, sink, masked=masked, database=plan.server.database)

    def _ready(self, position: int) -> None:
        """Called once the stream has started: every commit from `position` on will be seen."""

    def _summarize(self, error: PgtailError | None = None) -> None:
        """Print the counts shown and the position to resume from; after an error of the output the counts are unknown.

        Nothing can be resumed once a temporary slot is gone, but a copy of a slot can be made again.
        """
        if not self._tail.copied:
            self._report_broken_off()
            log_outcome("the copy of the tables is not complete: the output has only a part of their rows")
        if self._tail.resume is None:
            return
        report_nothing_passed(self._pipeline.seen, whole=False)
        report_filter(self._filter)
        report_context(self._options.filter, self._pipeline.seen)
        report_dropped(self._pipeline.seen_rows, self._options.format)
        pipeline = self._pipeline
        after = " after the snapshot" if self._options.snapshot.wanted else ""
        shown = f"{counted(pipeline.shown, 'transaction')} shown{after}"
        if pipeline.left_out:
            selected = counted(pipeline.rows - pipeline.left_out, "row")
            shown = f"{shown}, {selected} selected of {grouped(pipeline.rows)} read"
        position, is_known = lsn_text(self._tail.resume), not isinstance(error, OutputError)
        self._report_broken_off()
        if self._resumable:
            log_summary(f"{shown}; resume at {position}" if is_known else f"resume at {position}")
            return
        read = f"{shown}, up to {position}" if is_known else f"written up to {position}"
        cure = " (--slot NAME --create-slot makes one that stays)" if error is None else ""
        log_summary(f"{read}; the temporary slot is gone{cure}")

    def _report_withheld(self) -> None:
        """If nothing was shown, or nothing of an operation of --op came: report what the publications omit."""
        pipeline = self._pipeline
        counts = pipeline.rows_by_table() or []
        missing = [op for op in self._filter.ops if not any(getattr(rows, f"{op}s", 1) for rows in counts)]
        if missing or not (pipeline.shown or pipeline.rows > pipeline.left_out):
            report_withheld(self._connector, self._published, missing)

    def _report_broken_off(self) -> None:
        """Name the transaction, or the table's snapshot, of which only a part was shown."""
        pipeline, broken_off = self._pipeline, self._pipeline.broken_off
        if broken_off is None or self._options.format.undo:
            return
        table = "" if broken_off.table is None else broken_off.table.qualified
        where = f"the snapshot of {table}" if broken_off.snapshot else f"transaction {broken_off.xid}"
        changes = counted(broken_off.count, "row" if broken_off.snapshot else "change")
        selected = ", of which those selected were shown" if pipeline.left_out else ""
        logger.info(f"stopped inside {where}, after {changes}{selected}")


def report_withheld(connector: Connector, names: list[str], ops: Collection[str] = ()) -> None:
    """Report what publications leave out, of `ops` if there are any; nothing if the server does not answer soon."""
    texts = list[str]()

    def ask() -> None:
        with (
            contextlib.suppress(ServerError),
            connector.without_asking().ordinary(connect_timeout=SHORT_TIMEOUT) as connection,
        ):
            texts.extend(publications.withheld(connection, names, ops))

    asking = threading.Thread(target=ask, name="publications", daemon=True)
    asking.start()
    asking.join(_LAST_PAUSE)
    for text in texts:
        logger.info(escape(text))


def _watched_output(file: str | None) -> int | None:
    """The descriptor of standard output, if that is the output and no regular file."""
    if file in (None, "-") and not stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode):
        return sys.stdout.fileno()
    return None
