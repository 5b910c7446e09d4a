"""Reading a slot through a temporary copy, which leaves the slot itself unchanged.

The server can copy a slot that is in use, and give the copy another plugin (src/backend/replication/slotfuncs.c,
copy_replication_slot). The server drops a temporary slot when its session ends.
"""

from __future__ import annotations

import re
import time
from typing import Final

import psycopg
from psycopg import pq
from psycopg.pq.abc import PGresult

from pgtail.errors import COMMAND, OptionError, ServerError
from pgtail.pgoutput.scalars import lsn_text
from pgtail.postgres import catalog, publications, rows, slots
from pgtail.postgres.catalog import Publication, ServerFacts, Slot
from pgtail.postgres.connection import Connection, is_direct
from pgtail.postgres.errors import QueryCanceled, UndefinedObject
from pgtail.postgres.pgoutput_options import Wanted, identifier, literal
from pgtail.postgres.walsender import Session
from pgtail.terminal.escape import escape, sql_identifier

_DECODE_SECONDS: Final = 5
"""Maximum seconds for decoding up to the first change."""
_COPY: Final = "SELECT pg_copy_logical_replication_slot(%s, %s, true, %s)"
_PEEK: Final = f"""
SELECT count(*) AS messages, count(*) FILTER (WHERE get_byte(data, 0) NOT IN (66, 67)) AS changes
FROM pg_logical_slot_peek_binary_changes(
    %s, {catalog.POSITION}, %s, 'proto_version', '1', 'publication_names', %s)
"""
_MESSAGES: Final = (1, 1_000, 1_000_000)
"""How many messages to decode, one after another, until one is neither Begin (66) nor Commit (67): before PostgreSQL 15
the server sends them for transactions without changes, too."""
_SKIPPED: Final = b"55000"
"""SQLSTATE of the warning that a publication is skipped (src/backend/replication/pgoutput/pgoutput.c)."""
_QUOTED: Final = re.compile(r'"(.+)"')


def find(connection: Connection, name: str, server: ServerFacts, wanted: Wanted) -> Slot:
    """The slot of this name, if it can be read through a copy. Raises OptionError and ServerError."""
    if not server.copies_slots:
        raise OptionError(f"--fork needs PostgreSQL 12 or later; this is {server.major}")
    if wanted.two_phase:
        raise OptionError("--two-phase: a copy of a slot cannot have it")
    slot = slots.existing(connection, name)
    slots.check_logical(slot, server)
    if slot.confirmed_flush_lsn is None:
        raise ServerError(f"slot {name} is still being created: it cannot be copied yet.", cure="Try again later.")
    return slot


def check_older(
    connection: Connection, slot: Slot, chosen: list[Publication], *, named: bool
) -> tuple[list[Publication], list[str]]:
    """The publications through which the slot's changes can be read, and warnings if that is unknown.

    The server reads the catalog as it was at the time of each change. If a publication is not in it, decoding fails;
    since PostgreSQL 18 the server warns and skips the publication instead. Raises ServerError in both cases, unless
    the publications were not `named` and others are old enough: then it returns these.
    """
    older = publications.older(connection, slot)
    unsure = [publication.name for publication in chosen if publication.name not in older]
    if not unsure:
        return chosen, []
    certain = [] if named else [publication for publication in chosen if publication.name in older]
    names = " and ".join(map(sql_identifier, unsure))
    unknown = (
        f"publication {names} may be newer than the changes of slot {slot.name}: the stream then ends at the first one"
    )
    if not is_direct(connection):
        return (certain, []) if certain else (chosen, [unknown])  # a temporary slot would stay in the pooler's session
    try:
        missing = _missing(connection, slot, unsure, only_first=named)
    except QueryCanceled:
        unchecked = f"{unknown} (could not be checked within {_DECODE_SECONDS} s)"
        return (certain, []) if certain else (chosen, [unchecked])
    readable = [publication for publication in chosen if publication.name not in missing]
    if missing and (named or not readable):
        raise _newer(slot, missing[0], older)
    return readable, []


def _missing(connection: Connection, slot: Slot, unsure: list[str], *, only_first: bool) -> list[str]:
    """Those of the `unsure` publications that are not in the catalog as of the slot's first change.

    Raises ServerError, QueryCanceled after _DECODE_SECONDS.
    """
    missing: list[str] = []
    deadline = time.monotonic() + _DECODE_SECONDS
    while unsure and (found := missing_from(connection, slot, unsure, deadline - time.monotonic())):
        missing += found
        unsure = [] if only_first else [name for name in unsure if name not in found]
    return missing


def _newer(slot: Slot, name: str, older: list[str]) -> ServerError:
    cures = [f"To read what is committed from now on:{COMMAND}pgtail stream --fork {slot.name} --startpos now"]
    if older:
        cures.append(f"Publications as old as the slot: {publications.flags(older)}")
    return ServerError(
        f"publication {sql_identifier(name)} is newer than the changes of slot {slot.name}, from"
        f" {lsn_text(slot.confirmed)} on: it is not in the catalog as of the first change, so these changes cannot be"
        " read through it.",
        cure="\n".join(cures),
    )


def left_out(slot: Slot, names: list[Publication]) -> str:
    """A note about publications that check_older() left out."""
    return (
        f"not reading {publications.in_words(names)}: newer than the changes of slot {slot.name}, or not certainly"
        " older"
    )


def missing_from(connection: Connection, slot: Slot, names: list[str], seconds: float) -> list[str]:
    """The publications that are not in the catalog as of the slot's first change.

    Decodes a temporary copy up to the first transaction with a change. Before PostgreSQL 18 this finds only one of
    them. Raises ServerError, QueryCanceled after `seconds`. There must be no pooler: the copy would remain in its
    session.
    """
    skipped: list[str] = []

    def on_notice(notice: PGresult) -> None:
        if notice.error_field(pq.DiagnosticField.SQLSTATE) == _SKIPPED:
            text = (notice.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b"").decode(errors="replace")
            skipped.extend([name for name in _QUOTED.findall(text) if name in names] or names[:1])

    copy_name = slots.temporary_name()
    purpose = f"a copy of slot {slot.name}"
    connection.pgconn.notice_handler = on_notice  # psycopg's own one trusts the client_encoding that the server names
    try:
        with connection.transaction():  # its settings end with it; an error also drops temporary slots
            milliseconds = max(1, int(seconds * 1000))
            rows.run(connection, "statement_timeout", f"SET LOCAL statement_timeout TO {milliseconds}")
            rows.run(connection, "client_min_messages", "SET LOCAL client_min_messages TO warning")
            rows.run(connection, purpose, _COPY, slot.name, copy_name, slots.PLUGIN)
            for most in _MESSAGES:
                seen = rows.only(connection, purpose, _PEEK, copy_name, most, ",".join(map(identifier, names)))
                if seen.integer("changes") or seen.integer("messages") < most:
                    break
            rows.run(connection, purpose, "SELECT pg_drop_replication_slot(%s)", copy_name)
    except UndefinedObject as error:
        shown = {escape(name): name for name in names}
        return [next((shown[name] for name in _QUOTED.findall(error.reason) if name in shown), names[0])]
    except psycopg.Error as error:
        raise rows.translated(connection, error) from error
    finally:
        connection.pgconn.notice_handler = None
    return list(dict.fromkeys(skipped))


def copy(session: Session, source: str, name: str) -> int:
    """Copy a slot to a temporary slot of this session; returns the copy's position. Raises ServerError."""
    call = f"pg_copy_logical_replication_slot({literal(source)}, {literal(name)}, true, {literal(slots.PLUGIN)})"
    purpose, doing = "the copy of the slot", f"slot {source} cannot be copied"
    return rows.single(purpose, session.query(purpose, f"SELECT lsn FROM {call}", doing=doing)).lsn("lsn")


def described(slot: Slot) -> str:
    """A short description of the slot."""
    use = "" if slot.active_pid is None else f", in use by pid {slot.active_pid}"
    return f"slot {slot.name} ({escape(str(slot.plugin))}{use})"
