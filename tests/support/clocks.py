"""The wall clock of a process, which can be set while it runs: a library in C that is preloaded."""

from __future__ import annotations

import functools
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict

from pgtail.demo.account import Account
from pgtail.demo.installation import Installation
from pgtail.demo.server import EmbeddedServer

_SOURCE = Path(__file__).with_name("clock.c")


@functools.cache
def _library() -> Path | None:
    """The compiled library; None where there is no C compiler, or no way to preload it."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    path = Path(tempfile.mkdtemp(prefix="pgtail-clock-"), "clock.so")
    path.parent.chmod(0o755)
    done = subprocess.run(
        [compiler, "-O", "-shared", "-fPIC", "-o", str(path), str(_SOURCE)], capture_output=True, check=False
    )
    return path if done.returncode == 0 else None


class Clock:
    """A clock of its own for each process that is started with `environment`; nothing happens without a compiler."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.environment: dict[str, str] = {}
        """Variables for the process."""
        self.set(0)
        library = _library()
        if library is not None:
            self.environment = {"LD_PRELOAD": str(library), "CLOCK_FILE": str(path)}

    def set(self, seconds: int) -> None:
        """Be wrong by so many seconds from now on."""
        with self._path.open("r+b" if self._path.exists() else "wb") as file:
            file.write(struct.pack("=q", seconds))


@contextmanager
def clocked_server(installation: Installation) -> Iterator[tuple[EmbeddedServer, Clock]]:
    """A server, and the clock that it starts with. Skips the test without a compiler."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        clock = Clock(Path(folder, "clock"))
        if not clock.environment:
            pytest.skip("no C compiler: the server's clock cannot be set")
        variables = [f"{name}={value}" for name, value in clock.environment.items()]
        account = _Clocked(**asdict(Account.for_server()), variables=tuple(variables))
        with EmbeddedServer(installation, account=account) as server:
            yield server, clock


class _Clocked(Account, frozen=True):
    """Starts programs with these variables."""

    variables: tuple[str, ...] = ()

    def popen(self, command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        return Account.popen(self, ["/usr/bin/env", *self.variables, *command], **options)
