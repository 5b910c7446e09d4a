"""Files, pipes, objects of a store and what is open already as byte streams, gzip decompressed.

Reads ahead in the file itself, for pipes and gzip in a temporary file. The bytes of a segment (.pgcap) are compared
with its checksums before they are returned.
"""

from __future__ import annotations

import os
import select
import stat
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pgtail.capture.format import BEGINNING, CLOSED, OPEN
from pgtail.errors import InputError
from pgtail.files import MAGIC
from pgtail.files.pipes import enlarge_pipe
from pgtail.files.stopping import raising
from pgtail.inputs.source.base import CHUNK, ByteStream, reason_of
from pgtail.inputs.source.opened import Content, Opened

if TYPE_CHECKING:
    from pgtail.capture.segment import SegmentCheck
    from pgtail.files.gunzip import Gunzip
    from pgtail.storage import Location, Reader

PAUSE: Final = 0.2
"""Seconds after which a file that is followed is read again."""
_STDIN: Final = 0


class Source(ByteStream):
    """A file or pipe; `-` is standard input, named <stdin>. Or a location that is not local, or something opened.

    Offsets are those of the decompressed bytes.

    `on_wait` is called before a read that has to wait; `check` is given all bytes that are read. Raises InputError if
    the file cannot be opened or read.
    With `follow` the end of the file is awaited while it has its name, which a segment loses when it is closed; it is
    read as a pipe is.
    At damage of the gzip data the bytes end, and `damage` says why; `cut_off` says whether they just end too early.
    """

    def __init__(
        self,
        path: str | Location | Content | Opened,
        *,
        on_wait: Callable[[], None] | None = None,
        check: SegmentCheck | None = None,
        follow: bool = False,
    ) -> None:
        name = str(path)
        super().__init__("<stdin>" if name == "-" else name, live=False)
        self._on_wait = on_wait
        self._check = check
        self._fetched = 0
        """Offset of the next bytes of a source that is not seekable."""
        self._fd, self._owned = -1, name != "-"
        self._start = 0
        self._reader: Reader | Content | None = None
        """What reads a file that is not local."""
        self._opened: Opened | None = None
        """What is read as a pipe is."""
        self._gunzip: Gunzip | None = None
        self.size: int | None
        """Bytes of the file, before decompression; None for a pipe."""
        if isinstance(path, Opened):
            self._opened, self.size = path, None
        elif isinstance(path, Content):
            self._reader, self.size = path, path.size
        elif not isinstance(path, str) and path.path is None:
            self._reader = path.open()
            self.size = self._reader.size
        else:
            self.size = self._open(name)
            self.size = None if follow else self.size
        self._follow = follow
        self.consumed = 0
        """How many of these bytes were read."""
        self.live = self.size is None
        self._poll = select.poll()
        if self._fd >= 0:
            self._poll.register(self._fd, select.POLLIN)
        self._seekable = not self.live
        self._first: bytes | None = None
        self._ended = False
        """Whether a pipe or terminal has ended. A terminal can be read on after Ctrl-D."""
        self._detect()
        self.rereads = self._seekable and self._reader is None and self._check is None

    def _open(self, name: str) -> int | None:
        """Open a local file; returns its size, None for a pipe. Raises InputError."""
        try:
            self._fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC) if self._owned else _STDIN
            status = os.fstat(self._fd)
        except (OSError, ValueError) as error:
            raise InputError(reason_of(error), source=self.name) from None
        if stat.S_ISDIR(status.st_mode):
            self.close()
            raise InputError("is a directory: give the files in it", source=self.name)
        if not (stat.S_ISREG(status.st_mode) and status.st_size > 0):
            enlarge_pipe(self._fd)
            return None
        self._start = os.lseek(self._fd, 0, os.SEEK_CUR)
        return status.st_size - self._start

    def close(self) -> None:
        """Close the file."""
        super().close()
        if self._gunzip is not None:
            self._gunzip.close()
        if self._reader is not None:
            self._reader.close()
        if self._owned and self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    @property
    def damage(self) -> InputError | None:
        """Why the bytes ended early; None if they did not."""
        if self._gunzip is None or self._gunzip.damage is None:
            return None
        return InputError(self._gunzip.damage, source=self.name, offset=self.position)

    @property
    def cut_off(self) -> bool:
        """Whether the gzip data end inside a member, without other damage."""
        return self._gunzip is not None and self._gunzip.cut_off

    @property
    def compressed(self) -> bool:
        """Whether it is gzip data."""
        return self._gunzip is not None

    @property
    def checked(self) -> int | None:
        return super().checked if self._gunzip is None else self._gunzip.checked

    def skip_damage(self) -> bool:
        """Continue after damage of the gzip data. Returns whether that is possible."""
        return self._gunzip is not None and self._gunzip.skip_damage()

    def give_back(self, data: bytes) -> None:
        if self._seekable:
            self.position -= len(data)
        else:
            super().give_back(data)

    def left(self) -> int | None:
        if not self._seekable:
            return None
        size = os.fstat(self._fd).st_size - self._start if self._reader is None else self._reader.size
        return max(size - self.position, 0)

    def peek(self, distance: int, size: int) -> bytes:
        if not self._seekable:
            return super().peek(distance, size)
        return self._pread(size, self.position + distance)

    def _detect(self) -> None:
        """Check a regular file for gzip, or a segment by its checksum. A pipe's first read does it: that may wait."""
        if not self._seekable:
            return
        head = self._pread(len(BEGINNING), 0)
        if head.startswith(MAGIC):
            self._unzip(self._rewind)
        elif self.name.endswith(CLOSED):
            self.problem = self._segment_problem()
            self.verified = self.problem is None
        elif head == BEGINNING and not self.name.endswith(OPEN):
            self.verified = self._segment_problem() is None

    def _unzip(self, rewind: Callable[[int], None] | None) -> None:
        from pgtail.files.gunzip import Gunzip

        named = self.name.endswith((CLOSED, OPEN))
        self._gunzip = Gunzip(self._raw, rewind, checked=b"" if named else BEGINNING)
        self._seekable = False

    def _segment_problem(self) -> str | None:
        """The damage of a segment that is not compressed; reads all of it."""
        from pgtail.capture.segment import SegmentCheck

        check = self._check or SegmentCheck()
        problem = check.feed_all(iter(lambda: self._raw(CHUNK), b""))
        self._rewind(0)
        return problem

    def _fetch(self, limit: int) -> bytes:
        with raising():
            return self._fetch_now(limit)

    def _fetch_now(self, limit: int) -> bytes:
        if self._seekable:
            at = self.position
            data = self._pread(limit, at)
            self.consumed = at + len(data)
        else:
            at = self._fetched
            data = self._forward(limit)
            self._fetched += len(data)
        if self._check is not None:
            self._check.feed(data, at)
        return data

    def _forward(self, limit: int) -> bytes:
        """The next bytes of a pipe, or of gzip data."""
        if self._gunzip is None and self._first is None:
            self._first = self._two_bytes()
            if self._first.startswith(MAGIC):
                self._unzip(None)
        return self._raw(limit) if self._gunzip is None else self._gunzip.read(limit)

    def _two_bytes(self) -> bytes:
        """The first bytes of a pipe, at least two if the first could begin gzip."""
        first = self._receive(CHUNK)
        while first and len(first) < len(MAGIC) and MAGIC.startswith(first):
            more = self._receive(CHUNK)
            if not more:
                break
            first += more
        return first

    def _raw(self, limit: int) -> bytes:
        """The next bytes of the file or pipe, not decompressed."""
        if self._first:
            data, self._first = self._first[:limit], self._first[limit:]
        elif self.live:
            data = self._receive(limit)
        else:
            data = self._pread(limit, self.consumed)
        self.consumed += len(data)
        return data

    def _rewind(self, consumed: int) -> None:
        """Continue to read a regular file at this offset."""
        self.consumed = consumed

    def _receive(self, limit: int) -> bytes:
        if self._ended:
            return b""
        try:
            if self._opened is not None:
                return self._opened.read(limit)
            if not self._poll.poll(0):
                if self._on_wait is not None:
                    self._on_wait()
                self._poll.poll()
            data = os.read(self._fd, limit)
            while not data and self._follow:
                grows = self._has_name()  # before the read: all is written when a segment loses its name
                data = os.read(self._fd, limit)
                if data or not grows:
                    break
                if self._on_wait is not None:
                    self._on_wait()
                time.sleep(PAUSE)
        except OSError as error:
            raise InputError(reason_of(error), source=self.name, offset=self.position) from None
        self._ended = not data
        return data

    def _has_name(self) -> bool:
        """Whether the file that is open still has its name."""
        try:
            return os.path.samestat(os.fstat(self._fd), os.stat(self.name))
        except FileNotFoundError:
            return False

    def _pread(self, size: int, position: int) -> bytes:
        if self._reader is not None:
            return self._reader.pread(size, position)
        try:
            return os.pread(self._fd, size, self._start + position)
        except OSError as error:
            raise InputError(reason_of(error), source=self.name, offset=self.position) from None
