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
        assert gzip_end(io.BytesIO(data[:size])) == GzipEnd(last, b"\n" if last else b"", None), size


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


def test_the_members_of_a_large_file_are_not_all_read(tmp_path: Path) -> None:
    path = tmp_path / "large.gz"
    member = gzip.compress(random.Random(1).randbytes(1 << 20) + b"\n", 0)
    path.write_bytes(b"\xff" * (1 << 20) + member * 12)  # what is before the last 8 MiB is not read
    with path.open("rb") as file:
        assert gzip_end(file) == GzipEnd(path.stat().st_size, b"\n", None)
