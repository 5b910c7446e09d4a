"""Replacing files: which calls reach the system, and in which order; content and mode afterwards."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from pgtail.files.atomic import replace_file, sync_directory


def test_data_is_synced_before_the_rename_and_the_directory_after_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path, calls = tmp_path / "file", list[str]()
    real_sync, real_replace = os.fsync, os.replace

    def fsync(fd: int) -> None:
        calls.append("directory" if stat.S_ISDIR(os.fstat(fd).st_mode) else "file")
        real_sync(fd)

    def replace(path: Path, to: Path) -> None:
        calls.append("rename")
        real_replace(path, to)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    path.write_bytes(b"old and longer")
    replace_file(path, b"new")
    assert calls == ["file", "rename", "directory"]
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize(("number", "fails"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_a_directory_that_cannot_be_synced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int, fails: bool
) -> None:
    def fsync(fd: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)
    if fails:
        with pytest.raises(OSError, match=os.strerror(number)):
            sync_directory(tmp_path)
    else:
        sync_directory(tmp_path)
