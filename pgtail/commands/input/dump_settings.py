"""Settings of the session that made a dump, where its values show them: DateStyle and bytea_output."""

from __future__ import annotations

import re
from typing import Final

from pgtail.pgoutput.cells import Binary
from pgtail.pgoutput.decoder import AnyFrame
from pgtail.pgoutput.rows import Delete, Insert, Update
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
    """Looks at the first row after each description of a table, if it is of a table described then, and tells once.

    `waits`: the next row must be decoded, not scanned. Once `looks` is false, nothing more is to be told.
    """

    def __init__(self) -> None:
        self.looks, self.waits = True, False
        self._columns: dict[int, list[tuple[int, int]]] = {}
        """The columns that show settings, index and type, of the tables described since the last row, by OID."""

    def take(self, message: AnyFrame) -> str | None:
        """Take a message; returns a note if its values show settings."""
        if isinstance(message, Relation):
            columns = enumerate(column.type_oid for column in message.columns)
            self._columns[message.oid] = [(index, oid) for index, oid in columns if oid in _MOMENTS or oid == _BYTEA]
            self.waits = self.waits or bool(self._columns[message.oid])
        elif isinstance(message, Insert | Update | Delete):
            row = message.old if isinstance(message, Delete) else message.new
            cells, columns_of = dict(enumerate(row)), self._columns
            self.waits, self._columns = False, {}
            types = columns_of.get(message.relation, ())
            shown = {setting: None for index, oid in types if (setting := _setting(cells.get(index), oid))}
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
