"""Floor 4, a sink before a terminal, for formats that write what programs read: nothing drives it; knows no format."""

from __future__ import annotations

import codecs
from collections.abc import Callable

from pgtail.outputs.base import Sink
from pgtail.outputs.escape import escape, in_json


class Harmless:
    """Spells hidden characters: in JSON as it may, else as escape() does, and `tell` hears of it once."""

    def __init__(self, sink: Sink, tell: Callable[[str], None], *, json: bool) -> None:
        self._sink = sink
        self._tell = tell
        self._spell = in_json if json else self._spelled
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._told = False

    def write(self, data: bytes) -> None:
        """Take bytes; a character may be cut between two calls."""
        lines = self._decoder.decode(data).split("\n")
        self._sink.write("\n".join([self._spell(line) for line in lines]).encode())

    def _spelled(self, line: str) -> str:
        shown = "\t".join([escape(part) for part in line.split("\t")])
        if shown != line and not self._told:
            self._told = True
            self._tell(
                "on this terminal hidden characters are spelled out; a file (-f) or a pipe gets the bytes as they are"
            )
        return shown
