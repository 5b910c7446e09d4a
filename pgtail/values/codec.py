"""Floor 2, what the values of a type need: Codec for those who show them, Loader for those who describe a type.

Knows no type, and nothing of columns or rows.
"""

from __future__ import annotations

import enum
import io
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

BinaryText: TypeAlias = Callable[[bytes], str]
"""A binary cell -> exactly what the type's output function prints. Raises one of DAMAGED."""

Pieces: TypeAlias = Callable[[bytes], Iterator[bytes]]
"""A cell -> its JSON token in pieces, none of them much longer than LONG."""

LONG: Final = 1024 * 1024
"""Bytes from which on a text is taken in pieces, so that it is not held in memory several times over."""

DAMAGED: Final = (ValueError, LookupError, struct.error)
"""What reading a damaged binary cell raises; nobody outside this package sees it."""


class Kind(enum.Enum):
    """What a value looks like in JSON."""

    BOOL = "bool"
    NUMBER = "number"
    JSON = "json"
    ARRAY = "array"
    TEXT = "text"


class Undecoded(Exception):
    """A cell that cannot be shown as its type says: `text` is what to show, as a string, and to say so.

    Made from that text, or from the cell itself (`raw`) where it is to be shown as bytes: the text may be long.
    """

    def __init__(self, shown: str | bytes) -> None:
        super().__init__(shown)
        self._shown = shown

    @property
    def text(self) -> str:
        return self._shown if isinstance(self._shown, str) else hex_text(self._shown)

    @property
    def raw(self) -> bytes | None:
        """The cell, where it is to be shown as bytes."""
        return self._shown if isinstance(self._shown, bytes) else None


class Native(NamedTuple):
    """What compiled code may know of a type: it takes what it has a case for, and asks the Codec for everything else.

    Only of streams in UTF-8.
    """

    json: Literal["", "string", "number", "boolean", "json", "strings", "numbers", "booleans"]
    """The JSON that a text cell becomes; the plural is an array of one dimension."""
    type: str
    """The built-in type whose binary form a binary cell has; empty for all others."""
    quoted: bool
    """Whether numbers are strings in JSON."""


@dataclass(frozen=True, slots=True)
class Codec:
    """Everything about the values of one column type. Each function raises Undecoded and nothing else.

    A text cell holds PostgreSQL's text in the stream's encoding, a binary cell what the type's send function wrote.
    JSON tokens are UTF-8 without line breaks.
    """

    kind: Kind
    json_text: Callable[[bytes], bytes]
    """Text cell -> JSON token."""
    json_binary: Callable[[bytes], bytes]
    """Binary cell -> JSON token: the same as for the value's text cell."""
    text_text: Callable[[bytes], str]
    """Text cell -> PostgreSQL's text."""
    text_binary: Callable[[bytes], str]
    """Binary cell -> PostgreSQL's text."""
    long_text: Pieces | None = None
    """Text cell -> its JSON token in pieces, where that is a string: for long cells. Raises before the first piece."""
    long_binary: Pieces | None = None
    """Binary cell -> the same."""
    binary_is_text: bool = False
    """Whether the binary form is the text in the stream's encoding, without a NUL."""
    native: Native | None = None


class Json(NamedTuple):
    """PostgreSQL's text -> JSON token, for one type; both raise Undecoded."""

    of_cell: Callable[[bytes], bytes]
    """From a text cell, in the stream's encoding."""
    of_text: Callable[[str], bytes]


@dataclass(slots=True)
class Context:
    """What a loader may know of the stream that its values come from."""

    decode: Callable[[bytes], str]
    """Bytes in the stream's encoding -> text. Raises ValueError."""
    encoding: str
    numbers: Literal["exact", "string"]
    """Whether int8 and numeric are JSON numbers, or strings for readers that keep 53 bits."""
    binary: Callable[[int], BinaryText]
    """How to read the binary form of the type with this OID."""
    json: Callable[[int], Json]
    """The JSON of the type with this OID."""
    known: Callable[[int], bool]
    """Whether this type OID is a built-in type's or was declared."""
    depth: int = 0
    """How many arrays and composites lie around the value that is being read."""


@dataclass(frozen=True, slots=True)
class Loader:
    """One type: its place in JSON, and how to make the functions that read it in one stream."""

    kind: Kind
    json: Callable[[Context], Json]
    binary: Callable[[Context], BinaryText]
    items: Kind | None = None
    """Of an array type with commas between its elements, what those are in JSON."""


def hex_text(cell: bytes) -> str:
    r"""Bytes that cannot be read, as \x and hexadecimal digits, which is also how bytea prints."""
    if len(cell) < LONG:
        return "\\x" + cell.hex()
    out = io.StringIO()
    out.write("\\x")
    for start in range(0, len(cell), LONG):
        out.write(cell[start : start + LONG].hex())
    return out.getvalue()


def plain(text: BinaryText) -> Callable[[Context], BinaryText]:
    """For a type whose binary form means the same in every stream."""
    return lambda context: text


def untold(context: Context) -> BinaryText:
    """For a type whose bytes do not tell what they mean without the server's catalog."""

    def text(cell: bytes) -> str:
        raise ValueError("the bytes do not tell")

    return text
