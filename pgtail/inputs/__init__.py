"""Read files and pipes as messages with their offsets. A form is one module, and one entry in INPUTS."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pgtail.inputs.base import Input

INPUTS: Final = {
    "pgcopy": ("pgtail.inputs.binary.pgcopy", "PgCopy"),
    "pgcap": ("pgtail.inputs.binary.pgcap", "Segments"),
    "pcap": ("pgtail.inputs.pcap.pcap", "Pcap"),
    "copydata": ("pgtail.inputs.binary.copydata", "CopyDataFrames"),
    "lengths": ("pgtail.inputs.binary.lengths", "Lengths"),
    "recvlogical": ("pgtail.inputs.binary.unframed", "Recvlogical"),
    "raw": ("pgtail.inputs.binary.unframed", "Raw"),
    "hexdump": ("pgtail.inputs.text.hexdump", "Hexdump"),
    "hex": ("pgtail.inputs.text.forms", "HexLines"),
    "copytext": ("pgtail.inputs.text.forms", "CopyText"),
    "csv": ("pgtail.inputs.text.forms", "Csv"),
    "psql": ("pgtail.inputs.text.forms", "Psql"),
}
"""Every form by its --input-format name: module and class. A source is read as the first one that recognises it."""


def form_of(name: str) -> type[Input]:
    """The form of that name. Raises KeyError."""
    module, form = INPUTS[name]
    found: type[Input] = getattr(import_module(module), form)
    return found


def forms() -> list[type[Input]]:
    """Every form, in the order of INPUTS."""
    return [form_of(name) for name in INPUTS]
