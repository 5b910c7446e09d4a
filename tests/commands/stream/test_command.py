"""The sink of a stream, which another thread stops while rows are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgtail.changes.assembler import Assembler
from pgtail.commands.output.file_sink import BATCH
from pgtail.commands.stream.command import StreamSink
from pgtail.outputs import OutputOptions, open_output
from pgtail.pgoutput.decoder import Decoder
from pgtail.pipeline.pipeline import Pipeline
from pgtail.values import Types
from tests.support import encode
from tests.support.render import WAYS, Way, feed, render, rows_by


@pytest.mark.parametrize("output", ["json-tx", "wal2json-v1", "json", "sql", "csv"])
@pytest.mark.parametrize("way", WAYS)
def test_a_stream_that_is_stopped_while_rows_are_written_is_completed(way: Way, output: str, tmp_path: Path) -> None:
    """The rows are more than a sink keeps otherwise, and the last transaction goes on after them."""
    messages = [encode.relation()]
    for xid in range(7, 1500):
        messages += [encode.begin(xid), encode.insert("1", "x" * 100), encode.commit()]
    messages.pop()
    expected = render(*messages, output=output, broken_off=True).written
    file = tmp_path / "out"
    with rows_by(way), file.open("wb") as opened:
        sink = StreamSink(opened.fileno(), str(file), None)
        assembler = Assembler(Types())
        pipeline = Pipeline(assembler, open_output(output, sink, OutputOptions()), note=lambda _: None)
        sink.stopped = True
        feed(map(encode.frame, messages), Decoder(), pipeline)
        assert file.stat().st_size == 0
        sink.stopped = False
        pipeline.break_off()
        sink.flush()
        assembler.close()
    assert file.read_bytes() == expected
    assert len(expected) > BATCH
