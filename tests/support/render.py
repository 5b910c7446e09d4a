"""Write messages with an output in this process: through decoder, assembler, filter and output, as the commands do."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Literal, TypeAlias

import orjson
import pytest

from pgtail.changes.assembler import Assembler
from pgtail.changes.events import Note
from pgtail.changes.filters import Filter
from pgtail.changes.redaction import Redaction
from pgtail.changes.relations import Relation
from pgtail.changes.stream_buffer import StreamBuffer
from pgtail.native import compiled
from pgtail.native.batch import Slice
from pgtail.outputs import OutputOptions, open_output
from pgtail.outputs.base import Output
from pgtail.outputs.wal2json.options import DEFAULTS
from pgtail.pgoutput.decoder import Decoder
from pgtail.pgoutput.frames import LENGTHS
from pgtail.pipeline.pipeline import Pipeline
from pgtail.pipeline.table_rows import TableRowCounter
from pgtail.values import Types
from tests.support.encode import frame
from tests.support.messages import messages_to
from tests.support.schemas import OF_CHANGES, check_lines


class Rendered:
    """The bytes written, the notes, and what the pipeline counted."""

    def __init__(self, written: bytes, notes: list[Note], pipeline: Pipeline) -> None:
        self.written = written
        self.notes = [note.text for note in notes]
        self.damaged = pipeline.damaged
        self.rows, self.left_out, self.tables = pipeline.rows, pipeline.left_out, pipeline.rows_by_table()

    @property
    def lines(self) -> list[str]:
        *lines, rest = self.written.decode().split("\n")
        assert rest == ""
        return lines

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [orjson.loads(line) for line in self.written.splitlines()]


class Sink:
    """A sink that keeps all bytes."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def write(self, data: bytes, /) -> None:
        self.parts.append(data)

    @property
    def text(self) -> str:
        return b"".join(self.parts).decode()


Way: TypeAlias = Literal["decoder", "compiled"]
"""How rows are written: from decoded messages, or by the compiled scanner."""
WAYS: Final[tuple[Way, ...]] = ("decoder", "compiled")

ALL_OPTIONS: Final = frozenset(DEFAULTS)
"""Every option of wal2json."""


@contextlib.contextmanager
def rows_by(way: Way) -> Iterator[None]:
    """A context in which new pipelines use the decoder alone, or the scanner too."""
    with pytest.MonkeyPatch.context() as patch:
        if way == "compiled":
            patch.delenv("PGTAIL_PURE", raising=False)
        else:
            patch.setenv("PGTAIL_PURE", "1")
        compiled.cache_clear()
        try:
            if way == "compiled" and compiled() is None:
                need_compiled()
            yield
        finally:
            compiled.cache_clear()


def need_compiled() -> None:
    """Skip a test that needs the compiled code, or fail if PGTAIL_REQUIRE demands it."""
    if "compiled" in os.environ.get("PGTAIL_REQUIRE", ""):
        pytest.fail("pgtail.native._scanner was not built, and PGTAIL_REQUIRE asks for it")
    pytest.skip("pgtail.native._scanner was not built: there was no C compiler when pgtail was installed")


def render(
    *messages: bytes,
    output: str = "json",
    lsn: int = 0,
    encoding: str = "utf-8",
    numbers: Literal["exact", "string"] = "exact",
    filter_: Filter | None = None,
    filters: dict[str, Any] | None = None,
    redact: list[str] | None = None,
    sink: Sink | None = None,
    way: Way = "decoder",
    broken_off: bool = False,
    limit: int = 10**9,
    report: Callable[[str], None] | None = None,
    **options: Any,
) -> Rendered:
    """Write messages, each in a frame; `report` gets what pgtail says."""
    sink, notes = sink or Sink(), list[Note]()
    context = options.get("context")
    redaction = None if redact is None else Redaction(redact, context=context)
    if filters is not None:
        filter_ = Filter(**filters, redaction=redaction, context=context is not None)
    decoder = Decoder(encoding=encoding)
    assembler = Assembler(Types(encoding=encoding, numbers=numbers), buffer=StreamBuffer(limit))
    made = open_output(output, sink, OutputOptions(**options))
    with rows_by(way), contextlib.nullcontext() if report is None else messages_to(report):
        pipeline = Pipeline(
            assembler,
            made,
            filter_=filter_,
            redaction=redaction,
            note=notes.append,
            counter=TableRowCounter(),
            context=context,
        )
        try:
            feed([frame(message, lsn) for message in messages], decoder, pipeline)
            if broken_off:
                pipeline.break_off()
            else:
                pipeline.finish()
        finally:
            assembler.close()
    return Rendered(b"".join(sink.parts), notes, pipeline)


def feed(frames: Iterable[bytes], decoder: Decoder, pipeline: Pipeline) -> None:
    """Feed frames, all in one buffer, through the scanner if it was built."""
    buf = b"".join([struct.pack(">I", len(frame)) + frame for frame in frames])
    pos = 0
    while (pos := pipeline.take_buffer(buf, pos, len(buf), LENGTHS, decoder.in_stream)) < len(buf):
        start = pos + 4
        pos = start + struct.unpack_from(">I", buf, pos)[0]
        message, lsn, _ = decoder.frame(buf, start, pos)
        pipeline.feed(message, lsn)


def write_slice(output: Output, filter_: Filter | None, data: bytes, table: Relation, framing: int = LENGTHS) -> int:
    """Write the first slice of `data`, whose rows are of one table; returns where it ends. It is not decoded."""
    module = compiled()
    if module is None:
        need_compiled()
    assert module is not None
    found: Slice | None = module.index(data, 0, len(data), framing).slice(0, {100: table}, None)
    if found is None:
        return 0
    if filter_ is not None:
        module.RowFilter(filter_).mark(found, None, False)
    output.write_rows(Assembler(Types()).take_slice(found))
    return found.stop


def all_ways(*messages: bytes, **options: Any) -> Rendered:
    """Write messages in every way, which must give the same bytes, and check the lines as JSON."""
    decoded, *scanned = [render(*messages, way=way, **options) for way in WAYS if way != "compiled" or compiled()]
    for other in scanned:
        assert other.written == decoded.written
        assert other.notes == decoded.notes
    check_json(decoded.written.splitlines())
    if (output := options.get("output", "json")) in OF_CHANGES:
        check_lines(output, decoded.written)
    return decoded


def check_json(lines: Iterable[bytes]) -> None:
    """Every line parses with orjson, with Python's json, and with jq if installed."""
    lines = list(lines)
    for line in lines:
        orjson.loads(line)
        json.loads(line)
    if lines and shutil.which("jq"):
        counted = subprocess.run(["jq", "-c", "1"], input=b"\n".join(lines), capture_output=True, check=True)
        assert counted.stdout.count(b"1") == len(lines)
