"""`pgtail decode`: dumps of any form to one output."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from msgspec.structs import replace

from pgtail.capture.format import CLOSED
from pgtail.commands.console.messages import handled_by
from pgtail.commands.console.pager import paged
from pgtail.commands.console.progress import progress
from pgtail.commands.decode.last import LastTransactions, start_of_last
from pgtail.commands.input.reader import filter_of, reader_of, report_read
from pgtail.commands.input.selection import build_redaction, report_unmasked
from pgtail.commands.options.common import DecodeOptions, FilterOptions
from pgtail.commands.output.build import build_output, open_target, with_old_values
from pgtail.commands.output.file_sink import FileSink, check_not_read
from pgtail.errors import InputError, Interrupted, OptionError
from pgtail.files.pipes import enlarge_pipe
from pgtail.log import logger
from pgtail.native import compiled, keep_memory
from pgtail.pgoutput.scalars import Point
from pgtail.reading.checksums import verify
from pgtail.reading.interruption import interrupted
from pgtail.reading.names import check_readable, folders, is_local_file
from pgtail.reading.reader import Reader, Steps
from pgtail.terminal.escape import escape

if TYPE_CHECKING:
    from pgtail.commands.output.directory_sink import DirectorySink
    from pgtail.stats.collect import Statistics

HINT_AFTER: Final = 10.0
"""Seconds of decoding after which a note says how to get the compiled scanner where it was not built."""
_HINT: Final = """this pgtail was installed without the compiled scanner, which takes about a hundredth of the time. \
To build it, install a C compiler and Python's headers (on Debian: apt install gcc python3-dev), then pgtail again."""


class Parallel(Protocol):
    """Reads files in several processes."""

    def read(self, decode: Decode, reader: Reader, sink: FileSink | DirectorySink, /) -> Steps:
        """Read all; returns whether to the end. Raises PgtailError and ClosedPipe."""


Divide: TypeAlias = "Callable[[tuple[str, ...], DecodeOptions, FileSink | DirectorySink], Parallel | None]"
"""Decides whether several processes decode these files into a sink; None: one does."""


class Decode:
    """One run over several files: one stream, one output.

    `stats` are in place of the output that the options ask for. With `divide`, several processes may decode.
    """

    def __init__(
        self, options: DecodeOptions, stats: Statistics | None = None, divide: Divide = lambda *_: None
    ) -> None:
        self._asked = options.format.takes_seen
        """Whether seen old values are asked for, not only taken where they are known to be right."""
        self.options = options
        self.redaction = build_redaction(options.filter) if stats is None else stats.redaction
        self._stats = stats
        self._divide = divide
        self.shown = 0
        """How many transactions were shown, once run() has ended."""
        self._last: LastTransactions | None = None
        """Keeps the last transactions (--last)."""

    def run(self, files: tuple[str, ...]) -> bool:
        """Decode all files; returns whether damage was skipped or a column to mask did not occur.

        Raises PgtailError and ClosedPipe.
        """
        keep_memory()
        if any(name.endswith(CLOSED) or not is_local_file(name) for name in files):
            self.options = replace(self.options, format=with_old_values(self.options.format))
        if self.options.verbosity.settings:
            logger.debug(escape(f"settings: {self.options.verbosity.settings}"))
        filter_of(self.options, self.redaction)  # refuses wrong filters
        self._check(files)
        self._begin_with_last(files)
        options = self.options
        whole = unmasked = False
        try:
            paging = options.pager and options.format.file is None and not options.follow
            with paged(paging, files), open_target(options.format.file) as target:
                parallel = self._divide(files, options, target)
                if isinstance(target, FileSink):
                    enlarge_pipe(target.fd)
                sink = target if options.last is None else self._keep_last(target, options.last)
                reader = self.build(sink)
                steps = reader.read(files) if parallel is None else parallel.read(self, reader, sink)
                with _hint_if_not_built():
                    whole = self._read(reader, steps, sink)
        finally:
            unmasked = report_unmasked(self.redaction, whole=whole)
        report_read(reader, options, whole=whole)
        return reader.damaged or reader.pipeline.damaged or unmasked

    def build(self, sink: FileSink | DirectorySink) -> Reader:
        """Build what reads the files, and the output. Raises OptionError."""
        options, redaction, masks = self.options, self.redaction, self._stats is not None
        filter_ = filter_of(options, redaction)
        client = False if filter_.active and options.client is None else options.client
        format_ = replace(options.format, client=client, context=options.filter.context)
        output = self._stats or build_output(format_, sink, masked=redaction is not None)
        return reader_of(options, output, filter_, redaction, masks=masks, asked=self._asked, on_wait=sink.flush)

    def _check(self, files: tuple[str, ...]) -> None:
        """Check what is read, with --verify its checksums. Raises OptionError and InputError.

        A file that is to be written is not opened yet, which would empty it.
        """
        file = self.options.format.file
        check_not_read(file, files)
        if self.options.follow:
            self._check_follow(files)
        if self.options.last is not None and self.options.limit is not None:
            raise OptionError("-n shows the first transactions, --last the last ones: give one of them")
        if self.options.last is not None and self.options.format.undo:
            raise OptionError("--undo undoes all that is selected: --since LSN selects what --last N shows")
        if self.options.dump.verify:
            verify(files, self.options.dump.storage)
        if file is not None and self._stats is None:
            check_readable(files, self.options.dump.storage)
            self.build(FileSink(-1, file)).close()  # refuses wrong options

    def _begin_with_last(self, files: tuple[str, ...]) -> None:
        """With --last, begin with the segment of a capture that enough transactions follow."""
        last = self.options.last
        captures = [] if last is None else list(folders(files, self.options.dump.storage))
        if last is None or (len(files), len(captures)) != (1, 1):
            return

        def since(position: int) -> FilterOptions:
            point = self.options.filter.since or Point()
            return replace(self.options.filter, since=replace(point, lsn=max(position, point.lsn or 0)))

        def count_from(position: int) -> int:
            counting = replace(
                self.options,
                format=replace(self.options.format, file=os.devnull),
                filter=since(position),
                dump=replace(self.options.dump, verify=False),
                limit=last,
                last=None,
                follow=False,
            )
            decode = Decode(counting)
            try:
                with handled_by(logging.NullHandler()):  # the pass that shows them says the same
                    decode.run(files)
            except Interrupted:
                raise
            except InputError:
                pass  # the pass that shows them reports it
            return decode.shown

        position = start_of_last(captures[0], last, count_from)
        if position is not None:
            self.options = replace(self.options, filter=since(position))

    def _keep_last(self, target: FileSink | DirectorySink, count: int) -> LastTransactions:
        if not isinstance(target, FileSink):
            raise OptionError(f"-f {target.name} is a directory: --last writes one file")
        self._last = LastTransactions(target, count, follows=self.options.follow)
        return self._last

    def _check_follow(self, files: tuple[str, ...]) -> None:
        if len(files) != 1 or not list(folders(files, self.options.dump.storage)):
            raise OptionError("--follow reads one capture: name the directory that pgtail record writes")
        if self.options.format.undo:
            raise OptionError("--undo writes at the end, which --follow does not wait for")

    def _read(self, reader: Reader, steps: Steps, sink: FileSink | DirectorySink) -> bool:
        """Take the steps, and complete the output; returns whether everything was read to its end."""
        try:
            return self.take(reader, reader.complete(steps))
        except KeyboardInterrupt as stopped:
            if not self.options.follow:
                raise interrupted(stopped) from None
            return False
        finally:
            self.shown = reader.pipeline.shown
            if self._last is not None:
                self._last.release()
            sink.flush()
            reader.close()

    def take(self, reader: Reader, steps: Steps) -> bool:
        """Take all steps of reading, and show progress; returns what they return."""
        file, quiet = self.options.format.file, self.options.verbosity.quiet
        pipeline, last, shown = reader.pipeline, self._last, None
        with contextlib.closing(steps), contextlib.ExitStack() as bar:
            while True:
                try:
                    source = next(steps)
                except StopIteration as end:
                    return bool(end.value)
                if source is not shown:
                    shown = source
                    bar.close()
                    if source is not None:
                        bar.enter_context(progress(source, file, lambda: pipeline.rows, "rows", quiet=quiet))
                if last is not None:
                    last.take_text(pipeline)


@contextlib.contextmanager
def _hint_if_not_built() -> Iterator[None]:
    """Say how to get the compiled scanner if the body takes long without it; not if PGTAIL_PURE switched it off."""
    if compiled() is not None or os.environ.get("PGTAIL_PURE"):
        yield
        return
    timer = threading.Timer(HINT_AFTER, logger.info, [_HINT])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
