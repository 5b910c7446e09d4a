"""Reads one segment: its bytes, its parameters, its frames one after another, and whether it is as it was written.

Knows no message of pgoutput.
"""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, Final

from pgtail.capture.format import COPY_DATA, END, HEAD, PARAMETER_STATUS, START, TRANSACTION, read_parameter
from pgtail.errors import DecodeError, InputError, Malformed
from pgtail.files.gunzip import MAGIC, Gunzip
from pgtail.pgoutput.frames import MOST

MARK: Final = -1
"""Stands for the place where what was repeated at the beginning ends."""

_SPELLED: Final = {"KOI8R": "koi8-r", "KOI8U": "koi8-u"} | {f"WIN{n}": f"cp{n}" for n in (866, 874, *range(1250, 1259))}
"""PostgreSQL's names of encodings that Python calls otherwise."""

_PIECE: Final = 1 << 20
"""Bytes to read at a time."""

_HELD: Final = 1 << 20
"""Bytes to hold at a time: each time that they end with a Begin, what follows it takes the slower way."""

_LENGTH_SIZE: Final = 4
_MOST_OTHER: Final = 16 << 20
"""Bytes of a message that is neither a frame nor a parameter; what is longer is damage."""


class SegmentBytes:
    """The uncompressed bytes of a segment. `damage` says why they ended early; None if they did not."""

    def __init__(self, file: BinaryIO) -> None:
        compressed = file.read(len(MAGIC)) == MAGIC
        file.seek(0)
        self._gunzip = Gunzip(file.read, file.seek) if compressed else None
        self._read: Callable[[int], bytes] = file.read if self._gunzip is None else self._gunzip.read

    def __iter__(self) -> Iterator[bytes]:
        while piece := self._read(_PIECE):
            yield piece

    @property
    def damage(self) -> str | None:
        return None if self._gunzip is None else self._gunzip.damage


@dataclass(slots=True)
class Head:
    """The parameters at the beginning of a segment."""

    parameters: dict[str, str] = field(default_factory=dict)

    @property
    def encoding(self) -> str:
        """Python's name of the encoding that the stream's text is in. Raises InputError where it has none."""
        name = self.parameters.get("client_encoding", "UTF8")
        if name == "SQL_ASCII":
            return "utf-8"
        try:
            return codecs.lookup(_SPELLED.get(name, name)).name
        except LookupError:
            raise InputError(f"its text is in {name}, an encoding that Python does not have") from None

    @property
    def transaction(self) -> tuple[int, int, int] | None:
        """Row changes, logical messages and the ordinal so far, where the segment starts in mid-transaction."""
        text = self.parameters.get(TRANSACTION)
        if not text:
            return None
        try:
            changes, messages, ordinal = map(int, text.split())
        except ValueError:
            raise InputError(f"{TRANSACTION} is {text!r}, not three numbers") from None
        return changes, messages, ordinal


class SegmentFrames:
    """Iterates over (start, stop) of each walsender frame in `buf`, (MARK, MARK) once, behind what is repeated.

    `buf` is another one after each step. The iteration raises InputError where the segment is damaged or not closed:
    its last message counts and hashes all before it.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.name = name
        self.head = Head()
        self.buf = b""
        self.next = 0
        """Where in `buf` the next message starts; whoever took some of them himself sets it behind them."""
        self._raw = SegmentBytes(file)
        self._pieces = iter(self._raw)
        self._base = 0
        """Where `buf` lies in the segment's raw bytes."""
        self._hashed = 0
        """Up to where `buf` is in the digest."""
        self._digest = hashlib.sha256()
        self._end: str | None = None

    def __iter__(self) -> Iterator[tuple[int, int]]:
        pos = 0
        while True:
            buf, end = self.buf, len(self.buf)
            stop = pos + HEAD.size
            while stop <= end:
                kind, size = HEAD.unpack_from(buf, pos)
                self._check(kind, size, pos)
                stop = pos + 1 + size
                if stop > end:
                    break
                self.next = stop
                if kind == COPY_DATA:
                    yield pos + HEAD.size, stop
                elif kind == PARAMETER_STATUS and self._parameter(buf[pos + HEAD.size : stop], pos):
                    yield MARK, MARK
                pos = self.next
                stop = pos + HEAD.size
            if not self._more(pos, stop - end):
                break
            pos = 0
        self._finish()

    def read_head(self) -> Head:
        """Read the parameters at the beginning, before anything else is read."""
        pos = 0
        while self._hold(pos + HEAD.size) and self.buf[pos] == PARAMETER_STATUS:
            kind, size = HEAD.unpack_from(self.buf, pos)
            self._check(kind, size, pos)
            if not self._hold(pos + 1 + size):
                break
            name, value = read_parameter(self.buf[pos + HEAD.size : pos + 1 + size])
            if name == START:
                break
            self.head.parameters.setdefault(name, value)
            pos += 1 + size
        return self.head

    def located(self, error: InputError) -> InputError:
        """An error in a message of `buf`, at its place in the segment."""
        error.source = self.name
        if isinstance(error, DecodeError):
            error.offset += self._base
        return error

    def _parameter(self, body: bytes, pos: int) -> bool:
        """Take a parameter; returns whether the segment's own messages start behind it."""
        name, value = read_parameter(body)
        if name == END:
            self._hash(pos)
            self._end = f"{self._base + pos} {self._digest.hexdigest()}"
            if self._end != value.partition(" ")[2]:
                raise Malformed("the bytes are not those that were written", offset=pos, field=END)
        return name == START

    def _hold(self, size: int) -> bool:
        return len(self.buf) >= size or (self._more(0, size - len(self.buf)) and len(self.buf) >= size)

    def _more(self, pos: int, missing: int) -> bool:
        """Hold at least `missing` bytes more behind `pos`; returns whether there were any."""
        self._hash(pos)
        parts = [self.buf[pos:]]
        self._base += pos
        self._hashed = 0
        missing = max(missing, _HELD)
        while missing > 0:
            piece = next(self._pieces, b"")
            if not piece:
                break
            parts.append(piece)
            missing -= len(piece)
        self.buf = b"".join(parts)
        return len(parts) > 1

    def _hash(self, pos: int) -> None:
        if self._end is None:
            self._digest.update(memoryview(self.buf)[self._hashed : pos])
            self._hashed = pos

    def _finish(self) -> None:
        if self._raw.damage is not None:
            raise InputError(self._raw.damage)
        if self._end is None:
            raise InputError("its end is missing: it was cut off, or is still being written")
        if self.buf:
            raise InputError("something stands behind its end")

    @staticmethod
    def _check(kind: int, size: int, pos: int) -> None:
        if not _LENGTH_SIZE <= size <= (MOST if kind == COPY_DATA else _MOST_OTHER):
            raise Malformed(f"a message of {size} bytes", offset=pos + 1, field="length")
