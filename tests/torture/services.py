"""`make torture`: a recorder and a stream as services, for an hour, while everything around them fails.

The server is killed, stopped and promoted, the network is cut, the disk is full, the object store is away, the password
is changed, the file of the stream is rotated. Metrics and health tell each within 10 seconds, and at the end nothing is
lost or there twice. A service that ends is started again, as systemd would.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPException
from pathlib import Path

import psycopg

from pgtail.demo.server import EmbeddedServer
from tests.support.object_store import Proxy, s3_store
from tests.support.run import command
from tests.support.servers import Database, embedded_server, installations
from tests.support.services import Service
from tests.support.standbys import standby_of
from tests.support.tail import wait_for

TOLD = 10.0
"""Seconds within which a fault is told."""
_HOUR = 3600.0
_ROLE = "torture_reader"
_NEVER = 1e9


class Workload(threading.Thread):
    """Inserts numbers one after another; after an error it looks which was the last one."""

    def __init__(self, database: Database) -> None:
        super().__init__(daemon=True)
        self._database = database
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.is_set():
            with suppress(psycopg.Error), self._database.connect() as connection:
                while not self._over.wait(0.02):
                    connection.execute("INSERT INTO t SELECT coalesce(max(id), 0) + 1, repeat('x', 500) FROM t")

    def stop(self) -> None:
        self._over.set()
        self.join()


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

    def __init__(self, stack: ExitStack, folder: Path, tell: Callable[[str], None]) -> None:
        self._folder, self._tell = folder, tell
        self._server: EmbeddedServer = stack.enter_context(embedded_server([*installations().values()][-1]))
        self._server.start() if not self._server.is_running() else None
        self._database = Database(self._server, "postgres")
        self._store = stack.enter_context(s3_store())
        self._bucket, self._network = Proxy(self._store.url), Proxy(f"http://127.0.0.1:{self._server.port}")
        self._store.url = self._bucket.url
        self._disk = stack.enter_context(_small_disk(folder))
        self._passwords = folder / "pgpass"
        self._password(0)
        self._database.execute(
            "CREATE TABLE t (id bigint PRIMARY KEY, note text)",
            "CREATE PUBLICATION p FOR ALL TABLES",
            f"CREATE ROLE {_ROLE} LOGIN REPLICATION PASSWORD 'secret0'",
        )
        self._changes = 0
        dsn = self._network.url.replace("http://127.0.0.1:", f"host=127.0.0.1 user={_ROLE} dbname=postgres port=")
        more = ["--unhealthy-after", "4s"]
        environment = {"PGPASSFILE": str(self._passwords), **self._store.environment}
        record = [
            "record",
            dsn,
            "-S",
            "cap",
            "-D",
            self._store.uri("c"),
            "--spool",
            str((self._disk or folder) / "spool"),
        ]
        self.recorder = Supervised([*record, "--segment-age", "1s", *more], environment)
        self._file = folder / "t.json"
        stream = ["stream", dsn, "-S", "str", "--ack", "commit", "-o", "json", "-f", str(self._file)]
        self._database.query("SELECT pg_create_logical_replication_slot('str', 'pgoutput')")
        self.stream = Supervised([*stream, *more], environment)
        self._rotated = 0
        wait_for("both services", self._both_work)
        self._workload = Workload(self._database)
        self._workload.start()

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
        return found | ({"disk full": self._fill} if self._disk is not None else {})

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
        self._tell(f"{name}: told after {seconds:.1f} s: {reason}")
        time.sleep(random.uniform(0, 3))
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
        assert self._disk is not None
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
        self._workload.stop()
        count = int(self._database.value("SELECT count(*) FROM t"))
        end = self._database.value("SELECT pg_current_wal_flush_lsn()")
        query = f"SELECT count(*) FROM pg_replication_slots WHERE confirmed_flush_lsn >= '{end}'"
        wait_for("both slots at the end", lambda: self._database.value(query) == 2, 60)
        problems = []
        for name, one in (("record", self.recorder), ("stream", self.stream)):
            status, seconds = one.stop()
            self._tell(f"{name}: exit status {status} after {seconds:.1f} s; before that {one.exits[:-1]}")
            if status or seconds > 3:
                problems.append(f"{name} ended with {status} after {seconds:.1f} s")
        expected = list(range(1, count + 1))
        decoded = command("decode", "-o", "json", self._store.uri("c"), *self._store.arguments)
        recorded = [one["new"]["id"] for one in decoded.objects]
        files = sorted(self._folder.glob("t*.json"), key=lambda path: (path == self._file, path.name))
        streamed = [json.loads(line)["new"]["id"] for path in files for line in path.read_text().splitlines()]
        if decoded.status or recorded != expected:
            problems.append(f"recorded {len(recorded)} of {count}: {decoded.stderr}")
        if sorted(set(streamed)) != expected:
            problems.append(f"streamed {len(set(streamed))} of {count}")
        if len(streamed) != len(set(streamed)) and not any(self.stream.exits[:-1]):
            problems.append(f"{len(streamed) - len(set(streamed))} streamed twice")
        self._tell(f"{count} rows, in {len(files)} files of the stream")
        return problems


@contextmanager
def _small_disk(folder: Path) -> Iterator[Path | None]:
    """A file system of 16 MB; None if that cannot be mounted."""
    disk = folder / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "pgtail-torture", str(disk)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        yield None
        return
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)


def promotion(folder: Path, tell: Callable[[str], None]) -> list[str]:
    """A recorder follows a slot of a standby, which is promoted."""
    installation = [*installations().values()][-1]
    if installation.major < 16:
        return []
    with embedded_server(installation) as primary, standby_of(primary) as standby:
        first, second = Database(primary, "postgres"), Database(standby, "postgres")
        first.execute("CREATE TABLE t (id bigint PRIMARY KEY)", "CREATE PUBLICATION p FOR ALL TABLES")
        over = threading.Event()

        def help_slots() -> None:
            while not over.wait(0.3):
                with suppress(psycopg.Error):
                    first.query("SELECT pg_log_standby_snapshot()")

        helper = threading.Thread(target=help_slots, daemon=True)
        helper.start()
        one = Service("record", second.conninfo(), "-S", "cap", "-D", str(folder / "promoted"))
        one.event("slot_created")
        over.set()
        helper.join()
        first.execute("INSERT INTO t VALUES (1)")
        wait_for("a row", lambda: one.value("pgtail_read_rows_total") == 1)
        second.query("SELECT pg_promote()")
        begun = time.monotonic()
        second.execute("INSERT INTO t VALUES (2)")
        event = one.event("promoted")
        seconds, timeline = time.monotonic() - begun, one.value("pgtail_server_timeline")
        wait_for("the next row", lambda: one.value("pgtail_read_rows_total") == 2)
        one.process.send_signal(signal.SIGTERM)
        status = one.end()
        tell(f"promoted: told after {seconds:.1f} s: {event['message']}")
        found = [change["new"]["id"] for change in command("decode", "-o", "json", folder / "promoted").objects]
    good = (status, timeline, found) == (0, event["timeline"], [1, 2]) and seconds < TOLD
    return [] if good else [f"promotion: {status}, {timeline}, {found}, {seconds:.1f} s"]


def torture(seconds: float, seed: int, tell: Callable[[str], None]) -> list[str]:
    """Faults in random order for so long, each at least once; returns what is wrong."""
    chance = random.Random(seed)
    folder = Path(tempfile.mkdtemp(prefix="pgtail-services-"))
    problems = promotion(folder, tell)
    slowest: dict[str, float] = {}
    with ExitStack() as stack:
        scene = Scene(stack, folder, tell)
        until = time.monotonic() + seconds
        names = sorted(scene.faults)
        while names or time.monotonic() < until:
            name = names.pop(chance.randrange(len(names))) if names else chance.choice(sorted(scene.faults))
            time.sleep(chance.uniform(0.5, 2))
            took = scene.fault(name)
            if took is not None:
                slowest[name] = max(took, slowest.get(name, 0))
                if took > TOLD:
                    problems.append(f"{name}: told after {took:.1f} s")
        problems += scene.finish()
    tell(", ".join([f"{name} {took:.1f} s" for name, took in slowest.items()]))
    if not problems:
        shutil.rmtree(folder)
    return problems


def main() -> None:
    """Run, and exit with 1 if something was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=_HOUR)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    problems = torture(options.seconds, options.seed, lambda text: print(text, flush=True))
    print("\n".join(problems) or "nothing lost, nothing twice, everything told in time")
    raise SystemExit(bool(problems))


if __name__ == "__main__":
    main()
