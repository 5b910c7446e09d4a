"""Options that pgtail had, and what to do instead."""

from __future__ import annotations

from typing import Final

REMOVED: Final = {
    "--assume": "leave it out: the messages show whether a Stream Abort has an LSN and a time",
    "--critical": "leave it out: slots that retain 10 GB of WAL are red; -o json has wal_held_bytes",
    "--interval": "leave it out: --watch shows a report every 2 seconds",
    "--metrics-file": "--metrics PORT serves the metrics; curl http://127.0.0.1:PORT/metrics writes them to a file",
    "--unhealthy-after": "leave it out: /healthz answers 503 after 8 seconds; let what probes it allow some failures",
    "--within": "--timeout is its name",
    "--wrap": "--max-width 0 shows whole lines, which the terminal wraps",
    "stats --jobs": "leave it out; one process counts",
}
"""Option, of every command or of the one before it -> what to do instead. A setting has the name `--setting`."""


def cure_of_removed(option: str, command: str = "") -> str | None:
    """What to do instead of an option that a command (such as `spark changes`) had; None if it never had it."""
    return REMOVED.get(f"{command} {option}") or REMOVED.get(option)
