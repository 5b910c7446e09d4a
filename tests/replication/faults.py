"""`make torture`: faults of networks, servers, disks and processes, while changes are read and acknowledged.

Each round has a seed of its own, so that a run can go on with `--from ROUND`, and a round be repeated. A round disturbs
one way to read a slot for some seconds, ends, reads the rest in peace, and compares everything with the table itself.
The rounds take turns on all servers that are found.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import psycopg

from pgtail.demo.installation import Installation
from pgtail.demo.server import EmbeddedServer
from tests.support.every import new_seed
from tests.support.faulty_proxy import FaultyProxy, some_bytes
from tests.support.limits import within
from tests.support.run import command
from tests.support.servers import Database, embedded_server, fresh_database, installations
from tests.support.tail import wait_for

ROUNDS: Final = 150
"""More than a thousand faults."""
FAULTS: Final = 8
"""Faults of one round."""
KINDS: Final = ("file", "pipe", "record", "snapshot")
TIMEOUT: Final = 2
"""Seconds of wal_sender_timeout."""
NETWORK: Final = ("cut", "cut inside", "stall", "delay", "throttle", "refuse")
SERVER: Final = ("terminate", "kill server", "restart server", "take slot")
PROCESS: Final = ("SIGINT", "SIGTERM", "SIGHUP", "SIGKILL", "SIGSTOP")
OTHER: Final = {"pipe": ("slow reader",), "file": ("full disk",), "record": ("full disk",)}
_PROGRAM: Final = [sys.executable, "-m", "pgtail"]
_COMPLAINTS: Final = re.compile(rb"Traceback|Exception ignored|Fatal Python|Segmentation")
_SCHEMA: Final = (
    "CREATE TABLE log (id bigint PRIMARY KEY, v text)",
    "CREATE PUBLICATION p FOR TABLE log",
    "SELECT pg_create_logical_replication_slot('s', 'pgoutput')",
)


class Writer(threading.Thread):
    """Inserts rows, in transactions of a few, and now and then of so many that the server streams them."""

    def __init__(self, database: Database, choose: random.Random) -> None:
        super().__init__(daemon=True)
        self._database = database
        self._choose = choose
        self._next = 1_000_000
        self.stopping = False

    def run(self) -> None:
        while not self.stopping:
            with contextlib.suppress(psycopg.OperationalError), self._database.connect() as session:
                while not self.stopping:
                    rows = 3000 if self._choose.random() < 0.02 else self._choose.randint(1, 6)
                    first, self._next = self._next, self._next + rows
                    session.execute(
                        "INSERT INTO log SELECT i, repeat(md5(i::text), 2) FROM generate_series(%s, %s) i",
                        (first, self._next - 1),
                    )
                    time.sleep(0.01)
            time.sleep(0.05)


class Round:
    """One way to read a slot, disturbed."""

    def __init__(self, database: Database, kind: str, folder: Path, choose: random.Random) -> None:
        self.database = database
        self.kind = kind
        self.folder = folder
        self.choose = choose
        self.proxy = FaultyProxy(database.server.port)
        self.peak = 0
        """Kilobytes of memory that a process had at most."""
        self.wrong: list[str] = []
        self._runs = 0
        self._reading = threading.Event()
        self._reading.set()
        self._full = False

    # -- the process ---------------------------------------------------------------------------------------------

    def start(self, *more: str, proxied: bool = True) -> None:
        """Start it; the slot may still be in use by the walsender of a process that was killed."""
        self._free()
        self._runs += 1
        self._out, self._err = self.folder / f"{self._runs}.out", self.folder / f"{self._runs}.err"
        dsn = self.database.conninfo(tcp=True, **({"port": self.proxy.port} if proxied else {}))
        read = ["stream", dsn, "-S", "s", "-o", "json"]
        record = ["record", dsn, "-S", "s", "--segment-size", "60kB", "--sync-interval", "0.05"]
        arguments = {
            "file": [*read, "--ack", "commit", "-f", str(self.disk / "changes.json")],
            "pipe": read,
            "record": [*record, "-D", str(self.disk / "capture")],
            "snapshot": [*record, "-D", str(self.disk / "capture"), "--snapshot"],
        }[self.kind]
        with self._err.open("wb") as err:
            words = [*_PROGRAM, *arguments, "-P", "p", "-v", *more]
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=err)
        self._begun = time.monotonic()
        self._reader = threading.Thread(target=self._read, args=[self.process, self._out], daemon=True)
        self._reader.start()

    @property
    def disk(self) -> Path:
        """The folder of what is written."""
        return self.folder / "disk"

    def _read(self, process: subprocess.Popen[bytes], into: Path) -> None:
        assert process.stdout is not None
        with process.stdout, into.open("wb") as file:
            while data := os.read(process.stdout.fileno(), 65536):
                file.write(data)
                self._reading.wait()

    def _free(self) -> None:
        wait_for("free slot", lambda: not self.database.query("SELECT 1 FROM pg_replication_slots WHERE active"))

    def end(self, sent: signal.Signals | None, *, statuses: tuple[int, ...]) -> None:
        """Send a signal, and check how the process ends."""
        self._measure()
        if sent is not None and self.process.poll() is None:
            self.process.send_signal(sent)
        self._reading.set()
        try:
            status = self.process.wait(within(30))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            self.wrong.append(f"it does not end after {sent}")
            return
        self._reader.join()
        said = self._err.read_bytes()
        if status == 3 and b"pgtail: error: " in said and time.monotonic() - self._begun < within(3):
            return  # a connection that is lost before the first stream has begun is an error
        if status not in statuses:
            self.wrong.append(f"status {status} after {sent}: {said[-600:].decode()}")
        if status in (1, 2, 3, 4) and b"pgtail: error: " not in said:
            self.wrong.append(f"status {status} without an error: {said[-600:].decode()}")
        if _COMPLAINTS.search(said):
            self.wrong.append(said[-2000:].decode())

    def _measure(self) -> None:
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{self.process.pid}/status").read_text()
            self.peak = max(self.peak, *[int(found) for found in re.findall(r"VmHWM:\s+(\d+) kB", status)], 0)

    # -- faults --------------------------------------------------------------------------------------------------

    def disturb(self, fault: str) -> None:
        """Cause a fault, and see that it is survived: the process runs on, or is started again where it must end."""
        if self.process.poll() is not None:
            self._restarted()
        if fault in PROCESS[:-1]:
            sent = signal.Signals[fault]
            # Before it has begun, its status is that of the signal.
            self.end(sent, statuses=(-9,) if sent is signal.SIGKILL else (0, 128 + sent, -sent))
            self.start()
        else:
            getattr(self, f"_{fault.lower().replace(' ', '_')}")()
        time.sleep(self.choose.uniform(0, 0.4))
        if self.process.poll() is not None:
            self._restarted()

    def _restarted(self) -> None:
        """A copy of tables whose session ended cannot go on, nor can what could not be written: run it again."""
        self.end(None, statuses={"snapshot": (3,), "file": (4,), "record": (4,)}.get(self.kind, ()))
        self._empty_disk()
        self.start()

    def _cut(self) -> None:
        self.proxy.cut()

    def _cut_inside(self) -> None:
        self.proxy.cut_after(some_bytes(self.choose))

    def _stall(self) -> None:
        self.proxy.stalled = True
        time.sleep(self.choose.choice((0.3, TIMEOUT * 1.3)))
        self.proxy.heal()

    def _delay(self) -> None:
        self.proxy.delay = self.choose.uniform(0.01, 0.2)
        time.sleep(0.7)
        self.proxy.heal()

    def _throttle(self) -> None:
        self.proxy.rate = self.choose.choice((2_000, 50_000))
        time.sleep(0.7)
        self.proxy.heal()

    def _refuse(self) -> None:
        self.proxy.refusing = True
        self.proxy.cut()
        time.sleep(self.choose.uniform(0.1, 1.5))
        self.proxy.heal()

    def _terminate(self) -> None:
        self._ask("SELECT pg_terminate_backend(pid) FROM pg_stat_replication")

    def _kill_server(self) -> None:
        self.database.server.kill()
        self.database.server.start()

    def _restart_server(self) -> None:
        self.database.server.restart("fast")

    def _take_slot(self) -> None:
        """Another client reads the slot for a moment, and consumes nothing."""
        self.proxy.refusing = True
        self.proxy.cut()
        with contextlib.suppress(psycopg.Error):
            self._free()
            options = "'proto_version', '1', 'publication_names', 'p'"
            self._ask(f"SELECT count(*) FROM pg_logical_slot_peek_binary_changes('s', NULL, 5, {options})")
        self.proxy.heal()

    def _sigstop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        time.sleep(self.choose.choice((0.2, TIMEOUT * 1.3)))
        self.process.send_signal(signal.SIGCONT)

    def _slow_reader(self) -> None:
        self._reading.clear()
        time.sleep(self.choose.choice((0.3, TIMEOUT * 1.3)))
        self._reading.set()

    def _full_disk(self) -> None:
        """Until it ends with an error, or for a moment in which it wrote nothing; a full disk loses nothing either."""
        if not os.path.ismount(self.disk):
            return
        self._full = True
        with contextlib.suppress(OSError), (self.disk / "ballast").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(2)
        self._empty_disk()

    def _empty_disk(self) -> None:
        (self.disk / "ballast").unlink(missing_ok=True)

    def _ask(self, query: str) -> list[tuple[object, ...]]:
        try:
            return self.database.query(query)
        except psycopg.OperationalError:  # the server restarts
            return [(True,)]

    # -- the end -------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """End it, read the rest in peace, and compare."""
        self.proxy.heal()
        self.end(signal.SIGTERM, statuses=(0, 143, -15) if self.kind != "snapshot" else (0, 3, 143, -15))
        self.start("--until", "now", proxied=False)
        self.end(None, statuses=(0,))
        self.proxy.close()
        truth = [str(value) for (value,) in self.database.query("SELECT id FROM log ORDER BY id")]
        if self.kind in ("file", "pipe"):
            outputs = [self.disk / "changes.json"] if self.kind == "file" else sorted(self.folder.glob("*.out"))
            found = [one for path in outputs for one in self._rows(path)]
        else:
            read = command("decode", "-o", "json", self.disk / "capture", timeout=300)
            if read.status:
                self.wrong.append(f"the capture: {read.status} {read.stderr}")
            found, place = list[str](), None
            for one in read.objects:
                if one["op"] == "snapshot" and one["commit_lsn"] != place:  # the table has these rows and no others
                    found, place = [], one["commit_lsn"]
                found.append(str(one["new"]["id"]))
            twice = [one for one, count in Counter(found).items() if count > 1]
            if twice:
                self.wrong.append(f"{len(twice)} rows came twice, such as {twice[:3]}")
        missing = set(truth) - set(found)
        if missing or set(found) - set(truth):
            more = len(set(found) - set(truth))
            self.wrong.append(f"{len(missing)} of {len(truth)} rows are missing, {more} are not in the table")

    def _rows(self, path: Path) -> Iterator[str]:
        """The rows of an output. A line may be torn where a process was killed, or a disk full, and nowhere else."""
        torn = 0
        for line in path.read_bytes().split(b"\n"):
            try:
                yield str(json.loads(line)["new"]["id"])
            except ValueError:
                torn += bool(line)
        if torn > self.torn:
            self.wrong.append(f"{torn} lines of {path.name} are torn")

    torn = 0
    """How many lines may be: one for each kill."""


@contextlib.contextmanager
def _small_disk(folder: Path) -> Iterator[None]:
    """A file system of its own, where the user may mount one."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=200m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    try:
        yield
    finally:
        if mounted.returncode == 0:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def run_round(server: EmbeddedServer, name: str, kind: str, tried: Counter[tuple[str, str]]) -> tuple[list[str], int]:
    """Run the round of this name, which is its seed; returns what is wrong, and the memory of a process in kB."""
    choose = random.Random(f"{name} {kind}")
    others = [*NETWORK, *SERVER, *OTHER.get(kind, ())]
    with fresh_database(server) as database, tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        if database.version >= 12:
            database.execute(f"ALTER DATABASE {database.name} SET wal_sender_timeout = '{TIMEOUT}s'")
        database.execute(*(_SCHEMA[:2] if kind == "snapshot" else _SCHEMA))
        if kind == "snapshot":
            database.execute("INSERT INTO log SELECT i, repeat('x', 200) FROM generate_series(1, 20000) i")
        with _small_disk(Path(folder, "disk")):
            one = Round(database, kind, Path(folder), choose)
            writer = Writer(database, choose)
            writer.start()
            try:
                one.start()
                for _ in range(FAULTS):
                    fault = choose.choice(PROCESS if choose.random() < 0.3 else others)
                    tried[kind, fault] += 1
                    one.torn += fault in ("SIGKILL", "full disk")
                    time.sleep(choose.uniform(0.1, 0.6))
                    one.disturb(fault)
            finally:
                writer.stopping = True
                writer.join()
                if sys.exc_info()[0] is not None:
                    one.process.kill()
            one.finish()
    return one.wrong, one.peak


def torture(
    rounds: range, seed: int, kinds: Sequence[str], names: Sequence[str], say: Callable[[str], None]
) -> list[str]:
    """Run rounds on servers of their own, in turn on each of these names; returns what is wrong."""
    tried: Counter[tuple[str, str]] = Counter()
    wrong: list[str] = []
    worst: Counter[str] = Counter()
    with contextlib.ExitStack() as stack:
        servers: dict[str, EmbeddedServer] = {}
        for number in rounds:
            kind, name = kinds[number % len(kinds)], names[number // len(kinds) % len(names)]
            if name not in servers:
                servers[name] = stack.enter_context(_server(installations()[name]))
            found, peak = run_round(servers[name], f"{seed} {number}", kind, tried)
            worst[kind] = max(worst[kind], peak)
            wrong += [f"{kind} on {name}, round {number}: {text}" for text in found]
            say(f"round {number}: {kind} on {name}, {'wrong' if found else 'ok'}")
            if found:
                say(f"WRONG on {name}: {found}\nrepeat: python -m tests.replication.faults 1 {seed} --from {number}")
    say(f"seed {seed}; faults tried, by what was disturbed:")
    faults = sorted({fault for _, fault in tried})
    for kind in kinds:
        counts = ", ".join(f"{fault} {tried[kind, fault]}" for fault in faults if tried[kind, fault])
        say(f"  {kind:8}  {counts}; at most {worst[kind] / 1024:.0f} MB")
    say(f"{tried.total()} faults in {len(rounds)} rounds: {len(wrong)} wrong")
    return wrong


def _server(installation: Installation) -> EmbeddedServer:
    streams = {"logical_decoding_work_mem": "64kB"} if installation.major >= 13 else {}
    return embedded_server(installation, **streams)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rounds", nargs="?", type=int, default=ROUNDS)
    parser.add_argument("seed", nargs="?", type=int)
    parser.add_argument("--from", dest="first", type=int, default=0, help="the number of the first round")
    given = parser.parse_args()
    seed = new_seed() if given.seed is None else given.seed
    rounds = range(given.first, given.first + given.rounds)
    sys.exit(1 if torture(rounds, seed, KINDS, list(installations()), lambda text: print(text, flush=True)) else 0)


if __name__ == "__main__":
    main()
