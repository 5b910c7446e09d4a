"""The real servers that tests run against: finds them, starts one of each version, creates databases on them.

Servers: the embedded ones, every installed one (/usr/lib/postgresql/*/bin, /usr/pgsql-*/bin), the directories that the
environment variable PGTAIL_TEST_BINDIRS names, separated as in PATH, and of the versions that these do not have what
`make servers` fetched; with PGTAIL_TEST_SERVERS="18 19" those of these major versions alone.
"""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.abc import Buffer
from psycopg.adapt import Loader

from pgtail.demo.installation import Installation, embedded_installations
from pgtail.demo.server import EmbeddedServer, Setting
from pgtail.errors import ServerError
from pgtail.pgoutput.scalars import lsn_text, parse_lsn
from tests.support.limits import within

FETCHED = Path(sys.prefix, "servers")
"""Where `make servers` puts a folder for each major version."""

_numbers = itertools.count(1)


@functools.cache
def installations() -> dict[str, Installation]:
    """Every server found, by a short name such as pg16, oldest first."""
    installed = [*Path("/usr").glob("lib/postgresql/*/bin"), *Path("/usr").glob("pgsql-*/bin")]
    bindirs = [bindir for bindir in installed if (bindir / "postgres").exists()]
    bindirs += [Path(bindir) for bindir in os.environ.get("PGTAIL_TEST_BINDIRS", "").split(os.pathsep) if bindir]
    found = [*embedded_installations(), *map(Installation.at, bindirs)]
    majors = {str(one.major) for one in found}
    found += [Installation.at(folder / "bin") for folder in FETCHED.glob("[0-9]*") if folder.name not in majors]
    if wanted := os.environ.get("PGTAIL_TEST_SERVERS", "").split():
        found = [one for one in found if str(one.major) in wanted]
        if missing := set(wanted) - {str(one.major) for one in found}:  # else its tests would be skipped
            raise pytest.UsageError(
                f"PGTAIL_TEST_SERVERS: no server of version {' or '.join(sorted(missing))} was found"
            )
    named: dict[str, Installation] = {}
    for installation in sorted(found, key=lambda one: one.major):
        name = f"pg{installation.major}"
        named[name if name not in named else f"{name}-{installation.bindir}"] = installation
    return named


def versions(since: int = 0, before: int = 100) -> list[str]:
    """The names of the servers from this major version on, and below `before`."""
    return [name for name, found in installations().items() if since <= found.major < before]


def some_versions(since: int = 0) -> list[str]:
    """The names of the oldest of these servers, of one in the middle, and of the newest.

    One in the middle from PostgreSQL 16 on is left out: it has the newest's version of the protocol.
    """
    names, older = versions(since), versions(since, before=16)
    return list(dict.fromkeys([*names[:1], *older[len(names) // 2 :][:1], *names[-1:]]))


def every_version(since: int = 0) -> pytest.MarkDecorator:
    """Run a test that takes `server` on every version from this one on."""
    return pytest.mark.parametrize("server", versions(since), indirect=True)


def since(major: int, before: int = 100) -> pytest.MarkDecorator:
    """Run a test that takes `server` on the first version from `major` on, and on the newest one (below `before`)."""
    names = versions(major, before)
    return pytest.mark.parametrize("server", list(dict.fromkeys(names[:1] + names[-1:])), indirect=True)


def client_program(installation: Installation, name: str) -> Path:
    """A program such as psql: the server's own, or that of a newer one, which serves as well."""
    has = (installation.bindir / name).exists()
    return (installation if has else embedded_installations()[0]).program(name)


_MEMORY = Path("/dev/shm")
_ROOM = 6 << 30
"""Bytes: what the servers of all test processes need at most, several times."""


def embedded_server(installation: Installation, **settings: Setting) -> EmbeddedServer:
    """A server with these settings, in memory if there is room: a database is created in a tenth of the time.

    It makes a checkpoint when a test asks for it, or much is written, and not every five minutes.
    """
    settings = {"checkpoint_timeout": "1d", **settings}
    return EmbeddedServer(installation, settings=settings, parent=_MEMORY if _memory_suffices() else None)


def _memory_suffices() -> bool:
    """Whether there is enough of it, and programs may run from it: the server may have to copy its own there."""
    if not _MEMORY.exists() or os.statvfs(_MEMORY).f_flag & os.ST_NOEXEC:
        return False
    return shutil.disk_usage(_MEMORY).free >= _ROOM


_TERMINATE = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
_DROP_SLOTS = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s"


class Servers:
    """One running server per name, started on first use; close() stops them all."""

    def __init__(self) -> None:
        self._running: dict[str, EmbeddedServer] = {}

    def get(self, name: str) -> EmbeddedServer:
        """The server of this name. Skips the test if an installed server cannot run here."""
        if name not in self._running:
            server = embedded_server(installations()[name])
            try:
                server.start()
            except ServerError as error:
                server.close()
                if server.installation.libraries is not None:
                    raise
                pytest.skip(f"the installed {name} does not run here: {error}")
            self._running[name] = server
        return self._running[name]

    def close(self) -> None:
        """Stop and remove them."""
        for server in self._running.values():
            server.close()
        self._running.clear()


@dataclass(frozen=True, slots=True)
class Database:
    """A database for one test."""

    server: EmbeddedServer
    name: str

    @property
    def version(self) -> int:
        """The server's major version."""
        return self.server.installation.major

    def conninfo(self, **more: Any) -> str:
        """A libpq connection string; `tcp=True` for the loopback port, other keywords as in libpq."""
        return self.server.conninfo(self.name, **more)

    def connect(self, **more: Any) -> psycopg.Connection[tuple[Any, ...]]:
        """A new connection, in autocommit mode; the caller closes it."""
        return psycopg.connect(self.conninfo(**more), autocommit=True)

    def execute(self, *statements: str) -> None:
        """Run the statements one after another in one new session, each committed by itself.

        Several in one string, separated by semicolons, are one transaction (the simple protocol's implicit block).
        """
        with self.connect() as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        return _rows(self.server, self.name, statement)

    def value(self, statement: str) -> Any:
        """The only value of a query."""
        [(value,)] = self.query(statement)
        return value


class _Lsn(Loader):
    """An LSN as pgtail prints it: servers since PostgreSQL 19 pad it with zeros."""

    def load(self, data: Buffer) -> str:
        return lsn_text(parse_lsn(bytes(data).decode()))


def _rows(server: EmbeddedServer, dbname: str, statement: str | sql.SQL | sql.Composed) -> list[tuple[Any, ...]]:
    with psycopg.connect(server.conninfo(dbname), autocommit=True) as session:
        session.adapters.register_loader("pg_lsn", _Lsn)
        cursor = session.execute(statement.encode() if isinstance(statement, str) else statement)
        return cursor.fetchall() if cursor.description else []


@contextmanager
def fresh_database(server: EmbeddedServer, **options: str) -> Iterator[Database]:
    """A new database (options of CREATE DATABASE: encoding="LATIN1"), dropped afterwards with its slots."""
    name = f"t{os.getpid()}_{next(_numbers)}"
    if server.installation.major >= 15:
        options = {"strategy": "file_copy", **options}  # half the time of writing every page to the WAL
    statement = sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name))
    for option, value in options.items():
        statement += sql.SQL(" {} = {}").format(sql.Identifier(option), sql.Literal(value))
    _rows(server, "postgres", statement)
    try:
        yield Database(server, name)
    finally:
        if server.is_running():
            _drop(server, name)


def _drop(server: EmbeddedServer, name: str) -> None:
    deadline = time.monotonic() + within(20)
    with psycopg.connect(server.conninfo(), autocommit=True) as session:
        for (gid,) in session.execute("SELECT gid FROM pg_prepared_xacts WHERE database = %s", (name,)).fetchall():
            _rows(server, name, sql.SQL("ROLLBACK PREPARED {}").format(sql.Literal(gid)))
        while True:
            try:
                for statement in (_TERMINATE, _DROP_SLOTS):
                    session.execute(statement, (name,))
                session.execute(sql.SQL("DROP DATABASE {}").format(sql.Identifier(name)))
            except (psycopg.errors.ObjectInUse, psycopg.errors.UndefinedObject):
                # A session has not ended yet, or a temporary slot ended with one.
                if time.monotonic() > deadline:
                    raise
            else:
                return


def run_program(
    database: Database, program: str, *arguments: str, **options: Any
) -> subprocess.CompletedProcess[bytes]:
    """Run one of the server's programs (psql, pg_recvlogical) on a database, and check that it succeeds."""
    path = client_program(database.server.installation, program)
    command = [str(path), f"--dbname={database.conninfo()}", *arguments]
    return subprocess.run(command, check=True, capture_output=True, timeout=within(120), **options)
