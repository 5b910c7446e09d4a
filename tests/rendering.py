"""Messages rendered in this process: as frames through decoder, assembler, filter and output, as the commands do it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import struct
import subprocess
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal, TypeAlias

import orjson
import pytest

from pgtail.assembler import Assembler
from pgtail.compiled import compiled
from pgtail.filters import Filter
from pgtail.outputs import open_output
from pgtail.outputs.base import OutputOptions
from pgtail.pipeline import Pipeline
from pgtail.streambuffer import StreamBuffer
from pgtail.transaction import Note
from pgtail.values import Types
from pgtail.wire.decoder import LENGTHS, Decoder
from tests.encode import frame


class Rendered:
    """What was written, and the notes."""

    def __init__(self, written: bytes, notes: list[Note], *, damaged: bool) -> None:
        self.written = written
        self.notes = [note.text for note in notes]
        self.damaged = damaged

    @property
    def lines(self) -> list[str]:
        *lines, rest = self.written.decode().split("\n")
        assert rest == ""
        return lines

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [orjson.loads(line) for line in self.written.splitlines()]


class Sink:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def write(self, data: bytes, /) -> None:
        self.parts.append(data)


Way: TypeAlias = Literal["long", "plain", "compiled"]
"""How rows are rendered: from decoded messages, or the short way, in Python or compiled."""
WAYS: Final[tuple[Way, ...]] = ("long", "plain", "compiled")


@contextlib.contextmanager
def rows_by(way: Way) -> Iterator[None]:
    """Pipelines made meanwhile take the short way in Python, or compiled."""
    with pytest.MonkeyPatch.context() as patch:
        if way == "plain":
            patch.setenv("PGTAIL_PURE", "1")
        else:
            patch.delenv("PGTAIL_PURE", raising=False)
        compiled.cache_clear()
        try:
            if way == "compiled" and compiled() is None:
                need_compiled()
            yield
        finally:
            compiled.cache_clear()


def need_compiled() -> None:
    """Skip what needs the compiled rows, or fail where they must be there."""
    if "compiled" in os.environ.get("PGTAIL_REQUIRE", ""):
        pytest.fail("pgtail._rows was not built, and PGTAIL_REQUIRE asks for it")
    pytest.skip("pgtail._rows was not built: there was no C compiler when pgtail was installed")


def render(
    *messages: bytes,
    output: str = "json",
    lsn: int = 0,
    encoding: str = "utf-8",
    numbers: Literal["exact", "string"] = "exact",
    filter_: Filter | None = None,
    way: Way = "plain",
    broken_off: bool = False,
    limit: int = 10**9,
    **options: Any,
) -> Rendered:
    """Render messages that arrive in frames."""
    sink, notes = Sink(), list[Note]()
    decoder = Decoder(encoding=encoding)
    assembler = Assembler(Types(encoding=encoding, numbers=numbers), buffer=StreamBuffer(limit))
    made = open_output(output, sink, OutputOptions(**options))
    with rows_by(way):
        pipeline = Pipeline(assembler, made, filter_=filter_, note=notes.append)
    if way != "long":
        pipeline.shorten(decoder)
    try:
        feed([frame(message, lsn) for message in messages], decoder, pipeline)
        if broken_off:
            pipeline.break_off()
        else:
            pipeline.finish()
    finally:
        assembler.close()
    return Rendered(b"".join(sink.parts), notes, damaged=pipeline.damaged)


def feed(frames: Iterable[bytes], decoder: Decoder, pipeline: Pipeline) -> None:
    """Frames, all in one buffer, through the short way where there is one."""
    buf = b"".join([struct.pack(">I", len(frame)) + frame for frame in frames])
    pos = 0
    while (pos := decoder.take_rows(buf, pos, len(buf), LENGTHS)) < len(buf):
        start = pos + 4
        pos = start + struct.unpack_from(">I", buf, pos)[0]
        message, lsn, _ = decoder.frame(buf, start, pos)
        pipeline.feed(message, lsn)


def all_ways(*messages: bytes, **options: Any) -> Rendered:
    """The same by every way, which must not differ; every line is JSON to all who read it."""
    long, *short = [render(*messages, way=way, **options) for way in WAYS if way != "compiled" or compiled()]
    for other in short:
        assert other.written == long.written
        assert other.notes == long.notes
    check_json(long.written.splitlines())
    return long


def check_json(lines: Iterable[bytes]) -> None:
    """Every line parses: with orjson, with Python's json, and with jq where it is installed."""
    lines = list(lines)
    for line in lines:
        orjson.loads(line)
        json.loads(line)
    if lines and shutil.which("jq"):
        counted = subprocess.run(["jq", "-c", "1"], input=b"\n".join(lines), capture_output=True, check=True)
        assert counted.stdout.count(b"1") == len(lines)
