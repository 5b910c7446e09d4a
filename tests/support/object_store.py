"""Servers of object stores on loopback: moto for S3, Azurite for Azure, tests.support.google_server for Google."""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pgtail.demo.server import free_port
from pgtail.storage import Location, StorageOptions, locate
from tests.support.limits import within

SECRET = "SecretOfTheTests0123456789ab"
"""Base64, as Azure's keys are."""
BUCKET = "captures"
AZURITE = Path(sys.prefix) / "azurite" / "node_modules" / ".bin" / "azurite-blob"
"""Where `make azurite` installs it."""
_ACCOUNT = "testing"


class ObjectStore:
    """A running server of the S3 protocol with one bucket. `url` is its address, or that of a proxy before it."""

    scheme = "s3"

    def __init__(self, url: str, bucket: str = BUCKET) -> None:
        self.url = url
        self.bucket = bucket

    @property
    def options(self) -> dict[str, str]:
        """Options of pgtail.storage, obstore and deltalake."""
        return {
            "aws_endpoint_url": self.url,
            "aws_access_key_id": "testing",
            "aws_secret_access_key": SECRET,
            "aws_region": "us-east-1",
            "aws_allow_http": "true",
            "aws_conditional_put": "etag",
        }

    @property
    def arguments(self) -> list[str]:
        """The same for a command line."""
        return [word for pair in self.options.items() for word in ("--storage", "=".join(pair))]

    @property
    def environment(self) -> dict[str, str]:
        """The same as variables."""
        return {name.upper(): value for name, value in self.options.items()}

    def uri(self, key: str = "") -> str:
        return f"{self.scheme}://{self.bucket}/{key}"

    def locate(self, key: str = "") -> Location:
        return locate(self.uri(key), StorageOptions(tuple(self.options.items())))

    def upload(self, directory: Path, prefix: str) -> str:
        """Store the files of a directory; returns its URI."""
        for path in directory.iterdir():
            self.locate(f"{prefix}/{path.name}").create(path.read_bytes())
        return self.uri(prefix)

    def create_bucket(self) -> None:
        """Create the bucket. Raises OSError if the server does not answer."""
        self._put(f"{self.url}/{self.bucket}", {})

    def _put(self, url: str, headers: dict[str, str]) -> None:
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        direct.open(urllib.request.Request(url, method="PUT", headers=headers)).close()


class GoogleStore(ObjectStore):
    """The same for Google Cloud Storage: see tests.support.google_server."""

    scheme = "gs"

    @property
    def options(self) -> dict[str, str]:
        """The account's key with what libraries of Google call an emulator's address."""
        account = {"gcs_base_url": self.url, "disable_oauth": True, "client_email": "", "private_key_id": ""}
        return {
            "google_service_account_key": json.dumps({**account, "private_key": SECRET}),
            "google_allow_http": "true",
        }


class AzureStore(ObjectStore):
    """The same for Azure Blob Storage: Azurite, Microsoft's emulator."""

    scheme = "az"

    @property
    def options(self) -> dict[str, str]:
        return {
            "azure_storage_account_name": _ACCOUNT,
            "azure_storage_account_key": SECRET,
            "azure_storage_endpoint": f"{self.url}/{_ACCOUNT}",
            "azure_allow_http": "true",
        }

    def create_bucket(self) -> None:
        """https://learn.microsoft.com/en-us/rest/api/storageservices/authorize-with-shared-key"""
        date = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
        headers = {"x-ms-date": date, "x-ms-version": "2021-08-06"}
        lines = ["PUT", *[""] * 11, *map(":".join, headers.items()), f"/{_ACCOUNT}/{_ACCOUNT}/{self.bucket}"]
        signed = "\n".join([*lines, "restype:container"]).encode()
        signature = b64encode(hmac.digest(b64decode(SECRET), signed, "sha256")).decode()
        headers["Authorization"] = f"SharedKey {_ACCOUNT}:{signature}"
        self._put(f"{self.url}/{_ACCOUNT}/{self.bucket}?restype=container", headers)


class EmulatedAzureStore(AzureStore):
    """For deltalake and Polars, which do not filter what Azurite lists too much of unless they know that it is Azurite.

    The libraries take its address from the environment: AZURITE_BLOB_STORAGE_URL.
    """

    @property
    def options(self) -> dict[str, str]:
        return {**super().options, "azure_storage_use_emulator": "true"}


def s3_store(**variables: str) -> AbstractContextManager[ObjectStore]:
    """Start a server of the S3 protocol."""
    return _running(ObjectStore, [sys.executable, "-m", "tests.support.s3_server", "-H", "127.0.0.1", "-p"], variables)


def google_store() -> AbstractContextManager[ObjectStore]:
    """Start a server of Google's protocol."""
    return _running(GoogleStore, [sys.executable, "-m", "tests.support.google_server"], {})


def azure_store() -> AbstractContextManager[ObjectStore]:
    """Start Azurite; skips the test where it is not installed."""
    if not AZURITE.exists():
        pytest.skip("Azurite is not installed: make azurite (it needs npm)")
    options = ["--inMemoryPersistence", "--silent", "--disableTelemetry", "--skipApiVersionCheck", "--blobPort"]
    return _running(AzureStore, [AZURITE, *options], {"AZURITE_ACCOUNTS": f"{_ACCOUNT}:{SECRET}"})


@contextlib.contextmanager
def _running(kind: type[ObjectStore], program: list[str | Path], variables: dict[str, str]) -> Iterator[ObjectStore]:
    """Start a server whose last argument is its port, and create the bucket; it ends with the context."""
    port = free_port()
    server = subprocess.Popen(
        [*program, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **variables}
    )
    store = kind(f"http://127.0.0.1:{port}")
    deadline = time.monotonic() + within(60)
    try:
        while True:
            assert server.poll() is None, f"{program[0]} ended"
            try:
                store.create_bucket()
                break
            except OSError as error:
                assert time.monotonic() < deadline, f"{program[0]} does not answer: {error}"
                time.sleep(0.05)
        yield store
    finally:
        server.kill()
        server.wait()


class Proxy:
    """Passes connections on, until cut(): then it closes them, and refuses others until restore().

    While `frozen`, nothing passes, and nothing is closed: as where a network is gone.
    """

    def __init__(self, url: str) -> None:
        host, _, port = url.rpartition("/")[2].partition(":")
        self._target = (host, int(port))
        self.frozen = False
        self._open: set[socket.socket] = set()
        self._port = free_port()
        self._listener = self._listen(self._port)
        self.url = f"http://127.0.0.1:{self._port}"

    def cut(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in list(self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def restore(self) -> None:
        self._listener = self._listen(self._port)

    def _listen(self, port: int) -> socket.socket:
        listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        return listener

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client, socket.create_connection(self._target) as server:
            both = {client: server, server: client}
            self._open |= set(both)
            try:
                while True:
                    for one in select.select(list(both), [], [])[0]:
                        while self.frozen:
                            time.sleep(0.05)
                        data = one.recv(1 << 16)
                        if not data:
                            return
                        both[one].sendall(data)
            finally:
                self._open -= set(both)
