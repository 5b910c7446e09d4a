"""Signals that were ignored when the tests were started, and are not to be ignored by what they start."""

from __future__ import annotations

import signal


def heed_signals(*, hangup: bool = True) -> None:
    """Heed Ctrl-C and its like, which a background job of a shell ignores.

    With `hangup` the programs under test heed a closed terminal too.
    Under nohup the tests themselves do not heed that: a handler, unlike SIG_IGN, is not handed on.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    if hangup and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda number, frame: None)
