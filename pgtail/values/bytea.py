"""Bytea under bytea_output hex (src/backend/utils/adt/bytea.c)."""

from __future__ import annotations

from typing import Final

from pgtail.values.codec import Kind, Loader, hex_text, plain
from pgtail.values.render import strings

BYTEA: Final = Loader(Kind.TEXT, strings, plain(hex_text))
