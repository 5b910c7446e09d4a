"""The segment format: CopyData and ParameterStatus messages (manual: Message Formats), and names of segments."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from typing import Final, NamedTuple, Self

from pgtail.pgoutput.scalars import lsn_text, parse_lsn

COPY_DATA: Final = ord("d")
PARAMETER_STATUS: Final = ord("S")
HEAD: Final = struct.Struct(">BI")
"""The type byte and the length, which counts itself and not the type byte."""

FORMAT: Final = "pgtail.format"
NEWEST: Final = "3"
"""The format of new segments and capture.json. Readers accept the older formats, too, and refuse all others."""
WITH_SHA256: Final = "1", "2"
"""The formats of older segments (checksum.py)."""
BEGINNING: Final = b"S\0\0\0\x14pgtail.format\0"
"""The first bytes of a segment, before the number of its format, which has one digit."""
COMPLETE: Final = "pgtail.complete_tables"
"""The tables of which the publications leave out no insert, update or delete (changes/complete_tables.py)."""
SEGMENT: Final = "pgtail.segment"
PREDECESSOR: Final = "pgtail.predecessor"
GAP: Final = "pgtail.gap"
"""In the first segment after a gap: the capture lacks what was committed between these two LSNs."""
TRANSACTION: Final = "pgtail.transaction"
_INSIDE, _OUTSIDE = "inside ", "outside"
"""How its value begins in format 2, where every segment has it."""
SNAPSHOT: Final = "pgtail.snapshot"
"""In a segment of a snapshot: the consistent point, the table's OID, and the number of the part."""
START: Final = "pgtail.start"
CONTENTS: Final = "pgtail.contents"
"""At the end: what the segment contains, as JSON (see contents.py)."""
POSITION: Final = "pgtail.position"
END: Final = "pgtail.end"
TIMELINE: Final = "pgtail.timeline"
DUMPS: Final = "pgtail.from"
"""Replaces slot and server in a capture that was made from dumps."""

_LENGTH_SIZE: Final = 4


def copy_data(frame: bytes) -> bytes:
    """A walsender frame as a CopyData message."""
    return HEAD.pack(COPY_DATA, len(frame) + _LENGTH_SIZE) + frame


def parameter(name: str, value: str) -> bytes:
    """A ParameterStatus message. NULs in name and value are removed."""
    body = b"".join([part.replace("\0", "").encode("utf-8", "surrogateescape") + b"\0" for part in (name, value)])
    return HEAD.pack(PARAMETER_STATUS, len(body) + _LENGTH_SIZE) + body


def read_parameter(body: bytes) -> tuple[str, str]:
    """Name and value of a ParameterStatus message."""
    name, _, rest = body.partition(b"\0")
    value = rest.partition(b"\0")[0]
    return name.decode("utf-8", "surrogateescape"), value.decode("utf-8", "surrogateescape")


def read_parameters(data: bytes) -> dict[str, str]:
    """Name and value of each of these ParameterStatus messages; empty if there is anything else."""
    values, pos = {}, 0
    while pos < len(data):
        if len(data) - pos < HEAD.size or data[pos] != PARAMETER_STATUS:
            return {}
        stop = pos + 1 + HEAD.unpack_from(data, pos)[1]
        name, value = read_parameter(data[pos + HEAD.size : stop])
        if stop <= pos + HEAD.size or stop > len(data):
            return {}
        values[name], pos = value, stop
    return values


def transaction_text(changes: int, messages: int, ordinal: int) -> str:
    """TRANSACTION's value in a segment that begins after these changes, messages and this ordinal of a transaction."""
    return f"{changes} {messages} {ordinal}"


def read_transaction(text: str) -> tuple[int, int, int] | None:
    """Parse the value of TRANSACTION; None outside of transactions. Raises ValueError."""
    if text == _OUTSIDE:
        return None
    text = text.removeprefix(_INSIDE)
    if not text.replace(" ", "").isdecimal():
        raise ValueError(text)
    changes, messages, ordinal = map(int, text.split(" "))
    return changes, messages, ordinal


def gap_in(head: Mapping[str, str]) -> str:
    """The gap before a segment as text, "between LSN and LSN"; empty if there is none."""
    start, _, end = head.get(GAP, "").partition(" ")
    return f"between {start} and {end}" if end else ""


def is_gap(words: str) -> bool:
    """Whether a text is one of gap_in(), not a segment's name."""
    return " " in words


CLOSED: Final = ".pgcap"
"""Suffix of a closed segment, which never changes."""
OPEN: Final = ".pgcap.part"
"""Suffix of a segment that is being written, or whose last transaction is incomplete."""
DRAFT: Final = ".pgcap.draft"
"""Suffix of a closed copy while recovery makes it from an open segment."""
SNAPSHOT_CLOSED: Final = ".snapshot.pgcap"
"""Suffix of a closed segment of a snapshot: the text before `.pgcap` is no name of a segment of the stream."""
SNAPSHOT_OPEN: Final = ".snapshot.pgcap.part"
"""Suffix of a snapshot's segment that is being written."""

_NAME: Final = r"([0-9A-F]{16})-([0-9A-F]{10})"


class SegmentName(NamedTuple):
    """Where a segment begins: commit LSN of its first transaction, and the ordinal of that transaction's first change.

    For a message outside of transactions: its own LSN, and 0.
    """

    position: int
    ordinal: int

    def __str__(self) -> str:
        return f"{self.position:016X}-{self.ordinal:010X}"

    def after(self, before: SegmentName | None) -> SegmentName:
        """This name if it follows `before`, else the next name after `before`."""
        return self if before is None or self > before else SegmentName(before.position, before.ordinal + 1)

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Parse a file name without its suffix; None if it is no segment's."""
        match = re.fullmatch(_NAME, text)
        return None if match is None else cls(int(match[1], 16), int(match[2], 16))

    @classmethod
    def of_file(cls, file: str, suffix: str = CLOSED) -> Self | None:
        """The name in a file name with this suffix; None for another file."""
        stem = file.removesuffix(suffix)
        return None if stem == file else cls.parse(stem)


def snapshot_name(file: str) -> SegmentName | None:
    """The name in a file name of a snapshot's segment, closed or not; None for another file."""
    return SegmentName.of_file(file, SNAPSHOT_OPEN if file.endswith(SNAPSHOT_OPEN) else SNAPSHOT_CLOSED)


class SnapshotPart(NamedTuple):
    """The part of a table's snapshot in a segment: consistent point (LSN), the table's OID, number from 0."""

    lsn: int
    relid: int
    part: int

    def __str__(self) -> str:
        return f"{lsn_text(self.lsn)} {self.relid} {self.part}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The value of the parameter. Raises ValueError."""
        lsn, relid, part = text.split(" ")
        if not (relid.isdecimal() and part.isdecimal()):
            raise ValueError(text)
        return cls(parse_lsn(lsn), int(relid), int(part))
