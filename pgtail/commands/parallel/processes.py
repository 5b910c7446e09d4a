"""Reads a capture in several processes: they decode parts of it into files, which are written in their order.

This process decodes the first part, the last one, and every part that another process gives up, because it depends on
earlier parts or needs a message. So it alone reports errors and damage and prints the final notes.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from logging.handlers import BufferingHandler
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from msgspec.structs import replace

from pgtail.commands.console.messages import handled_by
from pgtail.commands.decode.command import Decode
from pgtail.commands.options.common import DecodeOptions
from pgtail.commands.output.file_sink import FileSink
from pgtail.commands.parallel.parts import CaptureParts, Part
from pgtail.errors import OutputError
from pgtail.files.stopping import SIGNALS, postponed
from pgtail.log import SUMMARY, logger
from pgtail.pipeline.pipeline import Seen
from pgtail.reading.reader import Reader, Steps

if TYPE_CHECKING:
    from pgtail.commands.output.directory_sink import DirectorySink

KEPT: Final = 256 << 20
"""Bytes of output that a process keeps in a file; it gives up a part that has more."""
_PIECE: Final = 1 << 20
"""Bytes to write at once."""


class _Decoded(NamedTuple):
    """The result of a part that another process has decoded."""

    messages: list[logging.LogRecord]
    seen: Seen
    skipped: bool
    not_sent: int
    left_out: int
    written: frozenset[tuple[str, str]]


class ParallelReading:
    """Reads the parts of a capture in `count` processes, those of the context `pool`."""

    def __init__(
        self, parts: CaptureParts, count: int, pool: Callable[[int], contextlib.AbstractContextManager[Executor]]
    ) -> None:
        self._parts, self._count, self._pool = parts, count, pool

    def read(self, decode: Decode, reader: Reader, sink: FileSink | DirectorySink) -> Steps:
        """Read all parts; returns whether to the end. Raises PgtailError and ClosedPipe."""
        options = replace(decode.options, format=replace(decode.options.format, file=os.devnull))
        left, waiting, number = iter(self._parts), deque[tuple[Part, Future[_Decoded | None] | None, str]](), 0
        known, here = 0, False
        with _folder() as folder, self._pool(self._count) as pool:
            while True:
                # Decode the first part before others are submitted: an output usually does there what it does once.
                while len(waiting) < (self._count + 1 if number else 1) and (part := next(left, None)) is not None:
                    file, decoded = os.path.join(folder, str(number)), None
                    copies = any(one.snapshot for one in part.segments.segments)  # may repeat rows of other parts
                    if number > 0 and part.stop is not None and not copies:
                        decoded = _submit(pool, options, part, reader.output.once.done, file)
                    waiting.append((part, decoded, file))
                    number += 1
                part, decoded, file = waiting.popleft()
                if here:
                    known = len(part.known)  # these were decoded here
                if here := not _write(decoded, file, reader, sink):
                    for message, lsn in part.known[known:]:
                        reader.pipeline.describe(message, lsn)
                    goes_on = yield from reader.read_segments(part.segments)
                    if not goes_on or part.stop is None:
                        return goes_on
                    if not _is_independent(reader):
                        return (yield from reader.read_segments(self._parts.rest(part.stop).segments))


def _folder() -> tempfile.TemporaryDirectory[str]:
    """A private temporary folder. Raises OutputError."""
    try:
        return tempfile.TemporaryDirectory(prefix="pgtail-", ignore_cleanup_errors=True)
    except OSError as error:
        raise OutputError(f"cannot keep what is to be written: {error.strerror}; set TMPDIR") from None


@contextlib.contextmanager
def processes(count: int) -> Iterator[Executor]:
    """So many processes, which end with the context."""
    pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _start)  # threads and fork do not mix
    resource_tracker.ensure_running()  # it would unblock the signals in _submit()
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.kill()
            process.join()


def _submit(
    pool: Executor, options: DecodeOptions, part: Part, once: dict[str, object], file: str
) -> Future[_Decoded | None] | None:
    """Give a part to the processes; None if they have ended."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # also in a new process, until that ignores them
    try:
        return pool.submit(decode_part, options, part, once, file)
    except BrokenProcessPool:
        return None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _write(given: Future[_Decoded | None] | None, name: str, reader: Reader, sink: FileSink | DirectorySink) -> bool:
    """Write a process's output of a part; returns whether a process has decoded it."""
    try:
        decoded = None if given is None else given.result()
    except BrokenProcessPool:  # one was killed
        decoded = None
    if decoded is None:
        return False
    with open(name, "rb") as file, postponed():  # else a request to stop could cut off a line
        os.unlink(name)
        while piece := file.read(_PIECE):
            sink.write(piece)
        sink.flush()
    for record in decoded.messages:
        logger.handle(record)
    reader.skipped = reader.skipped or decoded.skipped
    reader.filter_.not_sent += decoded.not_sent
    reader.output.left_out += decoded.left_out
    reader.output.written.names.update(decoded.written)
    reader.pipeline.add_seen(decoded.seen)
    return True


def _is_independent(reader: Reader) -> bool:
    """Whether the following parts depend on nothing read so far, except the tables."""
    return reader.pipeline.settled and not (reader.noted or reader.damaged or reader.pipeline.damaged)


# -- in the other processes --------------------------------------------------------------------------------------------


def _start() -> None:
    """A process begins: it ends with its parent, which alone handles requests to stop."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    resource.setrlimit(resource.RLIMIT_FSIZE, (KEPT, KEPT))
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def decode_part(options: DecodeOptions, part: Part, once: dict[str, object], name: str) -> _Decoded | None:
    """Decode a part into a new file; None if it is given up. `once` are the things that the output has done before."""
    messages = BufferingHandler(sys.maxsize)
    level = logging.DEBUG if options.verbosity.verbose else SUMMARY
    with open(name, "xb") as file, handled_by(messages, level):
        try:
            decode, sink = Decode(options), FileSink(file.fileno(), name)
            reader = decode.build(sink)
            output = reader.output
            output.once.done.update(once)
            output.once.before = _give_up
            for message, lsn in part.known:
                reader.pipeline.describe(message, lsn)
            decoded = decode.take(reader, reader.read_segments(part.segments)) and _is_independent(reader)
            sink.flush()
        except Exception:  # noqa: BLE001 -- the parent finds the same error, and where it is
            decoded = False
        if not decoded or (messages.buffer and not options.verbosity.verbose):
            os.unlink(name)
            return None
    written, left_out = frozenset(output.written.names), output.left_out
    return _Decoded(messages.buffer, reader.pipeline.seen, reader.skipped, reader.filter_.not_sent, left_out, written)


def _give_up() -> NoReturn:
    raise RuntimeError("what an output does once is left to the parent")
