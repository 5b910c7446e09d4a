"""`pgtail record`: a slot, or dumps, to a capture in a directory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pgtail.capture.lock import open_directory
from pgtail.capture.reader import last_head
from pgtail.capture.recorder import Recorder, Rotation
from pgtail.capture.recovery import recover
from pgtail.commands import convert
from pgtail.commands.connect import connector_of
from pgtail.commands.options import RecordOptions
from pgtail.commands.stderr import StderrThread, say
from pgtail.commands.stream import limits_of, until_of, until_time_of
from pgtail.errors import OptionError
from pgtail.files.signals import Interrupt
from pgtail.files.stopping import Stoppable
from pgtail.humanize import counted, size_text
from pgtail.pgoutput.scalars import lsn_text
from pgtail.postgres.pgoutput_options import Wanted
from pgtail.postgres.slots import check_name
from pgtail.replication.identity import Identity
from pgtail.replication.plan import Request
from pgtail.replication.queue import FrameQueue
from pgtail.replication.record_plan import RecordedCapture, head_of, prepare_recording
from pgtail.replication.record_thread import RecordThread
from pgtail.replication.tail import Tail
from pgtail.terminal.escape import escape


def record_dumps(files: Sequence[str], options: RecordOptions) -> bool:
    """Make a capture of dumps; returns whether it leaves out a part of them. Raises PgtailError."""
    dump = options.dump
    try:
        with Stoppable(), open_directory(Path(options.directory), empty=True) as directory:
            return convert.record_dumps(
                files,
                directory,
                format=dump.input_format,
                assume=dump.assume,
                encoding=dump.encoding,
                rotation=_rotation(options),
                compress=options.compress,
                tell=lambda text: say(escape(text)),
            )
    except KeyboardInterrupt:
        say("stopped: the capture has what came before")
        return False


class Record:
    """One run of the command on a slot."""

    def __init__(self, options: RecordOptions) -> None:
        self._options = options

    def run(self) -> bool:
        """Record until the end; returns False, for nothing is left out. Raises PgtailError."""
        slot = self._options.slot
        if slot is None:
            raise OptionError("--slot NAME is missing: the slot to record; it is created if there is none")
        check_name(slot)
        stderr = StderrThread(self._options.verbose)
        try:
            with open_directory(Path(self._options.directory)) as directory:
                self._record(directory, stderr)
        except KeyboardInterrupt:
            stderr.tell("stopped before anything was read")
        finally:
            stderr.close()
        return False

    def _record(self, directory: Path, stderr: StderrThread) -> None:
        options = self._options
        connector, request = connector_of(options.connection), self._request()
        position = recover(directory, compress=options.compress).position
        known = RecordedCapture(str(directory), position, last_head(directory))
        with Interrupt() as interrupt:
            with interrupt.raising(), connector.ordinary() as connection:
                plan = prepare_recording(request, known, connection, allow_gap=options.allow_gap)
            for warning in plan.warnings:
                stderr.tell(f"warning: {warning}")
            recorders: list[Recorder] = []

            def make(spool: FrameQueue, position: int, identity: Identity) -> RecordThread:
                gap = (known.position, position) if 0 < known.position < position else None
                head = head_of(plan, identity)
                recorder = Recorder(directory, head, rotation=_rotation(options), compress=options.compress, gap=gap)
                recorders.append(recorder)
                return RecordThread(
                    spool, recorder, interrupt.wake, position=position, until=plan.until, until_time=request.until_time
                )

            tail = Tail(
                plan,
                connector,
                interrupt,
                stderr,
                limits_of(options.end, plan),
                make,
                reconnect=options.end.reconnect,
                known=None if known.identity is None else (known.identity, known.position),
            )
            try:
                tail.run()
            finally:
                _summarize(tail, recorders, directory, stderr)

    def _request(self) -> Request:
        options, content = self._options, self._options.content
        return Request(
            slot=options.slot,
            publications=options.publication.publications,
            wanted=Wanted(
                binary=content.binary,
                messages=content.messages,
                streaming="off",
                two_phase=content.two_phase,
                origin=content.origin,
            ),
            ack="commit",
            until=until_of(options.end),
            until_time=until_time_of(options.end),
            encoding=options.server_encoding,
            allow_missing_publication=options.publication.allow_missing_publication,
        )


def _rotation(options: RecordOptions) -> Rotation:
    return Rotation(size=options.segment_size, age=options.segment_age, sync_interval=options.sync_interval)


def _summarize(tail: Tail, recorders: list[Recorder], directory: Path, stderr: StderrThread) -> None:
    """Print what was recorded, unless the directory was removed meanwhile: the error says that."""
    if tail.resume is None or not recorders or not directory.is_dir():
        return
    recorder = recorders[0]
    transactions = counted(recorder.transactions, "transaction")
    stderr.inform(
        f"{transactions} ({size_text(recorder.bytes)}) recorded; {directory} has everything up to"
        f" {lsn_text(tail.resume)}"
    )
