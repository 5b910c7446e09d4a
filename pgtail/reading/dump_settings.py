"""Whether the session that made a dump had another DateStyle or bytea_output than pgtail's own, if values show it."""

from __future__ import annotations

import re
from typing import Final

from pgtail.pgoutput.cells import Binary
from pgtail.pgoutput.decoder import AnyFrame
from pgtail.pgoutput.rows import Delete, Insert, Update
from pgtail.pgoutput.schema import Relation
from pgtail.values.oids import OIDS

_TYPES: Final = {OIDS[name] for name in ("date", "timestamp", "timestamptz", "bytea")}
_OWN: Final = re.compile(rb"[0-9]{4,}-|-?infinity|\\x")
"""How their texts begin under DateStyle ISO and bytea_output hex."""
NOTE: Final = (
    "the session that made this dump had another DateStyle than ISO, or bytea_output escape, and values are shown as"
    " the dump has them; with PGOPTIONS='-c DateStyle=ISO -c bytea_output=hex' psql writes what pgtail itself shows"
)


class DumpSettings:
    """Looks at the first row after each description of a table, if it is of a table described then.

    `waits`: the next row must be decoded, not scanned. Once `looks` is false, nothing more is to be reported.
    """

    def __init__(self) -> None:
        self.looks, self.waits = True, False
        self._columns: dict[int, list[int]] = {}
        """The columns that show settings, of the tables described since the last row, by OID."""

    def show_others(self, message: AnyFrame) -> bool:
        """Examine a message; returns whether its values show other settings: then NOTE is to be shown, once."""
        if isinstance(message, Relation):
            columns = enumerate(message.columns)
            self._columns[message.oid] = [index for index, column in columns if column.type_oid in _TYPES]
            self.waits = self.waits or bool(self._columns[message.oid])
        elif isinstance(message, Insert | Update | Delete):
            row = message.old if isinstance(message, Delete) else message.new
            texts = [row[index] for index in self._columns.get(message.relation, ()) if index < len(row)]
            self.waits, self._columns = False, {}
            self.looks = all(not isinstance(one, bytes) or isinstance(one, Binary) or _OWN.match(one) for one in texts)
        return not self.looks
