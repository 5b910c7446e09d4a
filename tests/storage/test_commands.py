"""decode, stats and inspect of URIs of object stores: the same as of local files, in bounded memory."""

from __future__ import annotations

import gzip
import uuid
from pathlib import Path

import pytest

from tests.support import encode
from tests.support.captures import data_frames, lengths, record, segments
from tests.support.corpus import capture
from tests.support.object_store import SECRET, ObjectStore, Proxy
from tests.support.run import Result, command, here

COMMANDS = [("decode", "-o", "json"), ("stats", "-o", "json"), ("inspect", "-o", "json")]
STREAM = capture("A_big", "p1_msg")
DML = capture("A_dml", "p1")


def both(store: ObjectStore, arguments: tuple[str, ...], local: Path, key: str) -> tuple[Result, Result]:
    """The result for the local file or directory, and for its copy; the names in messages made equal."""
    remote = here(*arguments, *store.arguments, store.uri(key))
    return here(*arguments, local), Result(
        remote.status, remote.stdout, remote.stderr.replace(store.uri(key), str(local)), remote.peak
    )


@pytest.fixture
def prefix() -> str:
    return uuid.uuid4().hex


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: arguments[0])
@pytest.mark.parametrize("zipped", [False, True])
def test_a_dump(s3: ObjectStore, tmp_path: Path, prefix: str, arguments: tuple[str, ...], zipped: bool) -> None:
    data = lengths(data_frames(DML))
    (tmp_path / "dump").write_bytes(gzip.compress(data) if zipped else data)
    s3.upload(tmp_path, prefix)
    local, remote = both(s3, arguments, tmp_path / "dump", f"{prefix}/dump")
    assert remote == local
    assert (local.status, len(local.stdout) > 1000) == (0, True)


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: arguments[0])
@pytest.mark.parametrize("compress", [False, True])
def test_a_capture(s3: ObjectStore, tmp_path: Path, prefix: str, arguments: tuple[str, ...], compress: bool) -> None:
    record(tmp_path, data_frames(DML), compress=compress)
    s3.upload(tmp_path, prefix)
    local, remote = both(s3, arguments, tmp_path, prefix)
    assert remote == local
    assert (local.status, len(segments(tmp_path)) > 3) == (0, True)


def test_a_capture_in_each_cloud(store: ObjectStore, tmp_path: Path, prefix: str) -> None:
    record(tmp_path, data_frames(DML))
    store.upload(tmp_path, prefix)
    for arguments in COMMANDS:
        local, remote = both(store, arguments, tmp_path, prefix)
        assert remote == local
        assert (local.status, len(local.stdout) > 1000) == (0, True)


def test_damage(s3: ObjectStore, tmp_path: Path, prefix: str) -> None:
    record(tmp_path, data_frames(STREAM))
    one, two, three, *_ = segments(tmp_path)
    two.write_bytes(two.read_bytes()[:-100])
    three.unlink()
    s3.upload(tmp_path, prefix)
    for options in ((), ("--resync",)):
        local, remote = both(s3, ("decode", "-o", "json", *options), tmp_path, prefix)
        assert remote == local
        assert local.status == 1
    for path in (one, two):
        local, remote = both(s3, ("decode", "-o", "json", "-v"), path, f"{prefix}/{path.name}")
        assert remote == local


def test_a_message_longer_than_what_is_read_at_once(s3: ObjectStore, tmp_path: Path, prefix: str) -> None:
    table = encode.relation(columns=[("text", encode.TEXT)])
    row = encode.insert(encode.text(b"x" * (9 << 20)))
    (tmp_path / "dump").write_bytes(encode.lengths(encode.begin(), table, row, encode.commit()))
    s3.upload(tmp_path, prefix)
    local, remote = both(s3, ("decode", "-o", "json"), tmp_path / "dump", f"{prefix}/dump")
    assert remote == local


def test_memory_is_bounded(s3: ObjectStore, tmp_path: Path, prefix: str) -> None:
    data = lengths(data_frames(STREAM))
    sizes = {"small": 1, "large": (100 << 20) // len(data)}
    for name, times in sizes.items():
        (tmp_path / name).write_bytes(data * times)
    s3.upload(tmp_path, prefix)
    small, large = (
        command("stats", "-o", "json", *s3.arguments, s3.uri(f"{prefix}/{name}"), timeout=120, measured=True)
        for name in sizes
    )
    assert (small.status, large.status) == (0, 0), large.stderr
    if small.peak:
        assert large.peak < small.peak + (48 << 20)


def test_errors(store: ObjectStore, prefix: str) -> None:
    result = here("decode", *store.arguments, store.uri(prefix))
    assert result.status == 1
    assert f"{store.uri(prefix)}: holds no capture: there is no segment (*.pgcap) in it" in result.stderr
    missing = type(store)(store.url, "no-such-bucket")
    for name in ("decode", "stats", "inspect"):
        result = here(name, *missing.arguments, missing.uri("a"))
        assert (result.status, "does not exist" in result.stderr) == (1, True)
        assert here(name, "ftp://host/a").status == 2
    result = here("decode", "--storage", SECRET, store.uri(prefix))
    assert (result.status, "KEY=VALUE" in result.stderr, SECRET in result.stderr) == (2, True, False)


def test_a_server_that_does_not_answer(s3: ObjectStore, prefix: str) -> None:
    proxy = Proxy(s3.url)
    proxy.cut()
    gone = ObjectStore(proxy.url)
    result = here("decode", *gone.arguments, gone.uri(prefix))
    assert (result.status, "Connection refused" in result.stderr, SECRET in result.stderr) == (1, True, False)
