"""What the scanner in plain Python is about to write: texts, and rows that are converted to texts together."""

from __future__ import annotations

from dataclasses import dataclass, field

from pgtail.outputs.executor import Line, Row
from pgtail.outputs.rows import Write


@dataclass(slots=True)
class LikeRows:
    """Rows that are written by the same Line, and the places of their texts."""

    line: Line
    texts: list[bytes]
    places: list[int] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)


class Batch:
    """Texts by what they are written to. Nothing is written before flush()."""

    def __init__(self, *, one_by_one: bool) -> None:
        """`one_by_one`: `write` is called for each text."""
        self._one_by_one = one_by_one
        self._texts: dict[Write, list[bytes]] = {}
        self._by_line: dict[Line, LikeRows] = {}
        self._waiting: list[LikeRows] = []

    def texts_to(self, write: Write) -> list[bytes]:
        """The list of the texts to be written by `write`, always the same one."""
        return self._texts.setdefault(write, [])

    def like(self, line: Line, texts: list[bytes]) -> LikeRows:
        """The rows of the batch that `line` writes to `texts`."""
        return self._by_line.setdefault(line, LikeRows(line, texts))

    def add(self, like: LikeRows, row: Row) -> None:
        """Add a row after the texts so far."""
        if not like.rows:
            self._waiting.append(like)
        like.places.append(len(like.texts))
        like.texts.append(b"")
        like.rows.append(row)

    def convert(self) -> None:
        """Convert the rows to texts. Raises Undecoded and NoPlan."""
        for like in self._waiting:
            texts = like.texts
            for place, text in zip(like.places, like.line.texts(like.rows), strict=True):
                texts[place] = text

    def flush(self) -> None:
        """Write the texts."""
        ready = [(write, texts.copy()) for write, texts in self._texts.items() if texts]
        self.drop()
        for write, texts in ready:
            for text in texts if self._one_by_one else [b"".join(texts)]:
                write(text)

    def drop(self) -> None:
        """Drop the texts and rows."""
        for like in self._waiting:
            like.places.clear()
            like.rows.clear()
        self._waiting.clear()
        self._by_line.clear()
        for texts in self._texts.values():
            texts.clear()
