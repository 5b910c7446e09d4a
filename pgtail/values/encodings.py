"""Encodings of text, by PostgreSQL's names (src/common/encnames.c) or Python's."""

from __future__ import annotations

import codecs
from typing import Final

_PYTHON: Final = {
    "SQL_ASCII": "utf-8",
    "UNICODE": "utf-8",
    "KOI8": "koi8-r",
    "KOI8R": "koi8-r",
    "KOI8U": "koi8-u",
    "WIN": "cp1251",
    **{f"WIN{page}": f"cp{page}" for page in (866, 874, *range(1250, 1259))},
}
"""PostgreSQL's names of encodings that Python calls otherwise. Text in SQL_ASCII is read as UTF-8."""


def python_name(name: str) -> str:
    """Python's name of an encoding. Raises LookupError if Python has none of this name."""
    return codecs.lookup(_PYTHON.get(name.upper(), name)).name


def of_postgresql(name: str) -> str:
    """Python's name of an encoding in which PostgreSQL may have text. Raises LookupError for another one.

    ASCII bytes mean ASCII in all of them: not in UTF-16, UTF-7, escapes and others.
    """
    probe = bytes(range(0x80)) + b"\\ud800+2AA-~{\x1b$B!!"
    try:
        codec = python_name(name)
        same = probe.decode(codec) == probe.decode("ascii") and b"xn--p1ai".decode(codec) == "xn--p1ai"
    except ValueError as error:
        raise LookupError(f"{name} is no encoding of PostgreSQL") from error
    if not same or codec == "utf-8-sig":
        raise LookupError(f"{name} is no encoding of PostgreSQL")
    return codec
