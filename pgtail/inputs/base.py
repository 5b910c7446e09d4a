"""Floor 4, the contract of the shelf: an Input turns bytes of one form into decoded messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar

from pgtail.errors import DecodeError, InputError
from pgtail.inputs.supply import Supply
from pgtail.inputs.window import Window
from pgtail.wire.cursor import Buffer
from pgtail.wire.decoder import Decoded, Decoder


class Input(ABC):
    """One source read as one form. Several may share a decoder, one after another."""

    name: ClassVar[str]
    """What --input-format calls the form."""

    def __init__(self, window: Window, decoder: Decoder) -> None:
        self.skipped = 0
        """How many bytes the last resync() passed over."""
        self._window = window
        self._decoder = decoder

    @property
    def source(self) -> Supply:
        """Where the bytes come from."""
        return self._window.source

    @property
    def position(self) -> int:
        """The offset in the source of what is not done with; exact between messages() and after its errors."""
        return self._window.position

    def offset_of(self, buf: Buffer, position: int) -> int | None:
        """Where in the source a byte lies that the decoder has in `buf`; None where the source is text."""
        return self._window.base + position if buf is self._window.buf else None

    @classmethod
    @abstractmethod
    def sniff(cls, head: bytes, decoder: Decoder, *, final: bool) -> bool | None:
        """Whether a source that begins with `head` is of this form; None: more bytes are needed to tell.

        `final` says that `head` is all there is.
        """

    @classmethod
    @abstractmethod
    def search(cls, head: bytes, decoder: Decoder, *, final: bool) -> bool:
        """Whether messages of this form stand somewhere in `head`, whose beginning is damaged or something else."""

    @abstractmethod
    def messages(self) -> Iterator[Decoded]:
        """Every message that is left. Raises InputError or DecodeError, with source and offset, where one is damaged;
        called again after resync() it goes on.
        """

    def resync(self) -> int | None:
        """After an error: go to the next place from which several messages decode.

        Returns how many bytes were passed over (`skipped` has the number in any case); None if no such place is left.
        """
        start = self.position
        found = self._seek()
        self.skipped = self.position - start
        return self.skipped if found else None

    def close(self) -> None:  # noqa: B027 -- most forms keep nothing
        """Give back what was kept aside; the source stays open."""

    @abstractmethod
    def _seek(self) -> bool:
        """Move the window to where messages decode again, at least one byte on; to the end if they do not."""

    def _located(self, error: DecodeError, base: int) -> InputError:
        """An error whose offset counts from `base`, put at its place; or why the source ended there."""
        if self._window.final and self.source.damage is not None:
            return self.source.damage
        return error.located(self.source.name, base + error.offset)

    def _check_end(self) -> None:
        """The source ended between messages: raises InputError if that was damage."""
        if self.source.damage is not None:
            raise self.source.damage
