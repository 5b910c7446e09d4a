"""Messages rendered in this process: as frames through decoder, assembler, filter and output, as the commands do it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable
from typing import Any, Literal

import orjson

from pgtail.assembler import Assembler
from pgtail.filters import Filter
from pgtail.outputs import open_output
from pgtail.outputs.base import OutputOptions
from pgtail.pipeline import Pipeline
from pgtail.streambuffer import StreamBuffer
from pgtail.transaction import Note
from pgtail.values import Types
from pgtail.wire.decoder import Decoder
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


def render(
    *messages: bytes,
    output: str = "json",
    lsn: int = 0,
    encoding: str = "utf-8",
    numbers: Literal["exact", "string"] = "exact",
    filter_: Filter | None = None,
    short: bool = True,
    broken_off: bool = False,
    limit: int = 10**9,
    **options: Any,
) -> Rendered:
    """Render messages that arrive in frames; `short` takes the output's short way for rows where it has one."""
    sink, notes = Sink(), list[Note]()
    decoder = Decoder(encoding=encoding)
    assembler = Assembler(Types(encoding=encoding, numbers=numbers), buffer=StreamBuffer(limit))
    made = open_output(output, sink, OutputOptions(**options))
    pipeline = Pipeline(assembler, made, filter_=filter_, note=notes.append)
    if short:
        pipeline.shorten(decoder)
    for message in messages:
        framed = frame(message, lsn)
        read, frame_lsn, _ = decoder.frame(framed, 0, len(framed))
        pipeline.feed(read, frame_lsn)
    if broken_off:
        pipeline.break_off()
    else:
        pipeline.finish()
    assembler.close()
    return Rendered(b"".join(sink.parts), notes, damaged=pipeline.damaged)


def both_ways(*messages: bytes, **options: Any) -> Rendered:
    """The same by the short way and by the long one, which must not differ; every line is JSON to all who read it."""
    short, long = render(*messages, **options), render(*messages, short=False, **options)
    assert short.written == long.written
    assert short.notes == long.notes
    check_json(short.written.splitlines())
    return short


def check_json(lines: Iterable[bytes]) -> None:
    """Every line parses: with orjson, with Python's json, and with jq where it is installed."""
    lines = list(lines)
    for line in lines:
        orjson.loads(line)
        json.loads(line)
    if lines and shutil.which("jq"):
        counted = subprocess.run(["jq", "-c", "1"], input=b"\n".join(lines), capture_output=True, check=True)
        assert counted.stdout.count(b"1") == len(lines)
