"""`pgtail spark`: brings OUT/changes up to date, then the datasets made from it, once or until Ctrl-C.

Modules that import pyspark or pyarrow are imported in functions: check_installed() runs before, and says what is
missing.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pgtail.commands.progress import has_bar
from pgtail.commands.stderr import say
from pgtail.errors import OptionError
from pgtail.files.stopping import Stoppable
from pgtail.humanize import counted
from pgtail.pgoutput.scalars import lsn_text
from pgtail.spark.datasets.manifest import Output
from pgtail.spark.folding.settings import Settings, until_of
from pgtail.spark.session import check_installed, end_jvm, session
from pgtail.terminal.escape import escape
from pgtail.terminal.restore import SHOW_CURSOR, restored, write_if_taken

if TYPE_CHECKING:
    from pgtail.spark.datasets.update import Update
    from pgtail.spark.folding.apply import Applied

Dataset = Literal["tables", "state", "history"]
Step = Callable[[Any, Callable[[str], None]], str]
"""Brings a dataset up to date: (session, called with what is under way) -> the result in words."""


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """What the options of a `pgtail spark` command say; each command sets those that it has. Times are in seconds."""

    captures: Sequence[str]
    out: str
    stored_as: str = "parquet"
    tables: Sequence[str] = ()
    compact: bool = False
    variant: bool = False
    until: str | None = None
    allow_gap: bool = False
    retain: float = 3600
    watch: bool = False
    every: float = 60
    master: str = "local[*]"
    conf: Sequence[str] = ()
    verbose: int = 0


def captures_and_out(places: Sequence[str]) -> tuple[list[str], str]:
    """The arguments: captures, and last where to write. Raises OptionError if there is only one."""
    if len(places) < 2:
        raise OptionError("expected CAPTURE... OUT: at least one capture, and where to write")
    return list(places[:-1]), places[-1]


def run(options: SparkOptions, datasets: Sequence[Dataset] = ()) -> None:
    """Bring OUT/changes and then `datasets` up to date, with --watch again and again. Raises PgtailError."""
    if options.watch and options.compact:
        raise OptionError("--watch does not end, and --compact is done at the end: run it separately")
    if options.watch and options.until is not None:
        raise OptionError("--watch does not end, and --until is an end: use one of them")
    steps = [_step(dataset, options) for dataset in datasets]
    with _stoppable():
        output = Output(options.out)  # raises before Spark starts if it cannot be written to
        progress = SparkProgress(options.verbose)
        with spark_session(options) as spark, progress.shown(spark):
            _update(spark, options, output, steps, progress.tell)


def _update(
    spark: Any, options: SparkOptions, output: Output, steps: Sequence[Step], tell: Callable[[str], None]
) -> None:
    from pgtail.spark.datasets.update import Datasets
    from pgtail.spark.datasets.watch import watch

    def follow() -> None:
        for step in steps:
            say(escape(step(spark, tell)))

    def updated(update: Update) -> None:
        _say_update(update)
        follow()

    changes = Datasets(spark, options.out, stored_as=options.stored_as, tables=options.tables, tell=tell)
    if not options.watch:
        updated(changes.update(options.captures))
        if options.compact:
            say(f"{changes.compact()} batches of small files were merged into one")
        return
    if output.read() is not None:
        follow()  # the last run may have been stopped between the changes and these steps
    watch(spark, options.captures, changes, every=f"{options.every * 1000:.0f} milliseconds", done=updated)


def _step(dataset: Dataset, options: SparkOptions) -> Step:
    """The step that brings a dataset up to date. Raises OptionError."""
    if dataset == "tables":
        return lambda spark, tell: _update_tables(spark, options, tell)
    try:
        until = None if options.until is None else until_of(options.until)
    except OptionError as error:
        raise OptionError(f"--until {error}") from None
    settings = Settings(
        history=dataset == "history",
        until=until,
        allow_gap=options.allow_gap,
        wait=options.watch,
        retain=options.retain,
    )
    return lambda spark, tell: _update_state(spark, options.out, settings, tell)


def _update_tables(spark: Any, options: SparkOptions, tell: Callable[[str], None]) -> str:
    from pgtail.spark.datasets.tables import TypedTables

    count = TypedTables(spark, options.out, variant=options.variant, tell=tell).update()
    return f"tables: new rows of {counted(count, 'table')}"


def _update_state(spark: Any, out: str, settings: Settings, tell: Callable[[str], None]) -> str:
    from pgtail.spark.folding.update import update_state

    return _summary("history" if settings.history else "state", update_state(spark, out, settings, tell))


def _summary(kind: str, applied: Applied) -> str:
    parts = [f"{kind}: {counted(applied.changes, 'change')} applied, up to {lsn_text(max(applied.behind[0], 0))}"]
    parts += [f"the gap before {gap['before']} was skipped" for gap in applied.gaps]
    parts += [f"relation {oid} was never described: {kind} has none of its rows" for oid in applied.unknown_tables]
    if applied.waiting is not None:
        parts.append(f"waiting for {applied.waiting.what}")
    return "; ".join(parts)


def _say_update(update: Update) -> None:
    for note in update.notes:
        say(escape(f"note: {note}"))
    say(counted(update.segments, "new segment"))


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
    say("stopped: what was written stays, and the same command continues from there")


@contextlib.contextmanager
def spark_session(options: SparkOptions) -> Iterator[Any]:
    """The session that the options describe; it and its JVM end with the body. Raises OptionError."""
    check_installed()
    with session(options.master, _conf(options.conf), quiet=not options.verbose) as started:
        yield started


def _conf(texts: Sequence[str]) -> dict[str, str]:
    """The settings of --conf. Raises OptionError."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise OptionError(f"--conf {text}: expected NAME=VALUE")
        found[name] = value
    return found


class SparkProgress:
    """Shows what is under way: as a bar of Spark's tasks on a terminal, as lines with -v."""

    def __init__(self, verbose: int) -> None:
        self.verbose = verbose
        self.text = ""

    def tell(self, text: str) -> None:
        """Set what is under way now."""
        self.text = text
        if self.verbose:
            say(escape(text))

    @contextlib.contextmanager
    def shown(self, spark: Any) -> Iterator[None]:
        """Show a bar while the body runs, and erase it. Spark is polled whenever the bar is drawn."""
        if self.verbose or not has_bar():
            yield
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        progress, tracker = self, spark.sparkContext.statusTracker()

        class Tasks(Progress):
            """Polls Spark when it is drawn, at most twice a second."""

            polled = 0.0

            def get_renderables(self) -> Iterator[object]:  # type: ignore[override]
                now = time.monotonic()
                if now >= self.polled + 0.5:
                    self.polled = now
                    done, total = _tasks(tracker)
                    for task in self.tasks:
                        self.update(task.id, description=progress.text, completed=done, total=total or None)
                yield from super().get_renderables()

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        bar = Tasks(*columns, console=Console(stderr=True), transient=True, refresh_per_second=2)
        bar.add_task("starting")
        fd = sys.stderr.fileno()
        with restored(lambda: write_if_taken(fd, SHOW_CURSOR)), bar:
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
