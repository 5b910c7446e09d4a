"""`pgtail decode --jobs N`: several processes decode a capture, with the output of one. Here: whether, and how many."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from pgtail.commands.options.common import DecodeOptions
from pgtail.commands.output.build import is_in_order
from pgtail.commands.output.file_sink import FileSink
from pgtail.errors import OptionError
from pgtail.reading.names import folders

if TYPE_CHECKING:
    from pgtail.commands.output.directory_sink import DirectorySink
    from pgtail.commands.parallel.processes import ParallelReading

LARGE: Final = 8 << 20
"""Bytes of a capture from which on it is decoded on all cores by default: what is in them is several times as large."""


def parallel_reading(
    files: tuple[str, ...], options: DecodeOptions, sink: FileSink | DirectorySink
) -> ParallelReading | None:
    """The reader of a capture in several processes; None if one process decodes. Raises OptionError and InputError."""
    count = options.jobs or _cores()
    captures = list(folders(files, options.dump.storage)) if count > 1 else []
    if count == 1 or (len(files), len(captures)) != (1, 1):
        if options.jobs in (None, 1):
            return None
        raise OptionError(
            "--jobs is for one capture: name its directory; pgtail record --from FILE -D DIR makes one of a dump."
            " One process decodes everything else, without --jobs"
        )
    ends_early = options.limit or options.last or options.follow
    if ends_early or not isinstance(sink, FileSink) or is_in_order(options.format):
        return None
    # The modules that read captures, and multiprocessing, take long to import.
    from pgtail.capture.verify import segments_to_read
    from pgtail.commands.parallel.parts import CaptureParts
    from pgtail.commands.parallel.processes import ParallelReading, processes

    capture = segments_to_read(captures[0], options.filter.since)
    if options.jobs is None and sum([one.size for one in capture.segments]) < LARGE:
        return None
    return ParallelReading(CaptureParts(capture, options.dump.encoding), count, processes)


def _cores() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
