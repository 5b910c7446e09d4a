"""A fork server: runs pgtail in forks of a process that has imported it, which saves most of a short run.

Each run is a process of its own, and ends as an interpreter does. If the environment differs in variables that matter
when an interpreter starts, start() starts a new interpreter.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NoReturn, TypeAlias

from pgtail.__main__ import main

_PRELOADED = (
    "psycopg",
    "rich.console",
    "pgtail.cli.slot",
    "pgtail.commands.slot.changes",
    "pgtail.commands.slot.table",
    "pgtail.commands.stats.slot",
    *(f"pgtail.cli.{name}" for name in ("stream", "record", "doctor", "expect")),
    *(f"pgtail.commands.{name}" for name in ("stream.command", "stream.expect", "record.command", "doctor")),
)
_NUMBER = struct.Struct("=i")
_FILES = 4
"""Standard input, output and error, and the socket for the answers."""
File: TypeAlias = int | IO[bytes]
"""A file, its descriptor, subprocess.PIPE or subprocess.DEVNULL."""


def start(
    arguments: Sequence[str], environment: Mapping[str, str], stdout: File, stderr: File, **options: Any
) -> Forked | subprocess.Popen[bytes]:
    """Start pgtail, in a new interpreter if necessary; `options` are those of subprocess.Popen."""
    if not options and same_start(environment):
        return Forked(arguments, environment, stdout, stderr)
    code = "from pgtail.__main__ import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        env=environment,
        **options,
    )


class Forked:
    """A run of pgtail in a fork. Its methods do the same as those of subprocess.Popen."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], stdout: File, stderr: File) -> None:
        self.returncode: int | None = None
        self._answers, its = socket.socketpair()
        with ExitStack() as stack:
            self.stdout, out = _output(stdout, stack)
            self.stderr, err = _output(stderr, stack)
            _, nothing = _output(subprocess.DEVNULL, stack)
            request = json.dumps([list(arguments), dict(environment), os.getcwd()]).encode()
            control, *_ = _server()
            socket.send_fds(
                control, [_NUMBER.pack(len(request))], [nothing, out, err, stack.enter_context(its).fileno()]
            )
            control.sendall(request)
        self.pid = _number(self._answers)

    def poll(self) -> int | None:
        return self._end(0)

    def wait(self, timeout: float | None = None) -> int:
        status = self._end(timeout)
        if status is None:
            raise subprocess.TimeoutExpired("pgtail", timeout or 0)
        return status

    def _end(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._answers], [], [], timeout)[0]:
            self.returncode = _number(self._answers)
            self._answers.close()  # the process id is kept until then
        return self.returncode

    def send_signal(self, sent: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, sent)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _output(file: File, stack: ExitStack) -> tuple[IO[bytes] | None, int]:
    """The end of a pipe for the caller, if that is what `file` is, and the descriptor for the run."""
    if file == subprocess.DEVNULL:
        nothing = os.open(os.devnull, os.O_RDWR)
        stack.callback(os.close, nothing)
        return None, nothing
    if file != subprocess.PIPE:
        return None, file if isinstance(file, int) else file.fileno()
    reader, writer = os.pipe()
    stack.callback(os.close, writer)
    return open(reader, "rb"), writer


def same_start(environment: Mapping[str, str]) -> bool:
    """Whether these variables equal the fork server's, except libpq's and Spark's, which are read later."""
    _, first, _ = _server()
    changed = {name for name in {*environment, *first} if environment.get(name) != first.get(name)}
    later = ("PG", "PYTEST_", "SPARK_", "PYSPARK_", "JAVA_HOME")
    return all(name.startswith(later) and not name.startswith("PGTAIL") for name in changed)


@functools.cache
def _server() -> tuple[socket.socket, dict[str, str], subprocess.Popen[bytes]]:
    """The fork server, which ends with this process, and the environment that it began with."""
    here, there = socket.socketpair()
    code = f"from tests.support.fork_server import serve; serve({there.fileno()})"
    with there:
        started = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[there.fileno()],
            cwd=Path(__file__).parents[2],
            start_new_session=True,
        )
    return here, {**os.environ}, started


def serve(descriptor: int) -> None:
    """Run requests in forks until the other side ends. In a fork, returns after the command, if the command returns."""
    for module in _PRELOADED:
        import_module(module)
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes of _watch()
    with socket.socket(fileno=descriptor) as control:
        while True:
            head, files, _, _ = socket.recv_fds(control, _NUMBER.size, _FILES)
            if not head:
                return
            arguments, environment, folder = json.loads(_exactly(control, _NUMBER.unpack(head)[0]))
            if os.fork() == 0:
                break
            for file in files:
                os.close(file)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with socket.socket(fileno=files.pop()) as answers:
        for standard, file in enumerate(files):
            os.dup2(file, standard)
            os.close(file)
        if pid := os.fork():
            _watch(pid, answers)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    os.chdir(folder)
    sys.argv = ["-c", *arguments]
    main()


def _watch(pid: int, answers: socket.socket) -> NoReturn:
    """Send the process id and, at the end, the exit status. The id is not free before the other side has read that."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nothing, standard)
    with suppress(OSError):
        answers.sendall(_NUMBER.pack(pid))
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        status = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        answers.sendall(_NUMBER.pack(status))
        answers.recv(1)
    os._exit(0)


def _number(source: socket.socket) -> int:
    [number] = _NUMBER.unpack(_exactly(source, _NUMBER.size))
    return int(number)


def _exactly(source: socket.socket, size: int) -> bytes:
    data = source.recv(size, socket.MSG_WAITALL)
    if len(data) < size:
        raise EOFError("the fork server has ended")
    return data
