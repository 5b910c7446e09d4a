"""The wall clock of a process, which can be set while it runs: a library in C that is preloaded."""

from __future__ import annotations

import functools
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

_SOURCE = Path(__file__).with_name("clock.c")


@functools.cache
def _library() -> Path | None:
    """The compiled library; None where there is no C compiler, or no way to preload it."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    path = Path(tempfile.mkdtemp(prefix="pgtail-clock-"), "clock.so")
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
