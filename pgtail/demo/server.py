"""A private PostgreSQL server: creates, starts, stops and removes it.

It lives in a private temporary directory. It listens on a Unix socket there, which only the directory's owner reaches
and which needs no password, and on a loopback port with a password. The host's locale, time zone and PG* variables do
not affect it. When its owner ends, in whatever way, a guard process removes it.
"""

from __future__ import annotations

import os
import random
import secrets
import select
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, Self

from pgtail.demo.account import Account
from pgtail.demo.installation import Installation
from pgtail.errors import ServerError
from pgtail.postgres.connection import connection_string

Mode = Literal["smart", "fast", "immediate"]
Setting = str | int | float | bool

_SIGNALS: Mapping[Mode, signal.Signals] = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
SUPERUSER = "postgres"
_SETTINGS: Mapping[str, Setting] = {
    "listen_addresses": "127.0.0.1",
    "wal_level": "logical",
    "max_replication_slots": 50,
    "max_wal_senders": 25,
    "max_connections": 60,
    "max_prepared_transactions": 25,
    "shared_buffers": "16MB",
    "huge_pages": False,
    "max_parallel_workers_per_gather": 0,
    "autovacuum": False,  # only the caller writes to the WAL
    "timezone": "UTC",
    "log_timezone": "UTC",
    "datestyle": "ISO, MDY",
    "fsync": False,  # it would protect against a crash of the whole machine
    "full_page_writes": False,
}
_STRAGGLERS: Final = 60
"""Seconds for the other processes to end after the postmaster."""

# Waits for the end of its standard input, which the owner keeps open, then stops the server and removes its directory.
_GUARD = """
cat >/dev/null
pidfile="$0/data/postmaster.pid"
if read -r pid <"$pidfile" && kill -QUIT "$pid"; then
    tries=0
    while [ -e "$pidfile" ] && [ $tries -lt 100 ]; do sleep 0.1; tries=$((tries + 1)); done
    [ -e "$pidfile" ] && kill -KILL "$pid"
fi
rm -rf "$0"
"""


class EmbeddedServer:
    """One server in a temporary directory: `with EmbeddedServer(installation) as server:` starts and removes it.

    `settings` go to postgresql.conf and override the defaults here. `parent` is where the temporary directory is made,
    if not where the system has them. `account` is who runs it. Every method raises ServerError if the server fails.
    """

    def __init__(
        self,
        installation: Installation,
        *,
        settings: Mapping[str, Setting] | None = None,
        parent: Path | None = None,
        account: Account | None = None,
    ) -> None:
        self.installation = installation
        self.password = secrets.token_urlsafe(18)
        self.port = 0
        self._settings = {**_SETTINGS, **(settings or {})}
        self._account = account or Account.for_server()
        self._parent = parent
        self._directory: Path | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._alive: int | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def directory(self) -> Path:
        """The directory of the data, the Unix socket and the log; created by the first start."""
        if self._directory is None:
            raise ServerError("the embedded server was not started, or is closed")
        return self._directory

    @property
    def data(self) -> Path:
        """The data directory."""
        return self.directory / "data"

    @property
    def log(self) -> Path:
        """The server's log file."""
        return self.directory / "log"

    @property
    def pid(self) -> int | None:
        """The postmaster's process id while it runs."""
        return self._process.pid if self._process is not None and self.is_running() else None

    def is_running(self) -> bool:
        """Whether the postmaster is running."""
        return self._process is not None and self._process.poll() is None

    def conninfo(self, dbname: str = "postgres", *, tcp: bool = False, **more: Any) -> str:
        """The superuser's libpq connection string, to the Unix socket or (`tcp`) to the loopback port."""
        address = {"host": "127.0.0.1", "password": self.password} if tcp else {"host": str(self.directory)}
        return connection_string("", **{**address, "port": self.port, "user": SUPERUSER, "dbname": dbname, **more})

    def start(self, timeout: float = 60) -> None:
        """Start the server, created first if necessary, and return when it accepts connections; seconds."""
        if self.is_running():
            raise ServerError("the embedded server is running already")
        if self._directory is None:
            self._make()
        log_size = self.log.stat().st_size if self.log.exists() else 0
        self._launch()
        deadline = time.monotonic() + timeout
        while not self._accepts_connections():
            if not self.is_running():
                raise ServerError(f"The embedded server did not start:\n{self._log_since(log_size)}")
            if time.monotonic() > deadline:
                raise ServerError(f"The embedded server was not ready within {timeout:g} s; its log is {self.log}")
            time.sleep(0.01)

    def stop(self, mode: Mode = "fast", timeout: float = 60) -> None:
        """Shut down (manual: Shutting Down the Server), and wait until all of its processes have ended."""
        self._end(_SIGNALS[mode], timeout)

    def kill(self) -> None:
        """Crash: SIGKILL to the postmaster, which also ends the other processes. start() then recovers."""
        self._end(signal.SIGKILL, 60)

    def restart(self, mode: Mode = "fast", **settings: Setting) -> None:
        """Shut down, change the settings given, and start again on the same port."""
        self.stop(mode)
        self.configure(**settings)
        self.start()

    def configure(self, **settings: Setting) -> None:
        """Append settings to postgresql.conf; they take effect at the next start or reload."""
        with (self.data / "postgresql.conf").open("a", encoding="utf-8") as file:
            file.writelines(f"{name} = {_literal(value)}\n" for name, value in settings.items())

    def reload(self) -> None:
        """Ask the server to read its configuration files again (SIGHUP); it does so a moment later."""
        self._running().send_signal(signal.SIGHUP)

    def close(self) -> None:
        """Stop the server at once, with all its connections, and remove its directory. May be called twice."""
        try:
            if self.is_running():
                self.stop("immediate")
        finally:
            guard, self._guard, self._directory = self._guard, None, None
            if guard is not None:
                guard.communicate()

    def _make(self) -> None:
        directory = self._directory = self._account.private_directory(self._parent)
        self._guard = self._account.popen(["/bin/sh", "-c", _GUARD, str(directory)], stdin=subprocess.PIPE)
        if not self._account.may("-x", self.installation.program("postgres")):
            self.installation = self.installation.copy_to(directory)
        self._initdb()
        self.port = free_port()
        self.configure(port=self.port, unix_socket_directories=str(directory), **self._settings)

    def _initdb(self) -> None:
        password_file = self.directory / "password"
        password_file.touch(0o600)
        password_file.write_text(f"{self.password}\n", encoding="ascii")
        self._account.give(self.directory)
        command = [
            str(self.installation.program("initdb")),
            f"--pgdata={self.data}",
            f"--username={SUPERUSER}",
            f"--pwfile={password_file}",
            "--auth-local=trust",
            "--auth-host=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
        ]
        with self._account.popen(command, stdout=subprocess.PIPE) as initdb:
            output = initdb.communicate()[0].decode(errors="replace").strip()
        password_file.unlink()
        if initdb.returncode != 0:
            raise ServerError(f"initdb of PostgreSQL {self.installation.version} failed:\n{output}")

    def _launch(self) -> None:
        # Every server process inherits the pipe's write end, so end of file means that all of them have ended.
        self._alive, inherited = os.pipe()
        try:
            with self.log.open("ab") as log:
                self._process = self._account.popen(
                    [str(self.installation.program("postgres")), "-D", str(self.data)],
                    stdout=log.fileno(),
                    pass_fds=[inherited],
                )
        finally:
            os.close(inherited)

    def _accepts_connections(self) -> bool:
        """Whether postmaster.pid says so (src/include/utils/pidfile.h): the pid in line 1, the status in line 8."""
        try:
            lines = (self.data / "postmaster.pid").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return False
        return len(lines) >= 8 and lines[0] == str(self.pid) and lines[7].strip() in {"ready", "standby"}

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or not self.is_running():
            raise ServerError("the embedded server is not running")
        return self._process

    def _end(self, sent: signal.Signals, timeout: float) -> None:
        process = self._running()
        process.send_signal(sent)
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise ServerError(f"the embedded server was still running {timeout:g} s after {sent.name}") from None
        self._wait_for_all_processes()

    def _wait_for_all_processes(self) -> None:
        if self._alive is not None:
            ended, _, _ = select.select([self._alive], [], [], _STRAGGLERS)
            os.close(self._alive)
            self._alive = None
            if not ended:
                raise ServerError(f"a process of the embedded server outlived its postmaster by {_STRAGGLERS} s")

    def _log_since(self, position: int) -> str:
        with self.log.open("rb") as file:
            file.seek(position)
            return file.read().decode(errors="replace").strip()


def _literal(value: Setting) -> str:
    """A value in the syntax of postgresql.conf (manual: Parameter Interaction via the Configuration File)."""
    if isinstance(value, bool):
        value = "on" if value else "off"
    text = str(value).replace("\\", "\\\\").replace("'", "''")
    return f"'{text}'"


def free_port() -> int:
    """A free loopback port, below the range of outgoing connections: one could take the port during a restart.

    The choice is the system's, because forks of one process would share the state of a seeded generator.
    """
    for port in random.SystemRandom().sample(range(15_000, 32_000), 100):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise ServerError("no free port was found on 127.0.0.1")
