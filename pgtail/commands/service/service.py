"""A command that runs for years: its metrics, health, notifications to systemd, and the check of its lag."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from pgtail.commands.options.server import Address, ServiceOptions
from pgtail.commands.service.health import Health
from pgtail.errors import COMMAND, OptionError, PgtailError
from pgtail.service.progress import Progress
from pgtail.service.systemd import Notifier

if TYPE_CHECKING:
    from pgtail.commands.service.metrics import Server

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

    def __init__(
        self, options: ServiceOptions, progress: Progress, tell: Callable[..., None], info: Mapping[str, str]
    ) -> None:
        self._options = options
        self._progress = progress
        self._tell = tell
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
            self._tell(f"note: metrics at http://{host}:{port}/metrics", "metrics", port=port)
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
        """Tell when the lag begins to be too much, and when that ends."""
        excess = self._health.excess(now)
        if excess is not None and not self._exceeded:
            self._tell(f"warning: {excess}, more than {self._health.max_lag} (--max-lag)", "lag_exceeded")
        elif excess is None and self._exceeded:
            self._tell(f"the lag is no longer more than {self._health.max_lag}", "lag_recovered")
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
