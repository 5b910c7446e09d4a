"""The options of wal2json: which ones pgtail supports, and why it does not support the others.

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
"""The supported options and their defaults."""

_OTHERS: Final = {
    **dict.fromkeys(
        ("include-not-null", "include-default", "include-column-positions", "include-pk", "include-origin"),
        "pgoutput does not send this",
    ),
    "include-typmod": "types are always named with their modifier",
    "include-domain-data-type": "pgoutput always names the base type of a domain",
    "pretty-print": "each line is an object, which jq . formats",
    "write-in-chunks": "lines are written as they come",
    "include-unchanged-toast": "pgoutput does not send it; --fill-unchanged takes it from the old row if that was sent",
    "filter-tables": "use --exclude",
    "add-tables": "use --table",
    "actions": "use --op",
    "filter-origins": "use pgtail stream --origin none",
    "filter-msg-prefixes": "use --op to leave messages out",
    "add-msg-prefixes": "use --op to leave messages out",
    "format-version": "-o wal2json is version 2, -o wal2json-v1 is version 1",
}
_BOOLEANS: Final = {
    **dict.fromkeys(("", "1", "on", "true", "yes"), True),
    **dict.fromkeys(("0", "off", "false", "no"), False),
}


def enabled(given: Iterable[str]) -> frozenset[str]:
    """The options that are on, given NAME or NAME=VALUE for some of them. Raises OptionError."""
    values = dict(DEFAULTS)
    for text in given:
        name, _, value = text.partition("=")
        if name not in DEFAULTS:
            why = _OTHERS.get(name, f"unknown; the options are {', '.join(DEFAULTS)}")
            raise OptionError(f"--wal2json {name}: {why}")
        if value.lower() not in _BOOLEANS:
            raise OptionError(f"--wal2json {text}: expected {name}=on or {name}=off")
        values[name] = _BOOLEANS[value.lower()]
    return frozenset([name for name, on in values.items() if on])
