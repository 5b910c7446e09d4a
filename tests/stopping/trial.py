"""One trial: start a command, send it a signal at some moment, and check that it leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROGRAM = [sys.executable, "-m", "pgtail"]
LIMIT = 2.0
"""Seconds in which a command must end on an idle machine."""
_STARTED_IN = 0.4
"""Seconds that `pgtail --version` takes there."""
_TRACES = re.compile(r"Traceback|Exception ignored|Fatal Python|ImportError|Segmentation")
_IN_PGTAIL = re.compile(r'/pgtail/(?!entry|stopping|__init__|__main__)|/pgtail/entry\.py", line \d+, in main')
_ON_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)
_STYLED = re.compile(rb"\x1b\[([0-9;]*)m")


def no_terminal() -> str | None:
    """Why there are no pseudo-terminals here, or None."""
    try:
        for end in os.openpty():
            os.close(end)
    except OSError as error:
        return f"no pseudo-terminal can be had: {error.strerror}"
    return None


def time_limit() -> float:
    """Seconds in which a command must end now: LIMIT if the machine is as fast as an idle one."""
    began = time.monotonic()
    subprocess.run([*PROGRAM, "--version"], stdout=subprocess.DEVNULL, check=True)
    return LIMIT * max(1.0, (time.monotonic() - began) / _STARTED_IN)


@dataclass
class Trial:
    """The result. With a terminal, `out` is the output to it, including standard error."""

    status: int
    seconds: float
    """From the signal to the end; 0 if it had ended before."""
    moment: float
    out: bytes
    err: str
    began: bool
    """Whether it had begun when the signal came: it had already written something."""
    complaints: list[str] = field(default_factory=list)


def run_trial(
    arguments: Sequence[str],
    sent: signal.Signals,
    moment: float,
    *,
    terminal: bool,
    begun: bytes | None = None,
    typed: bytes = b"",
    limit: float,
) -> Trial:
    """Send the signal this many seconds after the start, or (`begun`) after these bytes came out.

    After it, `typed` is typed on the terminal again and again until the command ends.

    On a terminal the whole process group gets it, as with Ctrl-C; otherwise only the process.
    """
    token = secrets.token_hex(8)
    with tempfile.TemporaryDirectory(prefix="trial-") as folder:
        # A pager would show the report that stats prints at its end, and wait for a key.
        env = {**os.environ, "TMPDIR": folder, "PGTAIL_TRIAL": token, "TERM": "xterm", "PAGER": "cat"}
        with _started(arguments, env, terminal=terminal) as running:
            ended_before = running.wait_for(moment, begun)
            began = bool(running.out or running.err)
            since = time.monotonic()
            if not ended_before:
                (os.killpg if terminal else os.kill)(running.process.pid, sent)
            complaints = running.end(limit * 10, typed if terminal else b"")
            took = 0.0 if ended_before else time.monotonic() - since
            complaints += _processes(token, limit)
        status = running.process.returncode
        trial = Trial(128 - status if status < 0 else status, took, moment, bytes(running.out), running.words, began)
        complaints += _left(Path(folder), limit)
    if terminal:
        complaints += _screen(trial.out)
    if _TRACES.search(trial.err):
        if _IN_PGTAIL.search(trial.err) or sent is not signal.SIGINT:
            complaints.append("a traceback")
        else:
            trial.status = 128 + sent  # Python was still starting: its traceback cannot be suppressed
            trial.began = False
    trial.complaints = complaints
    return trial


class _Running:
    """A process whose outputs are read all the time."""

    def __init__(self, process: subprocess.Popen[bytes], master: int | None, slave: int | None) -> None:
        self.process = process
        self.out, self.err = bytearray(), bytearray()
        self._master, self._slave = master, slave
        self._before: list[Any] = [] if slave is None else termios.tcgetattr(slave)
        ends = [(master, self.out)] if master is not None else []
        if process.stdout is not None and process.stderr is not None:
            ends = [(process.stdout.fileno(), self.out), (process.stderr.fileno(), self.err)]
        self._threads = [threading.Thread(target=_read, args=end, daemon=True) for end in ends]
        for thread in self._threads:
            thread.start()

    @property
    def words(self) -> str:
        return bytes(self.err or self.out).decode(errors="replace")

    def wait_for(self, seconds: float, begun: bytes | None) -> bool:
        """Wait for the moment; whether the process has ended before."""
        while begun is not None and begun not in self.out + self.err and self.process.poll() is None:
            time.sleep(0.005)
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def end(self, seconds: float, typed: bytes) -> list[str]:
        """Wait for the end, and check the terminal; returns what is wrong."""
        complaints = []
        if not self._ends(seconds, typed):
            complaints.append("it does not end")
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        if self._slave is not None:
            if termios.tcgetattr(self._slave) != self._before:
                complaints.append("the terminal's settings have changed")
            os.close(self._slave)
        for thread in self._threads:
            thread.join(10)
        if self._master is not None:
            os.close(self._master)
        return complaints

    def _ends(self, seconds: float, typed: bytes) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                self.process.wait(min(0.2, seconds))
            except subprocess.TimeoutExpired:
                if typed and self._master is not None:
                    os.write(self._master, typed)
                continue
            return True
        return False


@contextlib.contextmanager
def _started(arguments: Sequence[str], env: dict[str, str], *, terminal: bool) -> Iterator[_Running]:
    command = [*PROGRAM, *arguments]
    if not terminal:
        pipe = subprocess.PIPE
        with subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, start_new_session=True
        ) as process:
            yield _Running(process, None, None)
        return
    master, slave = os.openpty()
    on_terminal = [sys.executable, "-ISc", _ON_TERMINAL, *command]
    with subprocess.Popen(
        on_terminal, env=env, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
    ) as process:
        yield _Running(process, master, slave)


def _read(fd: int, into: bytearray) -> None:
    with contextlib.suppress(OSError):  # no process has the terminal open any more
        while data := os.read(fd, 65536):
            into += data


def _processes(token: str, seconds: float) -> list[str]:
    """Processes of the trial that are left after this time."""
    deadline = time.monotonic() + seconds
    while left := list(_running_with(token)):
        if time.monotonic() > deadline:
            return [f"processes are left: {left}"]
        time.sleep(0.02)
    return []


def _running_with(token: str) -> Iterator[str]:
    """Only Linux shows the environment in which processes were started."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"PGTAIL_TRIAL={token}".encode() in (process / "environ").read_bytes():
                yield f"{process.name} {(process / 'cmdline').read_bytes()[:200]!r}"


def _left(folder: Path, seconds: float) -> list[str]:
    """Temporary files that are left after this time."""
    deadline = time.monotonic() + seconds
    while left := sorted(path.name for path in folder.iterdir()):
        if time.monotonic() > deadline:
            return [f"temporary files are left: {left}"]
        time.sleep(0.02)
    return []


def _screen(shown: bytes) -> list[str]:
    """The parts of a terminal's state that were changed and not restored."""
    complaints = []
    if shown.rfind(b"\x1b[?1049h") > shown.rfind(b"\x1b[?1049l"):
        complaints.append("the other screen")
    if shown.rfind(b"\x1b[?25l") > shown.rfind(b"\x1b[?25h"):
        complaints.append("no cursor")
    styles = _STYLED.findall(shown)
    if styles and styles[-1] not in (b"", b"0", b"27"):  # 27 ends the reverse video of less
        complaints.append(f"a style: {styles[-1]!r}")
    return complaints
