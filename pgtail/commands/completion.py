"""Names for completion on a command line: quick, and silent about whatever fails."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pgtail.commands.connect import connector_of
from pgtail.commands.options.server import ConnectionOptions
from pgtail.errors import PgtailError
from pgtail.files.small import read_small
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
    return _plain(found)


def services() -> list[str]:
    """The names of the connection services in libpq's two service files."""
    files = [os.environ.get("PGSERVICEFILE") or os.path.expanduser("~/.pg_service.conf")]
    if "PGSYSCONFDIR" in os.environ:
        files.append(os.path.join(os.environ["PGSYSCONFDIR"], "pg_service.conf"))
    names: dict[str, None] = {}
    for file in files:
        with contextlib.suppress(OSError, ValueError):
            for name in re.findall(r"^\s*\[([^]\n]+)\]", read_small(file).decode(), re.MULTILINE):
                names[name] = None
    return _plain(names)


def _plain(names: Sequence[str] | dict[str, None]) -> list[str]:
    return [name for name in names if _PLAIN.fullmatch(name) and not hides(name)]
