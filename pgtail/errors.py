"""Every error pgtail raises on purpose; knows no other module, and each error builds its own sentence.

PgtailError
├─ InputError              a source that cannot be read as what it claims to be
│  ├─ DecodeError          bytes that are not the message they should be
│  │  ├─ Truncated         more bytes are needed
│  │  └─ Malformed         no further byte could make it right
│  └─ AssemblyError        messages that may not follow each other (only raised when strict)
├─ OptionError             what the user asked for makes no sense
├─ ServerError             the server or the connection to it
└─ OutputError             the output could not be written
"""

from __future__ import annotations


class PgtailError(Exception):
    """Base of all errors; `exit_status` is what the process ends with."""

    exit_status = 1


class InputError(PgtailError):
    """A source that cannot be read: names the source, and the byte offset in it where there is one."""

    def __init__(self, reason: str, *, source: str | None = None, offset: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.source = source
        self.offset = offset

    def where(self) -> list[str]:
        """The parts of the place, outermost first."""
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

    The cursor knows offset and field, the decoder adds the message kind, the input adds the source
    and turns the offset into one of the source (`located`).
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
        """Put the error at its place in a source; returns itself, to be raised again."""
        self.source = source
        self.offset = offset
        return self


class Truncated(DecodeError):
    """The bytes end inside a message: `missing` more of them, or more than that, might complete it."""

    missing = 1


class Malformed(DecodeError):
    """The bytes can never be the message they should be."""


class AssemblyError(InputError):
    """A message that may not stand where it stands; raised under --strict, a note otherwise."""


class OptionError(PgtailError):
    """Something the user asked for is not possible; says what is."""

    exit_status = 2


class ServerError(PgtailError):
    """The server or the connection failed; `cure` says what to do about it.

    `quotes` says that the reason is the server's and may hold a part of a value.
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
    """The output could not be written (a full disk, a closed file; a closed pipe is no error)."""

    exit_status = 4
