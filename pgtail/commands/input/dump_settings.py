"""Settings of the session that made a dump, where its values show them: DateStyle and bytea_output."""

from __future__ import annotations

import re
from typing import Final

from pgtail.pgoutput.cells import Binary
from pgtail.pgoutput.decoder import AnyFrame
from pgtail.pgoutput.rows import Insert, Update
from pgtail.pgoutput.schema import Relation
from pgtail.values.oids import OIDS

_MOMENTS: Final = {OIDS[name] for name in ("date", "timestamp", "timestamptz")}
_BYTEA: Final = OIDS["bytea"]
_STYLES: Final = (
    (re.compile(rb"\d\d\.\d\d\.\d{4}"), "DateStyle German"),
    (re.compile(rb"\d\d/\d\d/\d{4}"), "DateStyle SQL"),
    (re.compile(rb"\d\d-\d\d-\d{4}|[A-Z][a-z]{2} "), "DateStyle Postgres"),
)


class DumpSettings:
    """Looks at the first new row after each description of a table, and tells once.

    `waits`: the next row must be decoded, not scanned. Once `looks` is false, nothing more is to be told.
    """

    def __init__(self) -> None:
        self.looks, self.waits = True, False
        self._columns: list[tuple[int, int]] = []
        """The columns that show settings: index and type."""

    def take(self, message: AnyFrame) -> str | None:
        """Take a message; returns a note if its values show settings."""
        if isinstance(message, Relation):
            columns = enumerate(column.type_oid for column in message.columns)
            self._columns = [(index, oid) for index, oid in columns if oid in _MOMENTS or oid == _BYTEA]
            self.waits = bool(self._columns)
        elif self.waits and isinstance(message, Insert | Update):
            self.waits = False
            cells = dict(enumerate(message.new))
            shown = {setting: None for index, oid in self._columns if (setting := _setting(cells.get(index), oid))}
            if shown:
                self.looks = False
                return (
                    f"the session that made this dump had {' and '.join(shown)}, and values are shown as the dump has"
                    " them; one made with PGOPTIONS='-c DateStyle=ISO -c bytea_output=hex' has those of pgtail's own"
                )
        return None


def _setting(cell: object, oid: int) -> str | None:
    """The setting under which a text was written, if it is not that of pgtail's own sessions."""
    if not isinstance(cell, bytes) or isinstance(cell, Binary):
        return None
    if oid == _BYTEA:
        return None if cell.startswith(b"\\x") else "bytea_output escape"
    return next((setting for style, setting in _STYLES if style.match(cell)), None)
