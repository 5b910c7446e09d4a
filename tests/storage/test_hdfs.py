"""HDFS by pyarrow.fs: its code reads a local file system here, because there is no HDFS server to test with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.captures import data_frames, record
from tests.support.corpus import capture
from tests.support.run import here

pytest.importorskip("pyarrow")


def test_libraries_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setenv("HADOOP_HOME", "/nowhere")
    result = here("decode", "hdfs://127.0.0.1:9/a")
    assert (result.status, "needs Java and Hadoop's libhdfs" in result.stderr) == (2, True), result.stderr


def test_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyarrow.fs import LocalFileSystem

    monkeypatch.setattr("pgtail.storage.hdfs.file_system", lambda server: LocalFileSystem())
    record(tmp_path, data_frames(capture("A_dml", "p1")))
    for command in ("decode", "stats", "inspect"):
        local, remote = (here(command, "-o", "json", name) for name in (tmp_path, f"hdfs://host{tmp_path}"))
        assert (remote.status, remote.stdout, remote.stderr) == (0, local.stdout, "")
    missing = here("decode", f"hdfs://host{tmp_path}/missing")
    assert (missing.status, "No such file" in missing.stderr) == (1, True)


def test_recording_is_refused(tmp_path: Path) -> None:
    result = here("record", "-S", "cap", "-D", "hdfs://host/a", "--spool", tmp_path / "spool")
    assert (result.status, "it has no conditional put" in result.stderr) == (2, True)
