"""The registry of input forms, which read files and pipes and yield decoded messages with their offsets.

A new form needs one module, one line in INPUTS, and one example under tests/inputs.
"""

from __future__ import annotations

from typing import Final

from pgtail.capture.format import CLOSED, OPEN
from pgtail.errors import InputError, OptionError
from pgtail.inputs.base import Chunk, Input
from pgtail.inputs.binary.copydata import CopyDataFrames
from pgtail.inputs.binary.lengths import Lengths
from pgtail.inputs.binary.pgcap import Segments
from pgtail.inputs.binary.pgcopy import PgCopy
from pgtail.inputs.binary.unframed import Raw, Recvlogical
from pgtail.inputs.pcap.pcap import Pcap
from pgtail.inputs.source.file import Source
from pgtail.inputs.source.window import LARGE, Window
from pgtail.inputs.text.forms import CopyText, Csv, HexLines, Psql
from pgtail.pgoutput.decoder import Decoder

__all__ = ["INPUTS", "Chunk", "Input", "Source", "open_input"]

INPUTS: Final[dict[str, type[Input]]] = {
    "pgcopy": PgCopy,
    "pgcap": Segments,
    "pcap": Pcap,
    "copydata": CopyDataFrames,
    "lengths": Lengths,
    "recvlogical": Recvlogical,
    "raw": Raw,
    "hex": HexLines,
    "copytext": CopyText,
    "csv": Csv,
    "psql": Psql,
}
"""Every form by its --input-format name. A source is read as the first form that recognises it."""

_EVERY_BYTE: Final = 64 * 1024
"""Bytes up to which every new piece of a source is examined; beyond, larger and larger pieces."""


def open_input(source: Source, decoder: Decoder, *, format: str | None = None) -> Input:  # noqa: A002 - the option's name
    """Read a source as the given form, by default as the one that its content shows; *.pgcap is a segment.

    Raises InputError if no form recognises it, OptionError if there is no such form.
    """
    window = Window(source)
    if format is None and source.name.endswith((CLOSED, OPEN)):
        return Segments(window, decoder)
    if format is None:
        return _recognise(window, decoder)(window, decoder)
    if format not in INPUTS:
        raise OptionError(f"there is no input format {format}: choose one of {', '.join(INPUTS)}")
    return INPUTS[format](window, decoder)


def _recognise(window: Window, decoder: Decoder) -> type[Input]:
    """The form of a source, as soon as enough of it was read."""
    window.more()
    while True:
        head, final = window.buf, window.final
        unsure: type[Input] | None = None
        for form in INPUTS.values():
            verdict = form.sniff(head, decoder, final=final)
            if verdict and (unsure is None or final or len(head) > _EVERY_BYTE):
                return form
            if verdict is None and unsure is None:
                unsure = form
        if final and not head and window.source.damage is None:
            return Recvlogical
        if final or len(head) > LARGE:
            break
        window.more(1 if len(head) < _EVERY_BYTE else len(head) // 8)
    if unsure is not None and not final:
        return unsure
    for form in INPUTS.values():
        if form.search(head, decoder, final=final):
            return form
    if window.source.damage is not None:
        raise window.source.damage
    raise InputError(_unrecognised(head), source=window.source.name)


def _unrecognised(head: bytes) -> str:
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "this is UTF-16 text (PowerShell's > writes it): convert it to UTF-8 first"
    if head.startswith(b"PGDMP"):
        return "this is a pg_dump archive, not a dump of logical replication messages"
    forms = ", ".join(INPUTS)
    return f"none of the known forms ({forms}), or damaged from the start; --input-format FORM forces one"
