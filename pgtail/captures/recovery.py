"""Floor 4, a capture after a crash: open segments are cut back to the last whole transaction, and closed."""

from __future__ import annotations

import contextlib
import struct
from dataclasses import dataclass
from pathlib import Path

from pgtail.captures.framing import (
    COPY_DATA,
    END,
    PARAMETER_STATUS,
    POSITION,
    START,
    TRANSACTION,
    read_parameter,
)
from pgtail.captures.names import CLOSED, DRAFT, OPEN, SegmentName
from pgtail.captures.position import remembered
from pgtail.captures.reader import Unwrapped, walk
from pgtail.captures.segment import Segment, rename
from pgtail.captures.stream import Stream
from pgtail.errors import DecodeError, InputError, OutputError
from pgtail.wire.scalars import lsn_text, parse_lsn


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a directory holds now: the name of its last segment, or nothing, and up to where it has everything."""

    last: str
    position: int


@dataclass(slots=True)
class _Part:
    """One open segment, looked through. Raw bytes and messages up to the last place that is in no transaction."""

    path: Path
    name: SegmentName
    whole: int = 0
    size: int = 0
    messages: int = 0
    ended: bool = False
    """Whether its end was written, so that nothing can be missing at it."""
    at_end: bool = False
    """Whether the last whole transaction's end is the last message in it."""


def recover(directory: Path, *, compress: bool) -> Recovered:
    """Make every segment of a capture a closed one, and drop what is not whole: the server will send it again.

    Raises OutputError, InputError where a segment is damaged as no crash would damage it.
    """
    for draft in directory.glob(f"*{DRAFT}"):
        _remove(draft)
    parts = []
    for path in sorted(directory.glob(f"*{OPEN}")):
        name = SegmentName.parse(path.name.removesuffix(OPEN))
        if name is None:
            continue
        if (directory / f"{name}{CLOSED}").exists():
            _remove(path)  # the crash came between its closing and its removal
        else:
            parts.append(_Part(path, name))
    whole = _looked_through(parts)
    _check_remembered(directory, parts)
    for part in reversed(parts[len(whole) :]):
        _remove(part.path)
    _close(directory, whole, compress=compress)
    return _state(directory)


def _looked_through(parts: list[_Part]) -> list[_Part]:
    """The parts up to the last whole transaction's end."""
    keep = 0
    for index, part in enumerate(parts):
        _look_through(part)
        if part.size:
            keep = index + 1
        if not part.ended and index + 1 < len(parts):
            raise InputError("is damaged: it has no end, and others follow it", source=str(part.path))
    return parts[:keep]


def _check_remembered(directory: Path, parts: list[_Part]) -> None:
    """A crash takes nothing that the capture was known to have."""
    known = remembered(directory)
    for part in parts:
        if known is not None and str(part.name) == known.last and part.messages < known.messages:
            raise InputError(
                f"is damaged: of the {known.messages} messages that were on the disk {part.messages} are left. What"
                f" follows up to {lsn_text(known.position)} was acknowledged; move the segment away to go on without"
                " it",
                source=str(part.path),
            )


def _look_through(part: _Part) -> None:
    """Find the last whole transaction's end. A torn tail is what a crash leaves: what comes before it is known."""
    stream, messages, own = Stream(), 0, False
    with contextlib.suppress(DecodeError, struct.error, IndexError):
        for end, kind, body in walk(part.path):
            if kind == COPY_DATA and own:
                messages += 1
                if stream.take(body):
                    part.whole, part.messages, part.size = stream.whole, messages, end
            elif kind == PARAMETER_STATUS:
                name, _ = read_parameter(body)
                stream.inside = stream.inside or name == TRANSACTION
                own = own or name == START
                part.ended = part.ended or name == END
    part.at_end = part.messages == messages and not stream.inside


def _close(directory: Path, parts: list[_Part], *, compress: bool) -> None:
    whole = _state(directory).position if parts else 0
    for index, part in enumerate(parts):
        part.whole = whole = max(part.whole, whole)
        if part.ended and (part.at_end or index < len(parts) - 1):
            rename(part.path, directory / f"{part.name}{CLOSED}")
        else:
            _rewrite(directory, part, compress=compress)


def _rewrite(directory: Path, part: _Part, *, compress: bool) -> None:
    """Close a copy of what is whole of an open segment, in its place."""
    draft = Segment(directory, part.name, compress=compress, ending=DRAFT)
    left = part.size
    with open(part.path, "rb") as file:
        for piece in Unwrapped(file):
            draft.add_raw(piece[:left])
            left -= len(piece)
            if left <= 0:
                break
            if draft.pending > 1 << 20:
                draft.sync()
    draft.messages = part.messages
    draft.finish(part.whole)
    draft.close()
    _remove(part.path)


def _state(directory: Path) -> Recovered:
    known = remembered(directory)
    last, position = ("", 0) if known is None else (known.last, known.position)
    stems = [path.name.removesuffix(CLOSED) for path in directory.glob(f"*{CLOSED}")]
    names = [stem for stem in stems if SegmentName.parse(stem) is not None]
    if names:
        position = max(position, _position(directory / f"{max(names)}{CLOSED}"))
    # Where the last one is not here any more it is still the one that the next one follows: readers see the gap.
    return Recovered(max(last, *names, ""), position)


def _position(path: Path) -> int:
    """Up to where a capture has everything that ends with this segment."""
    found = None
    with contextlib.suppress(DecodeError, ValueError):
        for _, kind, body in walk(path):
            if kind == PARAMETER_STATUS:
                name, value = read_parameter(body)
                if name == POSITION:
                    found = parse_lsn(value)
    if found is None:
        raise InputError(
            "is damaged: its end is missing, although it is closed; move it away to go on without it", source=str(path)
        )
    return found


def _remove(path: Path) -> None:
    try:
        path.unlink()
    except OSError as error:
        raise OutputError(f"cannot remove {path}: {error.strerror}") from error
