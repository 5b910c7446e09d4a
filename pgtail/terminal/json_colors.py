"""JSON in the colours that jq gives it."""

from __future__ import annotations

import re
from io import BytesIO
from typing import Final

from pgtail.files.sink import Sink

_NAME, _STRING, _NULL, _SYNTAX, _RESET = b"\x1b[34;1m", b"\x1b[0;32m", b"\x1b[0;90m", b"\x1b[1;39m", b"\x1b[0m"
_INSIDE: Final = rb'[^"\\]*(?:\\.[^"\\]*)*("?)'
_TOKEN: Final = re.compile(rb'("' + _INSIDE + rb")(?=(\s*:)?)|\bnull\b|[\[\]{},:]+", re.DOTALL)
_REST: Final = re.compile(_INSIDE, re.DOTALL)


class ColoringSink:
    """Colours JSON, which may be split anywhere between two calls. Numbers and booleans keep the terminal's colour."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._inside = False
        """Whether a string is open."""
        self._kept = b""
        """A backslash at the end, the next character of which is not there yet."""

    def write(self, data: bytes) -> None:
        data, self._kept = self._kept + data, b""
        begin = b""
        if self._inside and (rest := _REST.match(data)) is not None:
            self._inside = not rest[1]
            begin, data = _STRING + rest[0] + _RESET, data[rest.end() :]
        text = _TOKEN.sub(self._painted, data)
        if self._inside and text.endswith(b"\\"):
            text, self._kept = text[:-1], b"\\"
        self._sink.write(begin + text)

    def _painted(self, match: re.Match[bytes]) -> bytes:
        if match[1] is None:
            return (_NULL if match[0] == b"null" else _SYNTAX) + match[0] + _RESET
        self._inside = not match[2]
        return (_STRING if match[3] is None else _NAME) + match[0] + _RESET


def colored(text: str) -> str:
    """JSON in these colours."""
    written = BytesIO()
    ColoringSink(written).write(text.encode())
    return written.getvalue().decode()
