"""`pgtail record`: a slot, or dumps, to a capture in a directory."""

from __future__ import annotations

import contextlib
import select
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from pgtail import __version__
from pgtail.capture.lock import DirectoryInUse, open_directory
from pgtail.capture.reader import last_head
from pgtail.capture.recorder import CopiedTable, Recorder, Rotation
from pgtail.capture.recovery import recover, recoverable
from pgtail.capture.snapshots import open_state
from pgtail.capture.store_state import TakenOver
from pgtail.capture.upload import Uploader
from pgtail.changes.complete_tables import CompleteTables
from pgtail.changes.filters import any_matches
from pgtail.commands.connect import connector_of
from pgtail.commands.console.stderr_thread import StderrThread
from pgtail.commands.options.common import NOT_DONE
from pgtail.commands.options.server import RecordOptions
from pgtail.commands.record import dumps as convert
from pgtail.commands.service.service import Service
from pgtail.commands.stream.command import report_withheld
from pgtail.commands.stream.following import limits_of, request_of
from pgtail.errors import OptionError, PgtailError
from pgtail.files.stopping import Interrupt, begin
from pgtail.humanize import counted
from pgtail.log import event, log_outcome, log_summary, logger
from pgtail.pgoutput.scalars import lsn_text
from pgtail.postgres import catalog, publications
from pgtail.postgres.connection import SHORT_TIMEOUT, Connector
from pgtail.postgres.errors import ObjectInUse, Unreachable
from pgtail.postgres.slots import SlotInUse, check_free, check_name
from pgtail.reading.checksums import verify
from pgtail.reading.interruption import interrupted
from pgtail.replication.identity import Identity
from pgtail.replication.plan import ConsumedElsewhere, Plan, Publisher
from pgtail.replication.probe import complete_since_start
from pgtail.replication.queue import FrameQueue
from pgtail.replication.record_plan import RecordedCapture, head_of, prepare_recording
from pgtail.replication.record_snapshot import CaptureFiles, SnapshotRecording
from pgtail.replication.record_thread import RecordThread
from pgtail.replication.request import Request
from pgtail.replication.same_tables import SameTables
from pgtail.replication.tail import Tail
from pgtail.service.progress import SlotProgress
from pgtail.storage import Location, is_uri, locate
from pgtail.storage.local import LocalLocation
from pgtail.terminal.escape import escape

_TAKEN: Final = (SlotInUse, ObjectInUse, ConsumedElsewhere, DirectoryInUse, TakenOver)
"""Errors that say that another recorder has the slot, the directory or the capture in a store."""
_PAUSE: Final = 0.5
"""Seconds between two looks at the slot."""


def record_dumps(files: Sequence[str], options: RecordOptions) -> bool:
    """Make a capture of dumps; returns whether it leaves out a part of them. Raises PgtailError."""
    dump = options.dump
    if is_uri(options.directory):
        raise OptionError("--from makes a capture in a local directory: name one with -D, then copy it")
    try:
        if dump.verify:
            verify(files, dump.storage)
        begin()
        with open_directory(Path(options.directory), empty=True) as directory:
            return convert.record_dumps(files, directory, dump, rotation=_rotation(options), compress=options.compress)
    except KeyboardInterrupt as stopped:
        raise interrupted(stopped) from None


class RecordSlot:
    """One run of the command on a slot."""

    _stderr: StderrThread

    def __init__(self, options: RecordOptions) -> None:
        self._options = options
        self._complete: CompleteTables | None = None
        """The tables of which the slot has every change, as far as known."""
        self._copying = False
        self._waiting = ""
        """What is waited for, as it was said last."""
        self._progress = SlotProgress()

    def run(self) -> bool:
        """Record until the end; returns False, for nothing is left out. Raises PgtailError."""
        options = self._options
        if options.request.slot is None:
            raise OptionError("name a slot (--slot NAME, created if there is none) or a dump (--from FILE) to record")
        check_name(options.request.slot)
        target = locate(options.directory, options.dump.storage)
        spool = _spool_of(target, options.spool)
        info = {"command": "record", "version": __version__, "slot": options.request.slot}
        with StderrThread(quiet=options.verbosity.quiet) as self._stderr:
            try:
                if options.dry_run:
                    self._report(target, spool)
                    return False
                with Service(options.service, self._progress, info):
                    self._run_in_turn(target, spool)
            except KeyboardInterrupt:
                log_outcome(
                    "stopped before all tables were copied: those that are complete stay, and the same command copies"
                    " the others"
                    if self._copying
                    else "stopped before anything was read"
                )
        return False

    def _run_in_turn(self, target: Location, spool: Path) -> None:
        """Record until the end; with --wait, once no other recorder has the slot or the capture."""
        while True:
            if self._options.wait:
                self._wait()
            try:
                return self._run_on(target, spool)
            except _TAKEN as error:
                if not self._options.wait:
                    raise
                self._report_waiting(error)
                time.sleep(_PAUSE)

    def _run_on(self, target: Location, spool: Path) -> None:
        """Record until the end, unless another recorder has the slot or the capture."""
        options, progress, uploader = self._options, self._progress, None
        with open_directory(spool) as directory:
            if target.path is None:
                uploader = Uploader(
                    directory, target, compress=options.compress, progress=progress, takes_over=options.wait
                )
                if options.wait:
                    uploader.claim()  # from now on the position in the store is where the slot is to be read
            progress.uploads = uploader
            self._record(directory, uploader)

    def _wait(self) -> None:
        """Return when nobody reads the slot. Raises ServerError unless it may pass."""
        name = self._options.request.slot
        assert name is not None
        connector = connector_of(self._options.connection)
        with Interrupt() as interrupt:
            while True:
                try:
                    with interrupt.raising(), connector.ordinary(connect_timeout=SHORT_TIMEOUT) as connection:
                        slot = catalog.slot(connection, name)
                        if slot is None or slot.active_pid is None:
                            return
                        check_free(connection, slot, cure="")
                except Unreachable as error:
                    self._report_waiting(error)
                select.select([interrupt], [], [], _PAUSE)

    def _report_waiting(self, why: PgtailError) -> None:
        reason = str(why).partition("\n")[0].removesuffix(".")
        if reason != self._waiting:
            self._waiting = reason
            self._progress.lost(reason)
            log_outcome(f"waiting: {reason}", extra=event("waiting"))

    @property
    def _request(self) -> Request:
        wanted = replace(self._options.request.wanted, streaming="off")
        return replace(request_of(self._options.request, self._options.end), ack="commit", wanted=wanted)

    def _report(self, target: Location, directory: Path) -> None:
        """Check what _record() checks, and say what it would do (--dry-run)."""
        if target.path is None:
            raise OptionError("--dry-run examines a local capture: name a directory with -D")
        exists, connector, tables = directory.is_dir(), connector_of(self._options.connection), dict[int, str]()
        with contextlib.ExitStack() as stack, Interrupt() as interrupt:
            place = stack.enter_context(open_directory(directory) if exists else _empty_directory())
            recovered = recoverable(place)
            position = recovered.position
            state = open_state(place, position, dry_run=True)
            files = CaptureFiles(place, state, _rotation(self._options), self._options.compress, None)
            known = self._known(files, position)
            plan = self._plan(self._request, known, connector, interrupt)
            if self._options.snapshot.wanted:
                publisher = Publisher(plan, connector, interrupt, self._progress, None)
                tables = self._snapshot(publisher, known, files, SameTables(publisher)).wanted()
        for warning in (*recovered.warnings, *plan.warnings):
            logger.warning(warning)
        begins = f"the capture would be continued from {lsn_text(position)}" if position else "a capture would begin"
        log_outcome(f"in {directory}{'' if exists else ', which would be created,'} {begins}")
        at = "created" if plan.slot is None else f"read from {lsn_text(max(position, plan.slot.confirmed))}"
        log_outcome(f"slot {plan.slot_name} would be {at}: {publications.in_words(plan.publications)}")
        if self._options.snapshot.wanted:
            names = ": " + ", ".join(sorted(map(escape, tables.values()))) if tables else ""
            log_outcome(f"{counted(len(tables), 'table')} would be copied first{names}")
        log_outcome(NOT_DONE)

    def _record(self, directory: Path, uploader: Uploader | None) -> None:
        options, request = self._options, self._request
        connector = connector_of(options.connection)
        recovered = recover(directory, compress=options.compress)
        for warning in recovered.warnings:
            logger.warning(warning)
        state = open_state(directory, recovered.position, spool=uploader is not None)
        files = CaptureFiles(directory, state, _rotation(options), options.compress, uploader)
        known = self._known(files, recovered.position)
        with Interrupt() as interrupt:
            plan = self._plan(request, known, connector, interrupt)
            publisher = Publisher(plan, connector, interrupt, self._progress, self._stderr.show_status)
            same_tables, copied = SameTables(publisher), list[CopiedTable]()
            if options.snapshot.wanted:
                copied = self._copy_tables(publisher, known, files, same_tables)
                known = self._known(files, recovered.position)  # whose rows it has now
                publisher = replace(publisher, plan=self._plan(request, known, connector, interrupt))
            for warning in publisher.plan.warnings:
                logger.warning(warning)
            self._follow(publisher, known, files, same_tables, copied, request.until_time)

    def _copy_tables(
        self, publisher: Publisher, known: RecordedCapture, files: CaptureFiles, same_tables: SameTables
    ) -> list[CopiedTable]:
        recording = self._snapshot(publisher, known, files, same_tables)
        self._copying = True
        with self._progress.copying_tables():
            recording.run()
        self._copying = False
        return recording.copied

    def _snapshot(
        self, publisher: Publisher, known: RecordedCapture, files: CaptureFiles, same_tables: SameTables
    ) -> SnapshotRecording:
        wanted = self._options.snapshot
        return SnapshotRecording(
            publisher,
            known,
            files,
            same_tables,
            complete=self._complete,
            globs=wanted.snapshot_tables,
            jobs=wanted.jobs,
        )

    def _follow(
        self,
        publisher: Publisher,
        known: RecordedCapture,
        files: CaptureFiles,
        same_tables: SameTables,
        copied: list[CopiedTable],
        until_time: int | None,
    ) -> None:
        plan = publisher.plan
        recorders: list[Recorder] = []

        def make(queue: FrameQueue, position: int, identity: Identity) -> RecordThread:
            recorder = Recorder(
                files.directory,
                head_of(plan, identity, self._complete),
                rotation=files.rotation,
                compress=files.compress,
                gap=(known.position, position) if 0 < known.position < position else None,
                start=position,
                state=files.state,
                copied=copied,
            )
            recorders.append(recorder)
            same_tables.begin(identity)
            return RecordThread(
                publisher,
                queue,
                recorder,
                same_tables,
                position=position,
                until_time=until_time,
                uploader=files.uploader,
            )

        end = self._options.end
        tail = Tail(publisher, limits_of(end, plan), make, reconnect=end.reconnect, known=known.server)
        try:
            tail.run()
        except _TAKEN as error:
            if not (self._options.wait and publisher.interrupt.count):
                raise
            log_outcome(str(error))  # the request is to stop, not to wait
        finally:
            if tail.resume is not None and recorders and files.directory.is_dir():
                self._summarize(tail.resume, recorders[0], files)
        if recorders and not recorders[0].transactions:
            report_withheld(publisher.connector, list(plan.options.publications))

    def _summarize(self, resume: int, recorder: Recorder, files: CaptureFiles) -> None:
        log_summary(convert.summary(resume, recorder, self._options.directory))
        waiting = 0 if files.uploader is None else files.uploader.waiting
        if waiting:
            log_outcome(
                f"{counted(waiting, 'segment')} in {files.directory} not uploaded, and not acknowledged: the next run"
                " does that"
            )

    def _known(self, files: CaptureFiles, position: int) -> RecordedCapture:
        globs = self._options.snapshot.snapshot_tables  # matching tables are copied again, or no longer published
        snapshots = files.state.now.snapshots
        last = {one.relid: one.lsn for one in snapshots if not any_matches(one.schema, one.table, globs)}
        copied = any(lsn <= position for lsn in last.values())
        return RecordedCapture(self._options.directory, position, last_head(LocalLocation(files.directory)), copied)

    def _plan(self, request: Request, known: RecordedCapture, connector: Connector, interrupt: Interrupt) -> Plan:
        with interrupt.raising(), connector.ordinary() as connection:
            plan = prepare_recording(request, known, connection, allow_gap=self._options.allow_gap)
            self._complete = complete_since_start(connection, plan)
        return plan


@contextlib.contextmanager
def _empty_directory() -> Iterator[Path]:
    """A temporary directory, which stands for one that does not exist."""
    with tempfile.TemporaryDirectory(prefix="pgtail-") as name:
        yield Path(name)


def _rotation(options: RecordOptions) -> Rotation:
    return Rotation(size=options.segment_size, age=options.segment_age, sync_interval=options.sync_interval)


def _spool_of(target: Location, spool: str | None) -> Path:
    """The local directory to write to. Raises OptionError."""
    if target.path is None and not target.replaces:
        raise OptionError(
            f"cannot record into {target}: it has no conditional put; name a local directory or an object store"
        )
    if target.path is None and not spool:
        raise OptionError(
            f"--spool DIR is missing: the local directory for segments that are not yet in {target}; keep it, and use"
            " it again"
        )
    if target.path is not None and spool is not None:
        raise OptionError("--spool is for a capture in an object store: -D s3://BUCKET/PATH")
    return Path(spool or target.path or "")
