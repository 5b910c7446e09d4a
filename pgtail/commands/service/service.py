"""A command that runs for years: its metrics, health, notifications to systemd, and the check of its lag."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from pgtail.commands.options.server import Address, MaxLag, ServiceOptions
from pgtail.errors import COMMAND, OptionError, PgtailError
from pgtail.humanize import seconds_text, size_text
from pgtail.log import event, log_outcome, logger
from pgtail.service.progress import Progress

if TYPE_CHECKING:
    from pgtail.commands.service.metrics import Server

_UNHEALTHY_AFTER: Final = 8.0


class Health:
    """Judges `progress`: a service is unhealthy if it has not done its work for 8 seconds, or lags too far.

    `info` describes the command, for the metrics.
    """

    def __init__(self, progress: Progress, max_lag: MaxLag | None, info: Mapping[str, str]) -> None:
        self.progress = progress
        self.max_lag = max_lag
        self.info = dict(info)

    def excess(self, now: float) -> str | None:
        """How far the lag is over `max_lag`; None if it is not, or not known."""
        most, progress = self.max_lag, self.progress
        if most is None:
            return None
        if most.bytes is not None:
            size = progress.lag_bytes
            return None if size is None or size <= most.bytes else f"{size_text(size)} behind"
        seconds = progress.lag_seconds(now)
        if seconds is None or most.seconds is None or seconds <= most.seconds:
            return None
        return f"{seconds_text(int(seconds))} behind"

    def answer(self, now: float) -> tuple[int, Mapping[str, object]]:
        """The HTTP status and text for /healthz."""
        trouble, excess = self.progress.trouble(now), self.excess(now)
        if trouble is not None and now - trouble.since >= _UNHEALTHY_AFTER:
            return 503, {"status": "unhealthy", "reason": trouble.reason, "seconds": round(now - trouble.since, 1)}
        if excess is not None:
            return 503, {"status": "unhealthy", "reason": f"{excess}, more than {self.max_lag}"}
        return 200, {"status": "ok"} if trouble is None else {"status": "ok", "trouble": trouble.reason}


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
        """Send assignments such as READY=1. A failure is ignored: the service continues."""
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as peer:
            peer.setblocking(False)
            peer.sendto("\n".join(assignments).encode("utf-8", "replace"), self._address)

    def status(self, text: str) -> None:
        """Send the service's status if it has changed. Control characters become blanks."""
        line = "".join([one if one.isprintable() else " " for one in text[:_LONGEST]])
        if line != self._status:
            self._status = line
            self.send(f"STATUS={line}")


def _watchdog(environment: Mapping[str, str]) -> float | None:
    if environment.get("WATCHDOG_PID", "") not in ("", str(os.getpid())):
        return None
    micros = environment.get("WATCHDOG_USEC", "")
    return int(micros) / 1e6 if micros.isdecimal() and int(micros) else None


_TICK: Final = 0.5
"""Seconds between two looks at the progress, where systemd or the log is to be told what changes."""
_LAST: Final = 1.0
"""Seconds for the last look to end, which a disk may block."""
_START_MORE: Final = 60
"""Seconds for which a start that goes on may last longer."""


class Service:
    """A context in which the progress of a command is shown, as the options and the environment ask.

    Nothing is started if nothing is asked for. Raises OptionError if it cannot be shown so.
    """

    def __init__(self, options: ServiceOptions, progress: Progress, info: Mapping[str, str]) -> None:
        self._options = options
        self._progress = progress
        self._health = Health(progress, options.max_lag, info)
        self._notifier = Notifier(os.environ)
        self._server: Server | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="service", daemon=True)
        self._ready = self._stopping = self._exceeded = False
        self._next_sign = 0.0

    def __enter__(self) -> Self:
        options = self._options
        if options.metrics is not None:
            self._server = _server(self._health, options.metrics)
            host, port = self._server.address
            host = f"[{host}]" if ":" in host else host
            logger.info(f"metrics at http://{host}:{port}/metrics", extra=event("metrics", port=port))
        by_the_clock = bool(self._notifier) or options.max_lag is not None
        self._progress.watched = self._server is not None or by_the_clock
        if by_the_clock:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if not self._progress.watched:
            return
        self._progress.stopping = True
        if isinstance(error, PgtailError):
            self._progress.ended(str(error))
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join(_LAST)
        if not self._thread.is_alive():
            self._notify_end()
        if self._server is not None:
            self._server.close()

    def _run(self) -> None:
        self._tick()
        while not self._ended.wait(_TICK):
            self._tick()

    def _tick(self) -> None:
        now = time.monotonic()
        self._check_lag(now)
        if self._notifier:
            self._notify(now)

    def _check_lag(self, now: float) -> None:
        """Say when the lag begins to be too much, and when that ends."""
        excess = self._health.excess(now)
        if excess is not None and not self._exceeded:
            logger.warning(f"{excess}, more than {self._health.max_lag} (--max-lag)", extra=event("lag_exceeded"))
        elif excess is None and self._exceeded:
            log_outcome(f"the lag is no longer more than {self._health.max_lag}", extra=event("lag_recovered"))
        self._exceeded = excess is not None

    # -- systemd -----------------------------------------------------------------------------------------------

    def _notify(self, now: float) -> None:
        progress, notifier = self._progress, self._notifier
        if progress.ready and not self._ready:
            self._ready = True
            notifier.send("READY=1")
        if progress.stopping and not self._stopping:
            self._stopping = True
            notifier.send("STOPPING=1")
        trouble = progress.trouble(now)
        notifier.status(" · ".join(progress.status(now)) if trouble is None else trouble.reason)
        if now >= self._next_sign and not progress.is_stuck(now, notifier.watchdog or _START_MORE):
            self._next_sign = now + (1.0 if notifier.watchdog is None else min(notifier.watchdog / 3, 1.0))
            if not self._ready:
                notifier.send(f"EXTEND_TIMEOUT_USEC={_START_MORE * 1_000_000}")
            elif notifier.watchdog is not None:
                notifier.send("WATCHDOG=1")

    def _notify_end(self) -> None:
        if not self._stopping:
            self._notifier.send("STOPPING=1")
        trouble = self._progress.target
        self._notifier.status("stopped" if trouble is None else trouble.reason)


def _server(health: Health, address: Address) -> Server:
    """Raises OptionError, also if prometheus-client is not installed."""
    try:
        from pgtail.commands.service.metrics import Server
    except ImportError:
        raise OptionError(
            f"--metrics needs prometheus-client, which is not installed:{COMMAND}pip install prometheus-client"
        ) from None
    return Server(health, address)
