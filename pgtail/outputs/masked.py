"""Floor 4, an output that is told masked values only, whichever it is; knows no format.

Not being the output itself, it has no short way from bytes to lines: none can bypass it.
"""

from __future__ import annotations

from pgtail.outputs.base import Output
from pgtail.redaction import Redaction
from pgtail.transaction import Event


class Masked:
    """Hands each event on as `redaction` lets it be shown."""

    def __init__(self, output: Output, redaction: Redaction) -> None:
        self._output = output
        self._redaction = redaction

    def event(self, event: Event) -> None:
        self._output.event(self._redaction.event(event))

    def finish(self) -> None:
        self._output.finish()
