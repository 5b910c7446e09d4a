"""Gzip decompression of any number of members, in a stream or by checked members; reports damage and its offset."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from pgtail.errors import InputError
from pgtail.files import MAGIC
from pgtail.files.deflate import ExactInflater, InflateErrors, Inflater, fast_inflater
from pgtail.files.spool import SpoolFile

MEMBER: Final = MAGIC + b"\x08"
"""How a member begins (RFC 1952): the only method, deflate, is 8."""

_PLAIN: Final = (MEMBER + b"\0", MEMBER + b"\x08")
"""The beginning of a member whose header has nothing more, or a file name: isal may misread others."""

_PIECE: Final = 1 << 20
_SMALL: Final = 8 * 1024
"""More bytes than a member's header has."""
_TRIAL: Final = 64 * 1024
_IN_MEMORY: Final = 8 << 20
"""Bytes of a member that wait in memory for its checksum; with more they are in a temporary file."""


class Gunzip:
    """Decompresses what `read_raw` returns (at most the given number of bytes, b"" at the end).

    Returns everything before damage, up to the last byte. Then `damage` says what is wrong, and at which offset of the
    compressed bytes. With `rewind`, which makes read_raw() continue at an offset, it uses the faster library and
    decompresses only a damaged member with zlib.

    Content that begins with `checked` (None: no content) is returned a member at a time, once the member's checksum
    was compared: nothing of a damaged member. A large one waits in a temporary file; where that cannot be written,
    read() raises InputError.
    """

    def __init__(
        self,
        read_raw: Callable[[int], bytes],
        rewind: Callable[[int], object] | None = None,
        *,
        checked: bytes | None = None,
    ) -> None:
        self.damage: str | None = None
        self.cut_off = False
        """Whether the damage is that the data end inside a member, and no whole members are in what it seems to have.

        One wrong bit of a header can make a member seem to have all that follow. Only `rewind` lets these be found.
        """
        self.checked = 0
        """Up to which offset of the content checksums were compared."""
        self._content = _Content()
        self._decompressed = 0
        """Bytes of the content that read() returned or will return next."""
        self._checked_content = checked
        self._holds: bool | None = None
        """Whether a member waits for its checksum; None until the content has begun."""
        if not checked:
            self._holds = checked == b""
        self._read_raw = read_raw
        self._rewind = rewind
        self._waiting = b""
        self._base = 0
        """Offset of `_waiting` in the compressed bytes."""
        self._used = 0
        """Bytes of `_waiting` that were decompressed."""
        self._member: Inflater | None = None
        self.member_at = self._returned = self._skip = 0
        """The compressed offset of the member at hand, or of what follows the last one; how many bytes of it were
        returned, and how many to skip."""
        self._feed = self._last = _PIECE
        """Compressed bytes to decompress at a time; the compressed size of the last member."""

    @property
    def _offset(self) -> int:
        return self._base + self._used

    def read(self, limit: int) -> bytes:
        """The next bytes, at most `limit`; b"" at the end and after damage."""
        while not (data := self._content.take_bytes(limit)):
            if not self._advance(limit):
                return b""
        return data

    def close(self) -> None:
        """Close the temporary file."""
        self._content.drop()

    def _advance(self, limit: int) -> bool:
        """Decompress some more; returns False at the end and after damage."""
        member = None if self.damage is not None else self._member or self._begin_member()
        if member is None:
            return False
        if member.needs_input and self._used == len(self._waiting) and not self._more():
            self._cut_off(member)
            return True
        self._content.add(self._step(member, limit))
        if not self._waits() or self._member is None:
            size = self._content.release()
            self._returned += size
            self._decompressed += size
        if self._member is None:
            self.checked = self._decompressed
        return True

    def _waits(self) -> bool:
        """Whether what was decompressed is returned only after the member's checksum was compared."""
        if self._holds is None:
            assert self._checked_content is not None
            head = self._content.head(len(self._checked_content))
            if not self._checked_content.startswith(head):
                self._holds = False
            elif len(head) == len(self._checked_content):
                self._holds = True
            else:
                return True
        return self._holds

    def skip_damage(self) -> bool:
        """Continue with the next member that can be decompressed. Returns whether there is one."""
        if self._holds and self._rewind is not None:
            self._continue_at(self.member_at + 1)  # the damaged member may seem to contain the next one
        else:
            self._used += 1
        while True:
            start = self._waiting.find(MEMBER, self._used)
            if start < 0:
                self._used = max(len(self._waiting) - len(MEMBER) + 1, self._used)
                if not self._more():
                    return False
            else:
                self._used = start
                self._ahead(_TRIAL)
                if self._unwraps():
                    self._member = self.damage = None
                    self.cut_off = False
                    return True
                self._used += 1

    def members_follow(self) -> bool:
        """Whether after damage whole members follow one another up to the end, or to a torn one. Needs `rewind`.

        A gzip file that is a value in a member, and stands there as it is, does not count: other bytes follow it.
        """
        assert self._rewind is not None
        at = self._offset
        follow = _have_members(self._read_raw, self._rewind, self.member_at + 1)
        self._continue_at(at)
        return follow

    def _ahead(self, size: int) -> None:
        """Have this many bytes that are not used yet, or all there are."""
        while len(self._waiting) - self._used < size and self._more():
            pass

    def _more(self) -> bool:
        """Read more, after what is not used yet. Returns whether there was any."""
        more = self._read_raw(_PIECE)
        self._base, rest = self._offset, self._waiting[self._used :]
        self._waiting, self._used = rest + more, 0
        return bool(more)

    def _begin_member(self) -> Inflater | None:
        self._ahead(len(MAGIC) if self._rewind is None else _SMALL)
        if self._used == len(self._waiting):
            return None
        self.member_at, self._returned = self._offset, 0
        if not self._waiting.startswith(MAGIC, self._used):
            self.damage = f"the gzip data is followed by something else at compressed byte {self._offset}"
            self.cut_off = self._waiting[self._used :] == MAGIC[:1]
            return None
        # A library copies what it does not use: give it not much more than the last member needed.
        self._feed = min(max(2 * self._last, _SMALL), _PIECE)
        plain = self._rewind is not None and self._waiting[self._used : self._used + 4] in _PLAIN
        self._member = (fast_inflater() if plain else None) or ExactInflater()
        return self._member

    def _step(self, member: Inflater, limit: int) -> bytes:
        """Decompress some of what waits."""
        given = memoryview(self._waiting)[self._used : self._used + self._feed]
        try:
            data = member.decompress(given, limit)
        except InflateErrors as error:
            if not isinstance(member, ExactInflater):
                self._begin_again()
            elif len(given) > 1:
                self._feed = len(given) // 16 or 1
            else:
                reason = str(error).rpartition(": ")[2]
                self._damaged(f"is damaged: {reason}, found at compressed byte {self._offset}")
            return b""
        self._used += len(given) - len(member.unused_data)
        if member.eof:
            self._member, self._last = None, self._offset - self.member_at
        if self._skip:
            data, self._skip = data[self._skip :], max(self._skip - len(data), 0)
        return data

    def _cut_off(self, member: Inflater) -> None:
        if isinstance(member, ExactInflater):
            self.cut_off = self._rewind is None or not self.members_follow()
            if self.cut_off:
                self._damaged(f"is cut off: the data end at compressed byte {self._offset}")
            else:
                self._damaged("is damaged: whole members follow before its end")
        else:
            self._begin_again()  # isal may have kept the last byte

    def _begin_again(self) -> None:
        """Decompress the member exactly, and skip what was returned of it."""
        self._continue_at(self.member_at)
        self._content.drop()
        self._member, self._skip = ExactInflater(), self._returned

    def _continue_at(self, offset: int) -> None:
        assert self._rewind is not None
        self._rewind(offset)
        self._waiting, self._base, self._used = b"", offset, 0

    def _damaged(self, what: str) -> None:
        self._content.drop()
        self.damage = f"the gzip member at compressed byte {self.member_at} {what}"

    def _unwraps(self) -> bool:
        try:
            return bool(ExactInflater().decompress(self._waiting[self._used : self._used + _TRIAL], _TRIAL))
        except zlib.error:
            return False


def _have_members(read_raw: Callable[[int], bytes], rewind: Callable[[int], object], offset: int) -> bool:
    """As Gunzip.members_follow(), from this offset on."""
    failed: set[int] = set()
    for at in _beginnings(read_raw, rewind, offset):
        if at in failed:
            continue
        rewind(at)
        gunzip = Gunzip(lambda size: read_raw(min(size, _TRIAL)))
        members = {at}
        while gunzip.read(_PIECE):
            members.add(at + gunzip.member_at)
        if gunzip.damage is None or (gunzip.cut_off and gunzip.member_at > 0):
            return True
        failed |= members  # from these it fails at the same place
    return False


def _beginnings(read_raw: Callable[[int], bytes], rewind: Callable[[int], object], offset: int) -> Iterator[int]:
    """Where the bytes from an offset on have the beginning of a member."""
    kept = b""
    while True:
        rewind(offset + len(kept))
        piece = read_raw(_PIECE)
        if not piece:
            return
        data = kept + piece
        at = data.find(MEMBER)
        while at >= 0:
            yield offset + at
            at = data.find(MEMBER, at + 1)
        kept = data[-len(MEMBER) + 1 :]
        offset += len(data) - len(kept)


class _Content:
    """Decompressed bytes, which are taken once they are released. Those that do not fit in memory are in a file."""

    def __init__(self) -> None:
        self._pieces = deque[bytes]()
        self._held = 0
        """How many bytes are in these."""
        self._rest = SpoolFile("keep a gzip member until its checksum was compared", error=InputError)
        """What follows them."""
        self._taken = 0
        """How much of that was taken."""
        self._released = 0

    def add(self, data: bytes) -> None:
        """Add bytes that are not released. Raises InputError."""
        if self._rest.size or self._held + len(data) > _IN_MEMORY:
            self._rest.write(data)
        elif data:
            self._pieces.append(data)
            self._held += len(data)

    def head(self, size: int) -> bytes:
        """The first `size` bytes, fewer only if there are no more."""
        return (b"".join(self._pieces) + self._rest.read(self._taken, size))[:size]

    def release(self) -> int:
        """Release everything; returns how many bytes."""
        before, self._released = self._released, self._held + self._rest.size - self._taken
        return self._released - before

    def take_bytes(self, limit: int) -> bytes:
        """The next bytes, at most `limit`; b"" if none are released."""
        limit = min(limit, self._released)
        if self._pieces and limit:
            data = self._pieces.popleft()
            if len(data) > limit:
                self._pieces.appendleft(data[limit:])
                data = data[:limit]
            self._held -= len(data)
        else:
            data = self._rest.read(self._taken, limit)
            self._taken += len(data)
            if data and self._taken == self._rest.size:
                self._rest.close()
                self._taken = 0
        self._released -= len(data)
        return data

    def drop(self) -> None:
        self._pieces.clear()
        self._rest.close()
        self._held = self._taken = self._released = 0
