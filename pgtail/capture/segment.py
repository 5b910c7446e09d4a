"""Reads one segment: its bytes, parameters and frames, and checks that it is as it was written.

Does not interpret messages of pgoutput.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

from msgspec import Struct, field

from pgtail.capture.checksum import Checksum
from pgtail.capture.format import (
    COPY_DATA,
    END,
    FORMAT,
    HEAD,
    NEWEST,
    PARAMETER_STATUS,
    POSITION,
    SNAPSHOT,
    START,
    TRANSACTION,
    WITH_SHA256,
    SnapshotPart,
    parameter,
    read_parameter,
    read_transaction,
)
from pgtail.errors import DecodeError, InputError, Malformed, Truncated
from pgtail.files import MAGIC
from pgtail.files.gunzip import Gunzip
from pgtail.pgoutput.frames import MOST
from pgtail.pgoutput.scalars import parse_lsn
from pgtail.storage import Location
from pgtail.values.encodings import python_name

_PIECE: Final = 1 << 20
"""Bytes to read at a time."""

_BUFFERED: Final = 1 << 20
"""Bytes to have in memory at a time: the rows after a Begin at their end take a slower path."""

_TAIL: Final = 512
"""Bytes at the end of a segment: more than its last message has."""

_LENGTH_SIZE: Final = 4
_MOST_OTHER: Final = 16 << 20
"""Most bytes of a message that is no frame; a longer one is damage."""


class ByteFile(Protocol):
    """An open segment: a Reader of pgtail.storage, or a binary file."""

    def read(self, size: int, /) -> bytes: ...
    def seek(self, offset: int, /) -> int: ...


class SegmentBytes:
    """The uncompressed bytes of a segment. `damage` says why they ended early; None if they did not.

    Yields the bytes of a gzip member after its checksum was compared. A `closed` segment without compression is read
    twice: it yields nothing if its checksum is wrong.
    """

    def __init__(self, file: ByteFile, *, closed: bool = False) -> None:
        self.compressed = compressed = file.read(len(MAGIC)) == MAGIC
        file.seek(0)
        self._gunzip = Gunzip(file.read, file.seek, checked=b"") if compressed else None
        self._read: Callable[[int], bytes] = file.read if self._gunzip is None else self._gunzip.read
        self._problem: str | None = None
        if closed and not compressed:
            self._problem = SegmentCheck().feed_all(self)
            file.seek(0)

    def __iter__(self) -> Iterator[bytes]:
        while self._problem is None and (piece := self._read(_PIECE)):
            yield piece

    @property
    def damage(self) -> str | None:
        return self._problem if self._gunzip is None else self._gunzip.damage

    def damaged_inside(self) -> bool:
        """Whether whole gzip members follow the damage: no crash leaves that."""
        return self._gunzip is not None and self._gunzip.damage is not None and self._gunzip.members_follow()


class Head(Struct):
    """The parameters at the beginning of a segment, and which part of it is being read."""

    parameters: dict[str, str] = field(default_factory=dict)
    own: bool = False
    """Whether the repeated messages at the beginning were read: the segment's own follow."""
    ended: bool = False
    """Whether the end was read."""
    repeats: bool = True
    """Whether messages may be repeated at the beginning. The first segment of a session repeats none."""

    def take_parameter(self, name: str, value: str) -> None:
        """Take the next parameter. Raises InputError for an unknown format."""
        if name == FORMAT:
            check_format(value)
        self.own = self.own or name == START
        self.ended = self.ended or name == END
        if not self.own:
            self.parameters[name] = value

    @property
    def encoding(self) -> str:
        """Python's name of the encoding of the stream's text. Raises InputError if it has none."""
        name = self.parameters.get("client_encoding", "UTF8")
        try:
            return python_name(name)
        except LookupError:
            raise InputError(f"its text is in {name}, an encoding that Python does not have") from None

    @property
    def transaction(self) -> tuple[int, int, int] | None:
        """Row changes, logical messages and the ordinal so far, where the segment starts in mid-transaction."""
        text = self.parameters.get(TRANSACTION)
        if not text:
            return None
        try:
            return read_transaction(text)
        except ValueError:
            raise InputError(f"{TRANSACTION} is {text!r}, not three numbers") from None

    @property
    def snapshot(self) -> SnapshotPart | None:
        """The part of a table's snapshot that it has; None for a segment of the stream. Raises InputError."""
        text = self.parameters.get(SNAPSHOT)
        if text is None:
            return None
        try:
            return SnapshotPart.parse(text)
        except ValueError:
            raise InputError(f"{SNAPSHOT} is {text!r}, not an LSN and two numbers") from None


def check_format(number: str, source: str | None = None) -> None:
    """Raise InputError for the number of an unknown format."""
    if number not in (NEWEST, *WITH_SHA256):
        what = f"has format {number!r}, which this version of pgtail does not know: a newer one wrote it"
        raise InputError(what, source=source)


class SegmentCheck:
    """Checks the uncompressed bytes of a closed segment: the last message has size and checksum of all before it."""

    def __init__(self) -> None:
        self.size = 0
        """How many bytes were fed."""
        self._checksum = Checksum()
        self._tail = b""
        """The last bytes, which are not in the checksum."""

    def feed_all(self, pieces: Iterable[bytes]) -> str | None:
        """Feed these pieces, one after another; returns what problem() does."""
        for piece in pieces:
            self.feed(piece, self.size)
        return self.problem()

    def feed(self, data: bytes, offset: int) -> None:
        """Feed the bytes at an offset, without those that were fed before."""
        if offset < self.size:
            data = data[self.size - offset :]
        self.size += len(data)
        if len(data) < _TAIL:
            data = self._tail + data
        else:
            self._checksum.update(self._tail)
        self._checksum.update(memoryview(data)[:-_TAIL])
        self._tail = data[-_TAIL:]

    def problem(self) -> str | None:
        """The damage; None if every byte is as it was written."""
        tail, checksum = self._tail, self._checksum.copy()
        start = tail.rfind(END.encode() + b"\0")
        message = start - HEAD.size
        checksum.update(tail if start < 0 else tail[:message])
        if checksum.format is not None:
            try:
                check_format(checksum.format)
            except InputError as error:
                return error.reason  # another format may end in another way
        if start < 0:
            return "the end is missing: it was cut off, or is still being written"
        _, value = read_parameter(tail[start:])
        messages, *others = value.split(" ")
        if not messages.isdecimal() or others != [str(self.size - len(tail) + message), checksum.hexdigest()]:
            return "its checksum is wrong: a part is missing, damaged or moved"
        if not tail.endswith(parameter(END, value)):
            return "something follows its end"
        return None

    def messages(self) -> int:
        """How many messages of its own the segment has, from its end. Only if problem() is None."""
        _, value = read_parameter(self._tail[self._tail.rfind(END.encode() + b"\0") :])
        return int(value.split(" ")[0])

    def position(self) -> int | None:
        """The LSN up to which a capture that ends with this segment has everything; None if its end is missing."""
        start = self._tail.rfind(POSITION.encode() + b"\0")
        if start < 0 or self._tail.find(END.encode() + b"\0", start) < 0:
            return None
        try:
            return parse_lsn(read_parameter(self._tail[start:])[1])
        except ValueError:
            return None


class SegmentFrames:
    """Iterates over (start, stop) of each walsender frame in `buf`; `head.own` is True for the segment's own frames.

    `buf` may be replaced at each step. The iteration raises InputError if the segment cannot be read, and DecodeError
    at its end if it is damaged or not closed. `closed` is that of SegmentBytes.
    """

    def __init__(self, file: ByteFile, name: str, *, closed: bool = False) -> None:
        self.name = name
        self.head = Head()
        self.buf = b""
        self.next = 0
        """The offset in `buf` of the next message; a caller that reads messages itself sets it after them."""
        self.raw = SegmentBytes(file, closed=closed)
        self._pieces = iter(self.raw)
        self._base = 0
        """Where `buf` starts in the uncompressed bytes."""
        self._check = SegmentCheck()

    def __iter__(self) -> Iterator[tuple[int, int]]:
        pos = 0
        while True:
            buf, end = self.buf, len(self.buf)
            stop = pos + HEAD.size
            while stop <= end:
                kind, size = HEAD.unpack_from(buf, pos)
                _check_size(kind, size, pos)
                stop = pos + 1 + size
                if stop > end:
                    break
                self.next = stop
                if kind == COPY_DATA:
                    yield pos + HEAD.size, stop
                elif kind == PARAMETER_STATUS:
                    self._take_parameter(buf[pos + HEAD.size : stop])
                pos = self.next
                stop = pos + HEAD.size
            if not self._read_more(pos, max(stop - end, _BUFFERED)):
                break
            pos = 0
        self._check_end()

    def read_head(self) -> Head:
        """Read the parameters at the beginning, before anything else is read."""
        pos = 0
        while self._buffer(pos + HEAD.size) and self.buf[pos] == PARAMETER_STATUS:
            kind, size = HEAD.unpack_from(self.buf, pos)
            _check_size(kind, size, pos)
            if not self._buffer(pos + 1 + size):
                break
            body = self.buf[pos + HEAD.size : pos + 1 + size]
            if read_parameter(body)[0] == START:
                self.head.repeats = False
                break
            self._take_parameter(body)
            pos += 1 + size
        return self.head

    def _take_parameter(self, body: bytes) -> None:
        try:
            self.head.take_parameter(*read_parameter(body))
        except InputError as error:
            raise self.located(error) from None

    def offset_of(self, pos: int) -> int:
        """The offset of a position of `buf` in the uncompressed bytes."""
        return self._base + pos

    def located(self, error: InputError) -> InputError:
        """An error in a message of `buf`, at its place in the segment. One that has a source stays as it is."""
        if error.source is None:
            error.source = self.name
            if isinstance(error, DecodeError):
                error.offset += self._base
        return error

    def _buffer(self, size: int) -> bool:
        return len(self.buf) >= size or (self._read_more(0, size - len(self.buf)) and len(self.buf) >= size)

    def _read_more(self, pos: int, missing: int) -> bool:
        """Read at least `missing` more bytes after `pos`, or all that are left. Returns whether any were read."""
        parts = [self.buf[pos:]]
        self._base += pos
        while missing > 0:
            piece = next(self._pieces, b"")
            if not piece:
                break
            self._check.feed(piece, self._check.size)
            parts.append(piece)
            missing -= len(piece)
        self.buf = b"".join(parts)
        return len(parts) > 1

    def _check_end(self) -> None:
        end = len(self.buf)
        if self.raw.damage is not None:
            raise Malformed(self.raw.damage, offset=end)
        problem = self._check.problem()
        if problem is not None:
            raise (Malformed if self.head.ended else Truncated)(problem, offset=end)


def _check_size(kind: int, size: int, pos: int) -> None:
    if not _LENGTH_SIZE <= size <= (MOST if kind == COPY_DATA else _MOST_OTHER):
        raise Malformed(f"a message of {size} bytes", offset=pos + 1, field="length")


def read_head(segment: Location) -> Head:
    """The parameters at the beginning of a segment; if that is damaged, those that can be read. Raises InputError."""
    with segment.open() as file:
        frames = SegmentFrames(file, str(segment))
        with contextlib.suppress(DecodeError):
            frames.read_head()
        return frames.head


def check(segment: Location) -> str | None:
    """The damage of a closed segment; None if every byte is as it was written. Raises InputError."""
    raw, checked = _checked(segment)
    return raw.damage or checked.problem()


def digest_of(file: Location) -> str:
    """The SHA-256 of a file, as 64 hexadecimal digits. Raises InputError."""
    digest = hashlib.sha256()
    with file.open() as reader:
        while piece := reader.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def position_of(segment: Location) -> int:
    """The LSN up to which a capture that ends with this closed segment has everything. Raises InputError."""
    position = _checked(segment)[1].position()
    if position is None:
        raise InputError(
            "is damaged: it is closed, but its end is missing; move it away to continue without it", source=str(segment)
        )
    return position


def _checked(segment: Location) -> tuple[SegmentBytes, SegmentCheck]:
    with segment.open() as file:
        raw, checked = SegmentBytes(file), SegmentCheck()
        checked.feed_all(raw)
    return raw, checked
