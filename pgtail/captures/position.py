"""Floor 4, `capture.json`: how far a capture has come where its last segment does not tell it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final, NamedTuple

from pgtail.captures.segment import sync_directory
from pgtail.errors import InputError, OutputError
from pgtail.wire.scalars import lsn_text, parse_lsn

FILE: Final = "capture.json"


class Remembered(NamedTuple):
    """Everything up to `position` is in the capture; its last segment was `last`, empty where there was none."""

    position: int
    last: str


def remember(directory: Path, position: int, last: str) -> None:
    """Replace what is remembered, for good. Raises OutputError."""
    path, draft = directory / FILE, directory / f"{FILE}.draft"
    text = json.dumps({"position": lsn_text(position), "last": last}) + "\n"
    try:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, text.encode())
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(draft, path)
        sync_directory(directory)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from error


def remembered(directory: Path) -> Remembered:
    """What is remembered; 0 and nothing where there is no file. Raises InputError where it is damaged."""
    path = directory / FILE
    try:
        found = json.loads(path.read_bytes())
        return Remembered(parse_lsn(found["position"]), str(found["last"]))
    except FileNotFoundError:
        return Remembered(0, "")
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(path)) from None
    except (ValueError, LookupError, TypeError):
        raise InputError(
            "is damaged; remove it if the capture's slot still has everything since its last segment", source=str(path)
        ) from None
