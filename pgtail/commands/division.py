"""Whether the input of decode is divided among processes (--jobs), and among how many."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from pgtail.commands.options import DecodeOptions
from pgtail.commands.output import why_in_order
from pgtail.commands.sinks import FileSink
from pgtail.inputs.base import Input
from pgtail.inputs.source.file import Source
from pgtail.native import compiled
from pgtail.records import Record
from pgtail.storage import is_uri

if TYPE_CHECKING:
    from pgtail.commands.directory_sink import DirectorySink

_MOST: Final = 4
"""Processes by default: the machine may be the server's."""


class Decoded(Record, frozen=False):
    """How much of a source was decoded, for the progress bar."""

    name: str
    size: int | None
    consumed: int = 0
    rows: int = 0


def processes(options: DecodeOptions) -> int:
    """How many processes are asked for, or make sense for a large file."""
    return options.jobs or min(_cores(), _MOST)


def why_one(files: tuple[str, ...], options: DecodeOptions, target: FileSink | DirectorySink) -> str | None:
    """Why one process must decode these files; None if that depends on their content."""
    if compiled() is None:
        return "the compiled scanner, which finds the parts, was not built"
    if len(files) != 1:
        return "several files are one stream"
    if not os.path.isfile(files[0]) or is_uri(files[0]):
        return "only a local file is divided"
    if not isinstance(target, FileSink):
        return "the output is a file for each table"
    if options.limit is not None:
        return "-n counts what is shown"
    return why_in_order(options.format)


def why_whole(source: Source, input_: Input) -> str | None:
    """Why an input cannot be divided; None if it can."""
    if not source.plain:
        return "it is compressed" if source.compressed else "it is a pipe"
    if input_.framing is None or input_.name == "pgcap":
        return f"the form {input_.name} is not divided"
    return None


def _cores() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
