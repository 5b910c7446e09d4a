"""Makes captures from recorded frames, and reads them with the decode command."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from pgtail.capture.recorder import Recorder, Rotation
from pgtail.capture.segment import read_head
from pgtail.storage.local import LocalLocation
from tests.support.corpus import Capture, captures
from tests.support.run import Result, decode

SMALL = Rotation(size=10_000, sync_size=1500)
"""So small that every recorded stream fills many segments, of several members each."""
_DATA = ord("w")
_STREAMING = b"SEcAp"


def whole_streams() -> list[Capture]:
    """The recorded streams without streamed transactions, as `pgtail record` gets them."""
    found = [capture for capture in captures() if "walsender.bin" in capture.forms]
    return [one for one in found if not any(frame[25] in _STREAMING for frame in data_frames(one))]


def data_frames(capture: Capture) -> Iterator[bytes]:
    """Its frames with messages."""
    return (frame for frame in capture.frames() if frame[0] == _DATA)


def record(directory: Path, frames: Iterable[bytes], rotation: Rotation = SMALL, *, compress: bool = True) -> Recorder:
    """Record frames and close the capture."""
    directory.mkdir(exist_ok=True)
    recorder = Recorder(directory, {}, rotation=rotation, compress=compress)
    take(recorder, frames)
    recorder.close()
    return recorder


def take(recorder: Recorder, frames: Iterable[bytes]) -> None:
    for frame in frames:
        recorder.take_frame(frame)


def head(path: Path) -> dict[str, str]:
    """The parameters at the beginning of a segment."""
    return read_head(LocalLocation(path)).parameters


def segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.pgcap"))


def read(*paths: Path, options: tuple[str, ...] = ()) -> Result:
    """`pgtail decode` of captures or segments."""
    return decode(*options, *paths)


def read_frames(frames: Iterable[bytes], folder: Path, options: tuple[str, ...] = ()) -> Result:
    """The same of these frames as a plain dump."""
    path = folder / "frames.bin"
    path.write_bytes(lengths(frames))
    return read(path, options=options)


def lengths(frames: Iterable[bytes]) -> bytes:
    """The frames as a dump in the lengths form."""
    return b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)


def split(data: bytes) -> list[bytes]:
    """The members of a gzip file."""
    members = []
    while data:
        member = zlib.decompressobj(31)
        member.decompress(data)
        members.append(data[: len(data) - len(member.unused_data)])
        data = member.unused_data
    return members


def misplaced(segment: list[bytes], other: list[bytes]) -> Iterator[tuple[str, list[bytes]]]:
    """The members of a segment in wrong places, and those of another one in their places; each with a name."""
    for index, member in enumerate(segment):
        before, after = segment[:index], segment[index + 1 :]
        yield f"member {index} is removed", before + after
        yield f"member {index} is there twice", [*before, member, member, *after]
        yield f"member {index} is another segment's", [*before, other[min(index, len(other) - 1)], *after]
        if after:
            yield f"members {index} and {index + 1} are swapped", [*before, after[0], member, *after[1:]]
            yield f"from member {index + 1} on it is another segment's", [*before, member, *other[index + 1 :]]
    yield "another segment follows", segment + other
