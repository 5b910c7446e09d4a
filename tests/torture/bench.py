"""What trials share: servers and a store, started when first needed; and writers that survive faults."""

from __future__ import annotations

import contextlib
import functools
import random
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import psycopg

from pgtail.demo.server import EmbeddedServer
from tests.support.object_store import ObjectStore, s3_store
from tests.support.sanitized import build
from tests.support.servers import Database, Servers, installations

Session = psycopg.Connection[Any]
T = TypeVar("T")


class Bench:
    """The servers of a run. `number` is that of the trial, from 0; `short` whether the run is to take minutes."""

    def __init__(self, *, short: bool) -> None:
        self.short = short
        self.number = 0
        self.servers = Servers()
        self._stack = contextlib.ExitStack()
        self._stack.callback(self.servers.close)

    def say(self, text: str) -> None:
        """Print what a trial does."""
        print(f"    {text}", flush=True)

    def turn(self, choices: Sequence[T]) -> T:
        """One of these, in turn from trial to trial."""
        return choices[self.number % len(choices)]

    def size(self, whole: T, short: T) -> T:
        """A size or number of seconds, of a whole and of a short run."""
        return short if self.short else whole

    @property
    def newest(self) -> EmbeddedServer:
        """The newest server."""
        return self.servers.get([*installations()][-1])

    def server(self, choose: random.Random, since: int = 10) -> EmbeddedServer:
        """One of the servers from this major version on."""
        names = [name for name, installation in installations().items() if installation.major >= since]
        return self.servers.get(choose.choice(names))

    @functools.cached_property
    def s3(self) -> ObjectStore:
        """A server of the S3 protocol."""
        return self._stack.enter_context(s3_store())

    @functools.cached_property
    def sanitized(self) -> Path:
        """A build of the scanner with AddressSanitizer."""
        return build(Path(self._stack.enter_context(tempfile.TemporaryDirectory())))

    def close(self) -> None:
        self._stack.close()


class Writer(threading.Thread):
    """Runs a transaction again and again until the context ends, with pauses; it survives restarts of the server."""

    def __init__(self, database: Database, transaction: Callable[[Session], object], pause: float = 0.02) -> None:
        super().__init__(daemon=True)
        self._database, self._transaction, self._pause = database, transaction, pause
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.is_set():
            with contextlib.suppress(psycopg.OperationalError), self._database.connect() as session:
                while not self._over.wait(self._pause):
                    self._transaction(session)
            self._over.wait(0.1)

    def stop(self) -> None:
        """Write no more."""
        self._over.set()
        self.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
