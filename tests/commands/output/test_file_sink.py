"""A file of -f whose name ends in .gz is gzip, and is not appended to."""

from __future__ import annotations

import gzip
import os
import random
import resource
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from pgtail.commands.output.directory_sink import DirectorySink
from pgtail.commands.output.file_sink import FileSink, continue_file, open_sink
from pgtail.errors import OutputError
from pgtail.files import deflate
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


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """As a disk with so much room: more of a file is not written."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        with pytest.raises(OutputError, match="File too large"):
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("name", ["x.json", "x.json.gz", "x/"])
def test_a_full_disk_leaves_whole_lines(tmp_path: Path, name: str) -> None:
    """The next run continues the file."""
    line = random.randbytes(500).hex().encode() + b"\n"
    with file_size_limit(10_500), ExitStack() as stack:
        if name == "x/":
            sink: FileSink | DirectorySink = DirectorySink(str(tmp_path / name))
        else:
            sink = stack.enter_context(open_sink(str(tmp_path / name)))
        for _ in range(50):
            (sink.open(("s", "t"), line) if isinstance(sink, DirectorySink) else sink).write(line)
            sink.flush()
    data = (tmp_path / name / "s.t.csv" if name == "x/" else tmp_path / name).read_bytes()
    data = gzip.decompress(data) if name.endswith(".gz") else data
    count, torn = divmod(len(data), len(line))
    assert (count >= 10, torn, data) == (True, 0, line * count)


def test_what_another_process_appended_to_a_full_disk_is_not_cut_off(tmp_path: Path) -> None:
    """Two that append to one file: only the end of what is there is known to be one's own."""
    path, line, other = tmp_path / "x.json", b"a" * 999 + b"\n", b"other\n"

    class Shared(FileSink):
        def _write_some(self, data: memoryview) -> int:
            count = super()._write_some(data)
            if count < len(data):
                soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
                resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))  # the other's disk has room
                with path.open("ab") as file:
                    file.write(other)
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            return count

    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        with file_size_limit(10_500):
            sink = Shared(fd, str(path))
            sink.write(line * 11)
            sink.flush()
    finally:
        os.close(fd)
    assert path.read_bytes().endswith(other)


def test_large_output_is_several_members(tmp_path: Path) -> None:
    file, plain = tmp_path / "x.csv.gz", tmp_path / "large.bin"
    plain.write_bytes(read(SMALL) * 40)
    result = decode("-f", file, plain)
    assert result.status == 0
    data = file.read_bytes()
    assert gzip.decompress(data) == decode(plain).stdout
    assert data.count(b"\x1f\x8b\x08\0") > 4


@pytest.mark.usefixtures("gzip_library")
@pytest.mark.parametrize("name", ["decode", "inspect"])
def test_a_gz_file_without_a_change_is_gzip(tmp_path: Path, name: str) -> None:
    file = tmp_path / "x.json.gz"
    result = decode("-f", file, "-t", "nosuch", "--xid", "1", SMALL, name=name)
    assert (result.status, result.stdout) == (0, b"")
    assert file.stat().st_size > 0
    assert gzip.decompress(file.read_bytes()) == b""


def test_a_large_row_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it is compressed; small ones beside it are joined."""
    row, file, objects = random.Random(1).randbytes(3 << 20), tmp_path / "x.gz", []

    compress = deflate.compress

    def compressing(data: memoryview) -> bytes:
        objects.append(data.obj)
        return compress(data)

    with open_sink(str(file)) as sink:
        monkeypatch.setattr(deflate, "compress", compressing)
        for part in (b"a\n", b"b\n", row):
            sink.write(part)
        sink.flush()
    assert gzip.decompress(file.read_bytes()) == b"a\nb\n" + row
    assert len(objects) == 2
    assert objects[1] is row


@pytest.mark.parametrize(
    "command", [("stream", "shop"), ("expect", "shop"), ("stats", "--slot", "s", "--watch", "shop")]
)
def test_what_appends_refuses_gzip_files_and_directories(tmp_path: Path, command: tuple[str, ...]) -> None:
    name, *arguments = command
    for file, cure in ((tmp_path / "x.json.gz", "pgtail record"), (f"{tmp_path}/", "pgtail decode -o csv -f")):
        result = decode("-f", file, *arguments, name=name)
        assert (result.status, result.stdout) == (2, b"")
        assert cure in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_lines_are_not_appended_to_a_gzip_file_of_another_name(tmp_path: Path) -> None:
    """gunzip ignores what follows the last member."""
    file = tmp_path / "x.json"
    file.write_bytes(data := gzip.compress(b"{}\n"))
    with open_sink(str(file), append=True) as sink, pytest.raises(OutputError, match="it is gzip"):
        continue_file(sink)
    assert file.read_bytes() == data
