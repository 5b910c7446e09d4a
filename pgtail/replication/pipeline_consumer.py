"""The consumer that decodes frames and feeds the pipeline; its subclasses say in which thread."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from pgtail.errors import DecodeError
from pgtail.humanize import counted
from pgtail.pgoutput.decoder import AnyFrame, Decoder
from pgtail.pgoutput.frames import LENGTHS, bounds
from pgtail.pgoutput.scalars import lsn_text
from pgtail.pgoutput.transaction import Message
from pgtail.pgoutput.walsender import Keepalive
from pgtail.pipeline.pipeline import Pipeline
from pgtail.replication.consumer import Consumer
from pgtail.replication.identity import Identity
from pgtail.replication.plan import Publisher
from pgtail.replication.probe import CompletenessProbe
from pgtail.replication.queue import FrameQueue
from pgtail.replication.same_tables import SameTables
from pgtail.service.progress import Counts

_LARGE: Final = 10_000
"""Changes of a transaction from which on the status line counts them as they arrive."""


class Feed(Struct, frozen=True):
    """The stream of a publisher, and the pipeline that it goes to."""

    publisher: Publisher
    pipeline: Pipeline
    same_tables: SameTables | None
    """None if no row is remembered over a reconnection."""


class PipelineConsumer(Consumer):
    """Feeds the pipeline, and knows the position that it has reached."""

    def __init__(self, feed: Feed, queue: FrameQueue, *, position: int) -> None:
        super().__init__(queue, feed.publisher.interrupt.wake, position=position)
        self._pipeline = feed.pipeline
        self._same_tables = feed.same_tables
        self._completeness = CompletenessProbe(feed.publisher)
        self._encoding = feed.publisher.plan.encoding or "utf-8"
        self._decoder = Decoder(encoding=self._encoding)

    @property
    def commits_at(self) -> int | None:
        return self._pipeline.commits_at

    def counts(self) -> Counts:
        pipeline = self._pipeline
        selected = pipeline.rows - pipeline.left_out
        return Counts(pipeline.transactions, pipeline.rows, selected=selected, tables=pipeline.rows_by_table())

    @property
    def last_commit(self) -> int | None:
        return None if self._pipeline.times is None else self._pipeline.times[1]

    @property
    def status_always(self) -> bool:
        """Also while the rows of a large transaction arrive, most of which may be shown only when it commits."""
        open_ = self._pipeline.unfinished
        return open_ is not None and open_[1] >= _LARGE

    def status_words(self) -> list[str]:
        """The changes so far of a transaction that is not complete, the transactions shown and the rows selected.

        If a filter left out rows, also the number of all rows read.
        """
        pipeline = self._pipeline
        rows, left_out = pipeline.rows, pipeline.left_out
        words = [f"{counted(pipeline.shown, 'transaction')}, {counted(rows - left_out, 'row')}"]
        if left_out:
            words = [f"{words[0]} selected", f"{counted(rows, 'row')} read"]
        open_ = pipeline.unfinished
        if open_ is not None and open_[1]:
            words.insert(0, f"transaction {open_[0]}: {counted(open_[1], 'change')} so far")
        return words

    def end_at(self, position: int) -> None:
        self._pipeline.stop.until = position

    def restart(self, *, gap: bool, position: int) -> None:
        self._decoder = Decoder(encoding=self._encoding)
        if self._same_tables is not None:
            self._same_tables.restart()
        self._pipeline.restart(gap=gap)
        self.position = self.delivered = position

    def server_changed(self, identity: Identity) -> None:
        if self._same_tables is not None:
            self._same_tables.begin(identity)

    def _check_completeness(self) -> None:
        """Learn which tables have every change in the stream, if old values are taken from them."""
        rows = self._pipeline.seen_rows
        if rows is None:
            return
        answer = self._completeness.poll(rows.doubts)
        if answer is not None and answer.doubts == rows.doubts:
            rows.trust(answer.complete)

    def _process(self, frames: bytes) -> Iterator[None]:
        """Process frames, runs of rows undecoded and all others one by one; what iterates may leave at any step."""
        pos, end = 0, len(frames)
        while not self.reached:
            after = self._pipeline.take_buffer(frames, pos, end, LENGTHS, self._decoder.in_stream)
            if after > pos:
                self.position = max(self.position, self._pipeline.end_lsn or 0)
                yield
            if after >= end:
                return
            start, pos = bounds(frames, after)
            try:
                message, lsn, _ = self._decoder.frame(frames, start, pos)
            except DecodeError as error:
                raise error.located(f"the stream after {lsn_text(self.position)}", error.offset - start) from None
            if self._pipeline.stop.is_before(message):
                self.reached = True
                return
            yield from self._feed(message, lsn)
            if not self._pipeline.inside:
                self._advance(message)
            yield

    @abstractmethod
    def _feed(self, message: AnyFrame, lsn: int | None) -> Iterable[None]:
        """Feed a message to the pipeline, in one step or several."""

    def _advance(self, message: AnyFrame) -> None:
        """Advance `position` after a message outside a transaction, and stop there if all was shown."""
        position = self._pipeline.end_lsn or 0
        if isinstance(message, Keepalive):
            position = message.end_lsn
        elif isinstance(message, Message) and not message.transactional:
            position = message.lsn
        self.position = max(self.position, position)
        self.reached = self._pipeline.stop.is_after(self._pipeline.shown, self.position)
