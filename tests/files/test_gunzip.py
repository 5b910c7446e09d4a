"""Gunzip with isal and with zlib: the same bytes, the same damage at the same offset."""

from __future__ import annotations

import gzip
import io
import random
import zlib
from collections.abc import Iterator
from itertools import pairwise

import pytest

from pgtail.files import deflate
from pgtail.files.gunzip import Gunzip

igzip_lib = pytest.importorskip("isal.igzip_lib")

LIMIT = 1 << 20


def read(data: bytes, *, fast: bool, limit: int = LIMIT, piece: int = LIMIT, skip: bool = False) -> list[bytes | str]:
    """The results of Gunzip: data, and every damage after the data before it."""
    file = io.BytesIO(data)
    gunzip = Gunzip(lambda size: file.read(min(size, piece)), file.seek if fast else None)
    found: list[bytes | str] = []
    while True:
        found.append(b"".join(iter(lambda: gunzip.read(limit), b"")))
        if gunzip.damage is None:
            return found
        found.append(gunzip.damage)
        if not (skip and gunzip.skip_damage()):
            return found


def text(rng: random.Random, size: int) -> bytes:
    words = [rng.randbytes(rng.randint(1, 9)) for _ in range(40)]
    return b"".join(rng.choices(words, k=size // 5))


def with_everything(data: bytes) -> bytes:
    """A member whose header has an extra field, a name, and a comment."""
    member = bytearray(gzip.compress(data, mtime=0))
    member[3] |= 4 | 8 | 16
    return bytes(member[:10]) + b"\5\0extra" + b"name\0" + b"comment\0" + bytes(member[10:])


def named(data: bytes) -> bytes:
    """As the program gzip writes it."""
    written = io.BytesIO()
    with gzip.GzipFile("frames.bin", "wb", 6, written) as file:
        file.write(data)
    return written.getvalue()


def in_blocks(data: bytes) -> bytes:
    """Stored, fixed and dynamic blocks, and empty ones of flushes."""
    member = zlib.compressobj(6, zlib.DEFLATED, 31)
    parts = [data[start:stop] for start, stop in pairwise(range(0, len(data) + 1000, 1000))]
    flushed = [member.compress(part) + member.flush(zlib.Z_FULL_FLUSH) for part in parts]
    return b"".join(flushed) + member.flush()


WRITERS = [
    lambda data: zlib.compress(data, 1, 31),
    lambda data: zlib.compress(data, 9, 31),
    lambda data: zlib.compress(data, 0, 31),
    lambda data: igzip_lib.compress(data, 2, igzip_lib.COMP_GZIP),
    named,
    with_everything,
    in_blocks,
]


def examples() -> Iterator[tuple[bytes, bytes]]:
    """Gzip data of one to many members, and its contents."""
    rng = random.Random(8)
    for writer in WRITERS:
        for size in (0, 1, 300, 20_000):
            content = text(rng, size)
            yield writer(content), content
    contents = [text(rng, rng.choice([0, 5, 700, 9000])) for _ in range(60)]
    yield b"".join(rng.choice(WRITERS)(content) for content in contents), b"".join(contents)
    large = text(rng, 3 << 20)
    yield named(large) + igzip_lib.compress(large, 0, igzip_lib.COMP_GZIP), large * 2


EXAMPLES = list(examples())
SHORT = [data for data, _ in EXAMPLES if 0 < len(data) < 12_000]


@pytest.mark.parametrize("fast", [True, False], ids=["isal", "zlib"])
@pytest.mark.parametrize("piece", [1, 7, 4096, LIMIT])
def test_every_kind_of_member(piece: int, fast: bool) -> None:
    for data, content in EXAMPLES:
        if len(data) < 1000 * piece:
            assert read(data, fast=fast, piece=piece) == [content]
            assert read(data, fast=fast, piece=piece, limit=max(len(content) // 99, 1)) == [content]


def test_cut_off_anywhere() -> None:
    for data in SHORT:
        for size in {*range(min(len(data), 400)), *range(1, len(data), 97)}:
            exact = read(data[:size], fast=False)
            assert read(data[:size], fast=True) == exact
            assert isinstance(exact[-1], bytes) or size < 2 or f"end at compressed byte {size}" in exact[-1]


def test_data_after_the_last_member() -> None:
    for data in SHORT:
        for rest in (b"\0", bytes(7), bytes(8), bytes(600), b"\x1f", b"\x1f\x8b", b"0123456789", b"\x1f\x8b\x08\xff"):
            exact = read(data + rest, fast=False)
            assert read(data + rest, fast=True) == exact
            assert isinstance(exact[-1], str)


def test_a_flipped_bit() -> None:
    rng = random.Random(3)
    for data, content in EXAMPLES:
        for _ in range(400 if len(data) < 12_000 else 4):
            damaged = bytearray(data)
            damaged[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            exact = read(bytes(damaged), fast=False)
            assert read(bytes(damaged), fast=True) == exact
            assert exact == [content] or len(exact) == 2


def test_isal_accepts_data_whose_checksum_matches() -> None:
    """zlib refuses codes that are incomplete and not used; isal does not."""
    data = bytearray(zlib.compress(bytes(3000), 9, 31))
    found = []
    for place in range(80, 8 * len(data) - 64):
        data[place // 8] ^= 1 << place % 8
        exact, other = (read(bytes(data), fast=fast) for fast in (False, True))
        data[place // 8] ^= 1 << place % 8
        if exact != other:
            found.append(other)
    assert found in ([], [[bytes(3000)]] * len(found))


def test_data_after_damage() -> None:
    rng = random.Random(4)
    contents = [text(rng, 5000) for _ in range(9)]
    members = [rng.choice(WRITERS)(content) for content in contents]
    for broken in range(9):
        hole = members[broken][: len(members[broken]) // 2]
        data = b"".join([*members[:broken], hole, *members[broken + 1 :]])
        exact, found = (read(data, fast=fast, skip=True) for fast in (False, True))
        assert found == exact
        # The cut-off member may end in the middle of a later one, which is lost as well.
        rest = found[2] if len(found) > 2 else b""
        assert rest in [b"".join(contents[next_:]) for next_ in range(broken + 1, 10)]


MEMBERS = [gzip.compress(random.Random(size).randbytes(size), mtime=0) for size in (0, 5, 300, 7000, 2, 900)]


def is_cut_off(data: bytes) -> bool:
    file = io.BytesIO(data)
    gunzip = Gunzip(file.read, file.seek)
    while gunzip.read(LIMIT):
        pass
    assert gunzip.damage is not None
    return gunzip.cut_off


def test_a_flipped_bit_of_a_whole_member_is_no_torn_one() -> None:
    """A bit that says the header has an extra field or a name can make a member seem to have all that follow."""
    for data in (b"".join(MEMBERS), b"".join(MEMBERS)[:-7]):
        begin = 0
        for member in MEMBERS[:3]:
            damaged = bytearray(data)
            damaged[begin + 3] |= 4
            assert not is_cut_off(bytes(damaged))
            begin += len(member)


def test_gzip_in_a_torn_member_is_not_taken_for_members() -> None:
    """A stored block has what was compressed already as it is."""
    values = MEMBERS[1] + b"between" + MEMBERS[2] + MEMBERS[3]
    torn = gzip.compress(random.Random(2).randbytes(2000) + values + b"more" * 50, 0)
    for size in range(torn.index(values) + len(values) + 1, len(torn)):
        assert is_cut_off(MEMBERS[1] + torn[:size])


def test_many_small_members_take_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call gets little more input than it needs, because a library copies the rest."""
    given = 0

    class Counted(deflate.ExactInflater):
        def decompress(self, data: bytes | memoryview, max_length: int, /) -> bytes:
            nonlocal given
            given += len(data)
            return super().decompress(data, max_length)

    monkeypatch.setattr("pgtail.files.gunzip.ExactInflater", Counted)
    data = b"".join(zlib.compress(b"%d" % number, 1, 31) for number in range(20_000))
    assert len(b"".join(read(data, fast=False))) == len("".join(map(str, range(20_000))))  # type: ignore[arg-type]
    assert given < 400 * len(data)


@pytest.mark.usefixtures("gzip_library")
def test_any_gzip_reads_the_written_data() -> None:
    rng = random.Random(5)
    for size in (1, 100, 1 << 20, 5 << 20):
        content = text(rng, size)
        assert gzip.decompress(deflate.compress(content)) == content
