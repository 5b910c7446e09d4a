"""Names for completion on a command line: quick, and silent about whatever fails."""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Iterator
from typing import Any, Final

from pgtail.commands.connect import connector_of
from pgtail.commands.options.server import ConnectionOptions
from pgtail.errors import PgtailError
from pgtail.postgres.catalog import Named
from pgtail.postgres.catalog import names as names_of
from pgtail.terminal.escape import hides

LIMIT: Final = 1.5
"""Seconds after which nothing is completed."""
_CONNECT_TIMEOUT: Final = 2
_PLAIN: Final = re.compile(r"[\w.@%+/][\w.@%+/-]*")
"""Names that neither a shell nor pgtail takes for anything else, such as an option; the others are left out."""


class _TooLateError(Exception):
    pass


@contextlib.contextmanager
def _in_time() -> Iterator[None]:
    """Leave the body without an error when it fails, or when it takes longer than LIMIT."""

    def too_late(*_: Any) -> None:
        raise _TooLateError

    before = signal.signal(signal.SIGALRM, too_late)
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    try:
        with contextlib.suppress(_TooLateError, PgtailError, OSError):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def on_server(named: Named, options: ConnectionOptions) -> list[str]:
    """The names of what a server has; none without an answer in time, or if it wants a password that must be typed."""
    found: list[str] = []
    with _in_time(), connector_of(options).without_asking().ordinary(connect_timeout=_CONNECT_TIMEOUT) as connection:
        found = names_of(connection, named)
    return [name for name in found if _PLAIN.fullmatch(name) and not hides(name)]
