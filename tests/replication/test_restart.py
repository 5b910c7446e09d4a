"""A stream that restarts anywhere gives the same lines as an unbroken one: no row twice, none missing."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pgtail.changes.assembler import Assembler
from pgtail.changes.events import Note
from pgtail.changes.filters import Filter
from pgtail.outputs import OutputOptions, open_output
from pgtail.pgoutput.decoder import Decoder
from pgtail.pgoutput.rows import Insert
from pgtail.pgoutput.schema import Relation, Type
from pgtail.pgoutput.streaming import StreamAbort, StreamCommit, StreamStart, StreamStop
from pgtail.pgoutput.transaction import Begin, Commit, Message
from pgtail.pgoutput.two_phase import BeginPrepare, CommitPrepared, Prepare, RollbackPrepared, StreamPrepare
from pgtail.pipeline.pipeline import Pipeline
from pgtail.values import Types
from tests.support.corpus import Capture, capture
from tests.support.render import Sink, feed

CAPTURES = [
    capture("A_dml", "p1"),
    capture("A_msgs", "p1_msg"),
    capture("C_stream", "p2_nostream"),
    capture("C_stream", "p2_stream_msg"),
    capture("D_twophase", "p3_2pc"),
    capture("D_twophase", "p3_2pc_stream"),
    capture("E_parallel", "p4_parallel"),
]
ENDS = (Commit, Prepare, StreamCommit, StreamPrepare, CommitPrepared, RollbackPrepared)


class Run:
    """A pipeline and its output."""

    def __init__(self, found: Capture, output: str, filter_: Filter | None = None) -> None:
        self.found = found
        self.sink = Sink()
        self.notes: list[str] = []
        options = OutputOptions(transactions=True)
        rendering = open_output(output, self.sink, options)
        assembler = Assembler(Types(encoding=found.encoding))
        self.pipeline = Pipeline(assembler, rendering, filter_=filter_, note=self.note)
        self.begin()

    def note(self, note: Note) -> None:
        self.notes.append(note.text)

    def begin(self) -> None:
        self.decoder = Decoder(encoding=self.found.encoding)

    def feed(self, frames: list[bytes]) -> Run:
        feed(frames, self.decoder, self.pipeline)
        return self

    def restart(self, *, gap: bool = False) -> None:
        self.pipeline.restart(gap=gap)
        self.begin()

    def finish(self) -> bytes:
        self.pipeline.break_off()
        return b"".join(self.sink.parts)


class Server:
    """Sends a capture again from a reader's position on, as a walsender does after START_REPLICATION."""

    def __init__(self, found: Capture) -> None:
        self.found = found
        decoder = Decoder(encoding=found.encoding)
        self.frames = list(found.frames())
        self.messages: list[Any] = [decoder.frame(frame, 0, len(frame))[0] for frame in self.frames]

    def again(self, cut: int) -> list[bytes]:
        """The frames after a connection that broke before frame `cut`."""
        ends = [i + 1 for i, message in enumerate(self.messages[:cut]) if self._moves_on(message)]
        return self.after(max(ends, default=0))

    def after(self, last: int) -> list[bytes]:
        """The frames for a reader whose position moved on with the frame before frame `last`."""
        over = {message.xid for message in self.messages[:last] if isinstance(message, StreamCommit | StreamPrepare)}
        over |= {
            message.xid
            for message in self.messages[:last]
            if isinstance(message, StreamAbort) and message.xid == message.subxid
        }
        return [*self._streams(last, over), *self.frames[last:]]

    def _moves_on(self, message: Any) -> bool:
        """Whether the reader's position moves with it."""
        return isinstance(message, ENDS) or (isinstance(message, Message) and not message.transactional)

    def inside(self, cut: int) -> bool:
        """Whether frame `cut` is after the first change of a transaction that is not streamed."""
        before = [message for message in self.messages[:cut] if not isinstance(message, Relation | Type)]
        first = next(
            (i for i in range(len(before) - 1, -1, -1) if isinstance(before[i], (Begin, BeginPrepare, *ENDS))), 0
        )
        return bool(before) and isinstance(before[first], Begin | BeginPrepare) and len(before) - first > 1

    def _streams(self, last: int, over: set[int]) -> list[bytes]:
        """The segments before frame `last` of streamed transactions that were still open then."""
        found, inside = [], False
        for frame, message in zip(self.frames[:last], self.messages[:last], strict=True):
            if isinstance(message, StreamStart):
                inside = message.xid not in over
            if inside or (isinstance(message, StreamAbort) and message.xid not in over):
                found.append(frame)
            if isinstance(message, StreamStop):
                inside = False
        return found


def cuts(server: Server, count: int) -> list[int]:
    return sorted(random.Random(4).sample(range(1, len(server.frames)), min(count, len(server.frames) - 1)))


@pytest.mark.parametrize("output", ["json", "json-tx", "table"])
@pytest.mark.parametrize("found", CAPTURES, ids=str)
def test_a_restart_anywhere_changes_nothing(found: Capture, output: str) -> None:
    server = Server(found)
    whole = Run(found, output).feed(server.frames).finish()
    halves = 0
    for cut in cuts(server, 20 if output == "json" else 5):
        run = Run(found, output).feed(server.frames[:cut])
        run.restart()
        halves += server.inside(cut)
        assert run.feed(server.again(cut)).finish() == whole, cut
        assert run.notes == []
    assert halves or found.name not in ("p1", "p2_nostream")


def test_a_second_break_changes_nothing_either() -> None:
    for found in CAPTURES:
        server = Server(found)
        whole = Run(found, "json").feed(server.frames).finish()
        for first, second in zip(cuts(server, 5), reversed(cuts(server, 5)), strict=True):
            run = Run(found, "json").feed(server.frames[:first])
            run.restart()
            again = server.again(first)
            # The second break is a few messages later: before or after the first one.
            part = again[: 1 + second % 40]
            run.feed(part)
            run.restart()
            done = len(server.frames) - len(again) + len(part)
            rest = server.again(done) if done > first else again
            assert run.feed(rest).finish() == whole, (first, second)


def test_a_transaction_may_be_streamed_when_it_is_repeated() -> None:
    plain, streaming = (Server(capture("C_stream", name)) for name in ("p2_nostream", "p2_stream"))
    whole = Run(plain.found, "json-tx").feed(plain.frames).finish()
    ends = {
        found.commit_lsn: i for i, found in enumerate(streaming.messages) if isinstance(found, Commit | StreamCommit)
    }
    begins = {found.final_lsn: i for i, found in enumerate(plain.messages) if isinstance(found, Begin)}
    lsn = next(lsn for lsn in begins if isinstance(streaming.messages[ends[lsn]], StreamCommit))
    last = max((i + 1 for end, i in ends.items() if end < lsn), default=0)
    changes = [i for i in range(begins[lsn], len(plain.frames)) if isinstance(plain.messages[i], Insert)]
    for cut in (changes[1], changes[10], changes[400]):
        assert plain.inside(cut)
        run = Run(plain.found, "json-tx").feed(plain.frames[:cut])
        run.restart()
        assert run.feed(streaming.after(last)).finish() == whole, cut
        assert run.notes == []


def test_the_transaction_in_which_a_repeated_stream_stops_is_known() -> None:
    server = Server(capture("A_dml", "p1"))
    begin = next(i for i, message in enumerate(server.messages) if isinstance(message, Begin))
    cut = begin + 5
    assert server.inside(cut)
    for more in range(cut):
        run = Run(server.found, "json").feed(server.frames[:cut])
        run.restart()
        run.feed(server.again(cut)[:more]).finish()
        shown = run.pipeline.broken_off
        assert shown is not None
        assert (shown.xid, shown.changes) == (server.messages[begin].xid, 3), more


def test_filters_apply_after_a_restart() -> None:
    found = capture("A_dml", "p1")
    server = Server(found)

    def filter_() -> Filter:
        return Filter(ops=("update", "delete"))

    whole = Run(found, "json", filter_()).feed(server.frames).finish()
    assert whole
    for cut in cuts(server, 30):
        run = Run(found, "json", filter_()).feed(server.frames[:cut])
        run.restart()
        assert run.feed(server.again(cut)).finish() == whole, cut


def test_nothing_is_skipped_after_a_gap() -> None:
    found = capture("A_dml", "p1")
    server = Server(found)
    begins = [i for i, message in enumerate(server.messages) if isinstance(message, Begin)]
    number = next(n for n in range(len(begins) - 1) if begins[n + 1] - begins[n] > 6)
    run = Run(found, "json-tx").feed(server.frames[: begins[number] + 4])
    run.restart(gap=True)
    lines = run.feed(server.frames[begins[number + 1] :]).finish().splitlines()
    whole = Run(found, "json-tx").feed(server.frames).finish().splitlines()
    assert len(lines) == len(whole)
    assert [line.endswith(b',"incomplete":true}') for line in lines].count(True) == 1
    assert lines[number + 1 :] == whole[number + 1 :]
