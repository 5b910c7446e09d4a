"""Hex dumps of any binary form: `xxd` with any -c and -g, `hexdump -C`, and hex alone (`xxd -p`, `od -v -An -tx1`).

Offsets, and the text beside the hex, are checked: the bytes end at a damaged line. A form of its own reads the bytes;
errors name the line of the text.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Generator, Iterable, Iterator
from typing import Final, NamedTuple

from pgtail.errors import InputError
from pgtail.humanize import counted
from pgtail.inputs import forms
from pgtail.inputs.base import Chunk, Input, NestedInput
from pgtail.inputs.recognition import recognise
from pgtail.inputs.source.window import Window
from pgtail.inputs.text.base import TextInput
from pgtail.inputs.text.forms import HexLines
from pgtail.inputs.text.restored import BadLine, Restored
from pgtail.pgoutput.cursor import MAX_LENGTH
from pgtail.pgoutput.decoder import Decoded, Decoder

_XXD: Final = re.compile(rb"([0-9A-Fa-f]{7,16}): ((?:[0-9A-Fa-f]{2} ?)++)( .*)?", re.DOTALL)
_HEXDUMP: Final = re.compile(rb"([0-9A-Fa-f]{7,16})  ((?:[0-9A-Fa-f]{2} {1,2})++) *(\|.*\|) *", re.DOTALL)
_END: Final = re.compile(rb"([0-9A-Fa-f]{7,16})\s*")
"""The last line of hexdump."""

_NO_HEX: Final = re.compile(rb"[^0-9A-Fa-f \t\r\n]")
_NO_TEXT: Final = re.compile(rb"[^\x20-\x7e\t\r\n]")
_SHOWN: Final = bytes([byte if 0x20 <= byte < 0x7F else ord(".") for byte in range(256)])
_BLOCK: Final = 64 * 1024
_MAX_LINE: Final = 4096
"""Bytes of the longest first line of a dump with offsets."""

_TRIED: Final = 3
"""First lines of which one has to be valid."""


class _Line(NamedTuple):
    """A line of a dump. Without data it is the last one of hexdump, which has only the offset."""

    offset: int
    data: bytes
    by_hexdump: bool


def _line(line: bytes) -> _Line | None:
    """A parsed line of xxd or hexdump -C; None for other text, or if it is damaged."""
    end = _END.fullmatch(line)
    if end is not None:
        return _Line(int(end[1], 16), b"", by_hexdump=True)
    match = _XXD.fullmatch(line)
    by_hexdump = match is None
    match = match or _HEXDUMP.fullmatch(line)
    if match is None:
        return None
    data = bytes.fromhex(match[2].decode("ascii"))
    shown = data.translate(_SHOWN)
    # In a short line of xxd blanks come before the text. Blanks at its end may be lost.
    beside = b"|" + shown + b"|" if by_hexdump else shown.rstrip(b" ")
    text = (match[3] or b"").rstrip(b" ")
    if not text.endswith(beside) or text.removesuffix(beside).strip(b" "):
        return None
    return _Line(int(match[1], 16), data, by_hexdump)


class _WithOffsets(Restored):
    """A dump by xxd or hexdump -C. Bytes have its offsets, or larger ones after its offsets go back."""

    def __init__(self, window: Window) -> None:
        super().__init__(window)
        self._at: int | None = None
        """The offset that the next line must have."""
        self._added = 0
        """What is added to the offsets of the dump."""
        self._last = b""
        """The bytes of the last line, which * repeats."""

    def _restore(self) -> Iterator[tuple[int, bytes]]:
        unconfirmed: Iterable[tuple[int, bytes]] = ()
        """Repeated lines and the line that follows them, until the offset of the next line confirms their number."""
        repeats = False
        line = None
        while (text := self.lines.next()) is not None:
            number = self.lines.number
            if text.strip() == b"*" and self._last:
                repeats = True
            elif text.strip():
                line = self._next(text, repeats=repeats)
                yield from unconfirmed
                if repeats:
                    assert self._at is not None
                    repeated = _repeated(self._last, line.offset - self._at, number - 1)
                    unconfirmed = itertools.chain(repeated, [(number, line.data)])
                else:
                    unconfirmed = ()
                    yield number, line.data
                repeats = False
                self._last, self._at = line.data, line.offset + len(line.data)
        yield from unconfirmed
        if line is not None and line.by_hexdump and line.data:
            raise BadLine(
                "the last line, which has only the offset, is missing: the dump is cut off", self.lines.number
            )

    def _next(self, text: bytes, *, repeats: bool) -> _Line:
        """The line, if it continues those before it. Raises BadLine."""
        line, number = _line(text), self.lines.number
        if line is None:
            raise BadLine("this is not a line of a dump, or its hex and the text beside it differ", number)
        if self._at is None:
            self.start_at(line.offset)
            self._at = line.offset
        gap = line.offset - self._at
        if gap != 0 if not repeats else not (0 < gap <= MAX_LENGTH and gap % len(self._last) == 0):
            self.lines.back(text)
            raise BadLine(_wrong_offset(line.offset, self._at, repeats=repeats), number)
        return line

    def _resume(self) -> bool:
        self._last = b""
        while (text := self.lines.next()) is not None:
            line = _line(text)
            if line is not None and line.data:
                self.lines.back(text)
                self._added = max(self._added, self.end - line.offset)
                self.start_at(line.offset + self._added)
                self._at = line.offset
                return True
        return False


def _repeated(data: bytes, size: int, number: int) -> Iterator[tuple[int, bytes]]:
    """This many bytes of repeated data, in pieces because they may not fit in memory, with the number of the line."""
    block = data * max(_BLOCK // len(data), 1)
    for start in range(0, size, len(block)):
        yield number, block[: size - start]


def _wrong_offset(found: int, expected: int, *, repeats: bool) -> str:
    after = " after repeated lines" if repeats else ""
    if found > expected and not repeats:
        return f"offset {found:#x} instead of {expected:#x}: {counted(found - expected, 'byte')} before it are missing"
    return f"offset {found:#x} instead of {expected:#x}{after}"


class _Alone(Restored):
    """Hex without offsets; all lines but the last have the same width."""

    _width = 0
    _short = False
    _digit = b""
    """The first digit of a byte whose second is in the next line."""

    def _restore(self) -> Iterator[tuple[int, bytes]]:
        while (text := self.lines.next()) is not None:
            text = text.rstrip()
            if text:
                yield self.lines.number, self._bytes(text)
        if self._digit:
            raise BadLine("a hex digit without its second half", self.lines.number)

    def _bytes(self, text: bytes) -> bytes:
        number = self.lines.number
        other = _NO_HEX.search(text)
        if other is not None:
            raise BadLine(f"{other[0].decode('latin-1')!a} is not a hex digit", number)
        self._width = self._width or len(text)
        if self._short or len(text) > self._width:
            wrong = number - self._short
            raise BadLine("a line that is not the last has another width than those before it", wrong)
        self._short = len(text) < self._width
        digits = self._digit + text.translate(None, b" \t")
        even = len(digits) & ~1
        self._digit = digits[even:]
        return bytes.fromhex(digits[:even].decode("ascii"))

    def _resume(self) -> bool:
        self._short, self._digit = False, b""
        return True


def _has_offsets(head: bytes, *, final: bool) -> bool | None:
    """Whether this is the beginning of a dump with offsets; None if a whole line is needed to tell."""
    lines = [line.rstrip(b"\r") for line in head[: _TRIED * _MAX_LINE].split(b"\n", _TRIED)]
    whole = lines if final else lines[:-1]
    for line in whole[:_TRIED]:
        if _NO_TEXT.search(line) is not None:  # a binary form; one of its messages may contain a dump
            return False
        if (found := _line(line)) is not None and found.data:
            return True
    return None if not whole and len(head) < _MAX_LINE and _NO_TEXT.search(head) is None else False


class Hexdump(NestedInput):
    """A dump of bytes as hex."""

    name = "hexdump"

    def __init__(self, window: Window, decoder: Decoder) -> None:
        super().__init__(window, decoder)
        while (found := _has_offsets(window.buf, final=window.final)) is None:
            window.more()
        self._restored: Restored = _WithOffsets(window) if found else _Alone(window)

    @classmethod
    def sniff(cls, head: bytes, decoder: Decoder, *, final: bool) -> bool | None:
        found = _has_offsets(head, final=final)
        return found if found is not False else cls._is_alone(head, decoder, final=final)

    @classmethod
    def _is_alone(cls, head: bytes, decoder: Decoder, *, final: bool) -> bool | None:
        """Whether lines of hex are a form when they are joined, and not one message each."""
        if _NO_HEX.search(head) is not None:
            return False
        as_lines = HexLines.sniff(head, decoder, final=final)
        if as_lines is not False:
            return None if as_lines is None else False
        whole = head if final else head[: head.rfind(b"\n") + 1]
        digits = b"".join(whole.split())
        data = bytes.fromhex(digits[: len(digits) & ~1].decode("ascii"))
        found = [form.sniff(data, decoder, final=final) for form in cls._shown()]
        return True if True in found else None if None in found and not final else False

    @classmethod
    def _shown(cls) -> list[type[Input]]:
        """The forms that a dump may show: the binary ones."""
        return [form for form in forms() if not issubclass(form, TextInput | Hexdump)]

    @property
    def position(self) -> int:
        """Offset in the restored bytes."""
        return self._restored.position if self._inner is None else self._inner.position

    def items(self) -> Generator[Decoded | Chunk]:
        try:
            if self._inner is None:
                window = Window(self._restored)
                self._inner = self._form(window)(window, self._decoder)
                self._inner.read = self.read
            yield from self._inner.items()
        except InputError as error:
            if error.source == self.source.name and error.offset is not None:
                number = self._restored.line_of(error.offset)
                error.source = f"{error.source}: line {number or 1}"
            raise
        finally:
            if self._inner is not None:
                self.read = self._inner.read
        self._check_end()

    def close(self) -> None:
        if self._inner is not None:
            self._inner.close()
        self._restored.close()

    def _form(self, window: Window) -> type[Input]:
        """The form of the restored bytes. Raises InputError."""
        form = recognise(window, self._decoder, lambda head: self._shown())
        if form is None:
            names = ", ".join(known.name for known in self._shown())
            raise self._restored.damage or InputError(
                f"the bytes of this hex dump are none of the known forms ({names})", source=self.source.name
            )
        return form
