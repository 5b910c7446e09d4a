"""Recognises what psql prints around rows: headers, rules, footers, command tags. Any other line must be a row."""

from __future__ import annotations

import re
from typing import Final

_RULE: Final = b"-+| \xe2" + bytes(range(0x80, 0xC0))
"""The bytes of rules, in ASCII and in Unicode."""

_RECORD: Final = re.compile(rb"\[ [^\[\]]{1,40} \d+ \]|\* .{1,40} \d+\Z")
_FOOTER: Final = re.compile(rb"\(\d+ [^()]{1,40}\)")
_STATUS: Final = re.compile(
    rb"(?:RE)?SET|BEGIN|COMMIT|ROLLBACK|DO|CALL|(?:COPY|SELECT|INSERT 0|UPDATE|DELETE|FETCH|MOVE) \d+"
    rb"|(?:CREATE|ALTER|DROP|START|TRUNCATE) [A-Z ]+|Time: .*"
    rb"|[A-Z][a-z]+ [a-z ]*(?:is|are) .*\."
)
_HEADER: Final = re.compile(rb'[A-Za-z_?"][A-Za-z_?". |,;\t\xe2\x94\x82]{0,98}')
_BLANKS: Final = re.compile(rb" {2,}")
_BORDERS: Final = b" |\xe2\x94\x82"
"""What surrounds a header, also in Unicode."""
_END_OF_COPY: Final = b"\\."

_LIKE_DATA: Final = re.compile(
    rb"[0-9A-Fa-f]{16}|\\|[A-Za-z0-9+/]{20}|(?:[0-9A-Fa-f]{2}){1,8}(?: (?:[0-9A-Fa-f]{2}){1,8}){3}"
)
"""What every line with a message contains, even a damaged one."""


class PsqlDecoration:
    """Recognises decoration among lines that are not rows with a message."""

    def __init__(self, *, comments: bool = False) -> None:
        self.fresh = True
        """Whether a header may follow."""
        self._started = False
        self._header = b""
        self._comments = comments

    def row(self) -> None:
        """Note that a row with a message came."""
        self.fresh = False
        self._started = True

    def matches(self, line: bytes) -> bool:
        """Whether a line is decoration."""
        line = line.strip()
        if not line or _FOOTER.fullmatch(line) or line == _END_OF_COPY:
            self.fresh = True
            return True
        if _is_rule(line) or _STATUS.fullmatch(line):
            return True
        if self._comments and line.startswith(b"#"):
            return True
        header = _BLANKS.sub(b" ", line.strip(_BORDERS))
        if header == self._header:  # that of the next output in the file; in CSV nothing announces it
            return True
        if (self.fresh and _HEADER.fullmatch(header)) or (not self._started and not _LIKE_DATA.search(line)):
            self._header = header
            return True
        return False


def _is_rule(line: bytes) -> bool:
    """Whether a line is a rule, or the beginning of a record of the expanded layout."""
    record = _RECORD.search(line, 0, 200)
    if record is not None:
        line = line[: record.start()] + line[record.end() :]
    return not line.translate(None, _RULE)
