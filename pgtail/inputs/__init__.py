"""Read files and pipes as messages with their offsets. A form is one module, and one entry in INPUTS."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pgtail.inputs.base import Input


class Form(NamedTuple):
    """A form that is imported when it is used: its module and class, and the bytes that it may begin with, if few."""

    module: str
    name: str
    first: bytes = b""


INPUTS: Final = {
    "pgcopy": Form("pgtail.inputs.binary.pgcopy", "PgCopy", b"P"),
    "pgcap": Form("pgtail.inputs.binary.pgcap", "Segments", b"S"),
    "pcap": Form("pgtail.inputs.pcap.pcap", "Pcap", b"\xa1\xd4\x4d\x0a"),
    "copydata": Form("pgtail.inputs.binary.copydata", "CopyDataFrames"),
    "lengths": Form("pgtail.inputs.binary.lengths", "Lengths"),
    "recvlogical": Form("pgtail.inputs.binary.unframed", "Recvlogical"),
    "raw": Form("pgtail.inputs.binary.unframed", "Raw"),
    "hexdump": Form("pgtail.inputs.text.hexdump", "Hexdump"),
    "hex": Form("pgtail.inputs.text.forms", "HexLines"),
    "copytext": Form("pgtail.inputs.text.forms", "CopyText"),
    "csv": Form("pgtail.inputs.text.forms", "Csv"),
    "psql": Form("pgtail.inputs.text.forms", "Psql"),
}
"""Every form by its --input-format name. A source is read as the first one that recognises it."""


def form_of(name: str) -> type[Input]:
    """The form of that name. Raises KeyError."""
    form = INPUTS[name]
    found: type[Input] = getattr(import_module(form.module), form.name)
    return found


def forms(head: bytes = b"") -> Iterator[type[Input]]:
    """The forms in the order of INPUTS that a source may have which begins with `head`; all, if it is empty."""
    return (form_of(name) for name, form in INPUTS.items() if not form.first or head[:1] in form.first)
