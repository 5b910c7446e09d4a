"""PostgreSQL's text to JSON for strings, numbers and booleans. All JSON strings of values are escaped here."""

from __future__ import annotations

import binascii
import codecs
import functools
import io
import re
from collections.abc import Callable, Iterable, Iterator

from pgtail._orjson import orjson
from pgtail.values.codec import LONG, Context, Json, NativeForm, Undecoded

_NAME = 64
"""Bytes that the longest name of a table or a column has."""
_ZERO = ord("0")
_NO_NUMBERS = {b"NaN": b'"NaN"', b"Infinity": b'"Infinity"', b"-Infinity": b'"-Infinity"'}
_BOOLEANS = {b"t": b"true", b"f": b"false"}


def _short_string(text: str) -> bytes:
    """Encode most names and short values without loading orjson."""
    if len(text) < _NAME and text.isascii() and text.isprintable() and not ('"' in text or "\\" in text):
        return b'"%b"' % text.encode()
    return orjson.dumps(text)


def strings_or_null(texts: list[str] | list[str | None]) -> bytes:
    """Texts -> JSON array of strings, with None as null."""
    return orjson.dumps(texts)


@functools.cache
def _number_matcher() -> Callable[[bytes], object]:
    from pgtail.values.jsonsyntax import NUMBER

    return re.compile(NUMBER.encode()).fullmatch


def string(text: str) -> bytes:
    """Text -> JSON string."""
    if len(text) < LONG:
        return _short_string(text)
    return _string_of(text[start : start + LONG] for start in range(0, len(text), LONG))


def _string_of(pieces: Iterable[str]) -> bytes:
    out = io.BytesIO()
    for token in _tokens_of(pieces):
        out.write(token)
    return out.getvalue()


def _tokens_of(pieces: Iterable[str]) -> Iterator[bytes]:
    """Text in pieces -> one JSON string in pieces."""
    yield b'"'
    for piece in pieces:
        yield _short_string(piece)[1:-1]
    yield b'"'


def string_pieces(cell: bytes, encoding: str) -> Iterator[bytes]:
    """A long text cell -> a JSON string in pieces. Raises Undecoded before the first piece."""
    if not is_text(cell, encoding):
        raise Undecoded(cell)
    return _tokens_of(_decoded(cell, encoding))


def hex_pieces(cell: bytes) -> Iterator[bytes]:
    r"""Bytes -> the JSON string of \x and their hexadecimal digits, in pieces."""
    yield b'"\\\\x'
    for start in range(0, len(cell), LONG):
        yield binascii.hexlify(cell[start : start + LONG])
    yield b'"'


def is_text(cell: bytes, encoding: str) -> bool:
    """Whether a cell is valid in the encoding. A long cell is not decoded in one piece."""
    try:
        for piece in _decoded(cell, encoding):
            _short_string(piece)
    except (ValueError, orjson.JSONEncodeError):
        return False
    return True


def strings(context: Context) -> Json:
    """For types without a JSON form of their own."""
    decode, encoding = context.decode, context.encoding

    def of_cell(cell: bytes) -> bytes:
        try:
            if len(cell) < LONG:
                return _short_string(decode(cell))
            return _string_of(_decoded(cell, encoding))
        except (ValueError, orjson.JSONEncodeError):
            raise Undecoded(cell) from None

    return Json(of_cell, string, "string")


def _decoded(cell: bytes, encoding: str) -> Iterator[str]:
    """The text of a long cell in pieces. Raises ValueError."""
    decoder = codecs.getincrementaldecoder(encoding)()
    for start in range(0, len(cell), LONG):
        yield decoder.decode(cell[start : start + LONG], final=start + LONG >= len(cell))


def numbers(context: Context) -> Json:
    """Numbers with the digits that the server sent. NaN and infinities, which JSON lacks, become strings."""
    return _tokens(context, _number, "number")


def large_numbers(context: Context) -> Json:
    """Like numbers(), but strings if the context says so: for types that do not fit 53 bits."""
    exact = numbers(context)
    if context.numbers == "exact":
        return exact

    return Json(
        lambda cell: _quoted(exact.of_cell(cell)), lambda text: _quoted(exact.of_text(text)), "number", quoted=True
    )


def _quoted(token: bytes) -> bytes:
    return token if token.startswith(b'"') else b'"%b"' % token


def _number(cell: bytes) -> bytes | None:
    if cell.isdigit() and (cell[0] != _ZERO or len(cell) == 1):
        return cell
    if (cell[:1] == b"-" and cell[1:].isdigit() and cell[1] != _ZERO) or _number_matcher()(cell):
        return cell
    return _NO_NUMBERS.get(cell)


def booleans(context: Context) -> Json:
    """`t` and `f` as true and false."""
    return _tokens(context, _BOOLEANS.get, "boolean")


def _tokens(context: Context, token_of: Callable[[bytes], bytes | None], native: NativeForm) -> Json:
    """The JSON of values in ASCII: `token_of` returns None for what is no value."""

    def of_cell(cell: bytes) -> bytes:
        token = token_of(cell)
        if token is None:
            raise Undecoded(context.text(cell))  # text() raises it, too, for what is no text
        return token

    def of_text(text: str) -> bytes:
        token = token_of(text.encode())
        if token is None:
            raise Undecoded(text)
        return token

    return Json(of_cell, of_text, native)
