"""The server that is read: how to connect, what of it to read, whom to tell, and what ends the reading."""

from __future__ import annotations

from pgtail.files.signals import Interrupt
from pgtail.postgres.connection import Connector
from pgtail.records import Record
from pgtail.replication.loop import Reporter
from pgtail.replication.plan import Plan
from pgtail.service.progress import SlotProgress


class Publisher(Record):
    """The server whose publications are read, as `plan` says. A request to stop arrives at `interrupt`."""

    plan: Plan
    connector: Connector
    interrupt: Interrupt
    reporter: Reporter
    progress: SlotProgress
