"""A file of -f whose name ends in .gz is gzip, in every command; one that is continued keeps every whole member."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.support.corpus import capture, read
from tests.support.run import decode

SMALL = capture("A_dml", "p1").forms["recv.bin"]


@pytest.mark.usefixtures("gzip_library")
@pytest.mark.parametrize("name", ["decode", "inspect", "stats"])
def test_a_gz_file_has_what_standard_output_gets(tmp_path: Path, name: str) -> None:
    file = tmp_path / "x.json.gz"
    file.write_text("not gzip: it is overwritten")
    for _ in range(2):
        result = decode("-f", file, SMALL, name=name)
        assert (result.status, result.stdout, result.stderr) == (0, b"", "")
    whole = decode(SMALL, name=name).stdout
    assert gzip.decompress(file.read_bytes()) == whole
    assert 0 < file.stat().st_size < len(whole) / 3


def test_large_output_is_several_members(tmp_path: Path) -> None:
    file, plain = tmp_path / "x.csv.gz", tmp_path / "large.bin"
    plain.write_bytes(read(SMALL) * 40)
    result = decode("-f", file, plain)
    assert result.status == 0
    data = file.read_bytes()
    assert gzip.decompress(data) == decode(plain).stdout
    assert data.count(b"\x1f\x8b\x08\0") > 4
