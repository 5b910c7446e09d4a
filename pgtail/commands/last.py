"""`pgtail decode --last N`: finds where the last N transactions begin, in a pass that shows nothing.

A capture is read from its end backwards, by whole segments. Other files have no index: they are read twice, a pipe from
a copy in a temporary file.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from pgtail.capture.contents import read_contents
from pgtail.capture.reader import segments
from pgtail.commands.decode import Decode
from pgtail.commands.division import divided
from pgtail.commands.options import DecodeOptions, FilterOptions
from pgtail.commands.selection import folders, is_local_file
from pgtail.commands.stderr import muted, say
from pgtail.errors import InputError, Interrupted, OptionError
from pgtail.outputs import TEMPLATE, OutputOptions, open_output
from pgtail.pgoutput.scalars import Point, parse_lsn
from pgtail.records import replace

_COMMITS: Final = OutputOptions(file=os.devnull, format_string="%c")
"""A line per change: the LSN of its commit."""
_FARTHER: Final = 4
"""How many times as many transactions to look through, where too few of them are selected."""


class _LastCommits:
    """Takes lines with LSNs, and keeps the last `count` different ones, in order."""

    def __init__(self, count: int) -> None:
        self._last: deque[int] = deque()
        self._count = count
        self._rest = b""
        self._greatest_before = 0

    def write(self, data: bytes) -> None:
        """Take some bytes of the lines."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line, _ in groupby(lines):
            lsn = parse_lsn(line.decode()) if line else None  # a message outside of transactions has none
            if lsn is None or (self._last and lsn == self._last[-1]):
                continue
            self._last.append(lsn)
            if len(self._last) > self._count:
                self._greatest_before = max(self._greatest_before, self._last.popleft())

    @property
    def complete(self) -> bool:
        """Whether there are as many as asked for."""
        return len(self._last) == self._count

    @property
    def first(self) -> int | None:
        """The least of them; None if there is none."""
        return min(self._last, default=None)

    @property
    def unordered(self) -> bool:
        """Whether others are not before all of them: the input repeats a part of the stream."""
        return self._greatest_before >= (self.first or 0) > 0


def decode_last(files: tuple[str, ...], options: DecodeOptions, count: int) -> bool:
    """As Decode.run(), with the last `count` transactions that are selected. Raises PgtailError and ClosedPipe."""
    if options.limit is not None:
        raise OptionError("-n shows the first transactions, --last the last ones: give one of them")
    with _readable_twice(files):
        found = _find(files, options, count)
        if found.unordered:
            say("note: the input repeats transactions, so more than the last ones are shown")
        return Decode(replace(options, filter=_since(options, found.first)), divide=divided).run(files)


def _find(files: tuple[str, ...], options: DecodeOptions, count: int) -> _LastCommits:
    """The last commits that are selected."""
    if len(files) == 1 and (captures := list(folders(files, options.dump.storage))):
        seen, wanted = 0, count
        for segment in reversed([one for one in segments(captures[0]) if one.snapshot is None]):
            contents = None if segment.open else read_contents(segment.location)
            seen += 0 if contents is None else contents.transactions
            if seen < wanted:
                continue
            found = _commits(files, options, count, segment.name.position)
            if found.complete:
                return found
            wanted = seen * _FARTHER
    return _commits(files, options, count, None)


def _commits(files: tuple[str, ...], options: DecodeOptions, count: int, position: int | None) -> _LastCommits:
    """The last commits that are selected among those from a position on, before any damage."""
    found = _LastCommits(count)
    unshown = replace(
        options,
        format=_COMMITS,
        filter=_since(options, position),
        dump=replace(options.dump, verify=False),
        pager=False,
        follow=False,
    )
    try:
        with muted():
            Decode(unshown, open_output(TEMPLATE, found, _COMMITS)).run(files)
    except Interrupted:
        raise
    except InputError:
        pass  # the pass that shows them reports it
    return found


def _since(options: DecodeOptions, position: int | None) -> FilterOptions:
    """The filter, with only what was committed from a position on."""
    if position is None:
        return options.filter
    since = options.filter.since or Point()
    return replace(options.filter, since=replace(since, lsn=max(position, since.lsn or 0)))


@contextlib.contextmanager
def _readable_twice(files: Sequence[str]) -> Iterator[None]:
    """Replace standard input by a copy in a temporary file while the body runs, if it is read and is no file.

    Raises OptionError for another pipe, and InputError if the copy cannot be written.
    """
    pipes = [name for name in files if is_local_file(name) and not _is_regular(name)]
    if any(name != "-" for name in pipes):
        raise OptionError("--last reads a file twice: give a pipe as standard input")
    if not pipes:
        yield
        return
    kept = os.dup(0)
    with tempfile.TemporaryFile() as copy:
        try:
            with open(0, "rb", closefd=False) as pipe:
                shutil.copyfileobj(pipe, copy)
            copy.seek(0)  # which also writes what is buffered
        except OSError as error:
            raise InputError(f"cannot be copied for --last: {error.strerror}", source="<stdin>") from None
        os.dup2(copy.fileno(), 0)
        try:
            yield
        finally:
            os.dup2(kept, 0)
            os.close(kept)


def _is_regular(name: str) -> bool:
    """Whether it can be read twice; what does not exist is reported when it is opened."""
    try:
        return stat.S_ISREG((os.fstat(0) if name == "-" else os.stat(name)).st_mode)
    except OSError:
        return True
