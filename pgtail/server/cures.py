"""Floor 5, what servers and libpq say when something fails, and what to do about it; opens nothing.

A table of (SQLSTATE or None, pattern in the English text, cure). Where a server speaks another language only the
SQLSTATE helps; the message itself is always shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

import psycopg

from pgtail.errors import ServerError


class Cure(NamedTuple):
    """What to do about an error with this SQLSTATE (None: any) whose text matches; {role} is who connects."""

    sqlstate: str | None
    pattern: str
    text: str


_REPLICATION_RIGHT = (
    "Give the role the right (a superuser can): ALTER ROLE {role} REPLICATION;\n"
    "On Amazon RDS: GRANT rds_replication TO {role};  elsewhere see the provider's manual."
)

CONNECTING: Final = (
    Cure(None, "no pg_hba.conf entry.*no encryption|no pg_hba.conf entry.*SSL off",
         "The server has no rule for this connection without TLS: try sslmode=require (PGSSLMODE=require), or add a"
         " line to its pg_hba.conf for this user, database and address."),
    Cure(None, "no pg_hba.conf entry",
         "The server has no rule for this user, database and address: add a line to its pg_hba.conf (the database's"
         " name, not the word replication) and reload it."),
    Cure(None, "pg_hba.conf rejects",
         "A reject line of the server's pg_hba.conf matches this user, database and address."),
    Cure(None, "no password supplied",
         "Give a password: in ~/.pgpass, in PGPASSWORD, or with -W on a terminal."),
    Cure(None, "password authentication failed",
         "Check user and password: PGPASSWORD, ~/.pgpass and the connection string are looked at; -W asks anew."),
    Cure(None, "(?:Peer|Ident) authentication failed",
         "The server wants the system's user to be the database's: connect as another (-U), or by TCP (-h localhost)."),
    Cure(None, "server does not support SSL|SSL was required",
         "The server offers no TLS and the connection asks for it: turn TLS on there, or use sslmode=prefer."),
    Cure(None, "certificate verify failed|server certificate for|root certificate file",
         "The server's certificate was not accepted: sslrootcert names the authority, sslmode=require does without."),
    Cure(None, "must be superuser or replication role|permission denied to start WAL sender|to start walsender",
         _REPLICATION_RIGHT),
    Cure(None, 'role "[^"]*" does not exist', "Connect as another user: -U NAME."),
    Cure(None, 'database "[^"]*" does not exist', "Name a database that exists: -d NAME; psql -l lists them."),
    Cure(None, "max_wal_senders|number of requested standby connections",
         "All walsenders are in use: stop one (SELECT * FROM pg_stat_replication), or raise max_wal_senders and restart"
         " the server."),
    Cure(None, "too many clients|remaining connection slots|too many connections",
         "The server has no connection to spare: end some, or raise max_connections."),
    Cure(None, "the database system is (?:starting up|shutting down|in recovery)|not yet accepting connections",
         "Try again when the server is up."),
    Cure(None, "could not translate host name|failed to resolve host|Name or service not known",
         "Check the host's name: -h HOST or PGHOST."),
    Cure(None, "Connection refused|No such file or directory|connection timeout|timeout expired|No route to host",
         "Check that the server runs, and where: -h HOST -p PORT, PGHOST and PGPORT."),
    Cure(None, 'definition of service "[^"]*" not found|service file',
         "Check the service's name, ~/.pg_service.conf and PGSERVICEFILE."),
    Cure(None, 'unsupported startup parameter|replication.*not supported|protocol.*replication',
         "A pooler seems to stand between: connect to the server itself, or use pgbouncer 1.23 or later."),
)  # fmt: skip

RUNNING: Final = (
    Cure(None, "must be superuser or replication role|permission denied to use replication slots", _REPLICATION_RIGHT),
    Cure(None, "replication slots? .* is active for PID",
         "Only one client can read a slot: stop the other one, or read another slot."),
    Cure("53400", "all replication slots are in use",
         "Drop a slot that nobody needs (SELECT * FROM pg_replication_slots), or raise max_replication_slots and"
         " restart the server."),
    Cure(None, "wal_level",
         "ALTER SYSTEM SET wal_level = logical; and restart the server."),
    Cure(None, "may not be used as an output plugin",
         "The server loads only the plugins of output_plugin_libraries: pgtail doctor has the SQL that adds one."),
    Cure("42704", 'publication "[^"]*" does not exist',
         "The slot's position is older than the publication, or it was dropped: the server reads the catalog as it was"
         " at that position. Create a new slot (it starts after the publication), or let pgtail stream go on behind the"
         " publication's creation with --from."),
    Cure(None, 'skipped loading publication',
         "The publication was dropped, or is younger than the slot's position; its changes are not sent. Create a new"
         " slot, or go on without it: --allow-missing-publication."),
    Cure("22P05", "", "One value has a character that UTF8 does not have. --encoding NAME takes the text as the server"
         " stores it, in that encoding."),
    Cure("22021", "", "The database holds bytes that are not text in its encoding. --encoding NAME takes them as they"
         " are."),
    Cure(None, "conflict with recovery",
         "A standby cannot keep what its primary gives up: a lower wal_level there invalidates its slots, and without"
         " hot_standby_feedback vacuum does. Set that right, then create the slot anew."),
    Cure(None, "requested WAL segment .* has already been removed|can no longer get changes from replication slot|slot"
         ".*invalidated",
         "The server has removed WAL that the slot needed: what is lost cannot be read. Drop the slot and create it"
         " anew; max_slot_wal_keep_size and idle_replication_slot_timeout say when that happens."),
    Cure(None, "unrecognized pgoutput option|requested proto_version|protocol version",
         "The server does not know an option: choose a lower --proto-version, or report it with the output of -vv."),
    Cure("53100", "", "The server's disk is full."),
    Cure("57P01", "", "An administrator ended the session."),
)  # fmt: skip

TRANSIENT: Final = frozenset({"57P01", "57P02", "57P03", "57P05", "53300", "08000", "08003", "08006", "08001", "08004"})
"""SQLSTATEs after which another try makes sense."""

_DATA_EXCEPTION: Final = "22"
"""The class of errors about a value, such as one that a publication's row filter could not take."""

_TRANSIENT_TEXT = re.compile(
    "Connection refused|No such file or directory|starting up|shutting down|in recovery mode|not yet accepting"
    "|server closed the connection|timeout|Connection reset|No route to host|Network is|terminating connection"
    "|could not receive data|could not send data|SSL SYSCALL|SSL connection has been closed|too many clients"
    "|remaining connection slots|standby connections|Broken pipe|no COPY in progress|connection is lost|recovery"
    " conflict"
)


class Unreachable(ServerError):
    """The server is not to be had at the moment: another try makes sense."""


def connection_error(error: psycopg.Error, parameters: Mapping[str, str]) -> ServerError:
    """The error of a connection that did not come about."""
    text = _first_failure(str(error))
    cure = _cure(CONNECTING, None, text, parameters)
    kind = Unreachable if _TRANSIENT_TEXT.search(text) else ServerError
    return kind(text, cure=cure)


def server_error(sqlstate: str | None, text: str, *, role: str = "THE_ROLE", doing: str | None = None) -> ServerError:
    """The error that a server answered with; `doing` says what was tried."""
    cure = _cure((*RUNNING, *CONNECTING), sqlstate, text, {"user": role})
    reason = text if doing is None else f"{doing}: {text}"
    transient = sqlstate in TRANSIENT or (sqlstate is None and _TRANSIENT_TEXT.search(text))
    error = (Unreachable if transient else ServerError)(reason, cure=cure)
    error.quotes = sqlstate is not None and sqlstate.startswith(_DATA_EXCEPTION)
    return error


def _cure(cures: tuple[Cure, ...], sqlstate: str | None, text: str, parameters: Mapping[str, str]) -> str | None:
    for cure in cures:
        if cure.sqlstate in (None, sqlstate) and re.search(cure.pattern, text, re.DOTALL):
            return cure.text.replace("{role}", parameters.get("user", "THE_ROLE"))
    return None


def _first_failure(text: str) -> str:
    """psycopg repeats every attempt of several: one line is enough where all say the same."""
    return text.partition("\nMultiple connection attempts failed")[0].strip()
