"""A server of the S3 protocol on loopback (moto), and a proxy that can cut its clients off."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from pgtail.demo.server import free_port
from pgtail.storage import Location, StorageOptions, locate
from tests.support.limits import within

SECRET = "SecretOfTheTests0123456789"
BUCKET = "captures"


class ObjectStore:
    """A running server with one bucket. `url` is its address, or that of a proxy before it."""

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
        return f"s3://{self.bucket}/{key}"

    def locate(self, key: str = "") -> Location:
        return locate(self.uri(key), StorageOptions(tuple(self.options.items())))

    def upload(self, directory: Path, prefix: str) -> str:
        """Store the files of a directory; returns its URI."""
        for path in directory.iterdir():
            self.locate(f"{prefix}/{path.name}").create(path.read_bytes())
        return self.uri(prefix)


@contextlib.contextmanager
def object_store(**variables: str) -> Iterator[ObjectStore]:
    """Start a server; it ends with the context."""
    port = free_port()
    program = Path(sys.executable).with_name("moto_server")
    server = subprocess.Popen(
        [program, "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **variables},
    )
    try:
        url = f"http://127.0.0.1:{port}"
        _create_bucket(server, f"{url}/{BUCKET}")
        yield ObjectStore(url)
    finally:
        server.kill()
        server.wait()


def _create_bucket(server: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + within(60)
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while True:
        assert server.poll() is None, "moto_server ended"
        try:
            with direct.open(urllib.request.Request(url, method="PUT")):
                return
        except OSError:
            assert time.monotonic() < deadline, "moto_server does not answer"
            time.sleep(0.05)


class Proxy:
    """Passes connections on, until cut(): then it closes them, and refuses others until restore()."""

    def __init__(self, url: str) -> None:
        host, _, port = url.rpartition("/")[2].partition(":")
        self._target = (host, int(port))
        self._open: set[socket.socket] = set()
        self._listener = self._listen(0)
        self._port = self._listener.getsockname()[1]
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
                        data = one.recv(1 << 16)
                        if not data:
                            return
                        both[one].sendall(data)
            finally:
                self._open -= set(both)
