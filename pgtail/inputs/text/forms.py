"""The text forms: copytext (manual: COPY, Text Format), csv, hex and psql."""

from __future__ import annotations

import re
from typing import Final

from pgtail.inputs.text.base import TextInput
from pgtail.inputs.text.bytea import Base64, Escape, Hex, SpacedHex
from pgtail.inputs.text.layout import RowLayout, TextForm
from pgtail.inputs.text.psql_decoration import PsqlDecoration
from pgtail.pgoutput.decoder import Decoder


class CopyText(TextInput):
    """Rows as COPY writes them, with any delimiter; every backslash is doubled."""

    name = "copytext"
    form = TextForm({"hex": Hex(), "escape": Escape(copied=True), "base64": Base64(copied=True)}, separators=None)

    @classmethod
    def _fits(cls, layout: RowLayout, lines: list[bytes]) -> bool:
        lines = [line for line in lines if b"\\" in line] or lines
        doubled = sum(rb"\\" in line for line in lines)
        return 2 * doubled > len(lines) or (layout.codec.wrapped and any(rb"\n" in line for line in lines))


_HEADER: Final = re.compile(rb'(?:"?[a-z_]+"?[,;])+"?(?:data|encode)"?(?:[,;]"?[a-z_]+"?)*\s*')
"""A header without rows."""


_BARS: Final = re.compile(rb'[^",;\\|\t]*+[|\t]')
_QUOTED: Final = re.compile(rb'(?:[\w/]*+[|\t]){1,2}"')
"""A cell in quotes after one or two that are separated by bars or tabs."""


class Csv(TextInput):
    """Columns separated by commas, semicolons, bars or tabs, or cells in quotes."""

    name = "csv"
    form = TextForm(
        {"hex": Hex(), "escape": Escape(quoted=True), "base64": Base64()}, separators=b",;|\t", quoted=True, fields=True
    )

    @classmethod
    def sniff(cls, head: bytes, decoder: Decoder, *, final: bool) -> bool | None:
        found = super().sniff(head, decoder, final=final)
        return _HEADER.fullmatch(head) is not None if found is False and final else found

    @classmethod
    def _fits(cls, layout: RowLayout, lines: list[bytes]) -> bool:
        if any(line.lstrip().startswith(b'"') for line in lines):
            return True
        # psql's and COPY's own texts have bars and tabs too, but no cell in quotes.
        return not layout.lone and (not any(map(_BARS.match, lines)) or any(map(_QUOTED.match, lines)))


_LONGEST_GROUP: Final = 16
"""Digits that hex with blanks has without one."""


class HexLines(TextInput):
    """Lines of hex only, with or without blanks between the bytes."""

    name = "hex"
    comments = True
    form = TextForm({"hex": SpacedHex()}, separators=b"")

    @classmethod
    def _fits(cls, layout: RowLayout, lines: list[bytes]) -> bool:
        # Where blanks separate columns, such as psql's xid and data, one of them is longer.
        return all(len(group) <= _LONGEST_GROUP for line in lines if b" " in line.strip() for group in line.split())


_NO_ROWS: Final = re.compile(rb"\s*\(0 [^()]{1,40}\)\s*")
"""The expanded layout of a result without rows."""


class Psql(TextInput):
    """Rows of pg_logical_slot_peek_binary_changes and similar functions, as psql shows them."""

    name = "psql"
    form = TextForm({"hex": Hex(), "escape": Escape(), "base64": Base64()}, separators=None, bordered=True, fields=True)

    @classmethod
    def sniff(cls, head: bytes, decoder: Decoder, *, final: bool) -> bool | None:
        found = super().sniff(head, decoder, final=final)
        if found is False and final:
            return cls._no_rows(head)
        return found

    @classmethod
    def _no_rows(cls, head: bytes) -> bool:
        """Whether this is a result without rows."""
        if head in (b"\n", b"\r\n") or _NO_ROWS.fullmatch(head):
            return True
        lines = cls._sample(head, final=True)
        noise = PsqlDecoration()
        noise.row()
        noise.fresh = True
        return any(b"data" in line or b"encode" in line for line in lines) and all(map(noise.matches, lines))
