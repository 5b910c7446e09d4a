"""Floor 4, what psql prints: aligned, unaligned with any separator, expanded; with headers and footers or not."""

from __future__ import annotations

from pgtail.inputs.bytea import Base64, Escape, Hex
from pgtail.inputs.layout import Form
from pgtail.inputs.noise import Noise
from pgtail.inputs.text import TextInput
from pgtail.wire.decoder import Decoder


class Psql(TextInput):
    """The rows of pg_logical_slot_peek_binary_changes and its like."""

    name = "psql"
    form = Form({"hex": Hex(), "escape": Escape(), "base64": Base64()}, separators=None, bordered=True, fields=True)

    @classmethod
    def sniff(cls, head: bytes, decoder: Decoder, *, final: bool) -> bool | None:
        found = super().sniff(head, decoder, final=final)
        if found is False and final:
            return cls._no_rows(head)
        return found

    @classmethod
    def _no_rows(cls, head: bytes) -> bool:
        """Whether this is a result without rows."""
        lines = cls._sample(head, final=True)
        noise = Noise()
        noise.row()
        noise.fresh = True
        return any(b"data" in line or b"encode" in line for line in lines) and all(map(noise.covers, lines))
