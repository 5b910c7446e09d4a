"""Mask values before they reach an output."""

from __future__ import annotations

from pgtail.changes.events import Event
from pgtail.changes.redaction import Redaction
from pgtail.outputs.base import Output


class RedactedOutput:
    """Passes each event to `output`, masked by `redaction`."""

    def __init__(self, output: Output, redaction: Redaction) -> None:
        self._output = output
        self._redaction = redaction

    def event(self, event: Event) -> None:
        self._output.event(self._redaction.event(event))

    def finish(self) -> None:
        self._output.finish()
