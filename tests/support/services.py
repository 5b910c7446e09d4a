"""Services that run, as those who watch them see them: metrics, health, notifications, logs."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.support.limits import within
from tests.support.run_process import PROGRAM
from tests.support.servers import Database
from tests.support.tail import wait_for

DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Notifications:
    """A socket in the place of systemd's, with an abstract name or in a directory. `lines` has what came."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: list[str] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"\0{name[1:]}" if name.startswith("@") else name)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while True:
            self.lines += self._socket.recv(1 << 16).decode().split("\n")


class Service:
    """`pgtail` with these arguments and --metrics on a free port."""

    def __init__(self, *arguments: str, environment: dict[str, str] | None = None) -> None:
        self.log: list[dict[str, Any]] = []
        self.port = 0
        self.process = subprocess.Popen(
            [*PROGRAM, *arguments, "--metrics", "0", "--log-format", "json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.port = self.event("metrics")["port"]

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(json.loads(line))

    def event(self, name: str, count: int = 1) -> dict[str, Any]:
        """Wait until this event is in the log so many times; returns the last one."""

        def found() -> list[dict[str, Any]]:
            assert self.process.poll() is None or not self._reader.is_alive(), self.log
            return [one for one in self.log if one["event"] == name]

        those: list[dict[str, Any]] = wait_for(f"{name}: {self.log}", lambda: found() if len(found()) >= count else [])
        return those[-1]

    def get(self, path: str) -> tuple[int, str]:
        """The status and the body of an answer."""
        try:
            with DIRECT.open(f"http://127.0.0.1:{self.port}{path}", timeout=within(30)) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def metrics(self) -> dict[tuple[str, ...], float]:
        """The values by the metric's name and the values of its labels."""
        return values_of(self.get("/metrics")[1])

    def value(self, name: str) -> float | None:
        """The value of a metric without labels."""
        return self.metrics().get((name,))

    def health(self) -> tuple[int, dict[str, Any]]:
        """The status of /healthz, and what it says."""
        status, body = self.get("/healthz")
        return status, json.loads(body)

    def becomes(self, status: int, what: Callable[[str], bool] = lambda reason: True) -> str:
        """Wait until /healthz has this status, and what it gives as the reason passes; returns that."""

        def reason() -> str | None:
            found, content = self.health()
            text = str(content.get("reason", content))
            return text if found == status and what(text) else None

        return str(wait_for(f"health {status}: {self.health()}, {self.log}", reason))

    def end(self) -> int:
        """Wait for the end; returns the exit status."""
        status = self.process.wait(within(30))
        self._reader.join(within(30))
        return status


@contextmanager
def service(*arguments: str, environment: dict[str, str] | None = None) -> Iterator[Service]:
    """A running service, which is killed at the end if it still runs."""
    running = Service(*arguments, environment=environment)
    try:
        yield running
    finally:
        running.process.kill()
        running.end()
        assert running.process.stderr is not None
        running.process.stderr.close()


def values_of(text: str) -> dict[tuple[str, ...], float]:
    """The values of a text by the metric's name and the values of its labels."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def walsender(database: Database) -> int:
    """The process of pgtail's session."""
    query = "SELECT pid FROM pg_stat_replication WHERE application_name = 'pgtail' AND state = 'streaming'"
    [(pid,)] = wait_for("session", lambda: database.query(query))
    return int(pid)
