"""Write into the compiled parts' sources the hash of themselves, which tells a stale build from a fresh one.

Run as `python -m tests.tools.stamp_compiled` (`make compiled`) after every change of such a file.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

_PACKAGE = Path(__file__).parent.parent.parent / "pgtail"
SOURCES = {
    "pgtail._rows": _PACKAGE / "_rows.pyx",
    "pgtail.server._copydata": _PACKAGE / "server" / "_copydata.pyx",
}
"""By the modules' names."""
_STAMP = re.compile(r'^SOURCE = "([0-9a-f]{64})"$', re.MULTILINE)


def stamp_in(text: str) -> str:
    """The hash that the source bears."""
    match = _STAMP.search(text)
    assert match
    return match[1]


def stamp_of(text: str) -> str:
    """The hash that the source should bear: SHA-256 of itself with zeros in the hash's place."""
    return hashlib.sha256(_STAMP.sub(f'SOURCE = "{"0" * 64}"', text).encode()).hexdigest()


if __name__ == "__main__":
    for source in SOURCES.values():
        text = source.read_text(encoding="utf-8")
        source.write_text(_STAMP.sub(f'SOURCE = "{stamp_of(text)}"', text), encoding="utf-8")
