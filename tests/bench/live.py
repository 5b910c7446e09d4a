"""The programs that drain a live slot, and what they need: a server with the workload, a fresh copy of its slot each.

The server is an installed PostgreSQL where wal2json can be had for it (Debian's package, taken apart and not installed),
else an embedded one.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg

from pgtail.errors import ServerError
from pgtail.server.embedded import EmbeddedServer
from pgtail.server.installation import Installation, embedded_installations
from tests.bench.workload import BASE_SLOT, WORK, Size, make_changes, settings
from tests.servers import installations

_HIGHEST = {14: 2, 15: 3}
"""The highest protocol version by server; 4 from 16 on."""


@dataclass(frozen=True, slots=True)
class Drain:
    """One program that reads everything a slot holds; `plugin` is what the slot must have."""

    name: str
    group: str
    command: list[str | Path]
    plugin: str = "pgoutput"


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
    def slot(self, plugin: str) -> Iterator[str]:
        """A slot that holds what the first one holds."""
        name = "run"
        self._execute(f"SELECT pg_copy_logical_replication_slot('{BASE_SLOT}', '{name}', false, '{plugin}')")
        try:
            yield name
        finally:
            self._execute(f"SELECT pg_drop_replication_slot('{name}')")

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
            options = (
                "format-version=2",
                "include-xids=true",
                "include-lsn=true",
                "add-tables=public.accounts,public.wide",
            )
            found.insert(2, Drain("pg_recvlogical, wal2json", first, self._recvlogical(*options), "wal2json"))
        return found

    def _pgtail(self, *options: str) -> list[str | Path]:
        pgtail = Path(sys.executable).with_name("pgtail")
        return [
            pgtail,
            "stream",
            self.server.conninfo(),
            "-S",
            "run",
            "-P",
            "pub",
            "-o",
            "json",
            "-E",
            self.end,
            *options,
        ]

    def _recvlogical(self, *options: str) -> list[str | Path]:
        program = self.server.installation.program("pg_recvlogical")
        chosen = [part for option in options for part in ("-o", option)]
        return [
            program,
            "-d",
            self.server.conninfo(),
            "-S",
            "run",
            "--start",
            "-f",
            "-",
            "--no-loop",
            "-E",
            self.end,
            *chosen,
        ]

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
    for installation in installations().values():
        if installation.bindir not in own:
            try:
                return installation, _wal2json(installation.major)
            except ServerError as error:
                tell.append(f"wal2json: {error}")
    if not tell:
        tell.append("wal2json: no PostgreSQL is installed that Debian has it for")
    return embedded_installations()[0], None


def _wal2json(major: int) -> Path:
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
