"""orjson, imported when it is first used: it imports json and dataclasses.

With SIGINT blocked: an interrupt during its initialization crashes Python, also 3.13. See
https://github.com/ijl/orjson/issues/310.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

__all__ = ["orjson"]

if TYPE_CHECKING:
    import orjson
else:

    class _Orjson:
        """The module; keeps what was asked for."""

        def __getattr__(self, name: str) -> Any:
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                import orjson as module
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
            found = self.__dict__[name] = getattr(module, name)
            return found

    orjson = _Orjson()
