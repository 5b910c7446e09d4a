"""Handles signals that were ignored when the tests were started, so that programs under test do not ignore them."""

from __future__ import annotations

import signal


def reset_ignored_signals(*, hangup: bool = True) -> None:
    """Stop ignoring SIGINT and SIGQUIT, which a background job of a shell ignores.

    With `hangup` also SIGHUP, but only for the programs under test: they do not inherit the handler that is set here,
    as they would SIG_IGN.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    if hangup and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda number, frame: None)
