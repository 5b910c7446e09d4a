"""The checksum at the end of a segment: CRC-32, and SHA-256 in segments that older versions wrote."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import shutil
import zlib
from collections import Counter
from pathlib import Path

import pytest

from pgtail.capture.checksum import Checksum
from pgtail.capture.format import BEGINNING, END, parameter
from pgtail.capture.segment import SegmentCheck
from pgtail.files import MAGIC
from pgtail.files.deflate import compress
from tests.support.captures import data_frames, head, read, read_frames, record, segments, split
from tests.support.corpus import capture
from tests.support.run import decode, here

OLDER = Path(__file__).parents[1] / "captures/older"
"""Captures that versions of pgtail wrote before format 3, with SHA-256."""
HEAD = {number: BEGINNING + number.encode() + b"\0" for number in "123"}


def checksum(data: bytes) -> str:
    return f"{zlib.crc32(data):08x}" if data.startswith(HEAD["3"]) else hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("number", HEAD)
@pytest.mark.parametrize("size", [0, 1, 21, 600, 5000])
def test_it_is_the_same_however_the_bytes_are_divided(number: str, size: int, seed: random.Random) -> None:
    data = HEAD[number] + seed.randbytes(size)
    content = data + parameter(END, f"0 {len(data)} {checksum(data)}")
    for most in (1, 30, 700, len(content)):
        found, check, at = Checksum(), SegmentCheck(), 0
        while at < len(content):
            piece = content[at : at + seed.randint(1, most)]
            found.update(piece[: max(len(data) - at, 0)])
            check.feed(piece, at)
            at += len(piece)
        assert found.hexdigest() == checksum(data)
        assert check.problem() is None
    damaged = bytearray(content)
    damaged[seed.randrange(len(HEAD[number]) - 1, len(data))] ^= 1 << seed.randrange(8)
    for wrong in (bytes(damaged), data + parameter(END, f"p {len(data)} {checksum(data)}")):
        check = SegmentCheck()
        check.feed(wrong, 0)
        assert check.problem() == "its checksum is wrong: a part is missing, damaged or moved"


@pytest.mark.parametrize("compressed", [True, False])
def test_a_newer_format_is_no_damage(compressed: bool, tmp_path: Path) -> None:
    """Its checksum may be one that is not known."""
    path, data = tmp_path / "0000000000000100-0000000001.pgcap", HEAD["3"].replace(b"3", b"4")
    data += parameter(END, f"0 {len(data)} 0123456789abcdef")
    path.write_bytes(compress(data) if compressed else data)
    for command in (
        ("decode", path),
        ("decode", tmp_path),
        ("decode", "--verify", path),
        ("stats", path),
        ("inspect", "--verify", path),
        ("capture", "verify", tmp_path),
    ):
        found = here(*command)
        assert found.status == 1, command
        assert "has format '4', which this version of pgtail does not know" in found.stderr, command
        assert "checksum" not in found.stderr, command


@pytest.mark.parametrize(("name", "frames"), [("format1", 148), ("uncompressed1", 40)])
def test_a_capture_of_format_1_is_read(name: str, frames: int, tmp_path: Path) -> None:
    expected = read_frames(itertools.islice(data_frames(capture("A_dml", "p1")), frames), tmp_path)
    found = read(OLDER / name)
    assert (found.status, found.stderr) == (0, "")
    assert found.lines == expected.lines != []


def test_a_capture_of_format_2_is_read() -> None:
    found = read(OLDER / "format2")
    assert (found.status, found.stderr) == (0, "")
    counts = Counter(json.loads(line)["op"] for line in found.lines)
    assert counts == {"snapshot": 50, "update": 4, "insert": 70, "delete": 1}, "as SQL changed the table"


@pytest.mark.parametrize("segment", sorted(OLDER.glob("*/*.pgcap")), ids=lambda path: path.parent.name)
def test_damage_of_an_older_segment_is_reported(segment: Path, tmp_path: Path, seed: random.Random) -> None:
    """Each member is whole: only the checksum of all shows it."""
    data, path = segment.read_bytes(), tmp_path / segment.name.replace(".snapshot", "")
    compressed = data.startswith(MAGIC)
    members = [zlib.decompress(member, 31) for member in split(data)] if compressed else [data]
    for _ in range(10):
        damaged, at = [*members], seed.randrange(max(len(members) - 1, 1))
        place = seed.randrange(20, len(members[at]))
        flipped = bytes([members[at][place] ^ 1 << seed.randrange(8)])
        damaged[at] = members[at][:place] + flipped + members[at][place + 1 :]
        path.write_bytes(b"".join(map(compress, damaged)) if compressed else damaged[0])
        assert decode("--verify", path).status == 1
    for at in range(1, len(members) - 2):
        moved = [*members[:at], members[at + 1], members[at], *members[at + 2 :]]
        path.write_bytes(b"".join(map(compress, moved)))
        assert decode("--verify", path).status == 1
    path.write_bytes(data)
    assert decode("--verify", path).status == 0


def test_recovery_of_an_older_segment_keeps_its_format(tmp_path: Path) -> None:
    """A recorder of an older version was killed: what it left is closed in its format, and a newer one goes on."""
    frames = [*data_frames(capture("A_dml", "p1"))]
    for path in (OLDER / "format1").iterdir():
        shutil.copy(path, tmp_path)
    last = segments(tmp_path)[-1]
    members = split(last.read_bytes())
    open_ = last.with_suffix(".pgcap.part")
    open_.write_bytes(b"".join(members[:-2]))
    last.unlink()
    record(tmp_path, itertools.islice(frames, 148, 300))
    numbers = [head(path)["pgtail.format"] for path in segments(tmp_path)]
    assert sorted(set(numbers)) == ["1", "3"]
    assert numbers == sorted(numbers)
    assert last in segments(tmp_path)
    found = read(tmp_path)
    assert found.status == 0, found.stderr
