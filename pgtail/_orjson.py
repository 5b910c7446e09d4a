"""Imports orjson with SIGINT blocked: an interrupt during its initialization crashes Python.

See https://github.com/ijl/orjson/issues/310; also in Python 3.13.
"""

from __future__ import annotations

import signal

__all__ = ["orjson"]

_before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
try:
    import orjson
finally:
    signal.pthread_sigmask(signal.SIG_SETMASK, _before)
