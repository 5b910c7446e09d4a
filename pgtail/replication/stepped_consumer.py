"""The consumer of a program that reads a stream in a thread of its own, as it iterates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pgtail.outputs.base import Output
from pgtail.pgoutput.decoder import AnyFrame
from pgtail.replication.consumer import BATCH
from pgtail.replication.pipeline_consumer import Feed, PipelineConsumer
from pgtail.replication.queue import FrameQueue

_END: Final = object()


class SteppedConsumer(PipelineConsumer):
    """Processes frames in the thread that calls step(), when everything that `output` has of the last one is taken.

    The stream goes on after what was processed, also over a reconnection. What the user acknowledges is acknowledged,
    and once that is all that was taken, what followed and left nothing to take. With a temporary slot everything that
    was taken is: nobody reads it again, and the server need not keep its WAL.
    """

    def __init__(self, feed: Feed, queue: FrameQueue, output: Output, *, position: int) -> None:
        super().__init__(feed, queue, position=position)
        self._output = output
        self._steps: Iterator[None] = iter(())
        self._taken = self._acknowledged = self._settled = position
        self._temporary = feed.publisher.plan.temporary
        self.has_acknowledged = False
        """Whether the user acknowledged anything."""

    def start(self) -> None:
        """step() waits for frames."""

    def stop(self, seconds: float) -> bool:
        """Drop what is in the queue: step() then returns False."""
        self._queue.close()
        return True

    def end(self) -> None:
        """Its user needs no more frames, and acknowledges nothing more."""
        self._queue.close()
        self.ended = True
        self._wake()

    @property
    def acknowledged(self) -> int:
        """Not after `position`, from which to go on, nor after the start of a transaction that is only prepared."""
        return min(self._acknowledged, self._settled)

    def take(self, position: int | None) -> None:
        """The user took everything up to this position, which the next step() would reach."""
        self._taken = max(self._taken, position or 0)
        self.position = max(self.position, self._taken)
        self._note_position()

    def acknowledge(self, position: int | None = None) -> None:
        """Acknowledge everything up to this position; None: everything that was taken."""
        self.has_acknowledged = True
        self._acknowledged = max(self._acknowledged, self._taken if position is None else position)
        self._acknowledge_rest()
        self._wake()

    def step(self, seconds: float | None) -> bool:
        """Process the next bit of the stream, and wait for it. Returns False at the end.

        Raises TimeoutError after this many seconds without a frame. After other errors it raises the same again.
        """
        if self.error is not None:
            raise self.error
        try:
            while next(self._steps, _END) is _END:
                self._check_completeness()
                if self.reached or not self._take_frames(seconds):
                    self._queue.close()
                    return False
        except TimeoutError:
            raise
        except Exception as error:
            self.error = error
            raise
        self._note_position()
        return True

    def _note_position(self) -> None:
        self.delivered = self.position
        if self._output.settled:
            self._settled = self.position

    def _take_frames(self, seconds: float | None) -> bool:
        """Wait for frames; returns False if none follow."""
        if self._temporary:
            self._acknowledged = self._taken
        self._acknowledge_rest()
        frames = self._queue.take_frames(BATCH, seconds)
        if frames is None:
            self._queue.release()
            raise TimeoutError("no change came in time")
        self._steps = self._process(frames)
        return bool(frames)

    def _acknowledge_rest(self) -> None:
        """If the user acknowledged everything so far, that includes what left nothing to take."""
        if (self.has_acknowledged or self._temporary) and self._acknowledged >= self._taken:
            self._acknowledged = max(self._acknowledged, self.position)

    def _feed(self, message: AnyFrame, lsn: int | None) -> Iterator[None]:
        return self._pipeline.feed_in_parts(message, lsn)
