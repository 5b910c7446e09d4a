"""Json and jsonb: the document unchanged, with its digits, order of keys and duplicates."""

from __future__ import annotations

from typing import Final

from pgtail.values.codec import Context, Json, Loader, Undecoded, ValueKind
from pgtail.values.jsonsyntax import is_valid
from pgtail.values.text import encoded, versioned

_SPACES = bytes.maketrans(b"\n\r", b"  ")


def json(context: Context) -> Json:
    """The JSON of a document is the document on one line."""
    utf8 = context.encoding == "utf-8"

    def of_cell(cell: bytes) -> bytes:
        if utf8 and (token := on_one_line(cell)) is not None:
            return token
        return of_text(context.text(cell))

    def of_text(text: str) -> bytes:
        token = on_one_line(text.encode())
        if token is None:
            raise Undecoded(text)
        return token

    return Json(of_cell, of_text, "json")


def on_one_line(document: bytes) -> bytes | None:
    """A document in UTF-8 on one line; None if it is not JSON."""
    if not is_valid(document):
        return None
    # JSON strings contain no line breaks.
    return document.translate(_SPACES) if b"\n" in document or b"\r" in document else document


TYPES: Final = {"json": Loader(ValueKind.JSON, json, encoded), "jsonb": Loader(ValueKind.JSON, json, versioned)}
