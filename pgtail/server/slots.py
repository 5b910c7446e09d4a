"""Floor 5, the slot to read: found and checked, or created; changes nothing on the server unless it was told to."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable
from typing import Final

import psycopg

from pgtail.errors import OptionError, ServerError
from pgtail.server import facts
from pgtail.server.connection import Connection, Connector
from pgtail.server.cures import Unreachable
from pgtail.server.facts import ServerFacts, Slot
from pgtail.server.options import identifier
from pgtail.server.session import Session
from pgtail.wire.scalars import lsn_text, parse_lsn

PLUGIN: Final = "pgoutput"
_NAME = re.compile(r"[a-z0-9_]{1,63}")
_TEMPORARY: Final = "use pgtail stream without --slot, which takes a temporary one."
_CREATION_PAUSE: Final = 1.0
"""Seconds after which a creation that has not come back is explained."""


def temporary_name() -> str:
    """A name that no other slot has."""
    return f"pgtail_{os.getpid()}_{secrets.token_hex(4)}"


def check_name(name: str) -> None:
    """Whether a slot of this name can be created. Raises OptionError."""
    if _NAME.fullmatch(name) is None:
        raise OptionError(f"slot {name}: a slot's name has at most 63 lower case letters, digits and underscores")


def find(connection: Connection, name: str, server: ServerFacts) -> Slot:
    """The slot of this name, checked. Raises ServerError for one that is not there or cannot be read."""
    cure = f"pgtail slot create {name} creates it; without --slot pgtail uses a temporary one."
    slot = existing(connection, name, cure=cure)
    check(slot, server)
    check_free(
        connection,
        slot,
        cure=f"Only one client can read a slot. Look at it through a copy (pgtail stream --fork {name}), or"
        f" stop that one (SELECT pg_terminate_backend({slot.active_pid}); it may come back at once), or {_TEMPORARY}",
    )
    return slot


def existing(connection: Connection, name: str, *, cure: str | None = None) -> Slot:
    """The slot of this name. Raises ServerError, with those there are, where there is none."""
    slot = facts.slot(connection, name)
    if slot is not None:
        return slot
    others = [_described(other) for other in facts.slots(connection)]
    if others:
        reason = f"there is no slot {name}. The server has:\n" + "\n".join([f"  {other}" for other in others])
    else:
        reason = f"there is no slot {name}; the server has none at all."
    raise ServerError(reason, cure=cure)


def check_free(connection: Connection, slot: Slot, *, cure: str) -> None:
    """Whether nobody reads the slot at the moment. Raises Active, which says who does."""
    if slot.active_pid is None:
        return
    holder = facts.holder(connection, slot.active_pid)
    who = f"pid {slot.active_pid}"
    if holder is not None:
        names = [f"user {holder.user}" if holder.user else "", holder.application, holder.client]
        who = ", ".join([who, *filter(None, names)])
    raise Active(f"slot {slot.name} is in use by {who}.", cure=cure)


def check(slot: Slot, server: ServerFacts) -> None:
    """Whether pgoutput messages can be read from it here. Raises ServerError."""
    check_decodable(slot, server)
    if slot.plugin != PLUGIN:
        raise ServerError(
            f"slot {slot.name} uses the plugin {slot.plugin}; pgtail reads {PLUGIN}.",
            cure=f"Look at it through a copy that uses {PLUGIN} (pgtail stream --fork {slot.name}), or {_TEMPORARY}",
        )
    if slot.synced:
        raise ServerError(
            f"slot {slot.name} is a copy that this standby keeps in step with its primary: it cannot be read here.",
            cure=f"Read it on the primary, or {_TEMPORARY}",
        )


def check_decodable(slot: Slot, server: ServerFacts) -> None:
    """Whether the slot holds changes of this database, whatever its plugin. Raises ServerError."""
    if slot.physical:
        raise ServerError(
            f"slot {slot.name} is a physical slot: it sends WAL, no messages.",
            cure=f"Name a logical slot, or {_TEMPORARY}",
        )
    if slot.database != server.database:
        raise ServerError(
            f"slot {slot.name} belongs to database {slot.database}, this is {server.database}.",
            cure=f"Connect to that one: -d {slot.database}",
        )
    if slot.invalid is not None:
        raise ServerError(
            f"slot {slot.name} is invalidated ({slot.invalid}): what it should send is gone.",
            cure="Drop it and create it anew; its consumer needs a fresh copy of the tables.",
        )


def create(
    session: Session,
    connector: Connector,
    name: str,
    server: ServerFacts,
    *,
    temporary: bool,
    two_phase: bool,
    failover: bool = False,
    tell: Callable[[str], None],
) -> int:
    """Create a slot; returns its consistent point. Says after a second what it waits for. Raises ServerError.

    SNAPSHOT 'nothing': none is exported, so no transaction stays open behind it.
    """
    explained: set[str] = set()

    def explain() -> None:
        for line in _waits_for(connector, session.backend_pid, server):
            waits_for, _, _ = line.rpartition(", ")  # behind it stands for how long by now
            if waits_for not in explained:
                explained.add(waits_for)
                tell(line)

    words = [f"CREATE_REPLICATION_SLOT {identifier(name)}", *(["TEMPORARY"] if temporary else []), f"LOGICAL {PLUGIN}"]
    if server.major >= 15:
        options = ["SNAPSHOT 'nothing'", *(["TWO_PHASE"] if two_phase else []), *(["FAILOVER"] if failover else [])]
        words.append(f"({', '.join(options)})")
    else:
        words.append("NOEXPORT_SNAPSHOT")
    [(_, point, *_)] = session.query(
        " ".join(words), doing=f"slot {name} cannot be created", every=_CREATION_PAUSE, meanwhile=explain
    )
    return parse_lsn(point)


def _waits_for(connector: Connector, pid: int, server: ServerFacts) -> list[str]:
    try:
        with connector.ordinary() as connection:
            found = facts.blockers(connection, pid)
    except (ServerError, psycopg.Error):
        return []  # it is only an explanation
    if found:
        return [f"creating the slot waits for a transaction to end: {blocker}" for blocker in found]
    if server.in_recovery:
        waits = (
            "creating the slot waits for a word from the primary about its running transactions; this hastens it there:"
            " SELECT pg_log_standby_snapshot();"
        )
        return [waits]
    return []


def _described(slot: Slot) -> str:
    words = [slot.name, "physical" if slot.physical else f"{slot.plugin}, database {slot.database}"]
    if slot.temporary:
        words.append("temporary")
    words.append("free" if slot.active_pid is None else f"in use by pid {slot.active_pid}")
    if slot.confirmed_flush_lsn is not None:
        words.append(f"confirmed {lsn_text(slot.confirmed_flush_lsn)}")
    return ", ".join(words)


class Active(Unreachable):
    """Somebody else reads the slot; after a lost connection perhaps we ourselves, of whom the server knows longer."""
