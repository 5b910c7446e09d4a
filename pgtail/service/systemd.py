"""systemd's notifications: sd_notify(3) and the watchdog of sd_watchdog_enabled(3)."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping

_LONGEST = 1000
"""Characters of a status."""


class Notifier:
    """Sends notifications to the socket that `environment` names; does nothing without one.

    A socket name that starts with @ is an abstract one. `watchdog` is how often systemd wants a sign of life, in
    seconds; None if it does not.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        name = environment.get("NOTIFY_SOCKET", "")
        self._address = f"\0{name[1:]}" if name.startswith("@") else name
        self.watchdog = _watchdog(environment) if self._address else None
        self._status = ""

    def __bool__(self) -> bool:
        return bool(self._address)

    def send(self, *assignments: str) -> None:
        """Send assignments such as READY=1. What cannot be sent is lost: the service goes on."""
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as peer:
            peer.setblocking(False)
            peer.sendto("\n".join(assignments).encode("utf-8", "replace"), self._address)

    def status(self, text: str) -> None:
        """Tell what the service does, if that has changed. Control characters become blanks."""
        line = "".join([one if one.isprintable() else " " for one in text[:_LONGEST]])
        if line != self._status:
            self._status = line
            self.send(f"STATUS={line}")


def _watchdog(environment: Mapping[str, str]) -> float | None:
    if environment.get("WATCHDOG_PID", "") not in ("", str(os.getpid())):
        return None
    micros = environment.get("WATCHDOG_USEC", "")
    return int(micros) / 1e6 if micros.isdecimal() and int(micros) else None
