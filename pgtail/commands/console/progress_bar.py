"""A progress bar on a terminal. Only imported where one is shown, because it imports rich."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.progress import Progress, Task

_FREE = 3
"""Columns to the right of the bar. The terminal shows ^C there, and the cursor stays on the line that is erased."""


class Bar(Progress):
    """Erased at the end."""

    def update_task(self, task: Task) -> None:
        """Update the task; called whenever the bar is drawn."""
        raise NotImplementedError

    def get_renderables(self) -> Iterator[RenderableType]:
        for task in self.tasks:
            self.update_task(task)
        yield from map(_Narrower, super().get_renderables())


class _Narrower(Struct):
    shown: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from console.render(self.shown, options.update_width(max(options.max_width - _FREE, 1)))
