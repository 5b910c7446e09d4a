"""Floor 4, comma-separated values, as psql --csv and COPY CSV write them."""

from __future__ import annotations

from pgtail.inputs.bytea import Base64, Escape, Hex
from pgtail.inputs.layout import Form, Layout
from pgtail.inputs.text import TextInput


class Csv(TextInput):
    """Rows with commas or semicolons between columns, or with cells in quotes."""

    name = "csv"
    form = Form({"hex": Hex(), "escape": Escape(quoted=True), "base64": Base64()}, separators=b",;", quoted=True)

    @classmethod
    def _fits(cls, layout: Layout, lines: list[bytes]) -> bool:
        return not layout.lone or any(line.lstrip().startswith(b'"') for line in lines)
