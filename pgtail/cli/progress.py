"""Floor 7, how far a long file has been read: one line on a terminal's standard error, gone at the end."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pgtail.inputs.source import Source
    from pgtail.pipeline import Pipeline

SMALL = 16 << 20
"""Bytes up to which a file is read before anybody could look."""


def wanted(file: str | None) -> bool:
    """Whether somebody looks at standard error, and the output (None: standard output) goes elsewhere."""
    elsewhere = file not in (None, "-") or (sys.stdout is not None and not sys.stdout.isatty())
    return elsewhere and sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


@contextlib.contextmanager
def progress(source: Source, pipeline: Pipeline) -> Iterator[None]:
    """Show it while the body runs; nothing for a small file, or where nobody knows how long it is."""
    if source.size is None or source.size < SMALL:
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
    from rich.text import Text

    from pgtail.outputs.escape import escape

    class Rate(ProgressColumn):
        """Rows per second since the beginning."""

        def render(self, task: Task) -> Text:
            elapsed = time.monotonic() - started
            return Text(f"{(pipeline.rows - rows) / max(elapsed, 0.001):,.0f} rows/s")

    class Reading(Progress):
        """Looks at the source whenever it is drawn: reading itself knows nothing of it."""

        def get_renderables(self) -> Iterator[object]:  # type: ignore[override]
            for task in self.tasks:
                self.update(task.id, completed=source.consumed)
            yield from super().get_renderables()

    started, rows = time.monotonic(), pipeline.rows
    name = TextColumn("{task.description}", markup=False)
    columns = (name, BarColumn(), DownloadColumn(binary_units=False), Rate(), TimeRemainingColumn(compact=True))
    with Reading(*columns, console=Console(stderr=True), transient=True, refresh_per_second=5) as shown:
        shown.add_task(escape(os.path.basename(source.name))[-30:], total=source.size)
        yield
