"""Floor 5, a look at a slot through a temporary copy of it: whether that can be, and the copy; it stays untouched.

The server copies a slot that is in use as well, and gives the copy another plugin (src/backend/replication/slotfuncs.c,
copy_replication_slot). A temporary slot ends with its session, in whatever way that ends.
"""

from __future__ import annotations

import re
from typing import Final

import psycopg
from psycopg.errors import Diagnostic

from pgtail.errors import OptionError, ServerError
from pgtail.server import facts, publications, slots
from pgtail.server.connection import Connection, is_direct
from pgtail.server.facts import Publication, ServerFacts, Slot
from pgtail.server.options import Wanted, identifier, literal
from pgtail.server.session import Session
from pgtail.wire.scalars import lsn_text, parse_lsn

_SINCE: Final = 12
_PATIENCE: Final = 5
"""Seconds that the server may look for the first change, before anything is shown."""
_COPY: Final = "SELECT pg_copy_logical_replication_slot(%s, %s, true, %s)"
_PEEK: Final = """
SELECT count(*) FROM pg_logical_slot_peek_binary_changes(
    %s, CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END,
    1, 'proto_version', '1', 'publication_names', %s)
"""
_SKIPPED: Final = "55000"
"""SQLSTATE of the warning that a publication is left out (src/backend/replication/pgoutput/pgoutput.c)."""
_QUOTED: Final = re.compile(r'"(.+)"')


def find(connection: Connection, name: str, server: ServerFacts, wanted: Wanted) -> Slot:
    """The slot of this name, if it can be looked at through a copy. Raises OptionError and ServerError."""
    if server.major < _SINCE:
        raise OptionError(f"--fork needs PostgreSQL {_SINCE} or later; this is {server.major}")
    if wanted.two_phase:
        raise OptionError("--two-phase: the server makes copies of slots without it")
    slot = slots.existing(connection, name)
    slots.check_decodable(slot, server)
    if slot.confirmed_flush_lsn is None:
        raise ServerError(f"slot {name} is still being created: it cannot be copied yet.", cure="Try again later.")
    return slot


def check_any_older(connection: Connection, slot: Slot) -> None:
    """Whether the database has a publication at all. Raises ServerError."""
    if not facts.publications(connection):
        raise ServerError(
            f"database {slot.database} has no publication. pgoutput sends nothing without one, and one that is created"
            f" now is younger than slot {slot.name}, which stands at {_stands(slot)}: what the slot holds so far cannot"
            " be seen through it.",
            cure="To see what is committed from then on:\nCREATE PUBLICATION some_name FOR TABLE some_table,"
            f" another_table;\nand then --fork {slot.name} --from now",
        )


def check_older(connection: Connection, slot: Slot, chosen: list[Publication]) -> list[str]:
    """Whether the publications are as old as what the slot holds. Returns warnings where that was not to be found out.

    The server reads the catalog as it was when a transaction made its changes. Where a publication is not in it, the
    server fails up to 17, and from 18 on warns and sends nothing of it. Raises ServerError where it would.
    """
    older = publications.older(connection, slot)
    unsure = [one.name for one in chosen if one.name not in older]
    if not unsure:
        return []
    names = " and ".join(map(identifier, unsure))
    unknown = (
        f"publication {names} may be younger than what slot {slot.name} holds: the stream then ends at the first change"
    )
    if not is_direct(connection):
        return [unknown]  # a temporary slot would stay in the pooler's session
    try:
        missing = _missing(connection, slot, unsure)
    except psycopg.errors.QueryCanceled:
        return [f"{unknown} (not found out within {_PATIENCE} s)"]
    if missing:
        cures = ["To see what is committed from now on: --from now"]
        if older:
            cures.append(f"As old as the slot: {', '.join(map(identifier, older))}")
        raise ServerError(
            f"publication {identifier(missing)} is younger than what slot {slot.name} holds, from {_stands(slot)} on:"
            " it is not in the catalog as it was at the first change, and nothing can be seen through it there.",
            cure="\n".join(cures),
        )
    return []


def _missing(connection: Connection, slot: Slot, names: list[str]) -> str | None:
    """The publication that is not in the catalog at the first change that the slot holds, None where all are.

    Found out by decoding a temporary copy up to the first transaction. Raises QueryCanceled where that takes too long.
    """
    skipped: list[str] = []

    def heard(said: Diagnostic) -> None:
        skipped.extend(_QUOTED.findall(said.message_primary or "") if said.sqlstate == _SKIPPED else [])

    copy_name = slots.temporary_name()
    connection.add_notice_handler(heard)
    connection.execute(f"SET statement_timeout TO '{_PATIENCE}s'".encode())
    try:
        connection.execute(_COPY, (slot.name, copy_name, slots.PLUGIN))
        connection.execute(_PEEK, (copy_name, ",".join(map(identifier, names))))
        connection.execute("SELECT pg_drop_replication_slot(%s)", (copy_name,))
    except psycopg.errors.UndefinedObject as error:
        return next(iter(_QUOTED.findall(error.diag.message_primary or "")), names[0])
    finally:
        connection.remove_notice_handler(heard)
        connection.execute("RESET statement_timeout")
    return skipped[0] if skipped else None


def copy(session: Session, source: str, name: str) -> int:
    """Copy a slot to a temporary one of this session; returns where the copy stands. Raises ServerError."""
    call = f"pg_copy_logical_replication_slot({literal(source)}, {literal(name)}, true, {literal(slots.PLUGIN)})"
    [(point,)] = session.query(f"SELECT lsn FROM {call}", doing=f"slot {source} cannot be copied")
    return parse_lsn(point)


def described(slot: Slot) -> str:
    """The slot in a few words."""
    use = "" if slot.active_pid is None else f", in use by pid {slot.active_pid}"
    return f"slot {slot.name} ({slot.plugin}{use})"


def _stands(slot: Slot) -> str:
    return lsn_text(slot.confirmed_flush_lsn or 0)
