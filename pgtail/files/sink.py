"""The protocol of the sinks that outputs write to."""

from __future__ import annotations

from typing import Protocol


class Sink(Protocol):
    """Takes an output's bytes; the pipeline decides when they are flushed."""

    def write(self, data: bytes, /) -> object: ...
