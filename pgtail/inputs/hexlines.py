"""Floor 4, plain hex: a message in each line, with or without \\x or 0x before it; # begins a comment."""

from __future__ import annotations

from pgtail.inputs.bytea import Hex
from pgtail.inputs.layout import Form
from pgtail.inputs.text import TextInput


class HexLines(TextInput):
    """Lines of hex and nothing beside it."""

    name = "hex"
    comments = True
    form = Form({"hex": Hex()}, separators=b"")
