"""The file `capture.json`: a capture's parameters and the position it has reached."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from pgtail.errors import InputError, OutputError
from pgtail.files.atomic import replace_file
from pgtail.pgoutput.scalars import lsn_text, parse_lsn
from pgtail.storage import Location

FILE: Final = "capture.json"


class Gap(NamedTuple):
    """The capture lacks what was committed between these LSNs, after the segment named `after`."""

    after: str
    start: int
    end: int

    def __str__(self) -> str:
        return f"{lsn_text(self.start)} {lsn_text(self.end)}"


class CaptureState(NamedTuple):
    """Everything up to the LSN `position` is in the capture. `last` is its last segment, empty if there is none.

    `messages` counts the messages of that segment if it was open, without repeated ones. `head` has the parameters of
    segments. `gap` is one that no segment records yet.
    """

    position: int
    last: str
    messages: int
    head: Mapping[str, str]
    gap: Gap | None = None


def write_state(directory: Path, now: CaptureState) -> None:
    """Replace the state, synced. Raises OutputError."""
    path = directory / FILE
    found = {**now._asdict(), "position": lsn_text(now.position)}
    if now.gap is None:
        del found["gap"]
    else:
        found["gap"] = [now.gap.after, lsn_text(now.gap.start), lsn_text(now.gap.end)]
    text = json.dumps(found, indent=1) + "\n"
    try:
        replace_file(path, text.encode(), mode=0o600)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from error


def read_state(directory: Location) -> CaptureState | None:
    """The state; None if there is no file. Raises InputError if it is damaged."""
    location = directory / FILE
    if location.head() is None:
        return None
    with location.open() as file:
        return parse_state(file.read(), str(location))


def parse_state(data: bytes, source: str) -> CaptureState:
    """The state in a file's content. Raises InputError if it is damaged."""
    try:
        found = json.loads(data)
        head = {str(name): str(value) for name, value in found["head"].items()}
        gap = found.get("gap")
        return CaptureState(
            parse_lsn(found["position"]),
            str(found["last"]),
            int(found["messages"]),
            head,
            None if gap is None else Gap(str(gap[0]), parse_lsn(gap[1]), parse_lsn(gap[2])),
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise InputError(
            "is damaged; remove it if the capture's slot still has everything since its last segment", source=source
        ) from None
