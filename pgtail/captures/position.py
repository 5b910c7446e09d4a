"""Floor 4, `capture.json`: how a capture is made, and how far it has come where its last segment does not tell it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from pgtail.captures.segment import sync_directory, write_synced
from pgtail.errors import InputError, OutputError
from pgtail.wire.scalars import lsn_text, parse_lsn

FILE: Final = "capture.json"


class Gap(NamedTuple):
    """What was committed between `start` and `end` is not in the capture; it stands behind the segment `behind`."""

    behind: str
    start: int
    end: int

    def __str__(self) -> str:
        return f"{lsn_text(self.start)} {lsn_text(self.end)}"


class Remembered(NamedTuple):
    """Everything up to `position` is in the capture; its last segment was `last`, empty where there was none.

    `messages` is the number of that one's own messages, where it was open then. `head` is what the segments say at
    their beginning of how the frames are made. `gap` is one that no segment tells yet.
    """

    position: int
    last: str
    messages: int
    head: Mapping[str, str]
    gap: Gap | None = None


def remember(directory: Path, now: Remembered) -> None:
    """Replace what is remembered, for good. Raises OutputError."""
    path, draft = directory / FILE, directory / f"{FILE}.draft"
    found = {**now._asdict(), "position": lsn_text(now.position)}
    if now.gap is None:
        del found["gap"]
    else:
        found["gap"] = [now.gap.behind, lsn_text(now.gap.start), lsn_text(now.gap.end)]
    text = json.dumps(found, indent=1) + "\n"
    try:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            write_synced(fd, text.encode())
        finally:
            os.close(fd)
        os.replace(draft, path)
        sync_directory(directory)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from error


def remembered(directory: Path) -> Remembered | None:
    """What is remembered; None where there is no file. Raises InputError where it is damaged."""
    path = directory / FILE
    try:
        found = json.loads(path.read_bytes())
        head = {str(name): str(value) for name, value in found["head"].items()}
        gap = found.get("gap")
        return Remembered(
            parse_lsn(found["position"]),
            str(found["last"]),
            int(found["messages"]),
            head,
            None if gap is None else Gap(str(gap[0]), parse_lsn(gap[1]), parse_lsn(gap[2])),
        )
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(path)) from None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise InputError(
            "is damaged; remove it if the capture's slot still has everything since its last segment", source=str(path)
        ) from None
