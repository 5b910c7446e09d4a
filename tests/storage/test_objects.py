"""Objects of each cloud's server: listed, read in parts, created once, replaced on a condition; and what goes wrong."""

from __future__ import annotations

import os
import pickle
import random
import threading
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from pgtail.errors import InputError, OptionError, OutputError
from pgtail.files.small import MOST
from pgtail.storage import UNAVAILABLE, Conflict, StorageOptions, locate, locate_target
from tests.support.object_store import SECRET, ObjectStore, Proxy, s3_store

MISSING = "(NoSuchBucket The specified bucket|ContainerNotFound The specified container) does not exist"


@pytest.fixture
def prefix() -> str:
    return uuid.uuid4().hex


def test_a_folder_is_listed_in_order_and_from_a_name_on(store: ObjectStore, prefix: str) -> None:
    folder = store.locate(prefix)
    assert folder.list() == []
    for name in ("b", "a", "c", "d/e", "b.part"):
        (folder / name).create(name.encode())
    store.locate(f"{prefix}x/a").create(b"")
    assert [(entry.name, entry.size) for entry in folder.list()] == [("a", 1), ("b", 1), ("b.part", 6), ("c", 1)]
    assert [entry.name for entry in folder.list("b")] == ["b.part", "c"]
    assert [entry.name for entry in folder.list("bb")] == ["c"]
    assert folder.list("c") == []


def test_more_objects_than_a_page_has(s3: ObjectStore, prefix: str) -> None:
    folder = s3.locate(prefix)
    names = [f"{number:05}" for number in range(1100)]
    for name in names:
        (folder / name).create(b"")
    assert [entry.name for entry in folder.list()] == names
    assert [entry.name for entry in folder.list("01050")] == names[1051:]


def test_what_exists(store: ObjectStore, prefix: str) -> None:
    place = store.locate(f"{prefix}/a.bin")
    assert (place.head(), place.is_folder()) == (None, True)
    place.create(b"12")
    assert (place.head(), place.is_folder()) == (("a.bin", 2), False)
    place.delete()
    place.delete()
    assert place.head() is None


@pytest.mark.parametrize("name", ["a b", "a%41b", "a+b", "ä", "a#b", "a?b", "a&b=c", "~a"])
def test_names(store: ObjectStore, prefix: str, name: str) -> None:
    place = store.locate(f"{prefix}/{name}")
    place.create(b"content")
    assert [entry.name for entry in store.locate(prefix).list()] == [name]
    with place.open() as file:
        assert file.read() == b"content"


def test_the_uris_of_azure_name_the_same_object(az: ObjectStore, prefix: str) -> None:
    options = StorageOptions(tuple(az.options.items()))
    az.locate(f"{prefix}/a").create(b"1")
    for container in ("abfs://captures", "abfss://captures@testing.dfs.core.windows.net"):
        assert locate(f"{container}/{prefix}", options).list() == [("a", 1)]


def test_reading_in_any_order(store: ObjectStore, prefix: str) -> None:
    rng = random.Random(1)
    data = rng.randbytes(3_000_000)
    place = store.locate(f"{prefix}/data")
    place.create(data)
    with pickle.loads(pickle.dumps(place)).open() as file:
        assert file.size == len(data)
        pieces = list(iter(lambda: file.read(200_000), b""))
        assert b"".join(pieces) == data
        for _ in range(40):
            offset, size = rng.randrange(len(data) + 100), rng.choice([1, 100, 70_000, 2_000_000])
            assert file.pread(size, offset) == data[offset : offset + size]
        file.seek(10)
        assert file.read() == data[10:]


def test_an_object_that_changes_while_it_is_read(store: ObjectStore, prefix: str) -> None:
    place = store.locate(f"{prefix}/data")
    version = place.create(bytes(1_000_000))
    with place.open() as file:
        assert file.version == version
        file.read(10)
        place.replace(bytes(1_000_001), version)
        with pytest.raises(InputError, match="changed while it was read"):
            file.pread(10, 900_000)


def test_created_once_and_replaced_on_a_condition(store: ObjectStore, prefix: str) -> None:
    place = store.locate(f"{prefix}/state")
    first = place.create(b"1")
    with pytest.raises(Conflict):
        place.create(b"2")
    second = place.replace(b"3", first)
    with pytest.raises(Conflict):
        place.replace(b"4", first)
    with place.open() as file:
        assert (file.read(), file.version) == (b"3", second)


def test_a_large_object_is_not_read_at_once(store: ObjectStore, prefix: str) -> None:
    place = store.locate(f"{prefix}/state")
    place.create(b"x" * (MOST + 1))
    with pytest.raises(InputError, match=f"it has {MOST + 1} bytes, and at most {MOST} are expected"):
        place.read()


def test_missing_buckets_and_objects(store: ObjectStore, prefix: str) -> None:
    with pytest.raises(InputError, match=f"{store.uri(prefix)}: cannot be read: it does not exist"):
        store.locate(prefix).open()
    missing = type(store)(store.url, "no-such-bucket").locate("a")
    with pytest.raises(InputError, match=f"cannot be read: {MISSING}") as caught:
        missing.list()
    assert not isinstance(caught.value, UNAVAILABLE)
    with pytest.raises(OutputError, match=f"cannot write {missing}: it does not exist .{MISSING}"):
        missing.create(b"")


def test_a_folder_is_deleted_with_all_that_is_in_it(store: ObjectStore, prefix: str, tmp_path: Path) -> None:
    for place in (store.locate(prefix), locate(str(tmp_path / "folder"))):
        files = [place / "one", place / "two" / "three", place / "two" / "four" / "five", place / "two-b" / "six"]
        for file in files:
            writer = file.writer()
            writer.write(b"x")
            writer.finish()
        (place / "two").delete_all()
        assert [file.head() is not None for file in files] == [True, False, False, True]
        place.delete_all()
        place.delete_all()
        assert [file.head() for file in files] == [None] * 4


@pytest.fixture(scope="module")
def strict() -> Iterator[ObjectStore]:
    """A server that knows no user: it accepts nothing after the bucket was created."""
    with s3_store(INITIAL_NO_AUTH_ACTION_COUNT="1") as running:
        yield running


def test_wrong_credentials(strict: ObjectStore) -> None:
    place = strict.locate("a")
    with pytest.raises(InputError, match="InvalidAccessKeyId") as reading:
        place.list()
    with pytest.raises(OutputError, match="InvalidAccessKeyId") as writing:
        place.create(b"")
    for caught in (reading, writing):
        assert not isinstance(caught.value, UNAVAILABLE)
        assert SECRET not in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_server_that_knows_no_conditional_put() -> None:
    """It answers 501 Not Implemented, as this server does to everything: to try again would not help."""
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(OutputError, match="501 Not Implemented") as caught:
            ObjectStore(f"http://127.0.0.1:{server.server_port}").locate("a").create(b"")
        server.shutdown()
    assert not isinstance(caught.value, UNAVAILABLE)


def test_a_server_that_is_gone_for_a_while(store: ObjectStore, prefix: str) -> None:
    proxy = Proxy(store.url)
    place = type(store)(proxy.url).locate(f"{prefix}/a")
    place.create(b"here")
    proxy.cut()
    with pytest.raises(UNAVAILABLE, match="Connection refused"):
        place.open()
    with pytest.raises(UNAVAILABLE, match="Connection refused"):
        place.create(b"")
    proxy.restore()
    with place.open() as file:
        assert file.read() == b"here"


def test_options_from_the_environment(store: ObjectStore, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    place = locate(store.uri(f"{prefix}/a"), StorageOptions((("aws_region", f"region-of-{os.getpid()}"),)))
    place.create(b"1")
    assert place.head() == ("a", 1)


def test_options_of_another_cloud_are_left_out(store: ObjectStore, prefix: str) -> None:
    others = {"s3": ("aws_timeout", "never"), "gs": ("google_service_account", "/nowhere"), "az": ("AZURE_timeout", "")}
    del others[store.scheme]
    place = locate(store.uri(f"{prefix}/a"), StorageOptions((*store.options.items(), *others.values())))
    place.create(b"1")
    assert place.head() == ("a", 1)


def test_options_that_do_not_exist_or_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(OptionError, match="'aws_nonsense' is not valid"):
        locate("s3://bucket/a", StorageOptions((("aws_nonsense", SECRET),))).head()
    secrets = (("aws_access_key_id", "testing"), ("aws_secret_access_key", SECRET))
    with pytest.raises(OptionError, match="5 apples") as caught:
        locate("s3://bucket/a", StorageOptions((*secrets, ("timeout", "5 apples")))).head()
    assert SECRET not in str(caught.value)
    with pytest.raises(OptionError, match="az://c: no account is named: set AZURE_STORAGE_ACCOUNT_NAME, or --storage"):
        locate("az://c/a").head()
    with pytest.raises(OptionError, match="gs://c: .*Unable to open service account file from /nowhere: No such file"):
        locate("gs://c/a", StorageOptions((("google_service_account", "/nowhere"),))).head()
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/key.json")
    with pytest.raises(OptionError, match="gs://d: .* from /nowhere/key.json: No such"):
        locate("gs://d/a").head()
    with pytest.raises(OptionError, match="az://c: Invalid Access Key: Invalid padding") as caught:
        locate("az://c/a", StorageOptions((("account_name", "a"), ("account_key", SECRET[:-1])))).head()
    assert SECRET[:-1] not in str(caught.value)
    with pytest.raises(InputError, match="needs the option allow_http=true") as refused:
        locate("s3://bucket/a", StorageOptions((*secrets, ("aws_endpoint_url", "http://127.0.0.1:9")))).head()
    assert SECRET not in str(refused.value)


def test_secrets_do_not_show() -> None:
    options = StorageOptions((("aws_secret_access_key", SECRET),))
    assert SECRET not in repr(options)
    assert SECRET not in repr(locate("s3://bucket/a", options))
    assert options.as_dict()["aws_secret_access_key"] == SECRET


@pytest.mark.parametrize("size", [0, 1000, 20 << 20])
@pytest.mark.parametrize("remote", [False, True])
def test_a_file_is_written_in_pieces(store: ObjectStore, prefix: str, tmp_path: Path, size: int, remote: bool) -> None:
    folder = store.locate(prefix) if remote else locate(str(tmp_path / "new"))
    data = random.Random(size).randbytes(size)
    for name in ("kept", "abandoned"):
        writer = (folder / name).writer()
        for start in range(0, size, 1 << 20):
            assert writer.write(data[start : start + (1 << 20)]) > 0
        assert writer.tell() == size
        assert not remote or (folder / name).head() is None, "until it is complete nobody sees it"
        writer.finish() if name == "kept" else writer.abandon()
    assert [tuple(entry) for entry in folder.list()] == [("kept", size)]
    with (folder / "kept").open() as file:
        assert file.pread(size, 0) == data
        assert file.pread(500_000, 300) == data[300:500_300]


def test_what_cannot_be_written(store: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OutputError, match="cannot write .*: (Not a directory|File exists)"):
        (locate(str(tmp_path / "file")) / "a").writer()
    writer = (type(store)(store.url, "no-such-bucket").locate("a") / "b").writer()
    writer.write(b"x")
    with pytest.raises(OutputError, match=f"cannot write {store.scheme}://no-such-bucket/a/b: .*{MISSING}"):
        writer.finish()
    with pytest.raises(OptionError, match="pgtail only reads from HDFS"):
        locate_target("hdfs://host/out")
    for name in ("a b", "a%41b", "a#b", "a?b", "ä"):
        with pytest.raises(OptionError, match="tables in an object store need a URI of"):
            locate_target(store.uri(name))
    assert str(locate_target(store.uri("a-b_c.d~e+f=g&h/"))) == store.uri("a-b_c.d~e+f=g&h")
