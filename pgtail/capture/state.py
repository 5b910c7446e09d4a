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

    Only in an object store: `uploaded` is the last segment that counts, and `writer` identifies the recorder.
    """

    position: int
    last: str
    messages: int
    head: Mapping[str, str]
    gap: Gap | None = None
    uploaded: str | None = None
    writer: str | None = None


def state_json(now: CaptureState) -> bytes:
    """The content of the file."""
    found = {name: value for name, value in now._asdict().items() if value is not None}
    found["position"] = lsn_text(now.position)
    if now.gap is not None:
        found["gap"] = [now.gap.after, lsn_text(now.gap.start), lsn_text(now.gap.end)]
    return (json.dumps(found, indent=1) + "\n").encode()


def write_state(directory: Path, now: CaptureState) -> None:
    """Replace the state, synced. Raises OutputError."""
    path = directory / FILE
    try:
        replace_file(path, state_json(now), mode=0o600)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from error


def read_state(directory: Location) -> CaptureState | None:
    """The state; None if there is no file. Raises InputError if it is damaged."""
    found = (directory / FILE).read()
    return None if found is None else parse_state(found[0], str(directory / FILE))


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
            None if found.get("uploaded") is None else str(found["uploaded"]),
            None if found.get("writer") is None else str(found["writer"]),
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise InputError(
            "is damaged; remove it if the capture's slot still has everything since its last segment", source=source
        ) from None
