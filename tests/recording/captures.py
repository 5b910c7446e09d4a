"""Makes captures of recorded frames, and reads them back as the command does."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from pgtail.captures.recorder import Recorder, Rotation
from tests.corpus import Capture, captures
from tests.decoding import Result, decode

SMALL = Rotation(size=10_000, sync_size=1500)
"""So small that every recorded stream fills many segments, of several members each."""
_DATA = ord("w")
_STREAMING = b"SEcAp"


def whole_streams() -> list[Capture]:
    """The recorded streams in which transactions come whole, as they do when a slot is recorded."""
    found = [capture for capture in captures() if "walsender.bin" in capture.forms]
    return [one for one in found if not any(frame[25] in _STREAMING for frame in data_frames(one))]


def data_frames(capture: Capture) -> Iterator[bytes]:
    """Its frames with messages."""
    return (frame for frame in capture.frames() if frame[0] == _DATA)


def record(directory: Path, frames: Iterable[bytes], rotation: Rotation = SMALL, *, compress: bool = True) -> Recorder:
    """Record frames to the end, as if the writer had been asked to stop there."""
    directory.mkdir(exist_ok=True)
    recorder = Recorder(directory, {}, rotation=rotation, compress=compress)
    for frame in frames:
        recorder.take(frame)
    recorder.close()
    return recorder


def segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.pgcap"))


def read(*paths: Path, options: tuple[str, ...] = ()) -> Result:
    """`pgtail decode` of captures or segments."""
    return decode(*options, *paths)


def lengths(frames: Iterable[bytes]) -> bytes:
    """The frames as a dump that is no capture."""
    return b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
