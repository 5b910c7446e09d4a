"""Connections through libpq, with session settings pinned by SET; passwords never appear in messages.

A DSN or URI, the flags of psql, PG* variables, service files and .pgpass all become libpq parameters.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgtail.errors import OptionError, ServerError
from pgtail.postgres import rows
from pgtail.postgres.errors import connection_error
from pgtail.postgres.pgoutput_options import literal

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]
connection_string: Final = make_conninfo
Ask: TypeAlias = Callable[[str], str | None]
"""Asks for a password with this prompt; returns None if there is no terminal."""

APPLICATION_NAME: Final = "pgtail"
SHORT_TIMEOUT: Final = 5
"""Seconds for opening a connection for one short query (connect_timeout)."""
_OLDEST: Final = 100_000
_SILENT_PEER: Final = "60000"
"""Milliseconds after which unacknowledged data ends the connection (libpq's tcp_user_timeout). We send every few
seconds, so this detects a peer that is gone."""

_IDLE_PEER: Final = "60"
"""Seconds without data after which the kernel asks whether the peer is still there: a session that copies a table sends
nothing for hours."""

PINNED: Final[Mapping[str, str]] = {
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
    "extra_float_digits": "3",
    "TimeZone": "UTC",
    "bytea_output": "hex",
    "search_path": "",
    "lc_monetary": "C",
    "quote_all_identifiers": "off",
}
"""Settings that change the text of values. SET after connecting, because `options` belongs to the user."""

_TIMEOUTS: Final = {
    "statement_timeout": 0,
    "lock_timeout": 0,
    "idle_in_transaction_session_timeout": 0,
    "idle_session_timeout": 140_000,
    "transaction_timeout": 170_000,
}
"""The settings that end long work, and the servers that have them: from this server_version_num on."""

_SECRETS: Final = frozenset(("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key"))
_SET_IF_DIRECT: Final = """
SELECT CASE WHEN pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) %s::pg_catalog.int4
    THEN pg_catalog.set_config(%s, %s, false) END
"""

_QUOTED = re.compile(r'".*"', re.DOTALL)
"""From the first quote to the last: the quoted text may contain quotes."""
_CREDENTIALS = re.compile(r"[^/@:]+:.*@")
"""The part of a URI after its scheme, if it has a password."""
_URI = re.compile(r"postgres(?:ql)?://([^?]*)")


def parameters(
    dsn: str | None = None,
    *,
    host: str | None = None,
    port: str | None = None,
    user: str | None = None,
    dbname: str | None = None,
) -> dict[str, str]:
    """libpq's parameters from a DSN, a URI or a database name, overridden by the flags.

    Raises OptionError if libpq cannot parse it. The error does not quote the text: it may contain a password.
    """
    merged: dict[str, str] = {}
    for text in (dsn, dbname):
        if text:
            merged.update(_parse(text))
    flags = {"host": host, "port": port, "user": user}
    merged.update({name: value for name, value in flags.items() if value is not None})
    return merged


def _parse(text: str) -> dict[str, str]:
    if "=" not in text and "://" not in text:
        if _CREDENTIALS.match(text):
            raise OptionError(
                "the connection string looks like a URI without postgresql:// at the start; if it is the name of a"
                " database, write 'dbname=...'"
            )
        return {"dbname": text}
    uri = _URI.match(text)
    if uri is not None and ("@" in uri[1].partition("/")[2] or uri[1].count("@") > 1):
        raise OptionError(
            "the connection URI has too many @ or /: in a user name or password write %40 for @ and %2F for /"
        )
    try:
        return {name: str(value) for name, value in conninfo_to_dict(text).items() if value is not None}
    except psycopg.Error as error:
        reason = _QUOTED.sub("...", str(error).replace('"="', "=")).strip()
        raise OptionError(f"the connection string cannot be parsed: {reason}") from None


def without_secrets(dsn: str) -> str:
    """A connection string or URI for display: as keywords, with asterisks in place of secrets.

    Raises OptionError if libpq cannot parse it.
    """
    found = parameters(dsn)
    if dsn == found.get("dbname"):
        return dsn
    return make_conninfo("", **{name: "********" if name in _SECRETS else value for name, value in found.items()})


def is_direct(connection: Connection) -> bool:
    """Whether there is no pooler in between: the process id that a pooler sends at startup is not the server's."""
    row = rows.only(connection, "the session", "SELECT pg_catalog.pg_backend_pid() AS pid")
    return row.integer("pid") == connection.pgconn.backend_pid


def set_if_direct(connection: Connection, name: str, value: str) -> None:
    """SET for the session, unless it is a pooler's: there the setting would persist for other clients."""
    rows.run(connection, f"the setting {name}", _SET_IF_DIRECT, connection.pgconn.backend_pid, name, value)


def no_timeouts(version: int) -> dict[str, str]:
    """The settings, for a server of this server_version_num, with which no timeout ends a session or its work."""
    return {name: "0" for name, since in _TIMEOUTS.items() if version >= since}


def application_name(connection: Connection) -> str:
    """The session's application_name."""
    return (connection.pgconn.parameter_status(b"application_name") or b"").decode(errors="replace")


class Connector:
    """Opens connections to one server: `ordinary` ones for SQL and `replication` ones with pinned settings.

    If the server requires a password that libpq does not find, `ask` is called once.
    """

    def __init__(self, parameters: Mapping[str, str], *, ask: Ask | None = None, ask_first: bool = False) -> None:
        self._parameters = dict(parameters)
        self._ask = ask
        self._ask_first = ask_first

    def dsn(self, database: str | None = None) -> str:
        """A connection string for a command line: the same server, without secrets; `database` replaces the name."""
        named = {} if database is None else {"dbname": database}
        shown = {name: value for name, value in self._parameters.items() if name not in _SECRETS} | named
        first = [name for name in ("host", "port", "user", "dbname") if name in shown]
        given = {name: shown[name] for name in [*first, *(shown.keys() - first)]}
        plain = first == [*given] == ["dbname"] and not set("=/") & set(given["dbname"])
        return given["dbname"] if plain else make_conninfo("", **given)

    def without_asking(self) -> Connector:
        """The same connector, but it never asks for a password."""
        return Connector(self._parameters)

    def attempt(self, seconds: int) -> Connector:
        """The same connector for one of several attempts: each ends after this time, unless the user set a timeout."""
        if "connect_timeout" in self._parameters or "PGCONNECT_TIMEOUT" in os.environ:
            return self
        return Connector({**self._parameters, "connect_timeout": str(seconds)}, ask=self._ask)

    @contextlib.contextmanager
    def ordinary(self, *, connect_timeout: int | None = None) -> Iterator[Connection]:
        """A connection for SQL with an empty search_path; it closes with the context.

        `connect_timeout` (seconds) overrides the user's own. Do not keep it open: an idle connection would block a
        smart shutdown. Raises ServerError, also for errors of psycopg inside the context.
        """
        connection = self._connect(connect_timeout, client_encoding="UTF8")
        try:
            set_if_direct(connection, "search_path", "")
            if connection.pgconn.parameter_status(b"server_encoding") == b"SQL_ASCII":
                set_if_direct(connection, "client_encoding", "SQL_ASCII")  # its text cannot be converted to UTF8
            yield connection
        except psycopg.Error as error:
            raise rows.translated(connection, error) from error
        finally:
            connection.close()

    def replication(self, *, passthrough: bool = False, connect_timeout: int | None = None) -> Connection:
        """A walsender connection to the database, with pinned settings. Raises ServerError.

        `passthrough` receives text unconverted; `connect_timeout` is as in ordinary().
        """
        connection = self._connect(connect_timeout, replication="database")
        try:
            self._pin(connection, passthrough=passthrough)
        except BaseException:
            connection.close()
            raise
        return connection

    def importing(self, snapshot: str, *, passthrough: bool = False, connect_timeout: int | None = None) -> Connection:
        """A connection in a read-only transaction with an exported snapshot. Raises ServerError.

        Its settings are those of replication(), no timeout ends it, and row-level security that would hide rows is an
        error. All are of the transaction alone, as a pooler may give the session to another client after it.
        """
        connection = self._connect(connect_timeout)
        try:
            rows.run(connection, "the transaction", "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            rows.run(connection, "the exported snapshot", f"SET TRANSACTION SNAPSHOT {literal(snapshot)}")
            settings = {
                **no_timeouts(connection.pgconn.server_version),
                "row_security": "off",
                "synchronize_seqscans": "off",
            }
            self._pin(connection, passthrough=passthrough, local=settings)
        except BaseException:
            connection.close()
            raise
        return connection

    def _pin(self, connection: Connection, *, passthrough: bool, local: Mapping[str, str] | None = None) -> None:
        """Set the pinned settings for the session; with `local` for the transaction, and these too."""
        ascii_server = connection.pgconn.parameter_status(b"server_encoding") == b"SQL_ASCII"
        encoding = "SQL_ASCII" if passthrough or ascii_server else "UTF8"
        word = "SET" if local is None else "SET LOCAL"
        for name, value in {**PINNED, "client_encoding": encoding, **(local or {})}.items():
            rows.run(connection, f"the setting {name}", f"{word} {name} TO '{value}'")
        actual = (connection.pgconn.parameter_status(b"client_encoding") or b"").decode(errors="replace")
        if actual.replace("-", "").upper() not in ("", encoding):
            raise rows.unreadable("its client_encoding", f"it is {rows.shown(actual)}, not {encoding}")

    def _connect(self, connect_timeout: int | None, **more: str) -> Connection:
        if connect_timeout is not None:
            more["connect_timeout"] = str(connect_timeout)
        if self._ask_first:
            self._ask_first = False
            self._ask_for_password()
        while True:
            try:
                return self._open(**more)
            except psycopg.OperationalError as error:
                wanted = error.pgconn is not None and error.pgconn.needs_password
                if not wanted or not self._ask_for_password():
                    raise connection_error(error, self._parameters) from None
            except psycopg.Error as error:
                raise connection_error(error, self._parameters) from None

    def _open(self, **more: str) -> Connection:
        # Our `replication` and `client_encoding` override those in the user's string.
        defaults = {
            "fallback_application_name": APPLICATION_NAME,
            "tcp_user_timeout": _SILENT_PEER,
            "keepalives_idle": _IDLE_PEER,
        }
        conninfo = make_conninfo("", **{**defaults, **self._parameters, **more})
        connection = psycopg.connect(conninfo, autocommit=True, prepare_threshold=None)
        connection.pgconn.notify_handler = None  # psycopg's own one keeps notifications, and fails if one is no UTF-8
        if connection.pgconn.server_version < _OLDEST:
            version = connection.pgconn.parameter_status(b"server_version") or b"?"
            connection.close()
            raise ServerError(
                f"the server is PostgreSQL {version.decode(errors='replace')}: pgoutput exists since version 10.",
                cure="pgtail does not support older servers.",
            )
        return connection

    def _ask_for_password(self) -> bool:
        """Ask for a password; returns whether one was given."""
        user = self._parameters.get("user")
        prompt = f"Password for user {user}: " if user else "Password: "
        password = self._ask(prompt) if self._ask is not None else None
        if password is None:
            self._ask = None
            return False
        self._parameters["password"] = password
        return True
