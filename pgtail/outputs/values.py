"""Encodings of values as tables show them, for formats with a line for each change."""

from __future__ import annotations

from typing import Final

from pgtail.native.plan import Encoding, Form
from pgtail.pgoutput.cells import Binary
from pgtail.terminal.layout import Item
from pgtail.terminal.values import UNDECODED, ValueStyle
from pgtail.values import Codec, Undecoded, ValueKind

_SHORT: Final = 64
"""Bytes; no longer cell has an empty text."""


def shown_encoding(codec: Codec, values: ValueStyle, *, bare: bool = False, alone: bool = False) -> Encoding:
    """A value as `values` shows it, without quotes if its type is `bare`; if `alone`, without quotes and marks."""
    bare = bare or alone or codec.kind is not ValueKind.TEXT

    def shown(cell: bytes) -> bytes:
        if alone and len(cell) < _SHORT and not codec.text(cell):
            return b""
        return text_of_item(values.value(codec, cell, bare=bare))

    def undecoded(found: Undecoded) -> bytes:
        return text_of_item(values.undecoded(found)) + (b"" if alone else text_of_item(UNDECODED))

    form = _form(codec, bare, alone) if values.limit is None else None
    return Encoding(codec, shown, lambda cell: shown(Binary(cell)), undecoded, form)


def _form(codec: Codec, bare: bool, alone: bool) -> Form:
    if codec.kind is ValueKind.BOOL:
        return Form("boolean")
    return Form("bare", alone) if bare else Form("sql")


def text_of_item(item: Item) -> bytes:
    """The text of an item without its styles."""
    return b"".join([text.encode() for text, _ in item])
