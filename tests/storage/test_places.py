"""Paths and URIs, and local files."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

import pgtail.spark
import pgtail.storage
from pgtail.errors import InputError, OptionError, OutputError
from pgtail.storage import Conflict, is_uri, locate, parse_options
from pgtail.storage.local import LocalLocation
from tests.support.run import here


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("captures/shop", "captures/shop"),
        ("/captures/shop", "/captures/shop"),
        ("file:///captures/a%20b", "/captures/a b"),
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
        ("gs://bucket", "gs://bucket/"),
        ("az://container/a", "az://container/a"),
        ("abfss://container@account.dfs.core.windows.net/a", "abfss://container@account.dfs.core.windows.net/a"),
    ],
)
def test_locations(text: str, shown: str) -> None:
    place = locate(text)
    assert str(place) == shown
    assert pickle.loads(pickle.dumps(place)) == place
    assert (place / "x").name == "x"
    assert str(place / "x") == f"{shown.rstrip('/')}/x"


@pytest.mark.parametrize("package", [pgtail.storage, pgtail.spark])
def test_no_module_hides_a_function_that_is_imported_when_it_is_used(package: ModuleType) -> None:
    assert [name for name in package.__all__ if find_spec(f"{package.__name__}.{name}")] == []


@pytest.mark.parametrize("text", ["ftp://host/file", "s4://bucket/a", "s3:///a", "file://host/a"])
def test_what_is_no_location(text: str) -> None:
    assert is_uri(text)
    with pytest.raises(OptionError, match="expected|is file:"):
        locate(text)


def test_options() -> None:
    assert parse_options(["a=1", "b=x=y", "a=2"]).as_dict() == {"a": "2", "b": "x=y"}
    with pytest.raises(OptionError, match="expected KEY=VALUE") as caught:
        parse_options(["secret"])
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(("module", "uri"), [("obstore", "s3://bucket/a"), ("pyarrow", "hdfs://host/a")])
def test_a_missing_package(module: str, uri: str) -> None:
    code = f"import sys; sys.modules[{module!r}] = None\nfrom pgtail.cli import main; main(['decode', {uri!r}])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.returncode, f"needs the package {module}: pip install" in run.stderr) == (2, True)


@pytest.mark.parametrize("command", ["decode", "inspect", "stats"])
def test_a_server_is_no_storage(command: str) -> None:
    ran = here(command, "postgresql://localhost/shop")
    assert ran.status == 2
    assert "postgresql:// is no storage that pgtail knows: expected s3://" in ran.stderr
    assert ran.stderr.endswith("; pgtail stream reads a server\n")


def test_local_files(tmp_path: Path) -> None:
    folder = locate(str(tmp_path))
    with pytest.raises(InputError, match="No such file"):
        (folder / "a").open()
    for name in ("b", "a", "c"):
        (folder / name).create(name.encode())
    (tmp_path / "folder").mkdir()
    with pytest.raises(Conflict):
        (folder / "a").create(b"other")
    assert [tuple(entry) for entry in folder.list("a")] == [("b", 1), ("c", 1)]
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["a", "b", "c", "folder"]
    with (folder / "a").open() as file:
        assert (file.size, file.read(10), file.read(10), file.pread(5, 0)) == (1, b"a", b"", b"a")
    with pytest.raises(OutputError, match="only an object store"):
        (folder / "a").replace(b"", "")
    (folder / "a").delete()
    (folder / "a").delete()
    assert ((folder / "a").head(), folder.is_folder()) == (None, True)


def test_a_file_that_is_renamed_while_its_folder_is_listed(tmp_path: Path) -> None:
    stop = threading.Event()

    def rename() -> None:
        while not stop.is_set():
            for number in range(50):
                (tmp_path / f"{number}").touch()
                (tmp_path / f"{number}").rename(tmp_path / f"{number}.done")
                (tmp_path / f"{number}.done").unlink()

    renaming = threading.Thread(target=rename)
    renaming.start()
    try:
        for _ in range(1000):
            assert all(entry.size == 0 for entry in LocalLocation(tmp_path).list())
            (LocalLocation(tmp_path) / "7.done").head()
    finally:
        stop.set()
        renaming.join()
