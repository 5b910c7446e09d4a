"""Floor 7, standard output and standard error of commands: sentences, short outputs, exit statuses."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

import click

from pgtail.errors import OutputError, PgtailError


class ClosedPipe(Exception):
    """The reader of our output went away: time to end, quietly."""


def say(text: str) -> None:
    """A line for a person, on standard error; text from elsewhere has been escaped by the caller."""
    with contextlib.suppress(OSError):
        click.echo(f"pgtail: {text}", err=True)


def put(line: str) -> None:
    """A line of a command whose output is short, on standard output. Raises ClosedPipe and OutputError."""
    if sys.stdout is None:
        raise OutputError("cannot write to standard output: it is closed")
    try:
        click.echo(f"{line}\n".encode("utf-8", "backslashreplace"), nl=False)
    except BrokenPipeError:
        raise ClosedPipe from None
    except OSError as error:
        _forget_stdout()
        raise OutputError(f"cannot write to standard output: {error.strerror}") from error


@contextlib.contextmanager
def exit_statuses() -> Iterator[None]:
    """Turn what was raised into a sentence on standard error and the exit status of the man page."""
    from pgtail.outputs.escape import escape

    try:
        yield
    except ClosedPipe:
        _forget_stdout()
        raise SystemExit(0) from None
    except PgtailError as error:
        say("error: " + "\n        ".join(escape(line.strip()) for line in str(error).split("\n")))
        raise SystemExit(error.exit_status) from None


def _forget_stdout() -> None:
    """Nobody reads it any more, and Python would complain about that at its end."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
