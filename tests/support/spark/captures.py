"""Captures made of the recordings under tests/captures, and their changes by the long way: to compare with."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from pgtail.arrow.decoding.decode import SegmentChanges
from pgtail.arrow.schemas import CHANGES
from pgtail.capture.format import CLOSED
from pgtail.capture.recorder import Recorder, Rotation
from pgtail.capture.segment import SegmentFrames
from pgtail.changes.assembler import Assembler
from pgtail.changes.events import Ended, LogicalMessage, Note, Outcome, RowChange, SchemaChange, Started, TableTruncate
from pgtail.changes.relations import Relation
from pgtail.commands.options.common import DumpOptions
from pgtail.commands.record.dumps import record_dumps
from pgtail.outputs import OutputOptions, open_output
from pgtail.pgoutput.decoder import Decoder
from pgtail.pgoutput.scalars import UNIX_EPOCH_OFFSET, time_text
from pgtail.values import Types
from tests.support.corpus import Capture
from tests.support.render import Sink


def record(capture: Capture, folder: Path, *, size: int = 100_000) -> list[Path]:
    """Make a capture of small segments; returns them in order."""
    folder.mkdir()
    source = [str(capture.forms["walsender.bin"])]
    rotation = Rotation(size=size)
    record_dumps(
        source,
        folder,
        DumpOptions(input_format="lengths", encoding=capture.encoding),
        rotation=rotation,
        compress=True,
    )
    return segments(folder)


def segments(folder: Path) -> list[Path]:
    """The closed segments of a capture, in order."""
    return sorted(folder.glob(f"*{CLOSED}"))


def rows_of(paths: list[Path]) -> list[dict[str, Any]]:
    """The rows of `changes` that these segments give, one after another, each decoded alone."""
    return plain(pa.Table.from_batches(batches_of(paths), schema=CHANGES))


def batches_of(paths: list[Path], tables: Sequence[str] = ()) -> list[pa.RecordBatch]:
    """The same as record batches; `tables` are globs."""
    segments_ = [SegmentChanges(io.BytesIO(path.read_bytes()), str(path), tables=tables) for path in paths]
    return [batch for segment in segments_ for batch in segment]


def plain(table: pa.Table) -> list[dict[str, Any]]:
    """Rows as Python's values, with maps as dictionaries and times as PostgreSQL counts them."""
    rows: list[dict[str, Any]] = table.to_pylist()
    for name in ("commit_ts", "prepare_ts"):
        for row, micros in zip(rows, table.column(name).cast(pa.int64()).to_pylist(), strict=True):
            row[name] = None if micros is None else time_text(micros - UNIX_EPOCH_OFFSET)
    for row in rows:
        for name in ("old", "new"):
            if row[name] is not None:
                assert len({key for key, _ in row[name]}) == len(row[name])
                row[name] = dict(row[name])
    return rows


def lines_of(capture: Capture) -> Iterator[tuple[dict[str, Any], Relation | None]]:
    """Each line of `-o json` by the long way, with all digits of its numbers, and the table that it is about."""
    sink = Sink()
    types = Types(encoding=capture.encoding)
    decoder, assembler = Decoder(encoding=capture.encoding), Assembler(types)
    output = open_output("json", sink, OutputOptions())
    for frame in capture.frames():
        message, lsn, _ = decoder.frame(frame, 0, len(frame))
        for event in assembler.feed(message, lsn):
            assert not (isinstance(event, Note) and event.damage)
            output.event(event)
            if isinstance(event, Started | Ended | Note | SchemaChange):
                continue
            line = exact(b"".join(sink.parts))
            sink.parts.clear()
            assert isinstance(event, RowChange | TableTruncate | LogicalMessage | Outcome)
            yield line, event.relation if isinstance(event, RowChange | TableTruncate) else None
    assembler.close()


def exact(line: bytes) -> Any:
    """JSON with numbers as their text, told apart from strings."""
    return json.loads(line, parse_float=Number, parse_int=Number)


class Number(str):
    """A number's digits."""

    __slots__ = ()


def cut(source: Path, target: Path) -> list[Path]:
    """The same capture in segments of one change each."""
    target.mkdir()
    recorder: Recorder | None = None
    for path in segments(source):
        with path.open("rb") as file:
            frames = SegmentFrames(file, str(path))
            head = frames.read_head().parameters
            if recorder is None:
                recorder = Recorder(target, head, rotation=Rotation(size=1))
            for start, stop in frames:
                if frames.head.own:
                    recorder.take_frame(bytes(frames.buf[start:stop]))
    assert recorder is not None
    recorder.close()
    return segments(target)
