"""Floor 5, the thread that takes frames from the spool: nothing else waits for its disk or its pipe."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Final

from pgtail.errors import InputError, OptionError
from pgtail.server.copydata import AtOnce
from pgtail.server.spool import Spool

BATCH: Final = 256 * 1024
"""Bytes of frames after which what was made of them is written."""


class Stopped(Exception):
    """Raised where the output is to be given up."""


class Taker(threading.Thread, ABC):
    """Takes frames until the spool is closed, something is `reached`, or something is raised.

    Read by the main thread: `delivered` (everything up to this position was written for good), `position` (the same
    for what was taken), `reached` (why it has all it wants), `error`. `wake` is called when one of them changes.
    """

    patience: ClassVar[float | None] = None
    """Seconds of silence after which _tick() is called."""
    status_always: ClassVar[bool] = False
    """Whether the status line shows also while much is coming."""

    def __init__(self, spool: Spool, wake: Callable[[], None], *, position: int) -> None:
        super().__init__(name="output", daemon=True)
        self._spool = spool
        self._wake = wake
        self.position = self.delivered = position
        self.reached: str | None = None
        self.error: BaseException | None = None
        self.ended = False
        self._raised: Exception | None = None
        """By direct(), in the other thread."""

    def run(self) -> None:
        try:
            try:
                while self.reached is None and (frames := self._spool.take(BATCH, self.patience)) != b"":
                    if frames is None:
                        self._tick()
                    else:
                        self._batch(frames)
                if self._raised is not None:
                    raise self._raised
            except Stopped:
                pass
            except (InputError, OptionError) as error:
                self.error = error  # what came before it is still written
            self._end()
        except Exception as error:  # noqa: BLE001 -- the main thread raises it
            self.error = self.error or error
        finally:
            self._spool.close()
            self.ended = True
            self._wake()

    def stop(self, seconds: float) -> bool:
        """Give up what has not been written; returns whether the thread has ended within so many seconds."""
        self._spool.close()
        self.join(seconds)
        return not self.is_alive()

    @abstractmethod
    def words(self) -> list[str]:
        """What the status line says of it."""

    def at_once(self) -> AtOnce | None:
        """What the next frames may be given to before direct(), where there is something."""
        return None

    def direct(self, frames: bytes) -> bytes:
        """Take a few frames in the caller's thread; what he gets back he has to put into the spool.

        Only what cannot have to wait: a lone commit then needs no switch between threads.
        """
        return frames

    def settle(self) -> None:
        """The stream broke off: deliver what was taken whole. Only to be called while the spool is idle."""

    @abstractmethod
    def restart(self, *, gap: bool, position: int) -> None:
        """The stream begins again at a position, behind a `gap` or not. Only to be called while the spool is idle."""

    @abstractmethod
    def _batch(self, frames: bytes) -> None:
        """Take frames, each behind its length."""

    def _tick(self) -> None:
        """Nothing has come for a while."""

    @abstractmethod
    def _end(self) -> None:
        """Close well formed what is open, whoever ended it."""
