"""Floor 7, how commands speak and end: sentences on standard error, and exit statuses."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import click

from pgtail.errors import PgtailError


class ClosedPipe(Exception):
    """The reader of our output went away: time to end, quietly."""


def say(text: str) -> None:
    """A line for a person, on standard error; text from elsewhere has been escaped by the caller."""
    with contextlib.suppress(OSError):
        click.echo(f"pgtail: {text}", err=True)


@contextlib.contextmanager
def exit_statuses() -> Iterator[None]:
    """Turn what was raised into a sentence on standard error and the exit status of the man page."""
    from pgtail.outputs.escape import escape

    try:
        yield
    except ClosedPipe:
        raise SystemExit(0) from None
    except PgtailError as error:
        say("error: " + "\n        ".join(escape(line.strip()) for line in str(error).split("\n")))
        raise SystemExit(error.exit_status) from None
