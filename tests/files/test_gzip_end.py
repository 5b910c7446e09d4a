"""The end of a gzip file: after its last whole member, wherever the file was cut off, and nowhere in another file."""

from __future__ import annotations

import gzip
import io
import random
from pathlib import Path

import pytest

from pgtail.files import gzip_end as module
from pgtail.files.gzip_end import GzipEnd, gzip_end

CONTENTS = [random.Random(number).randbytes(size) + b"\n" for number, size in enumerate((0, 5, 300, 7000, 2, 900))]
MEMBERS = [gzip.compress(content, mtime=0) for content in CONTENTS]
ENDS = [sum(map(len, MEMBERS[:count])) for count in range(len(MEMBERS) + 1)]


@pytest.mark.usefixtures("gzip_library")
@pytest.mark.parametrize("tail", [8 << 20, 1000, 40], ids=["whole file", "its end", "less than a member"])
def test_a_file_cut_anywhere(monkeypatch: pytest.MonkeyPatch, tail: int) -> None:
    monkeypatch.setattr(module, "_TAIL", tail)
    data = b"".join(MEMBERS)
    for size in {*range(0, len(data), 13), *ENDS, *(end + more for end in ENDS[:-1] for more in range(1, 20))}:
        last = max(end for end in ENDS if end <= size)
        assert gzip_end(io.BytesIO(data[:size])) == GzipEnd(last, b"\n" if last else b"", size - last, None), size


@pytest.mark.parametrize("tail", [8 << 20, 1000])
def test_other_damage_and_other_files_are_refused(monkeypatch: pytest.MonkeyPatch, tail: int) -> None:
    monkeypatch.setattr(module, "_TAIL", tail)
    data = b"".join(MEMBERS)
    for other in (b"{}\n" * 1000, b"\x1f\x8c" + bytes(3000)):
        assert gzip_end(io.BytesIO(other)).problem == "it is not gzip"
    for rest in (bytes(40), b"{}\n", b"\x1f\x8b\x08" + b"\xff" * 60, MEMBERS[3][:-8] + bytes(8)):
        end = gzip_end(io.BytesIO(data + rest))
        assert end.offset == len(data)
        assert end.problem is not None


@pytest.mark.usefixtures("gzip_library")
@pytest.mark.parametrize("torn", [0, 7], ids=["whole", "torn"])
@pytest.mark.parametrize("tail", [8 << 20, 8200, 1000])
def test_a_flipped_bit_of_a_whole_member_is_no_torn_one(monkeypatch: pytest.MonkeyPatch, tail: int, torn: int) -> None:
    """A bit that says the header has an extra field or a name can make a member seem to have all that follow."""
    monkeypatch.setattr(module, "_TAIL", tail)
    data = b"".join(MEMBERS)
    data = data[: len(data) - torn]
    for begin in ENDS[:-3]:
        for bit in range(8 * begin, 8 * begin + 80):
            damaged = bytearray(data)
            damaged[bit // 8] ^= 1 << bit % 8
            end = gzip_end(io.BytesIO(bytes(damaged)))
            assert end.problem is not None or end.offset == ENDS[-2 if torn else -1]


def test_gzip_in_a_torn_member_is_not_taken_for_members() -> None:
    """A stored block has what was compressed already as it is."""
    whole, values = MEMBERS[1], MEMBERS[1] + b"between" + MEMBERS[2] + MEMBERS[3]
    torn = gzip.compress(random.Random(2).randbytes(2000) + values + b"more" * 50, 0)
    begin = torn.index(values)
    for size in {*range(begin, begin + 40), *range(begin + len(values) + 1, len(torn))}:
        end = gzip_end(io.BytesIO(whole + torn[:size]))
        assert end == GzipEnd(len(whole), b"\n", size, None) or size == begin + len(MEMBERS[1])


def test_the_members_of_a_large_file_are_not_all_read(tmp_path: Path) -> None:
    path = tmp_path / "large.gz"
    member = gzip.compress(random.Random(1).randbytes(1 << 20) + b"\n", 0)
    path.write_bytes(b"\xff" * (1 << 20) + member * 12)  # what is before the last 8 MiB is not read
    with path.open("rb") as file:
        assert gzip_end(file) == GzipEnd(path.stat().st_size, b"\n", 0, None)
