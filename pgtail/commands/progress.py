"""A progress bar for long files, on standard error if it is a terminal; it disappears at the end."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator

from pgtail.commands import stderr
from pgtail.inputs.source.file import Source
from pgtail.pipeline.pipeline import Pipeline
from pgtail.terminal.escape import escape
from pgtail.terminal.restore import SHOW_CURSOR, restored, write_if_taken

SMALL = 16 << 20
"""Bytes up to which no progress is shown: such a file takes no time."""


def wants_progress(file: str | None) -> bool:
    """Whether standard error is a terminal, and the output (None: standard output) is not; not with -q."""
    if stderr.quiet_mode:
        return False
    elsewhere = file not in (None, "-") or (sys.stdout is not None and not sys.stdout.isatty())
    return elsewhere and sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


@contextlib.contextmanager
def progress(source: Source, pipeline: Pipeline) -> Iterator[None]:
    """Show progress while the body runs; nothing for a small file or one of unknown size."""
    if source.size is None or source.size < SMALL:
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        """Rows per second since the start."""

        def render(self, task: Task) -> Text:
            elapsed = time.monotonic() - started
            return Text(f"{(pipeline.rows - rows) / max(elapsed, 0.001):,.0f} rows/s")

    class Reading(Progress):
        """Asks the source for its position at each refresh, so that reading costs nothing more."""

        def get_renderables(self) -> Iterator[object]:  # type: ignore[override]
            for task in self.tasks:
                self.update(task.id, completed=source.consumed)
            yield from super().get_renderables()

    started, rows = time.monotonic(), pipeline.rows
    name = TextColumn("{task.description}", markup=False)
    columns = (name, BarColumn(), DownloadColumn(binary_units=False), Rate(), TimeRemainingColumn(compact=True))
    fd = sys.stderr.fileno()
    with (
        restored(lambda: write_if_taken(fd, SHOW_CURSOR)),
        Reading(*columns, console=Console(stderr=True), transient=True, refresh_per_second=5) as shown,
    ):
        shown.add_task(escape(os.path.basename(source.name))[-30:], total=source.size)
        yield
