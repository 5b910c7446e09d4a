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
from pgtail.inputs.recognition import recognise
from pgtail.inputs.source.file import Source
from pgtail.inputs.source.window import Window
from pgtail.inputs.text.forms import CopyText, Csv, HexLines, Psql
from pgtail.inputs.text.hexdump import Hexdump
from pgtail.inputs.text.refused import refusal
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
    "hexdump": Hexdump,
    "hex": HexLines,
    "copytext": CopyText,
    "csv": Csv,
    "psql": Psql,
}
"""Every form by its --input-format name. A source is read as the first form that recognises it."""


def open_input(source: Source, decoder: Decoder, *, format: str | None = None) -> Input:  # noqa: A002 - the option's name
    """Read a source as the given form, by default as the one that its content shows; *.pgcap is a segment.

    Raises InputError if no form recognises it, OptionError if there is no such form.
    """
    window = Window(source)
    if format is None and source.name.endswith((CLOSED, OPEN)):
        return Segments(window, decoder)
    if format is None:
        found = recognise(window, decoder, INPUTS.values())
        if found is None:
            raise window.source.damage or InputError(_unrecognised(window.buf), source=source.name)
        return found(window, decoder)
    if format not in INPUTS:
        raise OptionError(f"there is no input format {format}: choose one of {', '.join(INPUTS)}")
    return INPUTS[format](window, decoder)


def _unrecognised(head: bytes) -> str:
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "this is UTF-16 text (PowerShell's > writes it): convert it to UTF-8 first"
    if head.startswith(b"PGDMP"):
        return "this is a pg_dump archive, not a dump of logical replication messages"
    return refusal(head) or (
        f"none of the known forms ({', '.join(INPUTS)}), or damaged from the start; --input-format FORM forces one"
    )
