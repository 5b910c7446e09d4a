"""SpoolFile against a bytearray, in memory, on disk, and across the limit between them."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

import pytest

from pgtail.errors import InputError, OutputError
from pgtail.files.spool import SpoolFile, SpoolLimit


@pytest.mark.parametrize("memory", [0, 100, 5_000, 1 << 30])
def test_spool_agrees_with_a_bytearray(memory: int) -> None:
    choose = random.Random(memory)
    model = bytearray()
    with closing(SpoolFile("test", memory=memory)) as spool:
        for _ in range(2_000):
            data = choose.randbytes(choose.choice((0, 1, 10, 300)))
            position = choose.randint(0, len(model))
            match choose.randrange(8):
                case 0:
                    spool.truncate(position)
                    del model[position:]
                case 1:
                    assert spool.write(data, position) == position
                    model[position : position + len(data)] = data
                case _:
                    assert spool.write(data) == len(model)
                    model += data
            assert spool.size == len(model)
            start = choose.randint(0, len(model))
            assert spool.read(start, 200) == model[start : start + 200]


@pytest.mark.parametrize("error", [OutputError, InputError])
def test_no_folder_for_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: type[Exception]) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    spool = SpoolFile("keep it", memory=3, error=error)
    spool.write(b"abc")
    with pytest.raises(error, match=r"cannot keep it in .*missing: No such file or directory; set TMPDIR to a dir"):
        spool.write(b"d")
    assert spool.read(0, 10) == b"abc"


def test_files_of_one_limit_share_it() -> None:
    limit = SpoolLimit(1_000, "allow more")
    with closing(SpoolFile("keep it", limit=limit)) as one, closing(SpoolFile("keep that", limit=limit)) as other:
        one.write(bytes(600))
        other.write(bytes(400))
        other.write(bytes(100), 300)
        with pytest.raises(OutputError, match=r"^cannot keep that: more than 1.0 kB would be on disk; allow more$"):
            other.write(b"x")
        assert other.size == 400
        one.truncate(100)
        other.write(bytes(500))
        assert limit.used == 1_000
    assert limit.used == 0


def test_what_is_in_memory_does_not_count() -> None:
    limit = SpoolLimit(50, "allow more")
    with closing(SpoolFile("keep it", memory=100, limit=limit)) as spool:
        spool.write(bytes(100))
        assert limit.used == 0
        with pytest.raises(OutputError, match="cannot keep it"):
            spool.write(b"x")
        assert spool.read(0, 200) == bytes(100)
