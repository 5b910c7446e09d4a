"""`pgtail spark verify`: a state against the server it was recorded from, at one position."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from pgtail.capture.format import DUMPS
from pgtail.capture.reader import Reach, reach_of
from pgtail.changes.filters import selected
from pgtail.commands.connect import connector_of
from pgtail.commands.console.stderr_thread import StderrThread
from pgtail.commands.console.styling import report_json, report_palette, terminal_width
from pgtail.commands.options.spark import VerifyOptions
from pgtail.commands.output.file_sink import open_sink
from pgtail.commands.spark.command import SparkProgress, conf_of
from pgtail.commands.spark.verify_report import report_table, verified_json
from pgtail.errors import InputError, OptionError
from pgtail.files.stopping import Interrupt, Stoppable
from pgtail.humanize import seconds_text
from pgtail.log import DETAIL, SUMMARY, logger
from pgtail.pgoutput.scalars import lsn_text
from pgtail.postgres.connection import Connector
from pgtail.postgres.publications import check_operations
from pgtail.postgres.snapshot_plan import PublishedTable
from pgtail.reading.interruption import interrupted
from pgtail.replication.plan import Plan, Publisher, prepare
from pgtail.replication.record_plan import SLOT, RecordedCapture
from pgtail.replication.request import Request
from pgtail.replication.server_copy import ServerCopy, copy_server
from pgtail.service.progress import SlotProgress
from pgtail.spark.session import check_installed, end_jvm, session
from pgtail.spark.state.settings import Settings
from pgtail.storage import Location, locate, locate_target
from pgtail.terminal.escape import escape, shell_word

if TYPE_CHECKING:
    from pgtail.spark.verify.scratch import Base
    from pgtail.spark.verify.tables import VerifiedTable

_PUBLICATIONS: Final = "pgtail.publications"
_DATABASE: Final = "pgtail.database"
_PAUSE: Final = 1.0
"""Seconds between two looks at the captures."""
_LINE_EVERY: Final = 60.0
"""Seconds between two lines about them where there is no status line."""


def run(places: Sequence[str], options: VerifyOptions) -> bool:
    """Compare and report; returns whether there is a difference. Raises PgtailError and ClosedPipe."""
    palette = report_palette(options.report)
    captures, out, dsn = _arguments(places, options)
    check_installed()
    target = locate_target(out, options.storage)
    conf = conf_of(options.conf)
    connector = connector_of(replace(options.connection, dsn=dsn))
    try:
        with Interrupt() as interrupt:
            lsn, tables, roots, recorder = _Verify(captures, target, options, conf, connector, interrupt).run()
    except KeyboardInterrupt as stopped:
        raise interrupted(stopped) from None
    with open_sink(None) as sink, contextlib.suppress(KeyboardInterrupt):
        if palette is None:
            sink.show(report_json(verified_json(tables, lsn, sample=options.sample), options.report))
        else:
            sink.show(report_table(tables, lsn, palette, width=terminal_width(), recorder=recorder, roots=roots))
    return not all(one.found.same for one in tables)


def _arguments(places: Sequence[str], options: VerifyOptions) -> tuple[list[str], str, str | None]:
    """Captures, OUT and DSN, which --dbname replaces. Raises OptionError."""
    *others, last = places
    dsn = None if options.connection.dbname is not None else last
    *captures, out = others if dsn is not None else places
    if not captures:
        raise OptionError("expected CAPTURE... OUT DSN: captures, the folder with the state, and the server")
    return captures, out, dsn


class _Verify(Struct, frozen=True):
    """One run of the command."""

    captures: Sequence[str]
    out: Location
    options: VerifyOptions
    conf: Mapping[str, str]
    connector: Connector
    interrupt: Interrupt

    def run(self) -> tuple[int, list[VerifiedTable], set[int], str]:
        """The position, how each table compares, the OIDs of those that are published for their partitions, and how to
        record the capture that reaches farthest.

        Raises PgtailError, KeyboardInterrupt.
        """
        from pgtail.spark.verify.scratch import begin, scratch_folder

        roots = set[int]()

        def is_copied(table: PublishedTable) -> bool:
            if any(part.source is None or part.source.oid != table.oid for part in table.parts):
                roots.add(table.oid)
            return self._is_selected(table.schema, table.name, base)

        with scratch_folder(self.out) as scratch, TemporaryDirectory(prefix="pgtail-verify-") as spool:
            with StderrThread(quiet=self.options.verbosity.quiet) as stderr:
                with self.interrupt.raising():
                    base = begin(self.out, scratch / "state")
                    known, plan = self._plan(base)
                for warning in plan.warnings:
                    logger.warning(warning)
                publisher = Publisher(plan, self.connector, self.interrupt, SlotProgress(), stderr.show_status)
                copy = copy_server(publisher, known, is_copied, scratch, Path(spool), sample=self._sample)
                with self.interrupt.raising():
                    self._wait(copy.lsn, stderr.show_status)
            tables = self._compare(base, copy, scratch)
        compared, names = {one.relid for one in tables}, {(one.schema, one.table) for one in tables}
        for name in base.names(lambda relid: relid not in compared):
            if name not in names and self._is_selected(*name, base):
                logger.info(f"{escape('.'.join(name))} is in the state, and not published: it was not compared")
        slot = known.head.get(SLOT)
        if slot is None:
            return copy.lsn, tables, roots, "pgtail record"
        return copy.lsn, tables, roots, f"pgtail record -S {shell_word(slot)} -D {shell_word(known.directory)}"

    @property
    def _sample(self) -> int | None:
        """Millionths of the keys; None for all."""
        return None if self.options.sample == 100 else round(self.options.sample * 10_000)

    # -- before --------------------------------------------------------------------------------------------------

    def _plan(self, base: Base) -> tuple[RecordedCapture, Plan]:
        """What was recorded of the server, and what is to be copied of it now."""
        from pgtail.arrow.segments.survey import server_in

        reaches = {place: self._reach(place) for place in self.captures}
        last = max(reaches, key=lambda place: reaches[place].position)
        position = max(reaches[last].position, base.notes.reach.position)
        known = RecordedCapture(last, position, reaches[last].head)
        for place, found in reaches.items():
            if base.plan.server not in ("", server_in(found.head)):
                raise InputError(
                    "is of another server or database than the state: name the captures that it is made of",
                    source=place,
                )
        names = self.options.publications or _publications(reaches)
        with self.connector.ordinary() as connection:
            plan = prepare(Request(publications=names, tables=self.options.tables), connection)
            check_operations(connection, plan.options.publications)
        recorded = known.head.get(_DATABASE, plan.server.database)
        if recorded != plan.server.database:
            raise OptionError(
                f"{last} was recorded from database {escape(str(recorded))}, not {escape(plan.server.database)}:"
                " connect to that database"
            )
        return known, plan

    def _reach(self, place: str) -> Reach:
        found = reach_of(locate(place, self.options.storage).absolute())
        if DUMPS in found.head:
            raise InputError("was made from dumps: no recorder continues it up to the server's position", source=place)
        return found

    def _is_selected(self, schema: str, table: str, base: Base) -> bool:
        """Whether a table is selected, and can be in the state."""
        return all(selected(schema, table, globs) for globs in (self.options.tables, base.plan.tables))

    def _wait(self, lsn: int, show_status: Callable[[Sequence[str]], None] | None) -> None:
        """Wait until every capture is complete up to the position. Raises InputError after --timeout."""
        begun, due = time.monotonic(), 0.0
        while behind := [(place, at) for place in self.captures if (at := self._reach(place).position) < lsn]:
            place, at = behind[0]
            words = f"{place} is complete up to {lsn_text(at)}, not yet {lsn_text(lsn)}"
            waited = time.monotonic() - begun
            if waited >= self.options.timeout:
                raise InputError(
                    f"{words}, after {seconds_text(int(waited))} (--timeout): does pgtail record run? It closes a"
                    " segment after --segment-age"
                )
            line = f"waiting for captures: {words}; pgtail record has to run, and close a segment (--segment-age)"
            if show_status is not None:
                show_status([line])
            elif waited >= due:
                logger.log(DETAIL if due else SUMMARY, line)
                due += _LINE_EVERY
            time.sleep(_PAUSE)

    # -- in Spark ------------------------------------------------------------------------------------------------

    def _compare(self, base: Base, copy: ServerCopy, scratch: Location) -> list[VerifiedTable]:
        verbose = self.options.verbosity.verbose
        progress = SparkProgress(self.options.verbosity)
        with Stoppable(end_jvm) as stop:
            try:
                started = session(self.options.master, self.conf, quiet=not verbose)
                with progress.shown(), started as spark, progress.counting(spark):
                    return self._in_spark(spark, base, copy, scratch, progress)
            except Exception:
                if stop.asked:
                    raise KeyboardInterrupt from None
                raise

    def _in_spark(
        self, spark: Any, base: Base, copy: ServerCopy, scratch: Location, progress: SparkProgress
    ) -> list[VerifiedTable]:
        from pgtail.spark.lake.update import Lake
        from pgtail.spark.state.update import update_state
        from pgtail.spark.verify.tables import compare_tables

        storage = self.options.storage
        state = Lake(
            spark,
            str(scratch / "state"),
            tables=base.plan.tables,
            snapshot_changes=base.plan.snapshot_changes,
            context=base.plan.context,
            storage=storage,
            show_task=progress.show_task,
        )
        state.update(self.captures, typed=True)
        for text in update_state(state, Settings(until=copy.lsn - 1, ddl=base.notes.ddl)).stopped:
            logger.error(text)
        return compare_tables(state, copy.capture, sample=self._sample)


def _publications(reaches: Mapping[str, Reach]) -> tuple[str, ...]:
    """The publications that the captures name. Raises OptionError if there are none, or others in each."""
    named = {place: found.head.get(_PUBLICATIONS, "") for place, found in reaches.items()}
    if len({*named.values()}) > 1 or not all(named.values()):
        words = "; ".join(f"{place}: {names or 'none'}" for place, names in named.items())
        raise OptionError(f"the captures do not name the same publications ({words}): name those to compare (-P NAME)")
    return tuple(next(iter(named.values())).split(","))
