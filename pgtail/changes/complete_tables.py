"""The tables of which a stream has every insert, update and delete."""

from __future__ import annotations

import json
from typing import Final

from msgspec import Struct

_ALL: Final = "all"
_MOST_TEXT: Final = 1 << 15
"""Characters of the text of a list; a longer one is not worth its place in each segment."""


class CompleteTables(Struct, frozen=True):
    """All tables that the publications have, or the named ones, by schema and name.

    Some changes of others are missing: a publication does not publish all operations, has different row filters for
    them, or the slot has `origin none`. TRUNCATE does not count: an insert of the same key shows it.
    """

    every: bool = False
    names: frozenset[tuple[str, str]] = frozenset()

    def has(self, schema: str, table: str) -> bool:
        return self.every or (schema, table) in self.names

    def text(self) -> str:
        """For the head of a capture's segment; empty if it would be too long."""
        text = _ALL if self.every else json.dumps(sorted(self.names), separators=(",", ":"))
        return text if len(text) <= _MOST_TEXT else ""

    @classmethod
    def parse(cls, text: str) -> CompleteTables | None:
        """Parse the result of text(); None if it is empty or invalid."""
        if text == _ALL:
            return EVERY
        try:
            return cls(names=frozenset([(str(schema), str(table)) for schema, table in json.loads(text)]))
        except (ValueError, TypeError):
            return None


EVERY: Final = CompleteTables(every=True)
NONE: Final = CompleteTables()
