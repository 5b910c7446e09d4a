"""A pager for long output on a terminal, as in git: $PAGER, else less."""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from pgtail.files.stopping import after_echo, asked_to_end, begin, raising

if TYPE_CHECKING:
    import subprocess

_DEFAULTS: Final = {"LESS": "FRX", "LV": "-c"}
"""Settings of pagers where the user has none: quit if it fits one screen, show colours, leave the text there."""

_FOR_SHELL: Final = frozenset("|&;<>()$`*?#~=%")
"""Characters of a command that needs a shell. Without a shell Ctrl-C reaches the pager alone."""


class _Pager:
    in_use = False
    has_errors = False
    """Whether standard error goes to it, too."""


def pager_in_use() -> bool:
    """Whether standard output goes to a pager, and through it to a terminal."""
    return _Pager.in_use


def errors_paged() -> bool:
    """Whether standard error goes to a pager on a terminal, of COLUMNS cells."""
    return _Pager.has_errors


def terminal_output() -> bool:
    """Whether standard output is a terminal, or a pager on one."""
    return _Pager.in_use or (sys.stdout is not None and sys.stdout.isatty())


@contextlib.contextmanager
def paged(wanted: bool, sources: Iterable[str] = ()) -> Iterator[None]:
    """Send standard output of the body to a pager, and on a terminal also standard error; then wait for its end.

    Only if it is `wanted`, standard output is a terminal and there is a pager. Not for `sources` other than regular
    files and directories: what arrives from a pipe is shown at once.
    """
    command = _command() if wanted and terminal_output() and all(map(_at_rest, sources)) else None
    if command is None:
        yield
        return
    import shutil

    width = str(shutil.get_terminal_size((80, 24)).columns)  # a pipe has none
    fixed = {**_DEFAULTS, **os.environ, "COLUMNS": width}
    before = os.environ.get("COLUMNS")
    with _redirected(command, fixed):
        _Pager.in_use = True
        os.environ["COLUMNS"] = width
        try:
            yield
        finally:
            _Pager.in_use = _Pager.has_errors = False
            if before is None:
                del os.environ["COLUMNS"]
            else:
                os.environ["COLUMNS"] = before


def _command() -> list[str] | None:
    """The pager's command line; None if there is none, or if it would only copy."""
    text = os.environ.get("PAGER", "less")
    if os.environ.get("TERM", "dumb") == "dumb" or text.strip() in ("", "cat"):
        return None
    import shutil

    try:
        program = shlex.split(text)[0]
    except ValueError:
        return None
    if shutil.which(program) is None:
        return None
    return ["sh", "-c", text] if _FOR_SHELL.intersection(text) else shlex.split(text)


def _at_rest(source: str) -> bool:
    """Whether a source is a regular file or a directory; False if it does not exist."""
    try:
        status = os.fstat(0) if source == "-" else os.stat(source)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)


@contextlib.contextmanager
def _redirected(command: list[str], environment: dict[str, str]) -> Iterator[None]:
    """Descriptor 1, and 2 if it is a terminal, are the pager's input while the body runs."""
    with _pager(command, environment) as process:
        assert process.stdin is not None
        kept = {1: os.dup(1)}
        if sys.stderr is not None and sys.stderr.isatty():
            kept[2] = os.dup(2)
            _Pager.has_errors = True
        for fd in kept:
            os.dup2(process.stdin.fileno(), fd)
        process.stdin.close()
        try:
            yield
        finally:
            for fd, saved in kept.items():
                os.dup2(saved, fd)
                os.close(saved)


@contextlib.contextmanager
def _pager(command: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """The pager's process. After the body, waits until the user ends it; SIGTERM and SIGHUP end it, too.

    The pager handles Ctrl-C itself. If a signal ends it, it does not restore the terminal: that is done here.
    """
    import subprocess
    import termios

    terminal = termios.tcgetattr(1)
    begin()
    process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
    try:
        yield process
    finally:
        ended = _wait(process)
        after_echo(terminal=False)  # the pager has drawn over it
        if ended < 0:
            with contextlib.suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(1, termios.TCSADRAIN, terminal)


def _wait(process: subprocess.Popen[bytes]) -> int:
    while True:
        if asked_to_end():
            process.terminate()
        with contextlib.suppress(KeyboardInterrupt), raising():
            return process.wait()
