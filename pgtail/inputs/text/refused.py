"""Recognises texts that are not read: psql's other formats, and the text of other output plugins."""

from __future__ import annotations

import binascii
import re
from typing import Final

from pgtail.inputs.text.bytea import Escape, Hex
from pgtail.inputs.text.layout import TextForm, find_layout
from pgtail.pgoutput.decoder import Decoder

_FORMATS: Final = re.compile(
    rb'^(?:(?P<html><table border=)|(?P<asciidoc>\[(?:options="header",)?cols=")'
    rb"|(?P<latex>\\begin\{(?:tabular|longtable)\})|(?P<troff>\.TS\r?$))",
    re.MULTILINE,
)
"""How psql's formats begin that are not read."""

BROKEN_ROWS: Final = (
    "rows that psql's format wrapped or a terminal broke into lines are not read: have each in one line (psql -At, or"
    r" \pset format unaligned)"
)
ONE_LINE: Final = "; if psql's format wrapped or a terminal broke the row, have it in one line (psql -At)"
"""The end of the error of a row that is cut."""

_BROKEN: Final = TextForm({"hex": Hex(), "escape": Escape()}, separators=None, bordered=True, fields=True)
_SAMPLE: Final = 40

_NAMES: Final = {"latex": "latex or latex-longtable", "troff": "troff-ms"}
_WAL2JSON: Final = re.compile(rb'\{"action": ?"[BCIUDTM]"|"change": ?\[')
_CELL: Final = rb"^(?:[^\n]*[|,\t])? *"
_TEST_DECODING: Final = re.compile(
    rb"table [^\n]+?: (?:INSERT|UPDATE|DELETE|TRUNCATE):"
    rb"|" + _CELL + rb"(?:BEGIN|COMMIT) \d+(?: \(at [^\n]*\))?[ |]*\r?$"
    rb"|\A(?:" + _CELL + rb"(?:BEGIN|COMMIT)(?: \(at [^\n]*\))? *\r?\n)+\Z",
    re.MULTILINE,
)
"""Without xids BEGIN alone in a line may be of SQL, if not all lines are such."""

_OFFSETS: Final = re.compile(rb"0{6,16} +[^\n|]+\r?\n([0-9A-Fa-f]{6,16})(?:[ \r\n]|\Z)")
"""The first line of od or hexdump, and the offset of the second one; hexdump -C, which is read, has | in its lines."""
_OF_HEXDUMP: Final = b"0000010"
"""That offset in the default form of hexdump. od counts in octal digits there, or has six of them."""
_BASE64: Final = re.compile(rb"([A-Za-z0-9+/]{16})[A-Za-z0-9+/=\r\n]*")
_NO_TEXT: Final = re.compile(rb"[\0-\x08]")
_NEAR: Final = 64 * 1024


def other_format(head: bytes) -> str | None:
    """The name of psql's format if it is not supported."""
    found = None if _NO_TEXT.search(head, 0, _NEAR) else _FORMATS.search(head, 0, _NEAR)
    return found and _NAMES.get(found.lastgroup or "", found.lastgroup)


def refusal(head: bytes) -> str | None:
    """The name of an unsupported text format, and what to do instead; None if it is unknown."""
    name = other_format(head)
    if name is not None:
        return f"this is psql's format {name}, which is not read: choose another one, such as psql -At"
    if _NO_TEXT.search(head, 0, _NEAR):
        return None
    near = head[:_NEAR]
    dump = _OFFSETS.match(near)
    if dump is not None:
        name = "hexdump without -C" if dump[1] == _OF_HEXDUMP else "od with offsets"
        return f"this is a dump by {name}, which is not read: xxd, hexdump -C and od -v -An -tx1 make dumps that are"
    encoded = _BASE64.fullmatch(near)
    if encoded is not None and _NO_TEXT.search(binascii.a2b_base64(encoded[1])):
        return "this is base64 of a binary file: decode it first (base64 -d)"
    plugin = "wal2json" if _WAL2JSON.search(near) else "test_decoding" if _TEST_DECODING.search(near) else None
    if plugin is None:
        lines = near.splitlines()[:_SAMPLE]
        return BROKEN_ROWS if find_layout(lines, _BROKEN, Decoder(), cut=True) is not None else None
    also = " (-o wal2json writes this format)" if plugin == "wal2json" else ""
    return (
        f"this is text of the output plugin {plugin}, and pgtail reads the messages of pgoutput:"
        f" read a slot with that plugin, as pgtail stream makes it{also}"
    )
