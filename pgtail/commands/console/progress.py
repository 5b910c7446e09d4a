"""A progress bar for long files, on standard error if it is a terminal; it disappears at the end."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from pgtail.commands.console.messages import is_dumb
from pgtail.commands.console.styling import is_pipe
from pgtail.humanize import grouped
from pgtail.terminal.escape import escape
from pgtail.terminal.restore import SHOW_CURSOR, restored, write_if_taken

SMALL = 16 << 20
"""Bytes up to which no progress is shown: such a file takes no time."""


class Consumed(Protocol):
    """A source of `size` bytes, None if that is not known, of which `consumed` were read."""

    @property
    def name(self) -> str: ...
    @property
    def size(self) -> int | None: ...
    @property
    def consumed(self) -> int: ...


def has_bar(*, quiet: bool) -> bool:
    """Whether standard error is a terminal on which a bar can be drawn; not with -q (`quiet`)."""
    terminal = sys.stderr is not None and sys.stderr.isatty() and not is_dumb()
    return terminal and not quiet


def _may_reach_terminal() -> bool:
    """Whether standard output may appear on a terminal."""
    try:
        return sys.stdout is None or sys.stdout.isatty() or is_pipe(sys.stdout.fileno())
    except OSError:
        return True


@contextlib.contextmanager
def progress(
    source: Consumed, file: str | None, done: Callable[[], int], unit: str, *, quiet: bool = False
) -> Iterator[None]:
    """Show progress while the body runs, and how many `unit` per second are `done`.

    Nothing for a small file or one of unknown size, and if the output (`file`; None: standard output) is a terminal, or
    a pipe, whose reader probably writes to it.
    """
    elsewhere = file not in (None, "-") or not _may_reach_terminal()
    if source.size is None or source.size < SMALL or not (elsewhere and has_bar(quiet=quiet)):
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, ProgressColumn, Task, TextColumn, TimeRemainingColumn
    from rich.text import Text

    from pgtail.commands.console.progress_bar import Bar

    class Rate(ProgressColumn):
        """How many per second since the start."""

        def render(self, task: Task) -> Text:
            elapsed = time.monotonic() - started
            return Text(f"{grouped(int((done() - before) / max(elapsed, 0.001)))} {unit}/s")

    class Reading(Bar):
        """Asks the source for its position when it is drawn, so that reading costs nothing more."""

        def update_task(self, task: Task) -> None:
            self.update(task.id, completed=source.consumed)

    started, before = time.monotonic(), done()
    name = TextColumn("{task.description}", markup=False)
    columns = (name, BarColumn(), DownloadColumn(binary_units=False), Rate(), TimeRemainingColumn(compact=True))
    fd = sys.stderr.fileno()
    with (
        restored(lambda: write_if_taken(fd, SHOW_CURSOR)),
        Reading(*columns, console=Console(stderr=True), transient=True, refresh_per_second=5) as shown,
    ):
        shown.add_task(escape(os.path.basename(source.name))[-30:], total=source.size)
        yield
