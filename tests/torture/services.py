"""A recorder and a stream as services, while everything around them fails.

The server is killed and stopped, the network is cut, the disk is full, the object store is away, the password
is changed, the file of the stream is rotated. Metrics and health tell each within 10 seconds, and at the end nothing is
lost or there twice. A service that ends is started again, as systemd would.
"""

from __future__ import annotations

import json
import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from http.client import HTTPException
from pathlib import Path

from pgtail.demo.server import EmbeddedServer
from tests.support.object_store import ObjectStore, Proxy
from tests.support.run import command
from tests.support.servers import Database, embedded_server, installations
from tests.support.services import Service
from tests.support.tail import wait_for
from tests.torture.bench import Bench, Writer
from tests.torture.fault_round import small_disk

TOLD = 10.0
"""Seconds within which a fault is told."""
_ROLE = "torture_reader"
_NEVER = 1e9


class Supervised:
    """A service that is started again whenever it ends. `exits` are its exit statuses."""

    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        self._arguments, self._environment = arguments, environment
        self.exits: list[int] = []
        self._over = threading.Event()
        self.log: list[dict[str, object]] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.service: Service | None = None
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self.service = Service(*self._arguments, environment=self._environment)
            except (AssertionError, IndexError):
                time.sleep(0.5)
                continue
            self.exits.append(self.service.process.wait())
            self.log += self.service.log
            self._over.wait(0.5)

    def tells(self) -> str | None:
        """The trouble that is told at present; None if there is none."""
        service = self.service
        if service is None or service.process.poll() is not None:
            return "it has ended"
        try:
            status, content = service.health()
            up = service.value("pgtail_up")
        except (OSError, ValueError, HTTPException):  # also if it ends in the middle of its answer
            return "it does not answer"
        return str(content.get("reason")) if status == 503 and not up else None

    def stop(self) -> tuple[int, float]:
        """SIGTERM; returns the exit status, and after how many seconds."""
        self._over.set()
        assert self.service is not None
        begun = time.monotonic()
        self.service.process.send_signal(signal.SIGTERM)
        status = self.service.end()
        self._thread.join()
        return status, time.monotonic() - begun


class Scene:
    """The servers, the services and the faults."""

    def __init__(self, stack: ExitStack, folder: Path, bench: Bench, choose: random.Random) -> None:
        self._folder, self._bench, self._choose = folder, bench, choose
        self._server: EmbeddedServer = stack.enter_context(embedded_server([*installations().values()][-1]))
        self._database = Database(self._server, "postgres")
        self._bucket, self._network = Proxy(bench.s3.url), Proxy(f"http://127.0.0.1:{self._server.port}")
        self._store, self._key = ObjectStore(self._bucket.url), f"services{choose.getrandbits(64):x}"
        stack.enter_context(small_disk(folder, in_file=False, megabytes=16))
        self._disk = folder / "disk"
        self._passwords = folder / "pgpass"
        self._password(0)
        self._database.execute(
            "CREATE TABLE t (id bigint PRIMARY KEY, note text)",
            "CREATE PUBLICATION p FOR ALL TABLES",
            f"CREATE ROLE {_ROLE} LOGIN REPLICATION PASSWORD 'secret0'",
        )
        self._changes = 0
        dsn = self._network.url.replace("http://127.0.0.1:", f"host=127.0.0.1 user={_ROLE} dbname=postgres port=")
        environment = {"PGPASSFILE": str(self._passwords), **self._store.environment}
        record = ["record", dsn, "-S", "cap", "-D", self._store.uri(self._key), "--spool", str(self._disk / "spool")]
        self.recorder = Supervised([*record, "--segment-age", "1s"], environment)
        self._file = folder / "t.json"
        stream = ["stream", dsn, "-S", "str", "--ack", "commit", "-o", "json", "-f", str(self._file)]
        self._database.query("SELECT pg_create_logical_replication_slot('str', 'pgoutput')")
        self.stream = Supervised(stream, environment)
        self._rotated = 0
        wait_for("both services", self._both_work)
        insert = "INSERT INTO t SELECT coalesce(max(id), 0) + 1, repeat('x', 500) FROM t"
        self._writer = stack.enter_context(Writer(self._database, lambda session: session.execute(insert)))

    @property
    def faults(self) -> dict[str, Callable[[], Callable[[], None] | None]]:
        """Each begins a fault, and returns what ends it; None where nothing is to be told."""
        found: dict[str, Callable[[], Callable[[], None] | None]] = {
            "server killed": self._kill,
            "server stopped": self._stop_server,
            "network cut": self._cut,
            "bucket away": self._lose_bucket,
            "password changed": self._change_password,
            "file rotated": self._rotate,
        }
        return found | ({"disk full": self._fill} if os.path.ismount(self._disk) else {})

    def _both_work(self) -> bool:
        return all(
            one.service is not None and one.tells() is None and one.service.value("pgtail_up") == 1
            for one in (self.recorder, self.stream)
        )

    def fault(self, name: str) -> float | None:
        """Let it happen, and end it once it was told; returns after how many seconds it was."""
        begun = time.monotonic()
        end = self.faults[name]()
        if end is None:
            return None
        while (reason := self.recorder.tells()) is None:
            if time.monotonic() - begun > 3 * TOLD:
                end()
                return _NEVER
            time.sleep(0.1)
        seconds = time.monotonic() - begun
        self._bench.say(f"{name}: told after {seconds:.1f} s: {reason}")
        time.sleep(self._choose.uniform(0, 3))
        end()
        wait_for(f"both services after {name}", self._both_work, 90)
        return seconds

    def _kill(self) -> Callable[[], None]:
        self._server.kill()
        return self._server.start

    def _stop_server(self) -> Callable[[], None]:
        pid = self._server.pid
        assert pid is not None
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        everyone = [pid, *map(int, children)]

        def send(number: signal.Signals) -> None:
            for one in everyone:
                with suppress(ProcessLookupError):
                    os.kill(one, number)

        send(signal.SIGSTOP)
        return lambda: send(signal.SIGCONT)

    def _cut(self) -> Callable[[], None]:
        self._network.frozen = True

        def end() -> None:
            self._network.frozen = False
            self._network.cut()
            self._network.restore()

        return end

    def _lose_bucket(self) -> Callable[[], None]:
        self._bucket.cut()
        return self._bucket.restore

    def _change_password(self) -> Callable[[], None]:
        self._changes += 1
        self._database.execute(f"ALTER ROLE {_ROLE} PASSWORD 'secret{self._changes}'")
        self._database.query("SELECT pg_terminate_backend(pid) FROM pg_stat_replication")
        return lambda: self._password(self._changes)

    def _password(self, number: int) -> None:
        self._passwords.write_text(f"*:*:*:{_ROLE}:secret{number}\n")
        self._passwords.chmod(0o600)

    def _rotate(self) -> None:
        self._rotated += 1
        assert self.stream.service is not None
        if self._file.exists():
            self._file.rename(self._folder / f"t.{self._rotated:05}.json")
            self.stream.service.process.send_signal(signal.SIGUSR1)
            wait_for("a new file", self._file.exists)

    def _fill(self) -> Callable[[], None]:
        """Fill the disk, again and again: what the recorder uploads and removes would be enough room to go on."""
        ballast, over = self._disk / "ballast", threading.Event()

        def fill() -> None:
            with ballast.open("wb", buffering=0) as file:
                while not over.wait(0.02):
                    for size in (1 << 16, 1 << 12, 1):
                        with suppress(OSError):
                            while True:
                                file.write(bytes(size))

        filler = threading.Thread(target=fill, daemon=True)
        filler.start()

        def end() -> None:
            over.set()
            filler.join()
            ballast.unlink()

        return end

    def finish(self) -> list[str]:
        """End everything, and compare; returns what is wrong."""
        self._writer.stop()
        count = int(self._database.value("SELECT count(*) FROM t"))
        end = self._database.value("SELECT pg_current_wal_flush_lsn()")
        query = f"SELECT count(*) FROM pg_replication_slots WHERE confirmed_flush_lsn >= '{end}'"
        wait_for("both slots at the end", lambda: self._database.value(query) == 2, 60)
        problems = []
        for name, one in (("record", self.recorder), ("stream", self.stream)):
            status, seconds = one.stop()
            self._bench.say(f"{name}: exit status {status} after {seconds:.1f} s; before that {one.exits[:-1]}")
            if status or seconds > 3:
                problems.append(f"{name} ended with {status} after {seconds:.1f} s")
        expected = list(range(1, count + 1))
        decoded = command("decode", "-o", "json", self._store.uri(self._key), *self._store.arguments)
        recorded = [one["new"]["id"] for one in decoded.objects]
        files = sorted(self._folder.glob("t*.json"), key=lambda path: (path == self._file, path.name))
        streamed = [json.loads(line)["new"]["id"] for path in files for line in path.read_text().splitlines()]
        if decoded.status or recorded != expected:
            problems.append(f"recorded {len(recorded)} of {count}: {decoded.stderr}")
        if sorted(set(streamed)) != expected:
            problems.append(f"streamed {len(set(streamed))} of {count}")
        if len(streamed) != len(set(streamed)) and not any(self.stream.exits[:-1]):
            problems.append(f"{len(streamed) - len(set(streamed))} streamed twice")
        self._bench.say(f"{count} rows, in {len(files)} files of the stream")
        return problems


def trial(bench: Bench, choose: random.Random) -> str:
    """Each fault once, in random order; raises AssertionError if something was wrong."""
    problems, slowest = list[str](), dict[str, float]()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        scene = Scene(stack, Path(folder), bench, choose)
        for name in choose.sample(sorted(scene.faults), len(scene.faults)):
            time.sleep(choose.uniform(0.5, 2))
            took = scene.fault(name)
            if took is not None:
                slowest[name] = took
                if took > TOLD:
                    problems.append(f"{name}: told after {took:.1f} s")
        problems += scene.finish()
    assert not problems, problems
    return ", ".join([f"{name} {took:.1f} s" for name, took in slowest.items()])
