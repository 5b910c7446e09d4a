"""Runs commands of pgtail in forks of this process, which saves the startup time of a new process."""

from __future__ import annotations

import os
import resource
import signal
import sys
import tempfile
import traceback
from dataclasses import dataclass
from importlib import import_module
from typing import NoReturn

from pgtail.cli import COMMANDS, main

_LONGEST = 120
"""Seconds after which a run is killed."""


@dataclass(frozen=True, slots=True)
class Ran:
    """The result of a run; `status` is negative after a signal. `more`: bytes of memory that it took beyond ours."""

    status: int
    out: bytes
    err: bytes
    more: int = 0


def load() -> None:
    """Import all commands now, so that the forks need not."""
    for name in COMMANDS:
        import_module(f"pgtail.cli.{name}")


def run(*arguments: str) -> Ran:
    """Run pgtail until it ends."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        pid = os.fork()
        if pid == 0:
            _child(arguments, out.fileno(), err.fileno())
        _, status, used = os.wait4(pid, 0)
        out.seek(0)
        err.seek(0)
        kilobytes = used.ru_maxrss - resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return Ran(os.waitstatus_to_exitcode(status), out.read(), err.read(), kilobytes * 1024)


def _child(arguments: tuple[str, ...], out: int, err: int) -> NoReturn:
    status = 99
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_LONGEST)
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115 -- pytest has its own
        try:
            main(arguments, prog_name="pgtail")
        except SystemExit as ending:
            status = ending.code if isinstance(ending.code, int) else 0 if ending.code is None else 1
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001 -- shown in the standard error of the run
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)
