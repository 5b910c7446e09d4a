"""What a view of messages is, and where a message and its damage are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from pgtail.changes.relations import Relation
from pgtail.errors import DecodeError, Malformed
from pgtail.hexview.fields import ShownField
from pgtail.pgoutput.cursor import Buffer
from pgtail.pgoutput.decoder import FromClient
from pgtail.records import Record
from pgtail.terminal.layout import Item
from pgtail.terminal.values import Show

_BAD_BYTES: Final = 16
"""Bytes shown of a bad field of unknown length."""


class MessageLocation(Record, frozen=False):
    """A message in the buffer and in its source.

    `number` counts from 1. `base` is the offset in the source of the byte at `start` in the buffer, None if the source
    is text, where offsets have no meaning. `sent` is the message itself if a client sent it.
    """

    number: int
    kind: str
    offset: int | None
    start: int
    end: int
    base: int | None = None
    lsn: int | None = None
    relation: Relation | None = None
    sent: FromClient | None = None

    def at(self, position: int) -> int:
        """The offset of a buffer position: in the source, or from the start of the message if `base` is None."""
        return position - self.start + (self.base or 0)


class Damage(Record, frozen=False):
    """The bad bytes of a message, from `start` to `end` as far as the buffer has them.

    If `masked`, they are not shown, because they may be a value.
    """

    error: DecodeError
    field: str
    start: int
    end: int
    masked: bool = False


class NoRoom(Exception):
    """A field has no template: its bytes need several lines, or a time needs more room."""


class View(Protocol):
    """A way to show messages: field by field, or with templates, %-formats of what many messages share.

    A layout says what templates depend on besides their fields.
    """

    scanned: bool
    """Whether the compiled scanner can show its fields: values have no colour."""
    spaced: bool
    """Whether digits() has blanks between the bytes."""
    separator: str
    """What is between two fields."""
    end: str
    """What follows the last field."""

    def message(
        self, place: MessageLocation, buf: Buffer, fields: Sequence[ShownField], damage: Damage | None = None
    ) -> None:
        """Show one message, as far as it could be decoded."""

    def begin(self, place: MessageLocation) -> str:
        """What precedes the fields of a message."""

    def head(self, place: MessageLocation) -> tuple[str, int | None]:
        """A %-format of begin() for messages after the first one, and the width that its arguments may take together.

        The arguments are number, offset, size and, if the message has one, lsn. The width is None for no limit.
        """

    def layout(self, place: MessageLocation, fields: Sequence[ShownField]) -> Any:
        """The layout of a message with these fields."""

    def template(self, field: ShownField, data: bytes | None, layout: Any) -> str:
        """A field with these bytes: its offset is filled in; without bytes also digits() and shown(). Raises NoRoom."""

    def content_template(self, field: ShownField, layout: Any) -> Any:
        """What content() needs to show the content of a cell."""

    def content(self, template: Any, at: int, cell: bytes, value: Item) -> str:
        """The content of a cell, at this offset."""

    def scanned_content(self, template: Any, show: Show, python: Callable[[int, bytes], str]) -> Any:
        """What shows contents of cells in the scanner, as content() does; `show` shows their values.

        `python`(offset, cell) calls content().
        """

    def digits(self, data: bytes) -> str:
        """Bytes in hexadecimal digits."""

    def shown(self, value: Item) -> str:
        """A value in one line."""


def locate_damage(
    error: DecodeError, fields: Sequence[ShownField], stopped: int, bad: int | None
) -> tuple[list[ShownField], Damage]:
    """Split the fields of a damaged message into the good ones and the bad bytes.

    `stopped` is the cursor's position, `bad` the start of the bad bytes if the error has it. Either the last field was
    read and is invalid, or the field after it could not be read.
    """
    good = list(fields)
    last = good[-1] if good else None
    if bad is None:
        bad = last.span.start if last is not None and isinstance(error, Malformed) and _names(error, last) else stopped
    if last is not None and last.span.start == bad:
        return good[:-1], Damage(error, last.name, last.span.start, last.span.end)
    return good, Damage(error, error.field or "", bad, bad + _BAD_BYTES)


def _names(error: DecodeError, field: ShownField) -> bool:
    """Whether the error is about this field."""
    wrong = error.field if error.field is not None else "tag" if error.message is None else ""
    return field.span.field == wrong or field.span.field.startswith(f"{wrong} ")
