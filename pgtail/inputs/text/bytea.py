"""bytea as text, as psql and COPY show it: hex, escape and base64 (manual: Binary Data Types)."""

from __future__ import annotations

import binascii
import re
from abc import ABC, abstractmethod
from typing import ClassVar, Final

from pgtail.pgoutput.cursor import shown_byte


class BadText(Exception):
    """Text that cannot be decoded, at `index`. Never leaves pgtail.inputs.text."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(reason)
        self.index = index
        self.reason = reason


class Codec(ABC):
    """A way to write bytes as text."""

    name: ClassVar[str]
    wrapped: ClassVar[bool] = False
    """Whether a value is split into lines."""

    @abstractmethod
    def decode(self, text: bytes) -> bytes:
        """The bytes. Raises BadText."""

    @abstractmethod
    def safe(self, text: bytes) -> int:
        """Length of the longest prefix of `text` that can be decoded by itself."""

    @abstractmethod
    def width(self, data: bytes) -> int:
        """Characters that the server writes for these bytes if more follow."""


class Hex(Codec):
    """Two digits for each byte."""

    name = "hex"
    _other = re.compile(rb"[^0-9A-Fa-f]")

    def decode(self, text: bytes) -> bytes:
        try:
            return binascii.unhexlify(text)
        except binascii.Error:
            other = self._other.search(text)
            if other is not None:
                raise BadText(other.start(), f"{shown_byte(text[other.start()])} is not a hex digit") from None
            raise BadText(len(text) - 1, "a hex digit without its second half") from None

    def safe(self, text: bytes) -> int:
        return len(text) & ~1

    def width(self, data: bytes) -> int:
        return 2 * len(data)


class SpacedHex(Hex):
    """Hex that may have blanks between bytes."""

    def decode(self, text: bytes) -> bytes:
        if b" " not in text:
            return super().decode(text)
        try:
            return bytes.fromhex(text.decode("ascii"))
        except ValueError:
            pass
        at = 0
        for group in text.split(b" "):
            try:
                super().decode(group)
            except BadText as bad:
                raise BadText(at + bad.index, bad.reason) from None
            at += len(group) + 1
        raise BadText(0, "this is not hex")

    def safe(self, text: bytes) -> int:
        return len(text) - (len(text) - text.rfind(b" ") - 1) % 2


class Escape(Codec):
    """Printable characters as they are, a doubled backslash, other bytes as a backslash and three octal digits.

    `copied`: COPY has doubled each backslash, and added one before its delimiter. `quoted`: quotes are doubled (CSV).
    """

    name = "escape"
    _unquoted = re.compile(rb"\\(.)")

    def __init__(self, *, copied: bool = False, quoted: bool = False) -> None:
        escaped = rb"\\\\(?:\\\\|[0-3][0-7]{2})|\\[^\\\w]" if copied else rb"\\(?:\\|[0-3][0-7]{2})"
        self._escaped = re.compile(escaped + rb'|""' * quoted)
        self._special = b'\\"' if quoted else b"\\"
        self._token = re.compile(self._escaped.pattern + rb"|([" + re.escape(self._special) + rb"])")
        self._copied = copied
        self._quoted = quoted

    def decode(self, text: bytes) -> bytes:
        if b"\\" not in text and not self._quoted:
            return text
        left = self._escaped.sub(b"", text)
        if left.translate(None, self._special) != left:
            index = next(token.start() for token in self._token.finditer(text) if token.lastindex)
            raise BadText(index, f"{shown_byte(text[index])} does not begin an escaped byte")
        if self._copied:
            text = self._unquoted.sub(rb"\1", text)
        if self._quoted:
            text = text.replace(b'""', b'"')
        return text.decode("unicode_escape").encode("latin-1")

    def safe(self, text: bytes) -> int:
        if self._quoted and (len(text) - len(text.rstrip(b'"'))) % 2:
            return len(text) - 1
        end = len(text)
        for digits in range(3):
            bare = text[: end - digits]
            slashes = len(bare) - len(bare.rstrip(b"\\"))
            if slashes:
                odd = slashes % (4 if self._copied else 2)
                return end - digits - odd if odd else end
            if not bare[-1:].isdigit():
                break
        return end

    def width(self, data: bytes) -> int:
        octal = len(data.translate(None, _PRINTABLE))
        wide = len(data) + octal * (3 + self._copied) + data.count(b"\\") * (3 if self._copied else 1)
        return wide + data.count(b'"') * self._quoted


class Base64(Codec):
    """Output of encode(data, 'base64'): a line break after every 76 characters, which COPY writes as \\n."""

    name = "base64"
    wrapped = True
    LINE: Final = 76
    _BREAK: Final = b"\\n"
    _other = re.compile(rb"[^A-Za-z0-9+/]")

    def __init__(self, *, copied: bool = False) -> None:
        self._break_size = len(self._BREAK) * copied

    def decode(self, text: bytes) -> bytes:
        plain = text.replace(self._BREAK, b"")
        try:
            return binascii.a2b_base64(plain, strict_mode=True)
        except binascii.Error:
            other = self._other.search(plain.rstrip(b"="))
            if other is not None:
                index = other.start()
                raise BadText(self._position(index), f"{shown_byte(plain[index])} is not a base64 digit") from None
            raise BadText(len(text), "the base64 text is incomplete") from None

    def safe(self, text: bytes) -> int:
        line = self.LINE + len(self._BREAK)
        return len(text) // line * line if self._BREAK in text else len(text) & ~3

    def width(self, data: bytes) -> int:
        return self._position(len(data) * 4 // 3)

    def _position(self, index: int) -> int:
        """Position of a digit, counting the line breaks in the text."""
        return index + index // self.LINE * self._break_size


_PRINTABLE: Final = bytes(range(0x20, 0x7F))

_HEX: Final = re.compile(rb"(?:\\{1,2}x|0x)[0-9A-Fa-f]*|[4-7][0-9A-Fa-f]*")
_BASE64: Final = re.compile(rb"[A-Za-z0-9+/]+={0,2}")


def codec_of(text: bytes) -> str:
    """The name of the codec that a message is probably written in.

    A message begins with a letter: its hex begins with 4 to 7, its base64 never does. Every message except Stream Stop
    (E) has a byte that the escape format writes with a backslash.
    """
    if _HEX.fullmatch(text):
        return Hex.name
    if text != b"E" and _BASE64.fullmatch(text.replace(b"\\n", b"")):
        return Base64.name
    return Escape.name if b"\\" in text[:4096] or text == b"E" else Hex.name
