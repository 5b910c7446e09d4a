"""Write into pgtail/_rows.pyx the hash of its own source, which tells a stale build from a fresh one.

Run as `python -m tests.tools.stamp_rows` (`make rows`) after every change of that file.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

SOURCE = Path(__file__).parent.parent.parent / "pgtail" / "_rows.pyx"
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
    text = SOURCE.read_text(encoding="utf-8")
    SOURCE.write_text(_STAMP.sub(f'SOURCE = "{stamp_of(text)}"', text), encoding="utf-8")
