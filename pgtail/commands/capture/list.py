"""`pgtail capture list`: the contents of a capture, as a table or as lines of JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pgtail.capture.contents import SegmentContents
from pgtail.capture.format import GAP
from pgtail.capture.overview import SegmentOverview, SnapshotOverview, overview
from pgtail.capture.reader import listed, missing_at_end
from pgtail.capture.state import NO_STATE, CaptureState, read_state
from pgtail.commands.capture.table import CaptureTable, Line
from pgtail.commands.console.styling import report_palette, terminal_width
from pgtail.commands.options.capture import CaptureListOptions
from pgtail.commands.output.file_sink import open_sink
from pgtail.errors import Interrupted
from pgtail.files.stopping import begin, status_after
from pgtail.pgoutput.scalars import lsn_text, time_text
from pgtail.storage import locate
from pgtail.terminal.escape import json_line
from pgtail.terminal.style import Painter

Found = Iterable[SegmentOverview | SnapshotOverview]


def run(place: str, options: CaptureListOptions) -> bool:
    """Show the segments of a capture; returns whether one is missing. Raises PgtailError and ClosedPipe."""
    palette = report_palette(options.report)
    capture = locate(place, options.storage)
    begin()
    try:
        with open_sink(None) as sink:
            known = read_state(capture)  # before listing the segments: a recorder may be writing
            files = listed(capture, known)
            last = missing_at_end(files, known)
            damaged = bool(last)

            def found() -> Found:
                nonlocal damaged
                for one in overview(files, known, options.encoding):
                    damaged = damaged or one.incomplete
                    yield one

            texts: Iterable[str]
            if palette is None:
                texts = map(json_line, _json(str(capture), known, last, found()))
            else:
                table = _table(str(capture), known, last, found(), terminal_width())
                texts = map(Painter(palette).lines, table)
            for text in texts:
                sink.write(text.encode("utf-8", "backslashreplace"))
            sink.flush()
    except KeyboardInterrupt as stopped:
        raise Interrupted("interrupted", status_after(stopped), source=str(capture)) from None
    return damaged


def _table(place: str, known: CaptureState, last: str, found: Found, width: int) -> Iterator[Iterable[Line]]:
    table = CaptureTable(width)
    yield table.head(place, known)
    for one in found:
        yield table.segment(one) if isinstance(one, SegmentOverview) else table.snapshot(one)
    yield table.end(known, last)


def _json(place: str, known: CaptureState, last: str, found: Found) -> Iterator[dict[str, Any]]:
    yield {"kind": "capture", "capture": place, **_state(known), "missing": last or None}
    for one in found:
        yield _segment(one) if isinstance(one, SegmentOverview) else _snapshot(one)


def _state(known: CaptureState) -> dict[str, Any]:
    if known is NO_STATE:
        return {"position": None, "parameters": None, "gap": None, "pruned": None}
    pruned = known.pruned
    return {
        "position": lsn_text(known.position),
        "parameters": dict(known.head),
        "gap": None if known.gap is None else [lsn_text(known.gap.start), lsn_text(known.gap.end)],
        "pruned": None if pruned is None else pruned.shown(),
    }


def _segment(overview: SegmentOverview) -> dict[str, Any]:
    file, contents = overview.file, overview.contents
    head = {"kind": "segment", "segment": str(file.name), "open": file.open, "bytes": file.size}
    names = (
        *("missing", "gap", "first_commit_lsn", "position", "transactions", "messages", "first_commit_ts"),
        *("last_commit_ts", "xids", "tables", "prepared", "outcomes"),
    )
    return {**head, **(dict.fromkeys(names) if contents is None else _contents(overview, contents))}


def _contents(overview: SegmentOverview, contents: SegmentContents) -> dict[str, Any]:
    first, last = (None, None) if contents.times is None else map(time_text, contents.times)
    return {
        "missing": overview.missing or None,
        "gap": contents.parameters[GAP].split() or None,
        "first_commit_lsn": lsn_text(overview.file.name.position),
        "position": lsn_text(contents.position),
        "transactions": contents.transactions,
        "messages": contents.messages,
        "first_commit_ts": first,
        "last_commit_ts": last,
        "xids": contents.xids,
        "tables": None if contents.tables is None else [table._asdict() for table in contents.tables],
        "prepared": [one._asdict() for one in contents.prepared],
        "outcomes": [one._asdict() for one in contents.outcomes],
    }


def _snapshot(overview: SnapshotOverview) -> dict[str, Any]:
    snapshot = overview.snapshot
    return {
        "kind": "snapshot",
        "schema": snapshot.schema,
        "table": snapshot.table,
        "relid": snapshot.relid,
        "lsn": lsn_text(snapshot.lsn),
        "timeline": snapshot.timeline,
        "rows": snapshot.rows,
        "segments": len(snapshot.segments),
        "missing": overview.missing,
        "bytes": snapshot.bytes,
        "counts": overview.counts,
    }
