"""Whether the input of decode or stats is divided among processes (--jobs), and among how many."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from pgtail.capture.format import CLOSED
from pgtail.commands.output import why_in_order
from pgtail.commands.sinks import FileSink
from pgtail.native import compiled
from pgtail.storage import is_uri

if TYPE_CHECKING:
    from pgtail.commands.decode import Decode
    from pgtail.commands.decode_parts import PartsDecoder
    from pgtail.commands.directory_sink import DirectorySink
    from pgtail.commands.options import DecodeOptions

_SMALL: Final = 8 << 20
"""Bytes of a capture's segments from which on it is divided by default: what is in them is several times as large."""
LARGE: Final = 64 << 20
"""Bytes of a file from which on it is divided by default."""
_MOST: Final = 4
"""Processes by default: the machine may be the server's."""


def divided(decode: Decode, files: tuple[str, ...], target: FileSink | DirectorySink) -> PartsDecoder | None:
    """What decodes these files in several processes, if their content allows it; None: one process does."""
    options = decode.options
    if options.jobs is None and not _is_worth_it(files, options, counts=decode.stats is not None):
        return None
    count = options.jobs or min(_cores(), _MOST)
    if count == 1:
        return None
    from pgtail.commands.decode_parts import CaptureParts, DumpParts, Parts, PartsDecoder, tell_one
    from pgtail.commands.turn import TurnSink

    why = _why_one(files, options) or (None if decode.stats is not None else why_in_order(options.format))
    if why is not None or not isinstance(target, FileSink):
        if options.verbosity.verbose:
            tell_one(why or "the output is a file for each table")
        return None
    parts: Parts
    if os.path.isfile(files[0]) and len(files) == 1:
        parts = DumpParts(decode, files[0])
    else:
        parts = CaptureParts(decode, files, known_late=is_uri(files[0]))
    if decode.stats is None:
        return PartsDecoder(decode, parts, count, TurnSink(target))
    from pgtail.commands.turn_stats import TurnStats

    counts = TurnStats(target, decode.stats, decode.types)
    return PartsDecoder(decode, parts, count, counts, counts.join)


def _why_one(files: tuple[str, ...], options: DecodeOptions) -> str | None:
    """Why one process must read these files; None if that depends on their content."""
    if compiled() is None:
        return "the compiled scanner, which finds the parts, was not built"
    if options.follow:
        return "a capture that is followed has no end"
    return _why_not_these(files)


def _why_not_these(files: tuple[str, ...]) -> str | None:
    remote = [name for name in files if is_uri(name)]
    if len(files) > 1 and not all(name.endswith(CLOSED) for name in files):
        return "several files are one stream"
    if len(files) == 1 and files[0].endswith(CLOSED):
        return "it is one segment"
    if len(files) == 1 and not (remote or os.path.isfile(files[0]) or os.path.isdir(files[0])):
        return "it is a pipe"
    if any(name.lower().startswith("hdfs:") for name in remote):
        return "HDFS is read by one process"
    if remote and _store_in_use():
        return "the object store was read before"
    return None


def _store_in_use() -> bool:
    """Whether this process has read an object store: the library has threads then, which a new process would lack."""
    objects = sys.modules.get("pgtail.storage.objects")
    return objects is not None and objects.in_use()


def _is_worth_it(files: tuple[str, ...], options: DecodeOptions, *, counts: bool) -> bool:
    """Whether to divide these files if nobody says so; `counts`: they are only counted.

    What is in an object store is not known before it is read.
    """
    if options.limit is not None:
        return False  # to reach it may take less time than to start processes
    if any(map(is_uri, files)):
        return len(files) > 1 or not files[0].endswith(CLOSED)
    try:
        if os.path.isfile(files[0]) and len(files) == 1:
            given = options.filter
            if counts or given.tables or given.exclude or given.ops or given.xids or given.where:
                return False  # finding the parts, or joining the counts, takes about as long as what is saved
            return os.stat(files[0]).st_size >= LARGE
        return _has(_SMALL, files)
    except OSError:
        return False


def _has(size: int, names: tuple[str, ...]) -> bool:
    """Whether the segments of a capture, or these, have so many bytes. Raises OSError."""
    if len(names) == 1:
        names = tuple([entry.path for entry in os.scandir(names[0]) if entry.name.endswith(CLOSED)])
    for name in names:
        size -= os.stat(name).st_size
        if size <= 0:
            return True
    return False


def _cores() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
