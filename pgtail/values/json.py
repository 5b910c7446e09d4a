"""Json and jsonb: the document unchanged, with its digits, order of keys and duplicates."""

from __future__ import annotations

from typing import Final

from pgtail.values.codec import Context, Json, Loader, Undecoded, ValueKind
from pgtail.values.jsonsyntax import is_valid
from pgtail.values.text import encoded, versioned

_SPACES = bytes.maketrans(b"\n\r", b"  ")


def json(context: Context) -> Json:
    """The JSON of a document is the document on one line."""
    decode = context.decode
    utf8 = context.encoding == "utf-8"

    def of_cell(cell: bytes) -> bytes:
        if utf8 and (token := _token(cell)) is not None:
            return token
        try:
            text = decode(cell)
        except ValueError:
            raise Undecoded(cell) from None
        return of_text(text)

    def of_text(text: str) -> bytes:
        token = _token(text.encode())
        if token is None:
            raise Undecoded(text)
        return token

    return Json(of_cell, of_text, "json")


def _token(document: bytes) -> bytes | None:
    """The document on one line; None if it is not JSON."""
    return _on_one_line(document) if is_valid(document) else None


def _on_one_line(document: bytes) -> bytes:
    # JSON strings contain no line breaks.
    return document.translate(_SPACES) if b"\n" in document or b"\r" in document else document


TYPES: Final = {
    "json": Loader(ValueKind.JSON, json, encoded),
    "jsonb": Loader(ValueKind.JSON, json, versioned),
}
"""The types by name."""
