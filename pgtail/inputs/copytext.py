"""Floor 4, COPY in its text format: columns between tabs, every backslash doubled (manual: COPY, text format)."""

from __future__ import annotations

from pgtail.inputs.bytea import Base64, Escape, Hex
from pgtail.inputs.layout import Form, Layout
from pgtail.inputs.text import TextInput


class CopyText(TextInput):
    """Rows as COPY writes them, with any delimiter."""

    name = "copytext"
    form = Form({"hex": Hex(), "escape": Escape(copied=True), "base64": Base64(copied=True)}, separators=None)

    @classmethod
    def _fits(cls, layout: Layout, lines: list[bytes]) -> bool:
        doubled = sum(rb"\\" in line for line in lines)
        return 2 * doubled > len(lines) or (layout.codec.wrapped and any(rb"\n" in line for line in lines))
