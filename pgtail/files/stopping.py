"""Requests to stop: which signals they are, and what they do before, during and after work that can be stopped.

Signals ignored at start stay ignored: SIGHUP under nohup, SIGINT in a script's background jobs.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final, Self

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SAME: Final = 1.0
"""Seconds in which a second signal is the same request: kernel and shell both report a closed terminal."""
_LEFT: Final = 1.0
"""Seconds for work to end on its own once it no longer handles signals."""


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


def handled_signals() -> list[signal.Signals]:
    """The signals that are requests to stop: those not ignored and without a handler in C."""
    return [number for number in SIGNALS if signal.getsignal(number) not in (signal.SIG_IGN, None)]


def is_new(number: int) -> bool:
    """Whether the current signal is a new request. Call it once per signal."""
    _Requests.to_end |= number != signal.SIGINT
    _Requests.echoed |= number == signal.SIGINT
    now = time.monotonic()
    new = now - _Requests.last >= _SAME
    if new:
        _Requests.last = now
    return new


def after_echo(terminal: object) -> str:
    """What to write first to standard error: a newline, if it is a terminal and may show ^C since the last call."""
    echoed, _Requests.echoed = _Requests.echoed, False
    return "\n" if echoed and terminal else ""


def asked_to_end() -> bool:
    """Whether there was a request other than SIGINT, which a terminal sends to all programs on it."""
    return _Requests.to_end


def status_after(stopped: KeyboardInterrupt) -> int:
    """The exit status for a signal, as in shells, where no work had to end cleanly."""
    return 128 + (stopped.args[0] if stopped.args else signal.SIGINT)


def request_stop(number: int) -> None:
    """Raise KeyboardInterrupt(number); if requests are postponed, remember the first, and raise at the second one."""
    if _Requests.postponed and _Requests.waiting is None:
        _Requests.waiting = number
    else:
        broken_off, _Requests.waiting = _Requests.waiting is not None, None
        raise KeyboardInterrupt(number, broken_off)


def is_broken_off(stopped: KeyboardInterrupt) -> bool:
    """Whether a second request came while the first one waited: work was broken off anywhere."""
    return stopped.args[1:] == (True,)


def stop_if_asked() -> None:
    """Raise KeyboardInterrupt for a request that was postponed."""
    number, _Requests.waiting = _Requests.waiting, None
    if number is not None:
        raise KeyboardInterrupt(number)


def postpone(on: bool) -> bool:
    """Set whether a request waits for stop_if_asked(); returns whether it did so far."""
    before, _Requests.postponed = _Requests.postponed, on
    return before


@contextlib.contextmanager
def postponed() -> Iterator[None]:
    """A context at whose end a request raises, unless requests were postponed before it."""
    outer = postpone(True)
    try:
        yield
    finally:
        postpone(outer)
    if not outer:
        stop_if_asked()


@contextlib.contextmanager
def not_postponed() -> Iterator[None]:
    """A context in which a request raises at once, also one that waits."""
    outer = postpone(False)
    try:
        stop_if_asked()
        yield
    finally:
        postpone(outer)


def take_over(handler: Callable[[int, FrameType | None], None]) -> dict[signal.Signals, Any]:
    """Work begins: set a handler for requests to stop. Returns the previous handlers, for restore_handlers()."""
    _Requests.begun = True
    return {number: signal.signal(number, handler) for number in handled_signals()}


def restore_handlers(before: dict[signal.Signals, Any]) -> None:
    """Set these handlers."""
    for number, handler in before.items():
        signal.signal(number, handler)


def exit_on_stop_request() -> None:
    """From now on a request to stop ends the process, until take_over().

    An exception cannot do that while modules are imported: it leaves some half loaded, and others catch it.
    """
    for number in handled_signals():
        signal.signal(number, _end)
    sys.unraisablehook = _unraisable


def ignore_stop_requests() -> None:
    """From now on ignore requests to stop: Python removes its handlers before it exits, and the status is known."""
    for number in handled_signals():
        signal.signal(number, signal.SIG_IGN)
    # After a KeyboardInterrupt inside exec() of a string (as dataclasses use it), Python exits by SIGINT even if it was
    # caught, unless it evaluates another string.
    eval("0")


class Stoppable:
    """A context in which a request to stop raises KeyboardInterrupt(number). Enter it in the main thread.

    Calls `first` before. `asked` says whether there was a request: libraries may raise another exception instead.
    """

    def __init__(self, first: Callable[[], None] = lambda: None) -> None:
        self.asked = False
        self._first = first
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._before = take_over(self._stop)
        return self

    def __exit__(self, *_: object) -> None:
        restore_handlers(self._before)
        _Requests.waiting = None

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if is_new(number):
            self.asked = True
            self._first()
            request_stop(number)


def _end(number: int, frame: FrameType | None) -> None:
    if not is_new(number):
        return
    if not _Requests.begun:
        os._exit(128 + number)
    late = threading.Timer(_LEFT, os._exit, (128 + number,))
    late.daemon = True
    late.start()


def _unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    """Repeat a signal whose exception Python could only print (in a weak reference's callback or __del__).

    Not from here: an exception inside this hook would only be printed too.
    """
    if not isinstance(unraisable.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
        return
    number = status_after(unraisable.exc_value) - 128
    left = threading.Event()
    threading.Thread(target=_repeat, args=(number, left), daemon=True).start()
    left.set()


def _repeat(number: int, left: threading.Event) -> None:
    left.wait()
    time.sleep(0.001)
    _Requests.last = -_SAME
    os.kill(os.getpid(), number)
