"""The server that is read: how to connect, what of it to read, whom to tell, and what ends the reading."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from pgtail.files.stopping import Interrupt
from pgtail.postgres.connection import Connector
from pgtail.replication.plan import Plan
from pgtail.service.progress import SlotProgress


class Reporter(Protocol):
    """Where messages go. No method may block.

    `event` names what happened, for programs, with its `fields`.
    """

    wants_status: bool
    wants_trace: bool

    def tell(self, text: str, /, event: str = "", **fields: object) -> None: ...
    def detail(self, text: str, /) -> None: ...
    def more(self, text: str, /, event: str = "", **fields: object) -> None: ...
    def trace(self, text: str, /) -> None: ...
    def status(self, parts: Sequence[str], /) -> None: ...


class Publisher(Struct, frozen=True):
    """The server whose publications are read, as `plan` says. A request to stop arrives at `interrupt`."""

    plan: Plan
    connector: Connector
    interrupt: Interrupt
    reporter: Reporter
    progress: SlotProgress
