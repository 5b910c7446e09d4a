"""Opens a source as the form that is given, or that its first bytes show."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from pgtail.capture.format import CLOSED, OPEN
from pgtail.errors import InputError, OptionError
from pgtail.inputs import INPUTS, form_of, forms
from pgtail.inputs.base import NOTHING_READ, Input, SegmentsRead
from pgtail.inputs.source.file import Source
from pgtail.inputs.source.window import LARGE, Window
from pgtail.pgoutput.decoder import Decoder

_EVERY_BYTE: Final = 64 * 1024
"""Bytes up to which every new piece of a source is examined; beyond, larger and larger pieces."""

_COMPRESSED: Final = {
    b"\x28\xb5\x2f\xfd": "zstd -dc",
    b"\xfd7zXZ\0": "xz -dc",
    b"BZh": "bzip2 -dc",
    b"\x04\x22\x4d\x18": "lz4 -dc",
    b"PK\x03\x04": "unzip -p",
    b"\x1f\x8b": "gzip -dc",
}
"""How compressed files begin that are not read, or what is in a gzip file, and what decompresses them."""


def open_input(
    source: Source,
    decoder: Decoder,
    *,
    format: str | None = None,  # noqa: A002 - the option's name
    read: SegmentsRead = NOTHING_READ,
) -> Input:
    """Read a source as the given form, by default as the one that its content shows; *.pgcap is a segment.

    `read` are the segments of captures that were read before. Raises InputError if no form recognises the source,
    OptionError if there is no such form.
    """
    if format is not None and format not in INPUTS:
        raise OptionError(f"there is no input format {format}: choose one of {', '.join(INPUTS)}")
    window = Window(source)
    if format is None and source.name.endswith((CLOSED, OPEN)):
        format = "pgcap"  # noqa: A001
    form = recognise(window, decoder, forms) if format is None else form_of(format)
    if form is None:
        raise window.source.damage or InputError(_unrecognised(window.buf), source=source.name)
    input_ = form(window, decoder)
    input_.read = read
    return input_


def recognise(window: Window, decoder: Decoder, forms: Callable[[bytes], Iterable[type[Input]]]) -> type[Input] | None:
    """The form of a source, as soon as enough of it was read; None if it has none of these.

    `forms` gives those that may begin with some bytes, all for none.
    """
    window.more()
    while True:
        head, final = window.buf, window.final
        unsure: type[Input] | None = None
        for form in forms(head):
            verdict = form.sniff(head, decoder, final=final)
            if verdict and (unsure is None or final or len(head) > _EVERY_BYTE):
                return form
            if verdict is None and unsure is None:
                unsure = form
        if final and not head and window.source.damage is None:
            return form_of("recvlogical")
        if final or len(head) > LARGE:
            break
        window.more(1 if len(head) < _EVERY_BYTE else len(head) // 8)
    if unsure is not None and not final:
        return unsure
    for form in forms(b""):
        if form.search(head, decoder, final=final):
            return form
    return None


def _unrecognised(head: bytes) -> str:
    from pgtail.inputs.text.refused import refusal

    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "this is UTF-16 text (PowerShell's > writes it): convert it to UTF-8 first"
    for beginning, command in _COMPRESSED.items():
        if head.startswith(beginning):
            return f"this is compressed, and not with gzip alone: decompress it first ({command})"
    return refusal(head) or (
        f"none of the known forms ({', '.join(INPUTS)}), or damaged from the start; --input-format FORM forces one"
    )
