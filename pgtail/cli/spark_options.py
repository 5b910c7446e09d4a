"""Floor 7, what the commands of `pgtail spark` have in common: options, the session, and how far it has come."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

import click

from pgtail.cli.options import in_order, verbose_option
from pgtail.errors import OptionError

F = TypeVar("F", bound=Callable[..., Any])

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}


def duration(text: str) -> int:
    """Seconds of 30s, 1m or 2h. Raises BadParameter."""
    match = re.fullmatch(r"([1-9]\d{0,5})([smh])", text)
    if match is None:
        raise click.BadParameter(f"{text!r} is not a time such as 30s, 1m or 2h")
    return int(match[1]) * _SECONDS[match[2]]


def spark_options(function: F) -> F:
    """Which Spark, and how: `master`, `conf`, `verbose`."""
    return in_order(
        [
            click.option(
                "--master",
                default="local[*]",
                show_default=True,
                metavar="URL",
                help="Where Spark runs: this machine's cores, or a cluster (yarn, spark://host:7077, k8s://...).",
            ),
            click.option(
                "--conf",
                multiple=True,
                metavar="NAME=VALUE",
                help="A setting of Spark's, such as spark.driver.memory=8g. Repeatable.",
            ),
            verbose_option,
        ]
    )(function)


def watch_options(function: F) -> F:
    """Whether to follow growing captures: `watch`, `every`."""
    return in_order(
        [
            click.option("--watch", is_flag=True, help="Go on with what is recorded, until Ctrl-C."),
            click.option(
                "--every",
                type=duration,
                default="1m",
                show_default=True,
                metavar="TIME",
                help="With --watch: look for closed segments so often (30s, 1m, 2h).",
            ),
        ]
    )(function)


def captures_and_out(places: Sequence[str]) -> tuple[list[str], str]:
    """The last of the arguments is where to write. Raises OptionError where there is only one."""
    if len(places) < 2:
        raise OptionError("expected CAPTURE... OUT: at least one capture, and where to write")
    return list(places[:-1]), places[-1]


def settings(texts: Sequence[str]) -> dict[str, str]:
    """The settings that --conf gives. Raises OptionError."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise OptionError(f"--conf {text}: expected NAME=VALUE")
        found[name] = value
    return found


@contextlib.contextmanager
def spark_session(options: dict[str, Any]) -> Iterator[Any]:
    """The session that the options ask for; it and its JVM end with the body. Raises OptionError."""
    from pgtail.cli.settings import refuse_masks
    from pgtail.spark.session import check_installed, session

    refuse_masks("pgtail spark")
    check_installed()
    with session(options["master"], settings(options["conf"]), quiet=not options["verbose"]) as started:
        yield started


class Telling:
    """Tells what is under way: on a terminal a bar of Spark's tasks, gone at the end; with -v lines."""

    def __init__(self, verbose: int) -> None:
        self.verbose = verbose
        self.words = ""

    def tell(self, words: str) -> None:
        """What is under way now."""
        from pgtail.cli.standard import say
        from pgtail.outputs.escape import escape

        self.words = words
        if self.verbose:
            say(escape(words))

    @contextlib.contextmanager
    def shown(self, spark: Any) -> Iterator[None]:
        """Show it while the body runs. Spark tells of itself only when asked: it is asked whenever the bar is drawn."""
        terminal = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        if self.verbose or not terminal:
            yield
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        telling, tracker = self, spark.sparkContext.statusTracker()

        class Tasks(Progress):
            """Looks at Spark whenever it is drawn, and not more often than twice a second."""

            asked = 0.0

            def get_renderables(self) -> Iterator[object]:  # type: ignore[override]
                now = time.monotonic()
                if now >= self.asked + 0.5:
                    self.asked = now
                    done, total = _tasks(tracker)
                    for task in self.tasks:
                        self.update(task.id, description=telling.words, completed=done, total=total or None)
                yield from super().get_renderables()

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        bar = Tasks(*columns, console=Console(stderr=True), transient=True, refresh_per_second=2)
        bar.add_task("starting")
        with bar:
            yield


def _tasks(tracker: Any) -> tuple[int, int]:
    """How many tasks of the stages under way are done, and how many there are; none where Spark does not answer."""
    done = total = 0
    with contextlib.suppress(Exception):
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info is not None:
                done, total = done + info.numCompletedTasks, total + info.numTasks
    return done, total
