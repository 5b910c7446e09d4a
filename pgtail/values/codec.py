"""The interfaces of this package: Codec for users of values, Loader for the definition of a type."""

from __future__ import annotations

import enum
import io
import struct
from collections.abc import Callable, Iterator
from typing import Final, Literal, NamedTuple, TypeAlias

from msgspec import Struct

from pgtail.pgoutput.cells import Binary

BinaryText: TypeAlias = Callable[[bytes], str]
"""A binary cell -> the exact text of the type's output function. Raises one of DAMAGED."""

Pieces: TypeAlias = Callable[[bytes], Iterator[bytes]]
"""A cell -> its JSON token in pieces, none of them much longer than LONG."""

LONG: Final = 1024 * 1024
"""Bytes; longer texts are converted in pieces to avoid several copies in memory."""

DAMAGED: Final = (ValueError, LookupError, struct.error)
"""The errors of reading a damaged binary cell; they do not leave this package."""


class ValueKind(enum.Enum):
    """The JSON form of a value."""

    BOOL = "bool"
    NUMBER = "number"
    JSON = "json"
    ARRAY = "array"
    TEXT = "text"


class Undecoded(Exception):
    """A cell that is not valid for its type: show `text` as a string and mark it as undecoded.

    Created from that text, or from the cell itself (`raw`) if it is shown as bytes, as the text may be long.
    """

    def __init__(self, shown: str | bytes) -> None:
        super().__init__(shown)
        self._shown = shown

    @property
    def text(self) -> str:
        return self._shown if isinstance(self._shown, str) else hex_text(self._shown)

    @property
    def raw(self) -> bytes | None:
        """The cell, if it is shown as bytes."""
        return self._shown if isinstance(self._shown, bytes) else None


NativeForm: TypeAlias = Literal["", "string", "number", "boolean", "json", "strings", "numbers", "booleans"]
"""The JSON form of a text cell; the plural is a one-dimensional array."""


class Native(NamedTuple):
    """A type as compiled code sees it, which uses the Codec for every type without a case of its own.

    Only for streams in UTF-8.
    """

    json: NativeForm
    quoted: bool
    """As in Json."""
    constant: bytes | None = None
    """The text of every value, for masks."""


class Codec(Struct, frozen=True):
    """Converts the values of one column type. The functions raise only Undecoded.

    A text cell is PostgreSQL's text in the stream's encoding, a binary cell the output of the type's send function.
    JSON tokens are UTF-8 without line breaks.
    """

    kind: ValueKind
    json_text: Callable[[bytes], bytes]
    """Text cell -> JSON token."""
    json_binary: Callable[[bytes], bytes]
    """Binary cell -> JSON token: the same as for the value's text cell."""
    text_text: Callable[[bytes], str]
    """Text cell -> PostgreSQL's text."""
    text_binary: Callable[[bytes], str]
    """Binary cell -> PostgreSQL's text."""
    long_text: Pieces | None = None
    """Long text cell -> its JSON string in pieces; None if the JSON is not a string. Raises before the first piece."""
    long_binary: Pieces | None = None
    """The same for a long binary cell."""
    binary_is_text: bool = False
    """Whether the binary form is the text in the stream's encoding, without a NUL."""
    native: Native | None = None
    own_session: bool = False
    """Whether text cells were written under the settings of pgtail's own sessions."""
    masks: bool = False
    """Whether the text is a mask instead of the value. It may depend on all of the cell, which must not be cut."""

    def text(self, cell: bytes) -> str:
        """PostgreSQL's text of a text or binary cell."""
        return self.text_binary(cell) if isinstance(cell, Binary) else self.text_text(cell)


class Json(NamedTuple):
    """PostgreSQL's text -> JSON token, for one type; both raise Undecoded."""

    of_cell: Callable[[bytes], bytes]
    """From a text cell, in the stream's encoding."""
    of_text: Callable[[str], bytes]
    native: NativeForm = ""
    """The encoder that does what `of_cell` does in UTF-8 (native/values/encode.pyx), if there is one."""
    quoted: bool = False
    """Whether numbers are strings: the parameter of that encoder."""


class Context(Struct):
    """The properties of a stream that loaders use."""

    decode: Callable[[bytes], str]
    """Bytes in the stream's encoding -> text. Raises ValueError."""
    encoding: str
    numbers: Literal["exact", "string"]
    """Whether int8 and numeric are JSON numbers, or strings for readers that keep only 53 bits."""
    binary: Callable[[int], BinaryText]
    """The reader for the binary form of the type with this OID."""
    json: Callable[[int], Json]
    """The JSON functions of the type with this OID."""
    known: Callable[[int], bool]
    """Whether this type OID is a built-in type's or was declared."""
    depth: int = 0
    """How many arrays and composites enclose the value that is being read."""

    def text(self, cell: bytes) -> str:
        """The text of a text cell. Raises Undecoded."""
        try:
            return self.decode(cell)
        except ValueError:
            raise Undecoded(cell) from None


class Loader(Struct, frozen=True):
    """One type: its JSON form, and factories for the functions that read it in one stream."""

    kind: ValueKind
    json: Callable[[Context], Json]
    binary: Callable[[Context], BinaryText]
    long_binary: Pieces | None = None
    """As in Codec, if the JSON is not that of a text."""


def hex_text(cell: bytes) -> str:
    r"""Bytes as \x and hexadecimal digits, the format of bytea."""
    if len(cell) < LONG:
        return "\\x" + cell.hex()
    out = io.StringIO()
    out.write("\\x")
    for start in range(0, len(cell), LONG):
        out.write(cell[start : start + LONG].hex())
    return out.getvalue()


def plain(text: BinaryText) -> Callable[[Context], BinaryText]:
    """For a type whose binary form does not depend on the stream."""
    return lambda context: text


def opaque(context: Context) -> BinaryText:
    """For a type whose binary form cannot be decoded without the server's catalog."""

    def text(cell: bytes) -> str:
        raise ValueError("needs the catalog")

    return text
