"""The style of output for people: whether it is on a terminal, the terminal's width, and its colours."""

from __future__ import annotations

import os
import stat
from typing import Final

from pgtail.commands.console.messages import is_dumb
from pgtail.commands.console.pager import terminal_output
from pgtail.commands.options.common import ReportOptions
from pgtail.terminal.style import Palette, palette

_WIDTH: Final = 100
"""Cells of a terminal of unknown width."""


def to_terminal(file: str | None = None) -> bool:
    """Whether output goes to a terminal; `file` is that of -f."""
    return file is None and terminal_output()


def wants_color(choice: str, *, terminal: bool) -> bool:
    """Whether to write colours for a --color of always, never or auto: then on a terminal without NO_COLOR."""
    if choice != "auto":
        return choice == "always"
    return terminal and not os.environ.get("NO_COLOR") and not is_dumb()


def report_palette(options: ReportOptions) -> Palette | None:
    """The colours of a report for people; None if it is to be JSON. Raises OptionError."""
    terminal = to_terminal(options.file)
    found = palette(color=wants_color(options.color, terminal=terminal), colors=options.colors)
    return found if options.output == "table" else None


def report_json(text: str, options: ReportOptions) -> str:
    """A report in JSON as it is written: as changes, in colours on a terminal only."""
    if not (to_terminal(options.file) and wants_color(options.color, terminal=True)):
        return text
    from pgtail.terminal.json_colors import colored

    return colored(text)


def is_pipe(fd: int) -> bool:
    """Whether a descriptor is a pipe. Raises OSError if it is closed."""
    return stat.S_ISFIFO(os.fstat(fd).st_mode)


def terminal_width() -> int:
    """The width of standard output's terminal in cells, in COLUMNS or measured, also after a resize.

    A pipe probably ends on the terminal of standard error.
    """
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    try:
        terminal = 2 if is_pipe(1) else 1
        return os.get_terminal_size(terminal).columns or _WIDTH
    except OSError:
        return _WIDTH
