"""Captures and constructed messages as the text of `-o table`."""

from __future__ import annotations

from collections.abc import Iterable

from pgtail.changes.assembler import Assembler
from pgtail.changes.filters import Filter
from pgtail.changes.redaction import Redaction
from pgtail.outputs import OutputOptions
from pgtail.outputs.table.table import TableOutput
from pgtail.pgoutput.decoder import AnyFrame, Decoder
from pgtail.pgoutput.schema import Relation, RelationColumn
from pgtail.pgoutput.transaction import Begin, Commit
from pgtail.pipeline.pipeline import Pipeline
from pgtail.values import Types
from tests.support.corpus import Capture
from tests.support.render import Sink, Way, feed, rows_by

NOON = 849_182_400_000_000
"""2026-11-28 12:00:00 UTC, the current time in these tests."""

INT4, TEXT, NUMERIC, TIMESTAMPTZ, JSONB, BOOL, BYTEA = 23, 25, 1700, 1184, 3802, 16, 17


def table(options: OutputOptions | None = None, filter_: Filter | None = None) -> tuple[Sink, Pipeline]:
    """A pipeline to a table, and its sink."""
    sink = Sink()
    output = TableOutput(sink, options or OutputOptions(), now=lambda: NOON)
    return sink, Pipeline(Assembler(Types()), output, filter_=filter_, note=lambda note: None)


def table_of(messages: Iterable[AnyFrame], options: OutputOptions | None = None, filter_: Filter | None = None) -> str:
    """Messages as a table."""
    sink, pipeline = table(options, filter_)
    for message in messages:
        pipeline.feed(message, None)
    pipeline.finish()
    return sink.text


def capture_table(capture: Capture, options: OutputOptions | None = None) -> str:
    """A capture as a table."""
    sink, pipeline = table(options)
    decoder = Decoder(encoding=capture.encoding if capture.encoding == "LATIN1" else "utf-8")
    for frame in capture.frames():
        message, lsn, _ = decoder.frame(frame, 0, len(frame))
        pipeline.feed(message, lsn)
    pipeline.finish()
    return sink.text


def scanned_table(
    frames: Iterable[bytes], way: Way, options: OutputOptions, filter_: Filter | None, redaction: Redaction | None
) -> str:
    """Frames as a table, through the fast path if there is one."""
    with rows_by(way):
        sink = Sink()
        output = TableOutput(sink, options, now=lambda: NOON)
        pipeline = Pipeline(Assembler(Types()), output, filter_=filter_, redaction=redaction, note=lambda note: None)
        decoder = Decoder()
        feed(frames, decoder, pipeline)
        pipeline.finish()
    return sink.text


def relation(
    *columns: tuple[str, int, bool], oid: int = 1, schema: str = "public", name: str = "t", identity: str = "d"
) -> Relation:
    """A Relation message: columns are (name, type OID, whether it is part of the identity)."""
    described = tuple([RelationColumn(int(key), column, type_, -1) for column, type_, key in columns])
    return Relation(None, oid, schema, name, identity, described)


def transaction(*messages: AnyFrame, xid: int = 743) -> list[AnyFrame]:
    """The messages between a Begin and a Commit, 12 ms before NOON."""
    when = NOON - 12_000
    return [Begin(0x1949A30, when, xid), *messages, Commit(0, 0x1949A30, 0x1949A68, when)]
