"""The programs that drain a live slot and what they need: a server with the workload, and a copy of its slot for each.

The server is an installed PostgreSQL where wal2json can be had for it (Debian's package, unpacked and not installed),
else an embedded one.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg

from pgtail.demo.installation import Installation, embedded_installations
from pgtail.demo.server import EmbeddedServer
from pgtail.errors import ServerError
from tests.bench.workload import BASE_SLOT, WORK, Size, make_changes, settings
from tests.support.servers import installations

_RUN = "run"
_HIGHEST = {14: 2, 15: 3}
"""The highest protocol version by server; 4 from 16 on."""


@dataclass(frozen=True, slots=True, eq=False)
class Drain:
    """One program that reads everything a slot holds; `plugin` is what the slot must have."""

    name: str
    group: str
    command: list[str | Path]
    plugin: str = "pgoutput"
    writes_json: bool = False


class Live:
    """A running server whose slot BASE_SLOT holds the workload."""

    def __init__(self, server: EmbeddedServer, wal2json: bool) -> None:
        self.server = server
        self.wal2json = wal2json
        self.end = str(self._value("SELECT pg_current_wal_flush_lsn()"))
        self._execute("SELECT pg_log_standby_snapshot()" if server.installation.major >= 16 else "CHECKPOINT")
        self._execute("SELECT pg_logical_emit_message(false, 'bench', '')")  # something to read past the end

    @property
    def words(self) -> str:
        return f"PostgreSQL {self.server.installation.version}"

    @contextlib.contextmanager
    def slot(self, plugin: str, *, at_end: bool = False) -> Iterator[None]:
        """The slot that the programs read: it holds what the first one holds, or (`at_end`) nothing yet."""
        if at_end:
            self._execute(f"SELECT pg_create_logical_replication_slot('{_RUN}', '{plugin}')")
        else:
            self._execute(f"SELECT pg_copy_logical_replication_slot('{BASE_SLOT}', '{_RUN}', false, '{plugin}')")
        try:
            yield
        finally:
            self._until("SELECT NOT active FROM pg_replication_slots WHERE slot_name = ")
            self._execute(f"SELECT pg_drop_replication_slot('{_RUN}')")

    def wait_for_reader(self) -> None:
        """Wait until a program reads the slot."""
        self._until("SELECT active FROM pg_replication_slots WHERE slot_name = ")

    def _until(self, query: str) -> None:
        deadline = time.monotonic() + 30
        while not self._value(f"{query}'{_RUN}'"):
            if time.monotonic() > deadline:
                raise ServerError("the benchmark's slot is not as it should be")
            time.sleep(0.05)

    def tails(self) -> list[Drain]:
        """The programs whose latency is compared: they run until they are stopped."""
        recvlogical = self._recvlogical("proto_version=1", "publication_names=pub", endless=True)
        return [
            Drain("pgtail stream", "", self._pgtail("--proto-version", "1", endless=True), writes_json=True),
            Drain("pg_recvlogical, raw", "", recvlogical),
        ]

    def drains(self) -> list[Drain]:
        """Every program, in groups of equal options; pgtail is the first of each."""
        version = _HIGHEST.get(self.server.installation.major, 4)
        first, highest = "protocol 1, streaming off", f"protocol {version}, streaming on"
        plain, streaming = ["proto_version=1"], [f"proto_version={version}", "streaming=on", "messages=on"]
        found = [
            Drain("pgtail stream", first, self._pgtail("--proto-version", "1")),
            Drain("pg_recvlogical, raw", first, self._recvlogical(*plain, "publication_names=pub")),
            Drain("pgtail stream", highest, self._pgtail("--proto-version", str(version), "--streaming", "on")),
            Drain("pg_recvlogical, raw", highest, self._recvlogical(*streaming, "publication_names=pub")),
        ]
        if self.wal2json:
            options = ("format-version=2", "include-xids=true", "include-lsn=true")
            found.insert(2, Drain("pg_recvlogical, wal2json", first, self._recvlogical(*options), "wal2json"))
        for output in ("table", "json-tx", "wal2json", "debezium"):
            drain = Drain(f"pgtail stream -o {output}", first, self._pgtail("--proto-version", "1", output=output))
            found.insert(1, drain)
        return found

    def _pgtail(self, *options: str, endless: bool = False, output: str = "json") -> list[str | Path]:
        pgtail = Path(sys.executable).with_name("pgtail")
        end = [] if endless else ["-E", self.end]
        return [pgtail, "stream", self.server.conninfo(), "-S", _RUN, "-P", "pub", "-o", output, *end, *options]

    def _recvlogical(self, *options: str, endless: bool = False) -> list[str | Path]:
        program = self.server.installation.program("pg_recvlogical")
        chosen = [part for option in options for part in ("-o", option)]
        end = [] if endless else ["-E", self.end]
        return [program, "-d", self.server.conninfo(), "-S", _RUN, "--start", "-f", "-", "--no-loop", *end, *chosen]

    def _execute(self, statement: str) -> None:
        with psycopg.connect(self.server.conninfo(), autocommit=True) as session:
            session.execute(statement.encode())

    def _value(self, statement: str) -> object:
        with psycopg.connect(self.server.conninfo(), autocommit=True) as session:
            row = session.execute(statement.encode()).fetchone()
            return row[0] if row else None


@contextlib.contextmanager
def live_server(size: Size | None, tell: list[str]) -> Iterator[Live]:
    """A server with the workload (None: with its tables alone); `tell` gets a line about what is left out."""
    installation, library = _best(tell)
    more = {"dynamic_library_path": f"$libdir:{library}"} if library else {}
    with EmbeddedServer(installation, settings={**settings(), **more}) as server:
        make_changes(server, size)
        yield Live(server, library is not None)


def _best(tell: list[str]) -> tuple[Installation, Path | None]:
    """The server to use, and the folder with wal2json for it."""
    own = {installation.bindir for installation in embedded_installations()}
    why = "no PostgreSQL is installed that Debian has it for"
    for installation in installations().values():
        if installation.bindir not in own:
            try:
                return installation, wal2json_folder(installation.major)
            except ServerError as error:
                why = str(error)
    tell.append(f"wal2json: {why}")
    return embedded_installations()[0], None


def wal2json_folder(major: int) -> Path:
    """Debian's wal2json for an installed server, taken out of its package. Raises ServerError."""
    package, folder = f"postgresql-{major}-wal2json", WORK / f"wal2json-{major}"
    found = next(folder.rglob("wal2json.so"), None)
    if found is None:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            subprocess.run(["apt-get", "download", package], cwd=folder, check=True, capture_output=True, text=True)
            [deb] = folder.glob("*.deb")
            subprocess.run(["dpkg", "-x", deb, folder], check=True, capture_output=True, text=True)
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            said = getattr(error, "stderr", "") or str(error)
            raise ServerError(f"{package} could not be fetched: {said.strip().splitlines()[-1]}") from error
        found = next(folder.rglob("wal2json.so"), None)
    if found is None:
        raise ServerError(f"{package} has no wal2json.so")
    return found.parent
