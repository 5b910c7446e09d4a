"""Recovery of a capture after a crash: truncates open segments to the last complete transaction and closes them."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from pgtail.capture.contents import ContentsCounter
from pgtail.capture.format import CLOSED, DRAFT, OPEN, SegmentName
from pgtail.capture.reader import closed_names
from pgtail.capture.segment import SegmentBytes, SegmentFrames, position_of
from pgtail.capture.state import read_state
from pgtail.capture.tracker import StreamTracker
from pgtail.capture.writer import SegmentWriter, rename
from pgtail.errors import DecodeError, InputError
from pgtail.pgoutput.scalars import lsn_text
from pgtail.storage.local import LocalLocation, LocalReader


class Recovered(Struct, frozen=True):
    """The name of a capture's last segment (empty: none), and the LSN up to which it has everything.

    `warnings` are about open segments that are closed as they are: without compression they have no checksum.
    """

    last: str
    position: int
    warnings: tuple[str, ...] = ()


class _OpenSegment(Struct):
    """An open segment. LSN, uncompressed bytes and messages up to the end of its last complete transaction."""

    path: Path
    name: SegmentName
    whole: int = 0
    size: int = 0
    messages: int = 0
    ended: bool = False
    """Whether its end was written, so that none of its messages is lost."""
    at_end: bool = False
    """Whether nothing follows the last complete transaction."""
    compressed: bool = True


def recover(directory: Path, *, compress: bool) -> Recovered:
    """Close every open segment without its incomplete transaction: the server will send that again.

    Raises OutputError, and InputError if a segment is damaged in a way that no crash explains.
    """
    for draft in directory.glob(f"*{DRAFT}"):
        LocalLocation(draft).delete()
    for path in _open_segments(directory, closed=True):
        LocalLocation(path).delete()  # the crash came between closing it and removing it
    parts, whole = _examined(directory)
    for part in reversed(parts[len(whole) :]):
        LocalLocation(part.path).delete()
    warnings = _warnings(whole)
    _close(directory, whole, compress=compress)
    return replace(_state(directory), warnings=warnings)


def recoverable(directory: Path) -> Recovered:
    """What recover() would return; changes nothing. Raises InputError as that does."""
    _, whole = _examined(directory)
    known = _state(directory)
    last, position = max([known.last, *[str(part.name) for part in whole]]), [part.whole for part in whole]
    return Recovered(last, max([known.position, *position]), _warnings(whole))


def _warnings(whole: list[_OpenSegment]) -> tuple[str, ...]:
    return tuple(
        f"segment {part.name} was not closed, and is not compressed: its bytes have no checksum, and are taken as they"
        " are"
        for part in whole
        if not (part.compressed or part.ended)
    )


def _open_segments(directory: Path, *, closed: bool) -> dict[Path, SegmentName]:
    """The open segments by file: those that were closed, too, or those that were not."""
    named = {path: SegmentName.of_file(path.name, OPEN) for path in sorted(directory.glob(f"*{OPEN}"))}
    return {
        path: name
        for path, name in named.items()
        if name is not None and (directory / f"{name}{CLOSED}").exists() is closed
    }


def _examined(directory: Path) -> tuple[list[_OpenSegment], list[_OpenSegment]]:
    """The open segments, and those of them that have a complete transaction. Raises InputError."""
    parts = [_OpenSegment(path, name) for path, name in _open_segments(directory, closed=False).items()]
    keep = 0
    for index, part in enumerate(parts):
        _examine(part)
        if part.size:
            keep = index + 1
        if not part.ended and index + 1 < len(parts):
            raise InputError("is damaged: it has no end, and others follow it", source=str(part.path))
    _check_nothing_lost(directory, parts)
    return parts, parts[:keep]


def _check_nothing_lost(directory: Path, parts: list[_OpenSegment]) -> None:
    """Raise InputError if a segment has fewer messages than were synced."""
    known = read_state(LocalLocation(directory))
    for part in parts:
        if str(part.name) == known.last and part.messages < known.messages:
            raise InputError(
                f"is damaged: only {part.messages} of its {known.messages} messages are left. The rest up to"
                f" {lsn_text(known.position)} was acknowledged; move the segment away to continue without it",
                source=str(part.path),
            )


def _examine(part: _OpenSegment) -> None:
    """Find the end of the last complete transaction. A torn tail is normal after a crash.

    Raises InputError at other damage, where a checksum shows it.
    """
    stream, messages = StreamTracker(part.name.position), 0
    damage: str | None = None
    with LocalReader(part.path) as file:
        frames = SegmentFrames(file, str(part.path))
        try:
            stream.inside = frames.read_head().transaction is not None
            for start, stop in frames:
                if frames.head.own:
                    messages += 1
                    if stream.take_frame(frames.buf[start:stop]):
                        part.whole, part.messages, part.size = stream.whole, messages, frames.offset_of(stop)
        except (struct.error, IndexError):
            pass
        except DecodeError as error:
            damage = error.reason
        if damage is not None and (frames.head.ended or frames.raw.damaged_inside()):
            raise InputError(f"is damaged: {damage}; move it away to continue without it", source=str(part.path))
    part.ended, part.compressed = frames.head.ended, frames.raw.compressed
    part.at_end = part.messages == messages and stream.complete


def _close(directory: Path, parts: list[_OpenSegment], *, compress: bool) -> None:
    whole = _state(directory).position if parts else 0
    for index, part in enumerate(parts):
        part.whole = whole = max(part.whole, whole)
        if part.ended and (part.at_end or index < len(parts) - 1):
            rename(part.path, directory / f"{part.name}{CLOSED}")
        else:
            _rewrite(directory, part, compress=compress)


def _rewrite(directory: Path, part: _OpenSegment, *, compress: bool) -> None:
    """Replace an open segment with a closed copy of its complete transactions."""
    draft = SegmentWriter(directory, part.name, compress=compress, ending=DRAFT)
    left = part.size
    with LocalReader(part.path) as file:
        for piece in SegmentBytes(file):
            draft.add_raw(piece[:left])
            left -= len(piece)
            if left <= 0:
                break
            if draft.pending > 1 << 20:
                draft.flush()
    draft.messages = part.messages
    draft.finish(part.whole, _contents_of(part))
    draft.close()
    LocalLocation(part.path).delete()


def _contents_of(part: _OpenSegment) -> str | None:
    counter = ContentsCounter()
    with LocalReader(part.path) as file, contextlib.suppress(DecodeError):
        counter.take_segment(SegmentFrames(file, str(part.path)), part.size)
    return counter.text()


def _state(directory: Path) -> Recovered:
    known = read_state(LocalLocation(directory))
    names, position = closed_names(directory), known.position
    if names:
        position = max(position, position_of(LocalLocation(directory / f"{max(names)}{CLOSED}")))
    # A last segment that is gone remains the predecessor of the next one, so that readers notice the gap.
    return Recovered(max(known.last, *map(str, names), ""), position)
