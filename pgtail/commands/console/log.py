"""Lines of a log: a message as a JSON object."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Final

_LEVELS: Final = ("error", "warning", "note")
"""Words that begin a message, before a colon."""
_WARNINGS: Final = frozenset(
    (
        *("connection_lost", "gap", "lag_exceeded", "not_acknowledged", "queue_failed", "queue_full"),
        *("reconnection_failed", "trouble", "upload_failed"),
    )
)
"""Events that are warnings."""


def log_line(text: str, event: str, fields: Mapping[str, object]) -> str:
    """A message as a line of JSON: time, level, event, message, and the fields of the event.

    The level is that which the message begins with, else `warning` for an event that is one. A message without a name
    for what happened has the event `message`, or `error`. All characters are ASCII, so that none controls a terminal.
    """
    word, colon, rest = text.partition(": ")
    level = word if colon and word in _LEVELS else ""
    message = " ".join([line.strip() for line in (rest if level else text).split("\n")])
    if level in ("", "note"):
        level = "warning" if event in _WARNINGS else "debug" if event == "trace" else "info"
    event = event or ("error" if level == "error" else "message")
    found = {"time": _now(), "level": level, "event": event, "message": message}
    return json.dumps(found | dict(fields), separators=(",", ":"))


def _now() -> str:
    seconds, micros = divmod(time.time_ns() // 1000, 1_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{micros:06d}Z"
