"""The few things that captures and tables need of a file system; places are paths."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import time
from collections.abc import Iterator
from typing import BinaryIO

from pgtail.errors import InputError, OptionError, OutputError


def place_of(text: str) -> str:
    """A path as it is kept: absolute. Raises OptionError where it is of another kind."""
    scheme = re.match(r"([a-zA-Z][a-zA-Z0-9+.-]*)://", text)
    if scheme is not None and scheme[1] != "file":
        raise OptionError(f"{text}: {scheme[1]} is not supported: name a local or mounted directory")
    return os.path.abspath(re.sub("^file:/*", "/", text))


def join(folder: str, *names: str) -> str:
    """A path below a folder."""
    return "/".join((folder.rstrip("/"), *names))


def listed(place: str, suffix: str) -> list[tuple[str, int]]:
    """The files in a directory (or the file itself, or what a pattern matches) whose names end so, with their sizes.

    Raises InputError where nothing is there.
    """
    places = [place] if os.path.exists(place) else sorted(glob.glob(place))
    if not places:
        raise InputError(f"there is no {place}")
    found = []
    for one in places:
        if not os.path.isdir(one):
            found += [(one, os.path.getsize(one))] if one.endswith(suffix) else []
            continue
        with os.scandir(one) as entries:
            found += [(join(one, e.name), e.stat().st_size) for e in entries if e.name.endswith(suffix)]
    return found


def opened(path: str) -> BinaryIO:
    """A file to read. Raises InputError."""
    try:
        return open(path, "rb")
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=path) from None


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """Around what writes files: raises OutputError in the place of OSError."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise OutputError(f"cannot write to {error.filename or 'a file'}: {reason}") from error


def created(path: str) -> BinaryIO:
    """A new file to write to, in a folder that is made where there is none. Raises OutputError."""
    with writing():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return open(path, "xb")


def removed(path: str) -> None:
    """Remove a file, if it is there."""
    with writing(), contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def now() -> float:
    """Unix time."""
    return time.time()


def exists(path: str) -> bool:
    """Whether there is a file or folder."""
    return os.path.exists(path)
