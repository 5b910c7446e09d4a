"""Recognises texts that are not read: psql's other formats, and the text of other output plugins."""

from __future__ import annotations

import re
from typing import Final

_FORMATS: Final = re.compile(
    rb'^(?:(?P<html><table border=)|(?P<asciidoc>\[(?:options="header",)?cols=")'
    rb"|(?P<latex>\\begin\{(?:tabular|longtable)\})|(?P<troff>\.TS\r?$))",
    re.MULTILINE,
)
"""How psql's formats begin that are not read."""

_NAMES: Final = {"latex": "latex or latex-longtable", "troff": "troff-ms"}
_WAL2JSON: Final = re.compile(rb'\{"action": ?"[BCIUDTM]"|"change": ?\[')
_CELL: Final = rb"^(?:[^\n]*[|,\t])? *"
_TEST_DECODING: Final = re.compile(
    rb"table [^\n]+?: (?:INSERT|UPDATE|DELETE|TRUNCATE):"
    rb"|" + _CELL + rb"(?:BEGIN|COMMIT) \d+(?: \(at [^\n]*\))?[ |]*\r?$"
    rb"|\A(?:" + _CELL + rb"(?:BEGIN|COMMIT)(?: \(at [^\n]*\))? *\r?\n)+\Z",
    re.MULTILINE,
)
"""Without xids BEGIN alone in a line may be of SQL, if not all lines are such."""

_OWN_JSON: Final = re.compile(
    rb'\{"op":"(?:insert|update|delete|truncate|message|snapshot|commit_prepared|rollback_prepared)",'
    rb'|\{"xid":\d+,"(?:commit|prepare)_lsn":"'
)
_OWN_JSON_REFUSED: Final = (
    "this is JSON that pgtail wrote, which it does not read: decode again what it was made from. pgtail record keeps"
    " what a slot sends, for pgtail decode and stats"
)
_NO_TEXT: Final = re.compile(rb"[\0-\x08]")
_NEAR: Final = 64 * 1024


def other_format(head: bytes) -> str | None:
    """The name of psql's format if it is one that is not read."""
    found = None if _NO_TEXT.search(head, 0, _NEAR) else _FORMATS.search(head, 0, _NEAR)
    return found and _NAMES.get(found.lastgroup or "", found.lastgroup)


def refusal(head: bytes) -> str | None:
    """What a text is that is not read, and what to do instead; None if it is nothing known."""
    name = other_format(head)
    if name is not None:
        return f"this is psql's format {name}, which is not read: choose another one, such as psql -At"
    if _NO_TEXT.search(head, 0, _NEAR):
        return None
    near = head[:_NEAR]
    plugin = "wal2json" if _WAL2JSON.search(near) else "test_decoding" if _TEST_DECODING.search(near) else None
    if plugin is None:
        return _OWN_JSON_REFUSED if _OWN_JSON.match(near) else None
    also = " (-o wal2json writes this format)" if plugin == "wal2json" else ""
    return (
        f"this is text of the output plugin {plugin}, and pgtail reads the messages of pgoutput:"
        f" read a slot with that plugin, as pgtail stream makes it{also}"
    )
