"""The server to read: the connection, the plan, the display of its status, and the interrupt that ends the reading."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from pgtail.files.stopping import Wakeup
from pgtail.postgres.connection import Connector
from pgtail.replication.plan import Plan
from pgtail.service.progress import SlotProgress


class Publisher(Struct, frozen=True):
    """The server whose publications are read, as `plan` says. A request to stop arrives at `interrupt`.

    `show_status` replaces the status line by one with these parts, and does not block; None: there is no such line.
    """

    plan: Plan
    connector: Connector
    interrupt: Wakeup
    progress: SlotProgress
    show_status: Callable[[Sequence[str]], None] | None = None
