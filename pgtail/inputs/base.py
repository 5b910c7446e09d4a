"""The base class of inputs: an Input reads bytes of one form and yields decoded messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from typing import ClassVar, Final, NamedTuple

from msgspec import Struct

from pgtail.errors import DecodeError, InputError
from pgtail.inputs.source.base import ByteStream
from pgtail.inputs.source.window import Window
from pgtail.pgoutput.cursor import Buffer
from pgtail.pgoutput.decoder import Decoded, Decoder


class Chunk(Struct):
    """Messages that are in memory and not decoded: `buf[pos:end]`, the last of them perhaps incomplete.

    A consumer may process some of them and set `pos` to the start of the next one. `framing` is one of
    pgoutput/frames.py, `in_stream` as in Decoder.
    """

    buf: Buffer
    pos: int
    end: int
    framing: int
    in_stream: bool | None


class SegmentsRead(NamedTuple):
    """The predecessor that the next segment of a capture must name: the last segment of the stream that was read to its
    end, and the consistent point and table of the last segment of a snapshot, if that was read to its end last.
    """

    segment: str = ""
    snapshot: str = ""


NOTHING_READ: Final = SegmentsRead()


class Input(ABC):
    """One source read as one form. Consecutive inputs may share a decoder."""

    name: ClassVar[str]
    """The form's name for --input-format."""

    framing: ClassVar[int | None] = None
    """The framing of its chunks; None if it has none."""

    of_source: ClassVar[bool] = True
    """Whether positions are those in the source, not in the messages that were taken from it."""

    def __init__(self, window: Window, decoder: Decoder) -> None:
        self.skipped = 0
        """Bytes that the last resync() skipped."""
        self.notes: list[str] = []
        """What to tell the user once items() has ended: what was left out on purpose."""
        self.read = NOTHING_READ
        """What was read to its end, from this source or those before it."""
        self._window = window
        self._decoder = decoder

    @property
    def source(self) -> ByteStream:
        """The source of the bytes."""
        return self._window.source

    @property
    def position(self) -> int:
        """Offset (`of_source`) of the first unread byte; exact after items() ended or raised."""
        return self._window.position

    def offset_of(self, buf: Buffer, position: int) -> int | None:
        """Source offset of a position in the decoder's `buf`; None if the source is text."""
        return self._window.base + position if buf is self._window.buf else None

    @classmethod
    @abstractmethod
    def sniff(cls, head: bytes, decoder: Decoder, *, final: bool) -> bool | None:
        """Whether a source that begins with `head` is of this form; None if more bytes are needed to tell.

        `final`: `head` is the whole source.
        """

    @classmethod
    def search(cls, head: bytes, decoder: Decoder, *, final: bool) -> bool:
        """Whether `head`, whose beginning no form recognised, contains messages of this form."""
        return False

    @abstractmethod
    def items(self) -> Generator[Decoded | Chunk]:
        """Yield the remaining messages, each after the Chunk that it begins, if the form has chunks.

        Raises InputError or DecodeError, with source and offset, at a damaged message; call resync() and then items()
        again to continue.
        """

    def messages(self) -> Iterator[Decoded]:
        """As items(), without the chunks."""
        return (item for item in self.items() if not isinstance(item, Chunk))

    def resync(self) -> int | None:
        """After an error, go to the next position from which several messages decode.

        Returns the number of skipped bytes (also in `skipped`), or None if there is no such position.
        """
        start = self.position
        found = self._seek()
        self.skipped = self.position - start
        return self.skipped if found else None

    def close(self) -> None:  # noqa: B027 -- most forms have nothing to close
        """Close temporary files; the source stays open."""

    def _offer(self, buf: Buffer, pos: int, end: int) -> Generator[Chunk, None, int]:
        """Yield the messages of buf[pos:end] as a Chunk; returns where the first one starts that is left."""
        if self.framing is None or pos >= end:
            return pos
        chunk = Chunk(buf, pos, end, self.framing, self._decoder.in_stream)
        yield chunk
        return chunk.pos

    @abstractmethod
    def _seek(self) -> bool:
        """Advance the window by at least one byte, to the next position where messages decode, or to the end."""

    def _located(self, error: DecodeError, base: int) -> InputError:
        """The error with source and source offset; if the source ends there by damage, that damage instead."""
        if self._window.final and self.source.damage is not None:
            return self.source.damage
        return error.located(self.source.name, base + error.offset)

    def _check_end(self) -> None:
        """At the end of the source, raise InputError if it was damage."""
        if self.source.damage is not None:
            raise self.source.damage


class NestedInput(Input):
    """An input that reads its messages with another one, `_inner`, once that is open."""

    of_source = False
    _inner: Input | None = None

    def offset_of(self, buf: Buffer, position: int) -> int | None:
        return None if self._inner is None else self._inner.offset_of(buf, position)

    def resync(self) -> int | None:
        found = None if self._inner is None else self._inner.resync()
        self.skipped = 0 if self._inner is None else self._inner.skipped
        return found

    def _seek(self) -> bool:
        raise AssertionError("resync() does it")
