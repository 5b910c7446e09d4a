"""Floor 0, orjson, loaded while Ctrl-C waits: interrupted at its own beginning it would crash the process.

It takes for granted that what it imports then comes (https://github.com/ijl/orjson/issues/310; so does 3.13).
"""

from __future__ import annotations

import signal

__all__ = ["orjson"]

_before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
try:
    import orjson
finally:
    signal.pthread_sigmask(signal.SIG_SETMASK, _before)
