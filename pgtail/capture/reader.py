"""The segments of a capture, in the order of the stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pgtail.capture.format import CLOSED, OPEN, SegmentName
from pgtail.capture.segment import read_head
from pgtail.capture.state import CaptureState, read_state
from pgtail.errors import InputError
from pgtail.storage import Location


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """One segment of a capture. `open`: it is not closed yet."""

    location: Location
    name: SegmentName
    open: bool


def segments(capture: Location, *, after: str = "") -> list[SegmentFile]:
    """The segments of a capture whose names sort after `after`; none if nothing was recorded yet.

    Reads the folder from `after` on, and no segment. Raises InputError if it contains no capture or cannot be read.
    """
    return listed(capture, read_state(capture), after)


def listed(capture: Location, known: CaptureState | None, after: str = "") -> list[SegmentFile]:
    """As segments(), with the capture's state, which must be read before: a recorder may be writing."""
    named: dict[SegmentName, SegmentFile] = {}
    for entry in capture.list(f"{after}{OPEN}" if after else ""):  # NAME.pgcap sorts before a leftover NAME.pgcap.part
        ending = OPEN if entry.name.endswith(OPEN) else CLOSED
        name = SegmentName.parse(entry.name.removesuffix(ending)) if entry.name.endswith(ending) else None
        if name is not None and (known is None or known.uploaded is None or str(name) <= known.uploaded):
            named.setdefault(name, SegmentFile(capture / entry.name, name, ending == OPEN))
    if not named and not after and known is None:
        raise InputError("holds no capture: there is no segment (*.pgcap) in it", source=str(capture))
    return [found for _, found in sorted(named.items())]


def refreshed(capture: Location, found: SegmentFile) -> SegmentFile | None:
    """The segment under its present name: a recorder may have closed it, or recovery removed it (None)."""
    if not found.open or found.location.head() is not None:
        return found
    closed = capture / f"{found.name}{CLOSED}"
    return SegmentFile(closed, found.name, open=False) if closed.head() is not None else None


def last_head(capture: Location) -> Mapping[str, str]:
    """The parameters of a capture's last segment; empty if there is none."""
    known = read_state(capture)
    if known is not None:
        return known.head
    names = [entry.name for entry in capture.list() if entry.name.endswith(CLOSED)]
    return read_head(capture / names[-1]).parameters if names else {}
