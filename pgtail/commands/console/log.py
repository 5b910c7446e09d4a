"""Lines of a log: a message as a JSON object."""

from __future__ import annotations

import json
import logging
import time
from typing import Final

from pgtail.commands.console.messages import WORDS, TextFormatter
from pgtail.log import DAMAGE, TRACE, TROUBLE

_LEVELS: Final = {logging.ERROR: "error", logging.WARNING: "warning", TROUBLE: "warning", TRACE: "debug"}
"""The names of levels other than `info`."""
_EVENTS: Final = {logging.ERROR: "error", TRACE: "trace"}
"""The events of messages without a name for what happened; else it is `message`."""


class JsonFormatter(TextFormatter):
    """A message as a line of JSON: time, level, event, message, and the fields of the event.

    All characters are ASCII, so that none controls a terminal.
    """

    converter = staticmethod(time.gmtime)

    def format(self, record: logging.LogRecord) -> str:
        level, micros = record.levelno, int(record.created % 1 * 1_000_000)
        text = (WORDS[level] if level == DAMAGE else "") + self.text(record)
        line = {
            "time": f"{self.formatTime(record, '%Y-%m-%dT%H:%M:%S')}.{micros:06d}Z",
            "level": _LEVELS.get(level, "info"),
            "event": getattr(record, "event", _EVENTS.get(level, "message")),
            "message": " ".join([part.strip() for part in text.split("\n")]),
        }
        return json.dumps(line | getattr(record, "fields", {}), separators=(",", ":"))
