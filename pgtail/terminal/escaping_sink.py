"""A sink that escapes what machine-readable formats write to a terminal."""

from __future__ import annotations

import codecs
from collections.abc import Callable

from pgtail.files.sink import Sink
from pgtail.terminal.escape import escape, escape_json


class EscapingSink:
    """Escapes hidden characters: by JSON's own escapes, else by escape(), which calls `tell` with a note once."""

    def __init__(self, sink: Sink, tell: Callable[[str], None], *, json: bool) -> None:
        self._sink = sink
        self._tell = tell
        self._spell = escape_json if json else self._spelled
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._told = False

    def write(self, data: bytes) -> None:
        """Escape and write bytes; a character may be split between two calls."""
        lines = self._decoder.decode(data).split("\n")
        self._sink.write("\n".join([self._spell(line) for line in lines]).encode())

    def _spelled(self, line: str) -> str:
        shown = "\t".join([escape(part) for part in line.split("\t")])
        if shown != line and not self._told:
            self._told = True
            self._tell("hidden characters are escaped on this terminal; a file (-f) or a pipe gets the unchanged bytes")
        return shown
