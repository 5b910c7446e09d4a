"""Text types, whose binary form is the text itself; also "char", xml and jsonpath.

Sources: src/backend/utils/adt/varlena.c, char.c, xml.c, jsonpath.c.
"""

from __future__ import annotations

import re
from typing import Final

from pgtail.values.codec import BinaryText, Context, Loader, ValueKind, plain
from pgtail.values.render import strings

_XML_DECLARATION: Final = (
    r"""(?x)<\?xml\ version="(?P<version>[^"]*)"\ encoding="[^"]*"(?P<standalone>\ standalone="(?:yes|no)")?\?>"""
)


def encoded(context: Context) -> BinaryText:
    """Text in the stream's encoding, without a NUL."""
    decode = context.decode

    def text(cell: bytes) -> str:
        if 0 in cell:
            raise ValueError("NUL in a text")
        return decode(cell)

    return text


def label(context: Context) -> BinaryText:
    """The label of an enum value: text that is never empty (src/backend/catalog/pg_enum.c)."""
    read = encoded(context)

    def text(cell: bytes) -> str:
        if not cell:
            raise ValueError("an empty enum label")
        return read(cell)

    return text


def versioned(context: Context) -> BinaryText:
    """Text after a byte with the version of the format, which is 1 (jsonb, jsonpath, ltree)."""
    read = encoded(context)

    def text(cell: bytes) -> str:
        if not cell.startswith(b"\x01"):
            raise ValueError("an unknown version of the binary form")
        return read(cell[1:])

    return text


def char_text(cell: bytes) -> str:
    """One byte: NUL is the empty string, bytes above 127 are octal (charout, PostgreSQL 16 and later)."""
    (value,) = cell
    if value == 0:
        return ""
    return chr(value) if value < 0x80 else f"\\{value:03o}"


def xml_binary(context: Context) -> BinaryText:
    """The document. xml_send puts the client's encoding in the declaration, xml_out omits it."""
    read = encoded(context)

    def text(cell: bytes) -> str:
        document = read(cell)
        declaration = re.match(_XML_DECLARATION, document)
        if declaration is None:
            return document
        rest = document[declaration.end() :]
        version, standalone = declaration["version"], declaration["standalone"]
        if version == "1.0" and standalone is None:
            return rest.removeprefix("\n")
        return f'<?xml version="{version}"{standalone or ""}?>{rest}'

    return text


TEXT: Final = Loader(ValueKind.TEXT, strings, encoded)
ENUM: Final = Loader(ValueKind.TEXT, strings, label)
TYPES: Final = {
    **dict.fromkeys(("bpchar", "name", "pg_node_tree", "refcursor", "text", "varchar"), TEXT),
    "char": Loader(ValueKind.TEXT, strings, plain(char_text)),
    "xml": Loader(ValueKind.TEXT, strings, xml_binary),
    "jsonpath": Loader(ValueKind.TEXT, strings, versioned),
}
