"""Errors of servers and libpq, and advice on each.

Tables of (SQLSTATE or None, pattern in the English message, cure). If the server's messages are in another language,
only the SQLSTATE can match; the message itself is always shown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

import psycopg
from psycopg.pq import DiagnosticField
from psycopg.pq.abc import PGresult

from pgtail.errors import COMMAND, TRY_AGAIN, ServerError
from pgtail.terminal.escape import escape, sql_identifier


class Cure(NamedTuple):
    """Advice for an error with this SQLSTATE (None: any) whose text matches; {role} is the connecting role."""

    sqlstate: str | None
    pattern: str
    text: str


_REPLICATION_RIGHT = (
    f"Give the role the right (a superuser can):{COMMAND}ALTER ROLE {{role}} REPLICATION;\n"
    f"On Amazon RDS (for other providers see their manuals):{COMMAND}GRANT rds_replication TO {{role}};"
)

STANDBY_CONFLICT: Final = (
    "On a standby, changes of the primary end long queries: set hot_standby_feedback = on there, or raise"
    " max_standby_streaming_delay."
)

CONNECTING: Final = (
    Cure(None, "no pg_hba.conf entry.*no encryption|no pg_hba.conf entry.*SSL off",
         "The server has no rule for this connection without TLS: try sslmode=require (PGSSLMODE=require), or add a"
         " line to its pg_hba.conf for this user, database and address."),
    Cure(None, "no pg_hba.conf entry",
         "The server has no rule for this user, database and address: add a line to its pg_hba.conf (the database's"
         " name, not the word replication) and reload it."),
    Cure(None, "no password supplied",
         "Give a password: in ~/.pgpass, in PGPASSWORD, or with -W on a terminal."),
    Cure(None, "password authentication failed",
         "Check user and password: in PGPASSWORD, ~/.pgpass or the connection string; -W asks for a password."),
    Cure(None, "(?:Peer|Ident) authentication failed",
         "The server requires the role to match the operating system user: use another role (-U), or TCP (-h"
         " localhost)."),
    Cure(None, "server does not support SSL|SSL was required",
         "The server does not support TLS, but the connection requires it: enable TLS there, or use sslmode=prefer."),
    Cure(None, "certificate verify failed|server certificate for|root certificate file",
         "The server's certificate was not accepted: set sslrootcert to the authority, or do not verify it"
         " (sslmode=require)."),
    Cure(None, "must be superuser or replication role|permission denied to start WAL sender|to start walsender",
         _REPLICATION_RIGHT),
    Cure(None, 'role "[^"]*" does not exist', "Connect as another user: --username NAME."),
    Cure(None, 'database "[^"]*" does not exist', "Name a database that exists: -d NAME; psql -l lists them."),
    Cure(None, r"max_wal_senders\W*\(currently 0\)",
         f"The server is set up without walsenders. As a superuser, and then restart it:{COMMAND}ALTER SYSTEM SET"
         " max_wal_senders = 10;"),
    Cure(None, "max_wal_senders|number of requested standby connections",
         "All walsenders are in use: stop one (SELECT * FROM pg_stat_replication), or raise max_wal_senders and restart"
         " the server."),
    Cure(None, "could not translate host name|failed to resolve host|Name or service not known|Connection refused"
         "|No such file or directory|connection timeout|timeout expired|No route to host",
         "Check that the server runs, and where: --host, --port, PGHOST and PGPORT."),
    Cure(None, 'definition of service "[^"]*" not found|service file',
         "Check the service name, ~/.pg_service.conf and PGSERVICEFILE."),
    Cure(None, 'unsupported startup parameter|replication.*not supported|protocol.*replication',
         "There seems to be a pooler in between: connect to the server itself, or use pgbouncer 1.23 or later."),
)  # fmt: skip

RUNNING: Final = (
    Cure(None, "must be superuser or replication role|permission denied to use replication slots", _REPLICATION_RIGHT),
    Cure(None, "replication slots? .* is active for PID",
         "Only one client can read a slot: stop the other one, or read another slot."),
    Cure("53400", "all replication slots are in use",
         "Drop an unused slot (SELECT * FROM pg_replication_slots), or raise max_replication_slots and"
         " restart the server."),
    Cure(None, 'decoding on standby requires',
         f"On the primary, as a superuser, and then restart it:{COMMAND}ALTER SYSTEM SET wal_level = logical;\n"
         "PostgreSQL 19 and later need no more than a logical slot on the primary."),
    Cure(None, "wal_level",
         f"As a superuser, and then restart the server:{COMMAND}ALTER SYSTEM SET wal_level = logical;"),
    Cure(None, "may not be used as an output plugin",
         "The server loads only the plugins in output_plugin_libraries: pgtail doctor shows the SQL that adds one."),
    Cure(None, "cannot use different column lists for table",
         "Two of the publications have different columns of this table: -P names those to read."),
    Cure("42704", 'publication "[^"]*" does not exist',
         "The publication was created after the slot's position, or dropped: the server reads the catalog as it was"
         " at that position. Create a new slot (it starts after the publication), or start pgtail stream after the"
         " publication's creation with --startpos."),
    Cure(None, 'skipped loading publication',
         "The publication was dropped, or created after the slot's position; its changes are not sent. Create a new"
         " slot, or continue without it: --allow-missing-publication."),
    Cure("22P05", "", "A value has a character that UTF8 does not have. pgtail stream --encoding NAME reads the text"
         " as the server stores it, in that encoding; so does pgtail record."),
    Cure("22021", "", "The database has bytes that are not valid in its encoding. pgtail stream --encoding NAME reads"
         " them as they are; so does pgtail record."),
    Cure(None, "conflict with recovery.*slot",
         "A lower wal_level on the primary invalidates the slots of a standby (with wal_level replica, since"
         " PostgreSQL 19: the end of the primary's last logical slot), and so does vacuum without"
         " hot_standby_feedback. Fix that, then create the slot again."),
    Cure(None, "conflict with recovery", STANDBY_CONFLICT),
    Cure(None, "requested WAL segment .* has already been removed|can no longer get changes from replication slot|slot"
         ".*invalidated",
         "The server has removed WAL that the slot needed, so its changes are lost. Drop the slot and create it"
         " again; max_slot_wal_keep_size and idle_replication_slot_timeout control this."),
    Cure(None, "unrecognized pgoutput option|requested proto_version|protocol version",
         "The server does not know an option: choose a lower one with pgtail stream --proto-version, or report it with"
         " the output of -vv."),
    Cure(None, "no binary output function available for type",
         "Values of this type have no binary form: read without --binary."),
)  # fmt: skip

TRANSIENT: Final = frozenset({"57P01", "57P02", "57P03", "57P05", "53300", "08000", "08003", "08006", "08001", "08004"})
"""SQLSTATEs of errors that a retry may solve."""

_DATA_EXCEPTION: Final = "22"
"""The class of errors about a value, for example in a publication's row filter."""

_PLAIN_NAME: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_MOST_SHOWN: Final = 4000
"""Characters of a message of the server."""

_TRANSIENT_TEXT = re.compile(
    "Connection refused|No such file or directory|starting up|shutting down|in recovery mode|not yet accepting"
    "|server closed the connection|timeout|Connection reset|No route to host|Network is|terminating connection"
    "|could not receive data|could not send data|SSL SYSCALL|SSL connection has been closed|too many clients"
    "|remaining connection slots|standby connections|Broken pipe|no COPY in progress|connection is lost|recovery"
    " conflict"
)


_CREDENTIALS_TEXT = re.compile("authentication failed|no password supplied|certificate")


class Unreachable(ServerError):
    """The server cannot be reached at the moment; a retry may succeed."""

    exit_status = TRY_AGAIN


class CredentialsRefused(ServerError):
    """The password or the certificate is wrong or missing. Files with them may change."""


class RecoveryConflict(ServerError):
    """A standby ended the query or the session to replay a change of its primary (SQLSTATE 40001)."""

    exit_status = TRY_AGAIN


class Internal(ServerError):
    """An internal error of the server: a bug in it, or damaged data (SQLSTATE class XX)."""


class QueryCanceled(ServerError):
    """A timeout or a request canceled the query (SQLSTATE 57014)."""


class SyntaxRefused(ServerError):
    """The server could not parse the command (SQLSTATE 42601)."""


class UndefinedObject(ServerError):
    """The command names something that does not exist (SQLSTATE 42704)."""


class ObjectInUse(ServerError):
    """The command needs a slot that somebody else has at the moment (SQLSTATE 55006)."""

    exit_status = TRY_AGAIN


_KINDS: Final = {
    "40001": RecoveryConflict,
    "57014": QueryCanceled,
    "42601": SyntaxRefused,
    "42704": UndefinedObject,
    "55006": ObjectInUse,
}


def connection_error(error: psycopg.Error, parameters: Mapping[str, str]) -> ServerError:
    """The error for a failed connection attempt."""
    text = _shown(_first_failure(str(error)))
    if "service" not in parameters and "PGSERVICE" not in os.environ:  # a service may name the role
        parameters = {"user": os.environ.get("PGUSER", ""), **parameters}
    cure = _cure(CONNECTING, None, text, parameters)
    refused = CredentialsRefused if _CREDENTIALS_TEXT.search(text) else ServerError
    kind = Unreachable if _is_transient(None, text) else refused
    return kind(text, cure=cure)


def server_error(
    sqlstate: str | None,
    text: str,
    *,
    role: str = "THE_ROLE",
    doing: str | None = None,
    first: tuple[Cure, ...] = (),
) -> ServerError:
    """The error for a server's error response; `doing` says what failed, `first` has cures that win over the others."""
    cure = _cure((*first, *RUNNING, *CONNECTING), sqlstate, text, {"user": role})
    text = _shown(text) or "the server reports an error without a message"
    reason = text if doing is None else f"{doing}: {text}"
    transient, state = _is_transient(sqlstate, text), sqlstate or ""
    kind = Unreachable if transient else Internal if state.startswith("XX") else _KINDS.get(state, ServerError)
    error = kind(reason, cure=cure)
    error.quotes = state.startswith(_DATA_EXCEPTION)
    return error


def _is_transient(sqlstate: str | None, text: str) -> bool:
    """Whether a retry may succeed: not where the server is set up without walsenders."""
    transient = sqlstate in TRANSIENT or (sqlstate is None and _TRANSIENT_TEXT.search(text) is not None)
    return transient and "(currently 0)" not in text


def reported(result: PGresult) -> tuple[str | None, str]:
    """The SQLSTATE and the message of a server's error response, or of libpq's own."""
    sqlstate = result.error_field(DiagnosticField.SQLSTATE)
    text = result.error_field(DiagnosticField.MESSAGE_PRIMARY) or result.error_message or b""
    return None if sqlstate is None else sqlstate.decode(errors="replace"), text.decode(errors="replace")


def why_broken(why: object) -> str:
    """The first line of what libpq says about a broken connection."""
    return next(filter(None, map(str.strip, str(why).splitlines())), "libpq gives no reason")


def _cure(cures: tuple[Cure, ...], sqlstate: str | None, text: str, parameters: Mapping[str, str]) -> str | None:
    for cure in cures:
        if cure.sqlstate in (None, sqlstate) and re.search(cure.pattern, text, re.DOTALL):
            return cure.text.replace("{role}", _role(parameters.get("user") or "THE_ROLE"))
    return None


def _role(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else sql_identifier(name)


def one_line(text: str) -> str:
    """A message of libpq as one line: it has several lines, and quoted names may have more."""
    first, *others = [line.strip() for line in text.strip().split("\n")]
    for line in others:
        first += f". {line}" if line[:1].isupper() and first[-1:].isalnum() else f" {line}"
    return first


def _shown(text: str) -> str:
    """A server's message as one line, and not more of it than a person reads."""
    return escape(text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}...")


def _first_failure(text: str) -> str:
    """psycopg lists all attempts if there were several; the first one is enough. It does not name a host of PGHOST."""
    first = one_line(text.partition("\nMultiple connection attempts failed")[0])
    return first.replace("failed to resolve host None", f"failed to resolve host {os.environ.get('PGHOST')!r}")
