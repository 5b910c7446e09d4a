"""The places of a message and its damage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from pgtail.changes.relations import Relation
from pgtail.errors import DecodeError, Malformed
from pgtail.hexview.fields import ShownField
from pgtail.pgoutput.decoder import FromClient

_BAD_BYTES: Final = 16
"""Bytes shown of a bad field of unknown length."""


class MessageLocation(Struct):
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


class Damage(Struct):
    """The bad bytes of a message, from `start` to `end` as far as the buffer has them.

    If `masked`, they are not shown, because they may be a value.
    """

    error: DecodeError
    field: str
    start: int
    end: int
    masked: bool = False


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
