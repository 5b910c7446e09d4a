"""The errors that pgtail raises.

PgtailError
├─ InputError              a source that cannot be read
│  ├─ DecodeError          bytes that are not a valid message
│  │  ├─ Truncated         more bytes are needed
│  │  └─ Malformed         more bytes would not help
│  ├─ UndecodedError       a value that could not be read as its type (only raised by the library)
│  ├─ AssemblyError        messages in an invalid order (only raised with --strict)
│  └─ Interrupted          a source with an end that was not read to it
├─ OptionError             invalid options
├─ ServerError             the server or the connection to it
└─ OutputError             the output could not be written
"""

from __future__ import annotations

from typing import Any, Final

COMMAND: Final = "\n    "
"""Precedes a command or an SQL statement in a message, which ends with its line."""


TRY_AGAIN: Final = 75
"""The exit status for what may pass by itself (EX_TEMPFAIL of sysexits.h): the same command may succeed later."""


class PgtailError(Exception):
    """Base of all errors; `exit_status` is the exit status of the process. They can be pickled."""

    exit_status = 1

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args, self.__dict__)


def _restored(cls: type[PgtailError], arguments: tuple[object, ...], state: dict[str, object]) -> PgtailError:
    """An error that was pickled: exceptions are else made with their arguments alone, without what must be named."""
    error = cls.__new__(cls, *arguments)
    error.__dict__.update(state)
    return error


class InputError(PgtailError):
    """A source that cannot be read. The message starts with the source and the byte offset, if known."""

    def __init__(self, reason: str, *, source: str | None = None, offset: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.source = source
        self.offset = offset

    def where(self) -> list[str]:
        """The parts of the location, outermost first."""
        parts = []
        if self.source is not None:
            parts.append(self.source)
        if self.offset is not None:
            parts.append(f"byte {self.offset}")
        return parts

    def __str__(self) -> str:
        return ": ".join([*self.where(), self.reason])


class DecodeError(InputError):
    """Bytes that could not be decoded: `offset` (bytes from the start of the source), `message` kind and `field`.

    The cursor sets offset and field, the decoder adds the message kind, and the input adds the source and converts
    the offset (`located`).
    """

    def __init__(
        self,
        reason: str,
        *,
        offset: int,
        field: str | None = None,
        message: str | None = None,
        source: str | None = None,
    ) -> None:
        super().__init__(reason, source=source, offset=offset)
        self.offset: int = offset
        self.field = field
        self.message = message

    def where(self) -> list[str]:
        parts = super().where()
        name = ".".join(part for part in (self.message, self.field) if part)
        if name:
            parts.append(name)
        return parts

    def located(self, source: str | None, offset: int) -> DecodeError:
        """Set source and offset; returns the error itself, to be raised again."""
        self.source = source
        self.offset = offset
        return self


class Truncated(DecodeError):
    """The bytes end inside a message: at least `missing` more are needed."""

    missing = 1


class Malformed(DecodeError):
    """The bytes can never be a valid message."""


class UndecodedError(InputError):
    """The value of `column` could not be read as its type; `text` is PostgreSQL's text of it, or its bytes as \\x..."""

    def __init__(self, reason: str, *, column: str, text: str) -> None:
        super().__init__(reason)
        self.column = column
        self.text = text


class AssemblyError(InputError):
    """A message out of place. Raised with --strict; otherwise a Note."""


class Interrupted(InputError):
    """A request to stop came before the end of the input; `exit_status` is the one of the signal."""

    def __init__(self, reason: str, exit_status: int, *, source: str | None = None) -> None:
        super().__init__(reason, source=source)
        self.exit_status = exit_status


class OptionError(PgtailError):
    """An invalid option; the message says what is valid."""

    exit_status = 2


class ServerError(PgtailError):
    """The server or the connection failed; `cure` says what to do about it.

    `quotes` says that the reason is the server's message and may quote part of a value.
    """

    exit_status = 3
    quotes = False

    def __init__(self, reason: str, *, cure: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.cure = cure

    def __str__(self) -> str:
        return self.reason if self.cure is None else f"{self.reason}\n{self.cure}"


class OutputError(PgtailError):
    """The output could not be written. A closed pipe is a ClosedPipe, not an error."""

    exit_status = 4


class ClosedPipe(Exception):
    """The reader of the output closed the pipe: exit without a message."""
