"""Converts many cells of a column at once by the form of its encoding, without a Python function for each cell."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, TypeAlias

from pgtail._orjson import orjson
from pgtail.native.plan import Encoding

Text: TypeAlias = Callable[[bytes], bytes]
"""Encoding.text."""

Convert: TypeAlias = Callable[[Sequence[bytes]], Iterable[bytes]]
"""Text cells -> their texts. Raises Undecoded, also while the texts are read."""

_OF_NUMBERS: Final = b"0123456789-+.eE,"
_MOST_KNOWN: Final = 1000
"""Remembered values of a column."""
_SHORT: Final = 100
"""Bytes; longer values are not remembered."""
_is_literal = re.compile(rb"[ -&(-~]*").fullmatch


def convert_all(encoding: Encoding) -> Convert:
    """The same as `encoding.text` for each cell."""
    native, form, each = encoding.codec.native, encoding.form, partial(map, encoding.text)
    if native is None or native.constant is not None or form is None or form.name not in _MAKERS:
        return each
    return _MAKERS[form.name](encoding.text, form.parameter)


class _Known(dict[bytes, bytes]):
    """The texts of the values that were converted last."""

    def __init__(self, text: Callable[[bytes], bytes]) -> None:
        self._text = text

    def __missing__(self, cell: bytes) -> bytes:
        text = self._text(cell)
        if len(cell) <= _SHORT:
            if len(self) >= _MOST_KNOWN:
                self.clear()
            self[cell] = text
        return text


def _known(text: Text, parameter: int) -> Convert:
    """For types of which values are often repeated, and costly to convert."""
    return partial(map, _Known(text).__getitem__)


def _strings(text: Text, parameter: int) -> Convert:
    def convert(cells: Sequence[bytes]) -> Iterable[bytes]:
        try:
            return [*map(orjson.dumps, map(bytes.decode, cells))]
        except ValueError:
            return map(text, cells)

    return convert


def _numbers(text: Text, quoted: int) -> Convert:
    def convert(cells: Sequence[bytes]) -> Iterable[bytes]:
        if not _are_numbers(cells):
            return map(text, cells)
        return map(b'"%b"'.__mod__, cells) if quoted else cells

    return convert


def _are_numbers(cells: Sequence[bytes]) -> bool:
    """Whether all cells are JSON numbers. False may be wrong: orjson rejects 1e999."""
    joined = b",".join(cells)
    if joined.translate(None, _OF_NUMBERS):
        return False
    try:
        return len(orjson.loads(b"[%b]" % joined)) == len(cells)
    except ValueError:
        return False


def _integers(text: Text, parameter: int) -> Convert:
    def convert(cells: Sequence[bytes]) -> Iterable[bytes]:
        whole = not b"".join(cells).translate(None, b"0123456789-")
        return cells if whole and _are_numbers(cells) else map(text, cells)

    return convert


def _literals(text: Text, parameter: int) -> Convert:
    def convert(cells: Sequence[bytes]) -> Iterable[bytes]:
        if _is_literal(b"".join(cells)):
            return map(b"'%b'".__mod__, cells)
        return [b"'%b'" % cell if _is_literal(cell) else text(cell) for cell in cells]

    return convert


_MAKERS: Final[dict[str, Callable[[Text, int], Convert]]] = {
    "string": _strings,
    "number": _numbers,
    "wal2json_number": _numbers,
    "boolean": _known,
    "strings": _known,
    "numbers": _known,
    "booleans": _known,
    "sql": _literals,
    "debezium_integer": _integers,
    "debezium_integers": _known,
    "debezium_date": _known,
}
"""By form."""
