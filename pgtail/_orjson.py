"""orjson, imported when it is first used: it imports json and dataclasses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["orjson"]

if TYPE_CHECKING:
    import orjson
else:

    class _Orjson:
        """The module; keeps what was asked for."""

        def __getattr__(self, name: str) -> Any:
            import orjson as module

            found = self.__dict__[name] = getattr(module, name)
            return found

    orjson = _Orjson()
