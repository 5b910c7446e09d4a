"""One way to read a slot, and the faults that disturb it; it must survive each, or end with an error that says why."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import psycopg

from tests.support.clocks import Clock
from tests.support.faulty_proxy import FaultyProxy, some_bytes
from tests.support.limits import within
from tests.support.run import command
from tests.support.servers import Database
from tests.support.tail import wait_for
from tests.torture.bench import Session

KINDS: Final = ("file", "pipe", "record", "snapshot")
TIMEOUT: Final = 2
"""Seconds of wal_sender_timeout."""
NETWORK: Final = ("cut", "cut inside", "stall", "delay", "throttle", "refuse")
SERVER: Final = ("terminate", "kill server", "restart server", "take slot", "alter table", "alter publication")
PROCESS: Final = ("SIGINT", "SIGTERM", "SIGHUP", "SIGKILL", "SIGSTOP", "clock jump")
OTHER: Final = {
    "pipe": ("slow reader", "shutdown", "full disk"),
    "file": ("full disk", "disk error"),
    "record": ("full disk", "disk error"),
}
"""Faults of one kind alone."""
SCHEMA: Final = (
    "CREATE TABLE log (id bigint PRIMARY KEY, v text)",
    "CREATE TABLE other (id int PRIMARY KEY)",
    "CREATE PUBLICATION p FOR TABLE log",
)
SLOT: Final = "SELECT pg_create_logical_replication_slot('s', 'pgoutput')"
_PROGRAM: Final = [str(Path(sys.executable).with_name("pgtail"))]
_COMPLAINTS: Final = re.compile(rb"Traceback|Exception ignored|Fatal Python|Segmentation")


def prepare(database: Database) -> None:
    """Create the tables, and make the server's time limits short and its transactions streamed."""
    settings = {"wal_sender_timeout": f"{TIMEOUT}s"} if database.version >= 12 else {}
    if database.version >= 13:
        settings["logical_decoding_work_mem"] = "64kB"
    database.execute(*SCHEMA, *[f"ALTER DATABASE {database.name} SET {name} = '{settings[name]}'" for name in settings])


def insert_rows(choose: random.Random) -> Callable[[Session], object]:
    """A transaction of a few rows, and now and then of so many that the server streams them."""

    def transaction(session: Session) -> None:
        session.execute(
            "INSERT INTO log SELECT found.last + i, repeat(md5(i::text), 2) FROM generate_series(1, %s) i,"
            " (SELECT coalesce(max(id), 0) AS last FROM log) found",
            [3000 if choose.random() < 0.02 else choose.randint(1, 6)],
        )

    return transaction


class Round:
    """One way to read a slot, disturbed."""

    def __init__(
        self, database: Database, kind: str, folder: Path, choose: random.Random, options: Sequence[str] = ()
    ) -> None:
        self.database = database
        self.kind = kind
        self.folder = folder
        self.choose = choose
        self._options = options
        self.proxy = FaultyProxy(database.server.port)
        self._clock = Clock(folder / "clock")
        self.peak = 0
        """Kilobytes of memory that a process had at most."""
        self.wrong: list[str] = []
        self.runs = 0
        self._disk_failed = False
        self._reading = threading.Event()
        self._reading.set()

    # -- the process ---------------------------------------------------------------------------------------------

    def start(self, *more: str, proxied: bool = True) -> None:
        """Start it; the slot may still be in use by the walsender of a process that was killed."""
        self.wait_for_free_slot()
        self.runs += 1
        self._out, self._err = self.folder / f"{self.runs}.out", self.folder / f"{self.runs}.err"
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
            words = [*_PROGRAM, *arguments, "-P", "p", "-v", *self._options, *more]
            self.process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=err, env=self._environment()
            )
        self._begun = time.monotonic()
        self._reader = threading.Thread(target=self._read, args=[self.process, self._out], daemon=True)
        self._reader.start()

    def _environment(self) -> dict[str, str]:
        """Its clock may jump, its temporary files are on the disk that may be full."""
        return {**os.environ, **self._clock.environment, "TMPDIR": str(self.disk)}

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

    @property
    def said(self) -> str:
        """Standard error of the last run."""
        return self._err.read_bytes().decode()

    def move_to(self, database: Database) -> None:
        """Another server has the address from now on."""
        self.database = database
        self.proxy.move_to(database.server.port)

    def wait_for_free_slot(self) -> None:
        active = "SELECT 1 FROM pg_replication_slots WHERE slot_name = 's' AND active"
        wait_for("free slot", lambda: not self.database.query(active))

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
        begins = b"pgtail: options: " not in said or time.monotonic() - self._begun < within(3)
        if status in (3, 75) and b"pgtail: error: " in said and begins:
            return  # a connection that is lost before the first stream has begun is an error
        if status == 4 and self._disk_failed and re.search(b"error: .*(No space left|Input/output error)", said):
            return  # it had met the error before there was room again
        if status not in statuses:
            self.wrong.append(f"status {status} after {sent}: {said[-600:].decode()}")
        if status in (1, 2, 3, 4, 75) and b"pgtail: error: " not in said:
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
        self._measure()
        self.keep_running()
        if fault in PROCESS[:4]:
            sent = signal.Signals[fault]
            # Before it has begun, its status is that of the signal.
            self.end(sent, statuses=(-9,) if sent is signal.SIGKILL else (0, 128 + sent, -sent))
            self.start()
        else:
            getattr(self, f"_{fault.lower().replace(' ', '_')}")()
        time.sleep(self.choose.uniform(0, 0.4))
        self.keep_running()

    def keep_running(self) -> None:
        """A copy of tables whose session ended cannot go on, nor can what could not be written: run it again."""
        if self.process.poll() is None:
            return
        self.end(None, statuses=(3, 75) if self.kind == "snapshot" else (4,))
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
        self.database.server.restart(self.choose.choice(("fast", "immediate")))

    def _take_slot(self) -> None:
        """Another client reads the slot for a moment, and consumes nothing."""
        self.proxy.refusing = True
        self.proxy.cut()
        with contextlib.suppress(psycopg.Error):
            self.wait_for_free_slot()
            options = "'proto_version', '1', 'publication_names', 'p'"
            self._ask(f"SELECT count(*) FROM pg_logical_slot_peek_binary_changes('s', NULL, 5, {options})")
        self.proxy.heal()

    def _sigstop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        time.sleep(self.choose.choice((0.2, TIMEOUT * 1.3)))
        self.process.send_signal(signal.SIGCONT)

    def _clock_jump(self) -> None:
        """The clock is set, forward or back by up to a month; nothing but times that are shown may change."""
        self._clock.set(self.choose.randint(-2_600_000, 2_600_000))

    def _alter_table(self) -> None:
        """While a copy of the tables reads it, this waits for a moment only."""
        self._change(
            self.choose.choice(
                (
                    "ALTER TABLE log ADD COLUMN added int DEFAULT 7",
                    "ALTER TABLE log DROP COLUMN IF EXISTS added",
                    "ALTER TABLE log REPLICA IDENTITY FULL",
                    "ALTER TABLE log REPLICA IDENTITY DEFAULT",
                )
            )
        )

    def _alter_publication(self) -> None:
        self._change(
            self.choose.choice(
                (
                    "ALTER PUBLICATION p ADD TABLE other",
                    "ALTER PUBLICATION p DROP TABLE other",
                    "ALTER PUBLICATION p SET (publish = 'insert')",
                    "ALTER PUBLICATION p SET (publish = 'insert, update, delete')",
                    "BEGIN; DROP PUBLICATION p; CREATE PUBLICATION p FOR TABLE log; COMMIT",
                )
            )
        )

    def _change(self, statement: str) -> None:
        """An error of it is none here, such as that the column exists."""
        with contextlib.suppress(psycopg.Error):
            self.database.execute(f"SET lock_timeout = '0.5s'; {statement}")

    def _shutdown(self) -> None:
        """The server is to shut down while the reader of the pipe has stopped for longer than its timeout."""
        self._reading.clear()
        time.sleep(TIMEOUT * 1.3)
        begun = time.monotonic()
        self.database.server.restart("fast")
        if time.monotonic() - begun > within(15):
            self.wrong.append(f"the server needed {time.monotonic() - begun:.0f} s to shut down")
        self._reading.set()

    def _slow_reader(self) -> None:
        self._reading.clear()
        time.sleep(self.choose.choice((0.3, TIMEOUT * 1.3)))
        self._reading.set()

    def _full_disk(self) -> None:
        """Until it ends with an error, or for a moment in which it wrote nothing; a full disk loses nothing either."""
        if not os.path.ismount(self.disk):
            return
        self._fill_for(self.disk, seconds=2)

    def _disk_error(self) -> None:
        """What is below the file system is full: to write fails with EIO, perhaps only when it is synced."""
        if not os.path.ismount(self._below):
            self._full_disk()
            return
        self._fill_for(self._below, seconds=3)

    def _fill_for(self, folder: Path, *, seconds: float) -> None:
        self._disk_failed = True
        _fill(folder / "ballast")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        self._empty_disk()

    @property
    def _below(self) -> Path:
        """Where the file is that has the file system, if it is in a file."""
        return self.folder / "below"

    def _empty_disk(self) -> None:
        for folder in (self.disk, self._below):
            (folder / "ballast").unlink(missing_ok=True)

    def _ask(self, query: str) -> list[tuple[object, ...]]:
        try:
            return self.database.query(query)
        except psycopg.OperationalError:  # the server restarts
            return [(True,)]

    # -- the end -------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """End it, read the rest in peace, and compare."""
        self.proxy.heal()
        self.end(signal.SIGTERM, statuses=(0, 143, -15) if self.kind != "snapshot" else (0, 3, 75, 143, -15))
        self.start("--until", "now", proxied=False)
        self.end(None, statuses=(0,))
        self.compare()

    def close(self) -> None:
        """End everything."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.proxy.close()

    def compare(self, acknowledged: set[str] | None = None) -> None:
        """Nothing else than the table's rows may be there, and these at least; None: all of them."""
        truth = {str(value) for (value,) in self.database.query("SELECT id FROM log")}
        found = self._found()
        missing = (truth if acknowledged is None else acknowledged) - found
        if missing or found - truth:
            more = len(found - truth)
            self.wrong.append(f"{len(missing)} of {len(truth)} rows are missing, {more} are not in the table")

    def _found(self) -> set[str]:
        """The rows of the output, or of the capture, in which none may come twice."""
        if self.kind in ("file", "pipe"):
            outputs = [self.disk / "changes.json"] if self.kind == "file" else sorted(self.folder.glob("*.out"))
            return {one for path in outputs for one in self._rows(path)}
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
        return set(found)

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

    torn = 0.0
    """How many lines may be: one for each kill."""


def _fill(path: Path) -> None:
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


@contextlib.contextmanager
def small_disk(folder: Path, *, in_file: bool, megabytes: int = 200) -> Iterator[None]:
    """A file system at folder/disk, where the user may mount one; `in_file`, it is in a file at folder/below."""
    disk, below = folder / "disk", folder / "below"
    disk.mkdir()
    with contextlib.ExitStack() as stack:
        if not in_file:
            _mount(stack, disk, "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs")
        elif shutil.which("mkfs.ext4"):
            below.mkdir()
            if _mount(stack, below, "-t", "tmpfs", "-o", "size=200m", "tmpfs"):
                image = below / "image"
                with image.open("wb") as file:
                    file.truncate(150 << 20)
                # Without a journal: with one it is read-only after an error.
                make = ["mkfs.ext4", "-q", "-F", "-O", "^has_journal", str(image)]
                subprocess.run(make, check=True, capture_output=True)
                if not _mount(stack, disk, "-o", "loop,errors=continue", str(image)):
                    image.unlink()
        yield


def _mount(stack: contextlib.ExitStack, folder: Path, *arguments: str) -> bool:
    if subprocess.run(["mount", *arguments, str(folder)], capture_output=True, check=False).returncode:
        return False
    stack.callback(subprocess.run, ["umount", "-l", str(folder)], check=True)
    return True
