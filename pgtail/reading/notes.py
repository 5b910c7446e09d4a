"""Notes about an input, and errors without values that are masked."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from pgtail.changes.events import Note
from pgtail.changes.redaction import WITHHELD, Redaction, without_quotes
from pgtail.errors import InputError, ServerError
from pgtail.inputs.base import Input
from pgtail.log import logger
from pgtail.terminal.escape import escape


@contextlib.contextmanager
def no_quotes(redaction: Redaction | None) -> Iterator[None]:
    """Remove parts of values from error messages where values are masked."""
    try:
        yield
    except ServerError as error:
        if error.quotes and redaction is not None:
            error.reason = WITHHELD
        raise
    except InputError as error:
        if redaction is not None:
            error.reason = without_quotes(error.reason)
        raise


def report_note(note: Note, source: str | None = None) -> None:
    """Report a note with its source and byte offset; as a warning, which -q does not leave out, if it is of damage."""
    offset = None if note.offset is None else f"byte {note.offset}"
    text = escape(": ".join([*[part for part in (source, offset) if part], note.text]))
    logger.log(logging.WARNING if note.damage else logging.INFO, text)


def without_change(input_: Input, messages: int) -> str:
    """A sentence about a source without a change; the caller escapes it."""
    if messages:
        what = f"it holds {messages} message{'s'[: messages != 1]}, but no change, read as {input_.name}"
    else:
        what = f"it holds no message, read as {input_.name}" if input_.position else "it is empty"
    return f"{input_.source.name}: {what}"
