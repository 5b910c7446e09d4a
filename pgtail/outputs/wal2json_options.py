"""Floor 4, wal2json's own options by their names: which are taken, and why others are not; knows no change.

Source: wal2json's README.md and wal2json.c (pg_decode_startup).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pgtail.errors import OptionError

DEFAULTS: Final = {
    "include-transaction": True,
    "include-xids": False,
    "include-timestamp": False,
    "include-lsn": False,
    "include-schemas": True,
    "include-types": True,
    "include-type-oids": False,
    "numeric-data-types-as-string": False,
}
"""Those that are taken, and what they are when nobody says anything."""

_OTHERS: Final = {
    **dict.fromkeys(
        ("include-not-null", "include-default", "include-column-positions", "include-pk", "include-origin"),
        "pgoutput does not send that",
    ),
    "include-typmod": "types are always named with their modifier",
    "include-domain-data-type": "pgoutput always names the base type of a domain",
    "pretty-print": "a line is an object; jq . prints it pretty",
    "write-in-chunks": "lines are written as they come",
    "include-unchanged-toast": "pgoutput does not send it; --fill-unchanged takes it from the old row where that came",
    "filter-tables": "--exclude does it",
    "add-tables": "--table does it",
    "actions": "--op does it",
    "filter-origins": "--origin none of pgtail stream does it",
    "filter-msg-prefixes": "--op leaves messages out",
    "add-msg-prefixes": "--op leaves messages out",
    "format-version": "-o wal2json is version 2, -o wal2json-v1 is version 1",
}
_BOOLEANS: Final = {
    **dict.fromkeys(("", "1", "on", "true", "yes"), True),
    **dict.fromkeys(("0", "off", "false", "no"), False),
}


def enabled(given: Iterable[str]) -> frozenset[str]:
    """The options that are on, after NAME or NAME=VALUE for some of them. Raises OptionError."""
    found = dict(DEFAULTS)
    for text in given:
        name, _, value = text.partition("=")
        if name not in DEFAULTS:
            why = _OTHERS.get(name, f"it is none of {', '.join(DEFAULTS)}")
            raise OptionError(f"--wal2json {name}: {why}")
        if value.lower() not in _BOOLEANS:
            raise OptionError(f"--wal2json {text}: expected {name}=on or {name}=off")
        found[name] = _BOOLEANS[value.lower()]
    return frozenset([name for name, on in found.items() if on])


ON: Final = enabled(())
"""What is on when nobody says anything."""
