"""`pgtail spark`: brings OUT/changes up to date, then the datasets made from it, once or until Ctrl-C.

Modules that import pyspark or pyarrow are imported in functions: check_installed() runs before, and says what is
missing.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from pgtail import __version__
from pgtail.capture.lock import has_segments
from pgtail.commands.console.progress import has_bar
from pgtail.commands.options.common import NOT_DONE, Verbosity
from pgtail.commands.options.spark import CatalogOptions, SparkOptions, VacuumOptions
from pgtail.commands.output.file_sink import put
from pgtail.commands.service.service import Service
from pgtail.errors import OptionError
from pgtail.files.stopping import Stoppable
from pgtail.humanize import counted, seconds_text, size_text
from pgtail.log import event, log_outcome, logger
from pgtail.pgoutput.scalars import lsn_text
from pgtail.service.progress import LakeProgress
from pgtail.spark.session import check_installed, end_jvm, session
from pgtail.spark.state.settings import Settings, bound_of
from pgtail.storage import locate_target
from pgtail.terminal.escape import escape
from pgtail.terminal.keys import Keys
from pgtail.terminal.restore import SHOW_CURSOR, restored, write_if_taken

if TYPE_CHECKING:
    from pgtail.spark.lake.update import Lake, Update
    from pgtail.spark.state.update import Applied

Dataset = Literal["tables", "state", "history"]
_OFTEN: Final = 64
"""With --watch: batches from one merging of small files to the next."""


def captures_and_out(places: Sequence[str]) -> tuple[list[str], str]:
    """The arguments: captures, and last where to write. Raises OptionError if there is only one."""
    if len(places) < 2:
        raise OptionError("expected CAPTURE... OUT: at least one capture, and where to write")
    return list(places[:-1]), places[-1]


def run(options: SparkOptions, datasets: Sequence[Dataset] = ()) -> bool:
    """Bring OUT/changes and then `datasets` up to date, with --watch again and again. Returns whether some tables are
    stopped. Raises PgtailError."""
    if options.watch and options.compact:
        raise OptionError("--watch merges small files by itself: leave --compact out")
    if options.service.max_lag is not None and options.service.max_lag.bytes is not None:
        raise OptionError("--max-lag is a time here, such as 5m: how long ago everything in the captures was applied")
    if options.watch and options.until is not None:
        raise OptionError("--watch does not end, and --until is an end: use one of them")
    kept = [_settings(dataset, options) for dataset in datasets if dataset != "tables"]
    conf = conf_of(options.conf)
    check_installed()
    from pgtail.spark.segments.listing import places_of

    with _stoppable():
        out = locate_target(options.out, options.storage).path
        if out is not None and has_segments(out):
            raise OptionError(f"{options.out} is a capture; captures are named first, and last where to write")
        for capture in options.captures:
            places_of(capture, options.storage)  # what is not there is an error before Spark starts
        verbose = options.verbosity.verbose
        progress = SparkProgress(options.verbosity, watch=options.watch)
        started = session(options.master, conf, quiet=not verbose)
        stopped = list[str]()
        info = {"command": "spark", "version": __version__, "out": options.out}
        with (
            Service(options.service, progress.lake, info),
            progress.shown(),
            started as spark,
            progress.counting(spark),
        ):
            _update(spark, options, kept, progress, stopped, typed=bool(datasets))
    return bool(stopped)


def _update(
    spark: Any,
    options: SparkOptions,
    kept: Sequence[Settings],
    progress: SparkProgress,
    stopped: list[str],
    *,
    typed: bool,
) -> None:
    """`stopped` says what stopped tables, and is reported when it changes."""
    from pgtail.spark.lake.compact import compact
    from pgtail.spark.lake.update import Lake

    lake = Lake(
        spark,
        options.out,
        tables=options.tables,
        snapshot_changes=not options.no_snapshot_changes,
        context=options.context,
        storage=options.storage,
        show_task=progress.show_task,
        progress=progress.lake,
    )
    while True:
        began, batch = time.monotonic(), lake.plan.batch
        update = lake.update(options.captures, typed=typed)
        if update.batches or not options.watch:
            _report_update(update)
        applied = [_update_state(lake, settings, options) for settings in kept]
        waiting = [
            f"{settings.kind} waits for {one.waiting.what}"
            if one.waiting is not None
            else next((text.splitlines()[0] for text in one.stopped), None)
            for settings, one in zip(kept, applied, strict=True)
        ]
        for text in (now := [text for one in applied for text in one.stopped]):
            if text not in stopped:
                logger.error(text)
        stopped[:] = now
        progress.updated(began, waiting)
        merged = compact(lake) if options.compact or batch // _OFTEN < lake.plan.batch // _OFTEN else 0
        if merged or options.compact:
            log_outcome(f"{counted(merged, 'small file')} merged into larger ones")
        if not options.watch:
            return
        progress.wait(lake.newest())
        time.sleep(max(options.every - (time.monotonic() - began), 0))


def _settings(dataset: Dataset, options: SparkOptions) -> Settings:
    """How a state or history is to be kept. Raises OptionError."""
    return Settings(
        history=dataset == "history",
        until=None if options.until is None else bound_of(options.until),
        allow_gap=options.allow_gap,
        ddl=options.ddl,
        wait=options.watch,
        retain=options.retain,
    )


def _update_state(lake: Lake, settings: Settings, options: SparkOptions) -> Applied:
    from pgtail.spark.state.update import update_state

    applied = update_state(lake, settings)
    if applied.changes or applied.waiting is not None or not options.watch:
        text = _summary(settings.kind, applied, verbose=options.verbosity.verbose > 0)
        log_outcome(escape(text), extra=event("applied"))
    for text in applied.passed:
        logger.info(escape(text))
    changes = lake.progress.changes
    changes[settings.kind] = changes.get(settings.kind, 0) + applied.changes
    return applied


def vacuum(out: str, options: VacuumOptions) -> None:
    """Show which files of `out` nobody needs any more; with --delete remove them. Raises PgtailError."""
    check_installed()
    from pgtail.spark.lake.compact import vacuum as expired

    delete = options.delete and not options.dry_run
    found = expired(locate_target(out, options.storage), delete=delete)
    for path in found if options.verbosity.verbose or not delete else ():
        log_outcome(escape(path))
    done = "removed" if delete else "would be removed" + ("" if options.delete else " with --delete")
    log_outcome(f"{counted(len(found), 'file')} {done}")
    if options.dry_run:
        log_outcome(NOT_DONE)


def print_statements(out: str, options: CatalogOptions) -> None:
    """Print the statements that register the tables of `out`. Raises PgtailError."""
    check_installed()
    from pgtail.spark.lake.registration import statements

    for text in statements(locate_target(out, options.storage), options.engine):
        put(text)


def _summary(kind: str, applied: Applied, *, verbose: bool) -> str:
    last = max(applied.end.transactions_before, 0)
    parts = [f"{kind}: {counted(applied.changes, 'change')} applied, up to {lsn_text(last)}"]
    if verbose:
        parts.append(f"{size_text(applied.rewritten)} written")
    parts += [f"the gap before {gap['before']} was skipped" for gap in applied.gaps]
    if applied.begun_pruned:
        tables = ", ".join(applied.begun_pruned)
        parts.append(f"{tables}: only what was written since the capture was pruned, and no snapshot before that")
    if applied.waiting is not None:
        parts.append(f"waiting for {applied.waiting.what}")
    return "; ".join(parts)


def _report_update(update: Update) -> None:
    for note in update.notes:
        logger.info(escape(note))
    copied = f", {counted(update.snapshots, 'new snapshot')} of tables" if update.snapshots else ""
    text = f"{counted(update.segments, 'new segment')}{copied}"
    counts = {"segments": update.segments, "snapshots": update.snapshots, "batches": update.batches}
    log_outcome(text, extra=event("updated", **counts))


@contextlib.contextmanager
def _stoppable() -> Iterator[None]:
    """Around a session: a request to stop ends its JVM, and is reported, whatever exception Spark makes of it."""
    with Stoppable(end_jvm) as stop:
        try:
            yield
            return
        except KeyboardInterrupt:
            pass
        except Exception:
            if not stop.asked:
                raise
    log_outcome("stopped: what was written stays, and the same command continues from there")


def conf_of(texts: Sequence[str]) -> dict[str, str]:
    """The settings of --conf. Raises OptionError."""
    conf = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise OptionError(f"--conf {text}: expected NAME=VALUE")
        conf[name] = value
    return conf


class SparkProgress:
    """Shows what is under way: as a bar of Spark's tasks on a terminal, as lines with -v."""

    def __init__(self, verbosity: Verbosity, *, watch: bool = False) -> None:
        self.verbose, self._quiet = verbosity.verbose, verbosity.quiet
        self._watch = watch
        self._newest: datetime | None = None
        """While nothing is under way: the newest commit that was applied."""
        self._text = "starting Spark"
        self._tracker: Any = None
        self.lake = LakeProgress()

    def updated(self, began: float, waiting: Sequence[str | None]) -> None:
        """An update that began at this time.monotonic() is complete, but for what is waited for."""
        missing, lake = next((one for one in waiting if one is not None), None), self.lake
        if missing is None:
            lake.target = None
            lake.updated(began)
        elif lake.target is None or lake.target.reason != missing:
            lake.target = lake.failed(time.monotonic(), missing)

    def show_task(self, text: str) -> None:
        """Set the task under way."""
        self._text, self._newest = escape(text), None
        self.lake.task = [text]
        if self.verbose:
            log_outcome(self._text)

    def wait(self, newest: datetime | None) -> None:
        """Show that nothing is under way, and how old the newest commit that was applied is."""
        self._text, self._newest = "waiting for new segments", newest
        self.lake.task = [self._text]

    @contextlib.contextmanager
    def counting(self, spark: Any) -> Iterator[None]:
        """Show the session's tasks while the body runs."""
        self._tracker = spark.sparkContext.statusTracker()
        try:
            yield
        finally:
            self._tracker, self._text = None, "stopping Spark"

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Show a bar while the body runs, messages above it, and erase it at the end.

        Spark is polled whenever the bar is drawn.
        """
        self.show_task(self._text)
        if self.verbose or not has_bar(quiet=self._quiet):
            yield
            return
        from rich.console import Console
        from rich.progress import BarColumn, Task, TextColumn, TimeElapsedColumn
        from rich.text import Text

        from pgtail.commands.console.progress_bar import Bar

        progress, keys = self, Keys()

        class Tasks(Bar):
            """Polls Spark when it is drawn."""

            def update_task(self, task: Task) -> None:
                done, total = _tasks(progress._tracker)
                task.description, task.completed, task.total = progress._text, done, total or None
                task.fields["tasks"] = f"{done}/{counted(total, 'task')}" if total else ""
                task.fields["tasks"] += " (q ends it)" if keys.active else ""

        class Share(BarColumn):
            """The bar; while nothing is under way the age of what was applied."""

            def render(self, task: Task) -> Any:
                if progress._newest is None:
                    return super().render(task)
                age = max(int(time.time() - progress._newest.timestamp()), 0)
                return Text(f"(lake is {seconds_text(age)} old)")

        text, tasks = TextColumn("{task.description}", markup=False), TextColumn("{task.fields[tasks]}", markup=False)
        fd = sys.stderr.fileno()
        # A descriptor of its own: while the JVM starts, that of standard error is a file.
        with open(os.dup(fd), "w", encoding=sys.stderr.encoding, errors="replace") as terminal:
            columns, console = (text, Share(), tasks, TimeElapsedColumn()), Console(file=terminal)
            bar = Tasks(*columns, console=console, transient=True, refresh_per_second=2)
            bar.add_task(self._text, total=None, tasks="")
            reading = keys.read() if self._watch else contextlib.nullcontext()
            with restored(lambda: write_if_taken(fd, SHOW_CURSOR)), reading, bar:
                yield


def _tasks(tracker: Any) -> tuple[int, int]:
    """How many tasks of the active stages are done, and how many there are; (0, 0) if Spark does not answer."""
    done = total = 0
    with contextlib.suppress(Exception):
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info is not None:
                done, total = done + info.numCompletedTasks, total + info.numTasks
    return done, total
