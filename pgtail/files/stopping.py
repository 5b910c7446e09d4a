"""Requests to stop: SIGINT, SIGTERM and SIGHUP, with one handler for the whole process.

Before work begins a request ends the process: an exception would leave modules half imported. Then it raises
KeyboardInterrupt(number) in the main thread. While requests are postponed the first one waits for stop_if_asked(), and
a second one raises; in an Interrupt they are counted. Signals ignored at start stay ignored: SIGHUP under nohup, SIGINT
in a script's background jobs.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final, NoReturn, Self

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SAME: Final = 1.0
"""Seconds in which a second signal is the same request: kernel and shell both report a closed terminal."""


class _Requests:
    last = -_SAME
    """Time of the last one."""
    to_end = False
    """Whether one was not SIGINT: that asks the programs that pgtail started to end too."""
    echoed = False
    """Whether a terminal may show ^C where the next message begins."""
    begun = False
    """Whether work has begun that must end cleanly."""
    postponed = False
    """Whether the next one waits; then `waiting` is its signal."""
    waiting: int | None = None
    interrupt: Interrupt | None = None
    """What counts them."""
    stoppable: Stoppable | None = None


def handle_requests() -> None:
    """From now on SIGINT, SIGTERM and SIGHUP are requests to stop, unless they are ignored."""
    _set_handler(_handle)


def begin() -> None:
    """Work begins: from now on requests raise."""
    _Requests.begun, _Requests.postponed, _Requests.waiting = True, False, None


def ignore_requests() -> None:
    """From now on ignore requests to stop: Python removes its handlers before it exits, and the status is known."""
    _set_handler(signal.SIG_IGN)


def _set_handler(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
    for number in SIGNALS:
        if signal.getsignal(number) not in (signal.SIG_IGN, None):
            signal.signal(number, handler)


def _handle(number: int, frame: FrameType | None) -> None:
    _Requests.to_end |= number != signal.SIGINT
    _Requests.echoed |= number == signal.SIGINT
    now = time.monotonic()
    if now - _Requests.last >= _SAME:
        _Requests.last = now
        if not _Requests.begun:
            os._exit(128 + number)
        request_stop(number)


def request_stop(number: int) -> None:
    """Do what a request to stop does now."""
    interrupt = _Requests.interrupt
    if _Requests.stoppable is None and interrupt is not None:
        interrupt.count += 1
        if not interrupt.raises:
            return
    elif _Requests.postponed and _Requests.waiting is None:
        _Requests.waiting = number
        return
    _stop(number, broken_off=_Requests.waiting is not None)


def _stop(number: int, *, broken_off: bool) -> NoReturn:
    _Requests.waiting = None
    if _Requests.stoppable is not None:
        _Requests.stoppable.asked = True
        _Requests.stoppable.first()
    raise KeyboardInterrupt(number, broken_off)


def after_echo(terminal: object) -> str:
    """The text to write first to standard error: a newline, if it is a terminal and may show ^C since the last call."""
    echoed, _Requests.echoed = _Requests.echoed, False
    return "\n" if echoed and terminal else ""


def asked_to_stop() -> bool:
    """Whether there was a request."""
    return _Requests.last > -_SAME


def asked_to_end() -> bool:
    """Whether there was a request other than SIGINT, which a terminal sends to all programs on it."""
    return _Requests.to_end


def status_after(stopped: KeyboardInterrupt) -> int:
    """The exit status for a signal, as in shells, where no work had to end cleanly."""
    return 128 + (stopped.args[0] if stopped.args else signal.SIGINT)


def is_broken_off(stopped: KeyboardInterrupt) -> bool:
    """Whether a second request came while the first one waited: work was broken off anywhere."""
    return stopped.args[1:] == (True,)


def stop_if_asked() -> None:
    """Raise KeyboardInterrupt for a request that was postponed."""
    if _Requests.waiting is not None:
        _stop(_Requests.waiting, broken_off=False)


def postpone(on: bool = True) -> bool:
    """Set whether a request waits for stop_if_asked(); returns whether it did so far."""
    before, _Requests.postponed = _Requests.postponed, on
    return before


@contextlib.contextmanager
def postponed() -> Iterator[None]:
    """A context at whose end a request raises, unless requests were postponed before it."""
    outer = postpone()
    try:
        yield
    finally:
        postpone(outer)
    if not outer:
        stop_if_asked()


@contextlib.contextmanager
def raising() -> Iterator[None]:
    """A context in which a request raises at once, also one that waits."""
    outer = postpone(False)
    try:
        stop_if_asked()
        yield
    finally:
        postpone(outer)


class Stoppable:
    """A context in which a request calls `first` and raises. `asked`: libraries may raise another exception instead."""

    def __init__(self, first: Callable[[], None]) -> None:
        self.asked = False
        self.first = first

    def __enter__(self) -> Self:
        begin()
        _Requests.stoppable = self
        return self

    def __exit__(self, *_: object) -> None:
        _Requests.stoppable = None


class Wakeup:
    """A context that lets any thread wake the main loop through a descriptor, and ask it to stop.

    Calls that cannot check the count of requests (connecting, SQL) are made inside of raising().
    """

    def __init__(self) -> None:
        self.count = 0
        """How often somebody asked to stop."""
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # A thread that is blocked in its output may call wake() later, when another file may have this descriptor.
        read, write, self._read, self._write = self._read, self._write, -1, -1
        os.close(read)
        os.close(write)

    def stop(self) -> None:
        """Ask the main loop to stop, from any thread."""
        self.count += 1
        self.wake()

    def fileno(self) -> int:
        """A descriptor that a request or wake() makes readable."""
        return self._read

    def wake(self) -> None:
        """Wake the main loop, from any thread."""
        with contextlib.suppress(OSError):
            os.write(self._write, b"\0")

    def clear(self) -> None:
        """Make the descriptor unreadable again."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._read, 4096):
                pass

    @contextlib.contextmanager
    def raising(self) -> Iterator[None]:
        """A context that raises KeyboardInterrupt after a request to stop: at its start or its end."""
        self._raise_if_asked()
        yield
        self._raise_if_asked()

    def _raise_if_asked(self) -> None:
        if self.count:
            raise KeyboardInterrupt


class Interrupt(Wakeup):
    """A Wakeup that signals ask to stop. Enter it in the main thread.

    In raising() a signal raises at once. After the context requests are postponed: what is left to do is done.
    """

    def __init__(self) -> None:
        super().__init__()
        self.raises = False
        self._wakeup_before = -1

    def __enter__(self) -> Self:
        self._wakeup_before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self.count = int(_Requests.waiting is not None)
        begin()
        _Requests.interrupt = self
        return self

    def __exit__(self, *_: object) -> None:
        postpone()
        _Requests.interrupt = None
        signal.set_wakeup_fd(self._wakeup_before)
        super().__exit__()

    @contextlib.contextmanager
    def raising(self) -> Iterator[None]:
        """A context in which a request raises KeyboardInterrupt, also one that came before."""
        self.raises = True
        try:
            self._raise_if_asked()
            yield
        finally:
            self.raises = False
        self._raise_if_asked()  # a library may have caught the exception
