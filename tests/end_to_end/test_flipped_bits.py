"""One flipped bit of a capture or a gzipped dump: no other row is shown, or the run says what no checksum covers."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import random
import re
import shutil
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import orjson
import pytest

from pgtail.capture.format import END, OPEN, parameter
from pgtail.capture.recorder import Rotation
from pgtail.capture.recovery import recover
from pgtail.errors import InputError
from pgtail.pgoutput.scalars import parse_lsn
from tests.support import encode
from tests.support.captures import data_frames, lengths, record, segments
from tests.support.corpus import capture
from tests.support.run import Result, command, decode

SMALL = capture("D_twophase", "p1_no2pc", "pg18")
"""20 kB as a segment of 65 members."""
TOAST = capture("A_big", "p1_msg")
MEMBERS = Rotation(sync_size=2000)

CHECKED = re.compile(r"; checked up to the commit that ends at (\S+), and nothing after it")
NOT_CHECKED = re.compile(r"; nothing that was read of this file is checked|, and nothing after it")

SAMPLE = 150
"""Bits of the small capture to flip, where not all of them are."""
FEW = 40


def large() -> Iterator[bytes]:
    """Frames whose segment has 200 kB."""
    choose = random.Random(1)
    for number in range(1, 600):
        place = number << 12
        values = [encode.insert(str(row), choose.randbytes(150).hex()) for row in range(number % 5)]
        head = [encode.relation()] if number == 1 else []
        for message in (encode.begin(number, place), *head, *values, encode.commit(place, place + 8)):
            yield encode.frame(message, place)


def segment(directory: Path, frames: Iterable[bytes], *, compress: bool = True) -> Path:
    """A capture with one segment."""
    record(directory, frames, MEMBERS, compress=compress)
    [path] = segments(directory)
    return path


def ends(data: bytes) -> list[int]:
    """Where the members of gzip data end."""
    found, rest = [], data
    while rest:
        member = zlib.decompressobj(31)
        member.decompress(rest)
        rest = member.unused_data
        found.append(len(data) - len(rest))
    return found


def flips(data: bytes, choose: random.Random, count: int) -> Iterator[bytes]:
    """The data with one bit flipped, for a sample of the bits."""
    for bit in sorted(choose.sample(range(8 * len(data)), min(count, 8 * len(data)))):
        yield data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]


def check(result: Result, whole: Result) -> int:
    """Check that only rows of the whole are shown, and that the exit status is 1 if any is missing; returns how many.

    Most bits of a gzip header mean nothing to a reader.
    """
    assert "Traceback" not in result.stderr
    assert result.lines == whole.lines[: len(result.lines)]
    assert result.status == ("error: " in result.stderr)
    assert result.status == 1 or result.lines == whole.lines
    return len(result.lines)


@pytest.mark.parametrize("name", ["small", "toast", "large"])
def test_a_capture_shows_only_rows_that_were_sent(tmp_path: Path, seed: random.Random, name: str) -> None:
    frames = large() if name == "large" else data_frames(SMALL if name == "small" else TOAST)
    path = segment(tmp_path / "capture", frames)
    data, whole = path.read_bytes(), decode(path)
    assert (whole.status, whole.stderr) == (0, "")
    assert len(data) > {"small": 19_000, "toast": 18_000, "large": 200_000}[name]
    shown = Counter[int]()
    for damaged in flips(data, seed, SAMPLE if name == "small" else FEW):
        path.write_bytes(damaged)
        shown[check(decode(path), whole)] += 1
    print(f"{name}: {shown.total()} flips, {len(shown)} different numbers of rows")
    assert len(shown) > 2  # the members before the damaged one


def test_a_capture_as_a_directory_a_pipe_and_an_open_segment(tmp_path: Path, seed: random.Random) -> None:
    path = segment(tmp_path / "capture", data_frames(SMALL))
    data, whole = path.read_bytes(), decode(path)
    for damaged in flips(data, seed, FEW):
        path.write_bytes(damaged)
        check(decode(path.parent), whole)
        check(decode(input=damaged), whole)
    open_ = path.rename(path.with_suffix(OPEN))
    [*_, last, _] = ends(data)
    for damaged in [*flips(data, seed, FEW), data[:3] + bytes([data[3] ^ 4]) + data[4:]]:
        open_.write_bytes(damaged)
        result = decode(path.parent)
        if damaged[:last] == data[:last]:  # damage of the last member may look as a crash leaves it
            assert result.lines == whole.lines[: len(result.lines)]
            assert result.lines == whole.lines or "compressed byte" in result.stderr
            assert result.status == ("error: " in result.stderr)
        else:
            check(result, whole)
            refused = decode("--verify", path.parent)
            assert (refused.status, refused.stdout) == (1, b"") or refused == whole
    open_.write_bytes(damaged)
    check(command("decode", "-o", "json", "-", input=damaged), whole)


def test_a_segment_without_compression_shows_nothing(tmp_path: Path, seed: random.Random) -> None:
    """With --resync all of it, named as unchecked."""
    path = segment(tmp_path / "capture", data_frames(SMALL), compress=False)
    data, whole = path.read_bytes(), decode(path)
    assert (whole.status, whole.stderr) == (0, "")
    for damaged in flips(data, seed, FEW):
        path.write_bytes(damaged)
        for name in ("decode", "inspect"):
            result = decode(path, name=name)
            assert (result.status, result.stdout) == (1, b"")
            assert "; nothing of it was read" in result.stderr
        result = decode("--resync", path)
        assert result.status == 1
        assert "nothing of it was read" in result.stderr
        assert re.search("nothing in it is checked|nothing that was read of this file is checked", result.stderr)
        assert result.stdout
        assert (
            NOT_CHECKED.search((result := decode(input=damaged)).stderr) or "nothing in it is checked" in result.stderr
        )


def test_verify_compares_the_checksum_of_a_segment_under_any_name(tmp_path: Path, seed: random.Random) -> None:
    """Without compression, and with a whole member missing, the SHA-256 at its end is the only checksum."""
    plain = segment(tmp_path / "plain", data_frames(SMALL), compress=False).read_bytes()
    data = segment(tmp_path / "capture", data_frames(SMALL)).read_bytes()
    some = ends(data)
    without = [data[:at] + data[stop:] for at, stop in itertools.pairwise(some[:-1])]
    path, capture_ = tmp_path / "renamed.bin", tmp_path / "other.pgcap"
    for whole in (plain, data, plain + plain, data + data):
        path.write_bytes(whole)
        assert decode("--verify", path).stdout == decode(path).stdout != b""
    for damaged in [*flips(plain[20:], seed, 10), *seed.sample(without, 5)]:
        for file in (path, capture_):
            file.write_bytes(damaged if damaged[:2] == data[:2] else plain[:20] + damaged)
            refused = decode("--verify", file)
            assert (refused.status, refused.stdout) == (1, b"")
            assert re.search("its checksum is wrong|the end is missing|something follows its end", refused.stderr)
    capture_.write_bytes(data[some[0] :])
    assert "its checksum is wrong" in decode("--verify", capture_).stderr


def test_resync_ends_in_a_segment_of_garbage_with_a_right_checksum(tmp_path: Path) -> None:
    path, body = tmp_path / "x.pgcap", b"\xff" * 5000
    path.write_bytes(body + parameter(END, f"0 {len(body)} {hashlib.sha256(body).hexdigest()}"))
    result = decode("--resync", path)
    assert (result.status, result.stdout) == (1, b"")
    assert "nothing decodes after that" in result.stderr


def test_the_report_of_stats_counts_only_whole_members(tmp_path: Path, seed: random.Random) -> None:
    path = segment(tmp_path / "capture", data_frames(SMALL))
    data = path.read_bytes()
    reports = set()
    for end in [0, *ends(data)]:
        path.write_bytes(data[:end])
        reports.add(decode(path, name="stats").stdout)
    for damaged in flips(data, seed, FEW):
        path.write_bytes(damaged)
        result = decode(path, name="stats")
        # Before the first whole member there is nothing to report, only the error.
        assert result.stdout in reports or (result.stdout == b"" and "member at compressed byte 0 is" in result.stderr)
        assert result.status == ("error: " in result.stderr)


def test_inspect_shows_only_messages_that_were_sent(tmp_path: Path, seed: random.Random) -> None:
    path = segment(tmp_path / "capture", data_frames(SMALL))
    data, whole = path.read_bytes(), decode(path, name="inspect")
    assert whole.status == 0
    for damaged in flips(data, seed, FEW):
        path.write_bytes(damaged)
        check(decode(path, name="inspect"), whole)


def test_recovery_takes_only_rows_that_were_sent(tmp_path: Path, seed: random.Random) -> None:
    """Damage that no crash explains is an error, and changes no file."""
    capture_ = tmp_path / "capture"
    path = segment(capture_, data_frames(SMALL))
    data, whole, refused = path.read_bytes(), decode(path), 0
    state = (capture_ / "capture.json").read_bytes()
    for damaged in flips(data, seed, FEW):
        shutil.rmtree(capture_)
        capture_.mkdir()
        (capture_ / "capture.json").write_bytes(state)
        path.with_suffix(OPEN).write_bytes(damaged)
        try:
            recover(capture_, compress=True)
        except InputError as error:
            refused += 1
            assert "is damaged" in str(error)
            assert path.with_suffix(OPEN).read_bytes() == damaged
        else:
            result = decode(path)
            assert result.status == 0
            assert result.lines == whole.lines[: len(result.lines)]
    assert refused > FEW // 2


# -- gzip of others ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1 << 30, 3000], ids=["one member", "many members"])
@pytest.mark.parametrize("live", [False, True], ids=["file", "pipe"])
def test_a_foreign_file_shows_other_rows_only_where_it_says_so(
    tmp_path: Path, seed: random.Random, size: int, live: bool
) -> None:
    content = lengths(data_frames(SMALL))
    data = b"".join(gzip.compress(content[at : at + size]) for at in range(0, len(content), size))
    path = tmp_path / "dump.bin.gz"
    path.write_bytes(data)
    whole, named, other = decode(path), 0, 0
    assert whole.status == 0
    for damaged in flips(data, seed, 3 if live else SAMPLE // 2):
        path.write_bytes(damaged)
        result = command("decode", "-o", "json", "-", input=damaged) if live else decode(path)
        same = result.lines == whole.lines[: len(result.lines)]
        assert same or NOT_CHECKED.search(result.stderr), result.stderr
        assert result.status == 1 or result.lines == whole.lines
        if NOT_CHECKED.search(result.stderr):
            likely = "; a likely cause is damage of the gzip data" + (";" if live else ", which --verify finds;")
            assert ("gzip member at compressed byte" in result.stderr) != (likely in result.stderr)
        other += not same
        found = CHECKED.search(result.stderr)
        if found:
            named += 1
            assert upto(result, found[1]) == upto(whole, found[1]) != []
        refused = decode("--verify", path)
        assert (refused.status, refused.stdout) == (1, b"") or refused == whole
    assert named or size > 3000 or live
    assert other or live


def upto(result: Result, end_lsn: str) -> list[bytes]:
    """The rows that were committed before this position."""
    return [
        line
        for line in result.lines
        if parse_lsn(orjson.loads(line).get("commit_lsn") or orjson.loads(line)["lsn"]) < parse_lsn(end_lsn)
    ]
