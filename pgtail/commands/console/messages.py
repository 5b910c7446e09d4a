"""Messages on standard error: how the records of `logging` are shown there, and the exit statuses of errors."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import select
import sys
from collections.abc import Iterator
from typing import Final

from pgtail.commands.console.pager import errors_paged
from pgtail.errors import COMMAND, ClosedPipe, InputError, PgtailError
from pgtail.files.stopping import after_echo, asked_to_stop
from pgtail.log import DAMAGE, DETAIL, SUMMARY, TRACE, logger
from pgtail.terminal.escape import escape, escape_lines
from pgtail.terminal.layout import width_of

_NAME: Final = "pgtail: "
"""How a message starts; its other lines are indented by as much."""
WORDS: Final = {logging.ERROR: "error: ", DAMAGE: "damage: ", logging.WARNING: "warning: ", logging.INFO: "note: "}
"""What precedes the text of a level."""
_LAST_WAIT: Final = 1.0
"""Seconds to wait for a terminal whose output is stopped (Ctrl-S), if pgtail was asked to stop."""
_NARROW: Final = 40
"""Cells of a terminal below which they are indented less."""

_PASSWORDS: Final = re.compile(
    r"""(://[^\s/:@'"]*):[^\s'"]*@|\b(password|sslpassword)(\s*=\s*)(?:'(?:[^'\\]|\\.)*'|[^\s'";&]+)"""
)
"""The password of a URI or of a connection string: an error quotes what was given in a wrong place."""

_OF_SERVER: Final = re.compile(rf"{COMMAND}pgtail (?:stream|slot) [^\n]*")
"""A command in a message that reads a server."""


class TextFormatter(logging.Formatter):
    """Messages for people. A line of the trace stays one.

    `connection` is what the commands in messages need to reach the server that is read, quoted for a shell.
    """

    connection = ""

    def text(self, record: logging.LogRecord) -> str:
        """The message, escaped, without passwords; its commands name the server."""
        text = escape_lines(record.getMessage())
        if self.connection:
            text = _OF_SERVER.sub(lambda command: f"{command[0]} {self.connection}", text)
        return without_passwords(text)

    def format(self, record: logging.LogRecord) -> str:
        if record.levelno == TRACE:
            return escape(record.getMessage())
        return laid_out(WORDS.get(record.levelno, "") + self.text(record), columns_of(descriptor()))


class StderrHandler(logging.Handler):
    """Writes messages to what is standard error at the moment."""

    def handle(self, record: logging.LogRecord) -> bool:
        """Without the lock: while a terminal is stopped (Ctrl-S), the exit would wait for it, too."""
        passes = bool(self.filter(record))
        if passes:
            self.emit(record)
        return passes

    def emit(self, record: logging.LogRecord) -> None:
        if sys.stderr is None:
            return
        fd = descriptor()
        terminal = on_terminal(fd)
        with contextlib.suppress(OSError):
            if terminal and asked_to_stop() and not select.select([], [fd], [], _LAST_WAIT)[1]:
                return
            sys.stderr.write(f"{after_echo(terminal)}{self.format(record)}\n")
            sys.stderr.flush()


@contextlib.contextmanager
def messages(*, quiet: bool = False, verbose: int = 0, json: bool = False) -> Iterator[logging.Logger]:
    """Show messages on standard error while the body runs: without notes (-q), with details, as JSON objects.

    Does nothing if they are shown already, as the options of a command say.
    """
    if any(not isinstance(handler, logging.NullHandler) for handler in logger.handlers):
        yield logger
        return
    handler = StderrHandler()
    if json:
        from pgtail.commands.console.log import JsonFormatter  # not loaded without

        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(TextFormatter())
    if quiet:
        handler.addFilter(lambda record: record.levelno not in (logging.INFO, SUMMARY))
    details = DETAIL if on_terminal(descriptor()) and not quiet else SUMMARY
    level = TRACE if verbose > 1 else logging.DEBUG if verbose or (json and not quiet) else details
    with handled_by(handler, level):
        yield logger


@contextlib.contextmanager
def collected(warnings: list[str], most: int) -> Iterator[None]:
    """Add at most so many warnings and reports of damage to a list while the body runs."""

    def collect(record: logging.LogRecord) -> bool:
        if record.levelno >= logging.WARNING and len(warnings) < most:
            warnings.append(TextFormatter().text(record))
        return True

    logger.addFilter(collect)
    try:
        yield
    finally:
        logger.removeFilter(collect)


@contextlib.contextmanager
def handled_by(handler: logging.Handler, level: int | None = None) -> Iterator[None]:
    """Pass messages, from this level on, to a handler while the body runs.

    It replaces the one before, whose formatter and filters it gets if it has none, and whose level stays without one.
    """
    before, level_before, propagate_before = logger.handlers[:], logger.level, logger.propagate
    for other in before:
        handler.formatter = handler.formatter or other.formatter
        handler.filters = handler.filters or other.filters
        logger.removeHandler(other)
    logger.addHandler(handler)
    logger.setLevel(level_before if level is None else level)
    logger.propagate = False  # a library may have set up other handlers
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level_before)
        logger.propagate = propagate_before
        for other in before:
            logger.addHandler(other)


def repeat_connection(words: str) -> None:
    """From now on the commands in messages reach the server with these words, in what messages() shows."""
    for handler in logger.handlers:
        if isinstance(handler.formatter, TextFormatter):
            handler.formatter.connection = words


def laid_out(text: str, columns: int | None) -> str:
    """The lines of a message, the text of which has newlines and commands (errors.COMMAND).

    On a terminal of so many columns they are broken between words, and a command has its own line, which is not broken;
    nor is JSON. Elsewhere (None) a command follows the line before it.
    """
    if columns is None:
        first, *rest = text.split("\n")
        between = f"\n{' ' * len(_NAME)}"
        return _NAME + first + "".join([f" {line.lstrip()}" if _is_command(line) else between + line for line in rest])
    indent = " " * (len(_NAME) if columns >= _NARROW else 2)
    lines: list[str] = []
    for line in f"{_NAME}{text}".split("\n"):
        before = indent if lines else ""
        whole = _is_command(line) or line.startswith('{"')
        lines += [before + line] if whole else _wrapped(line, columns, before, indent)
    return "\n".join(lines)


def without_passwords(text: str) -> str:
    """A message without the passwords of URIs and connection strings in it."""
    return _PASSWORDS.sub(_masked, text)


def _masked(password: re.Match[str]) -> str:
    return f"{password[1]}:********@" if password[1] else f"{password[2]}{password[3]}********"


def _is_command(line: str) -> bool:
    """Whether a line of a message is a command; a pointer at a place in the line before is not."""
    return f"\n{line}".startswith(COMMAND) and not line.removeprefix(COMMAND[1:]).startswith((" ", "^"))


def _wrapped(text: str, columns: int, first: str, rest: str) -> list[str]:
    """A line broken between words; these stay whole. `first` and `rest` precede its first line and the others."""
    words = text.split(" ")
    lines = [first + words[0]]
    for word in words[1:]:
        if width_of(f"{lines[-1]} {word}") <= columns:
            lines[-1] += f" {word}"
        else:
            lines.append(rest + word)
    return lines


def descriptor() -> int:
    """The file descriptor of standard error; -1 if it has none."""
    with contextlib.suppress(OSError):
        return -1 if sys.stderr is None else sys.stderr.fileno()
    return -1


def on_terminal(fd: int) -> bool:
    """Whether a descriptor (-1: none) is a terminal."""
    return fd >= 0 and os.isatty(fd)


def is_dumb() -> bool:
    """Whether the terminal has no control sequences."""
    return os.environ.get("TERM") == "dumb"


def columns_of(fd: int) -> int | None:
    """The width of the terminal on which a descriptor is shown, directly or by a pager; None without one."""
    if errors_paged():
        return int(os.environ["COLUMNS"])
    if not on_terminal(fd):
        return None
    with contextlib.suppress(OSError):
        return os.get_terminal_size(fd).columns or 80
    return 80


@contextlib.contextmanager
def exit_statuses() -> Iterator[None]:
    """Turn PgtailError into a message on standard error and its exit status, and ClosedPipe into status 0."""
    with messages():
        try:
            yield
        except ClosedPipe:
            raise SystemExit(0) from None
        except PgtailError as error:
            logger.error(_in_words(error))
            raise SystemExit(error.exit_status) from None


def _in_words(error: PgtailError) -> str:
    """Its message. What names the source is of one line: the name of a file may have several."""
    if isinstance(error, InputError):
        return ": ".join([*map(escape, error.where()), error.reason])
    return str(error)
