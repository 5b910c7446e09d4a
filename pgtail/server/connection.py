"""Floor 5, connections through libpq: where to, as whom, pinned by SET; knows no slot and shows no password.

A DSN or URI, the flags of psql, PG* variables, service files and .pgpass all end in libpq's own parameters.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import psycopg
from psycopg import sql
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgtail.errors import OptionError, ServerError
from pgtail.server.cures import connection_error, server_error

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]
Ask: TypeAlias = Callable[[str], str | None]
"""Asks for a password with this prompt; None where there is nobody to ask."""

APPLICATION_NAME: Final = "pgtail"
_OLDEST: Final = 100_000
_SILENT_PEER: Final = "60000"
"""Milliseconds after which data that the peer's kernel did not confirm ends the connection: we send every few
seconds, so a peer that vanished without a word is noticed (libpq's tcp_user_timeout)."""

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
"""What the text of values depends on. SET after connecting: the connection's `options` are the user's own."""

_SECRETS: Final = frozenset(("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key"))
_SET_IF_DIRECT: Final = """
SELECT CASE WHEN pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) %s::pg_catalog.int4
    THEN pg_catalog.set_config(%s, %s, false) END
"""

_QUOTED = re.compile(r'".*"', re.DOTALL)
"""From the first quote to the last: what is quoted may hold some itself."""
_CREDENTIALS = re.compile(r"[^/@:]+:.*@")
"""How a URI goes on behind its scheme where it has a password."""
_STRAY = re.compile("[\udc80-\udcff]")
_URI = re.compile(r"postgres(?:ql)?://([^?]*)")


def parameters(
    dsn: str | None = None,
    *,
    host: str | None = None,
    port: str | None = None,
    user: str | None = None,
    dbname: str | None = None,
) -> dict[str, str]:
    """libpq's parameters from a DSN, a URI or a plain database name, and the flags, which win.

    Raises OptionError where libpq cannot read it; nothing of the text is repeated, for it may hold a password.
    """
    found: dict[str, str] = {}
    for text in (dsn, dbname):
        if text:
            found.update(_parse(text))
    flags = {"host": host, "port": port, "user": user}
    found.update({name: value for name, value in flags.items() if value is not None})
    return found


def _parse(text: str) -> dict[str, str]:
    if "=" not in text and "://" not in text:
        if _CREDENTIALS.match(text):
            raise OptionError(
                "the connection string looks like a URI without postgresql:// in front of it; a database that is really"
                " called so: 'dbname=...'"
            )
        return {"dbname": text}
    uri = _URI.match(text)
    if uri is not None and ("@" in uri[1].partition("/")[2] or uri[1].count("@") > 1):
        raise OptionError(
            "the connection URI has an @ or a / too many: inside a user name or password write %40 for @ and %2F for /"
        )
    try:
        return {name: str(value) for name, value in conninfo_to_dict(text).items() if value is not None}
    except psycopg.Error as error:
        reason = _QUOTED.sub("...", str(error)).strip()
        raise OptionError(f"the connection string cannot be read: {reason}") from None


def without_secrets(dsn: str) -> str:
    """A connection string or URI as it may be shown: as keywords, with asterisks for what is secret.

    Raises OptionError where libpq cannot read it.
    """
    found = parameters(dsn)
    if dsn == found.get("dbname"):
        return dsn
    return make_conninfo("", **{name: "********" if name in _SECRETS else value for name, value in found.items()})


class _Text(Loader):
    """Text of the catalogs, where names of other databases and roles may be in any encoding: stray bytes as \\xNN."""

    def load(self, data: Buffer) -> str:
        return bytes(data).decode("utf-8", "backslashreplace")


class _Json(Loader):
    """The same inside of JSON."""

    def load(self, data: Buffer) -> Any:
        text = bytes(data).decode("utf-8", "surrogateescape")
        return json.loads(_STRAY.sub(lambda found: rf"\\x{ord(found[0]) & 0xFF:02x}", text))


def is_direct(connection: Connection) -> bool:
    """Whether the session is the server's own: a pooler makes up the process id that it tells at the start."""
    row = connection.execute("SELECT pg_catalog.pg_backend_pid()").fetchone()
    return row == (connection.info.backend_pid,)


def set_if_direct(connection: Connection, name: str, value: str) -> None:
    """Set something for the session, but not in a pooler's: there it would stay for somebody else's."""
    pid = connection.info.backend_pid
    connection.execute(_SET_IF_DIRECT, (pid, name, value))


class Connector:
    """Opens connections to one server: `ordinary` ones for SQL, and `replication` ones, which are pinned.

    A password that the server wants and libpq does not find is asked for with `ask`, once.
    """

    def __init__(self, parameters: Mapping[str, str], *, ask: Ask | None = None, ask_first: bool = False) -> None:
        self._parameters = dict(parameters)
        self._ask = ask
        self._ask_first = ask_first

    def without_asking(self) -> Connector:
        """The same, for where nobody can be asked for a password."""
        return Connector(self._parameters)

    @contextlib.contextmanager
    def ordinary(self, *, patience: int | None = None) -> Iterator[Connection]:
        """A connection for SQL, with nothing but pg_catalog on its search path; it closes with the context.

        `patience` is how many seconds connecting may take where that is not left to the user's connect_timeout.
        It does not stay open: an idle one would hold up a smart shutdown. Raises ServerError, also for what psycopg
        raises inside the context.
        """
        more = {} if patience is None else {"connect_timeout": str(patience)}
        connection = self._connect(client_encoding="UTF8", **more)
        try:
            set_if_direct(connection, "search_path", "")
            if connection.pgconn.parameter_status(b"server_encoding") == b"SQL_ASCII":
                set_if_direct(connection, "client_encoding", "SQL_ASCII")  # it refuses to call bytes UTF8
            for name in ("text", "name", "varchar"):
                connection.adapters.register_loader(name, _Text)
            for name in ("json", "jsonb"):
                connection.adapters.register_loader(name, _Json)
            yield connection
        except psycopg.Error as error:
            text = error.diag.message_primary or str(error).strip()
            raise server_error(error.sqlstate, text, role=connection.info.user) from error
        finally:
            connection.close()

    def replication(self, *, passthrough: bool = False) -> Connection:
        """A walsender connection to the database, pinned; `passthrough` takes text unconverted. Raises ServerError."""
        connection = self._connect(replication="database")
        try:
            self._pin(connection, passthrough=passthrough)
        except psycopg.Error as error:
            connection.close()
            raise ServerError(f"the replication connection could not be prepared: {error}") from error
        return connection

    def _pin(self, connection: Connection, *, passthrough: bool) -> None:
        ascii_server = connection.pgconn.parameter_status(b"server_encoding") == b"SQL_ASCII"
        encoding = "SQL_ASCII" if passthrough or ascii_server else "UTF8"
        for name, value in {**PINNED, "client_encoding": encoding}.items():
            statement = sql.SQL("SET {} TO {}").format(sql.Identifier(name), sql.Literal(value))
            connection.execute(statement)

    def _connect(self, **more: str) -> Connection:
        if self._ask_first:
            self._ask_first = False
            self._ask_for_password(f"Password{self._for_user()}: ")
        while True:
            try:
                return self._checked(self._open(**more))
            except psycopg.OperationalError as error:
                wanted = error.pgconn is not None and error.pgconn.needs_password
                if not wanted or not self._ask_for_password(f"Password{self._for_user()}: "):
                    raise connection_error(error, self._parameters) from None
            except psycopg.Error as error:
                raise connection_error(error, self._parameters) from None

    def _open(self, **more: str) -> Connection:
        # `replication` and `client_encoding` are ours whatever the user's string says.
        defaults = {"fallback_application_name": APPLICATION_NAME, "tcp_user_timeout": _SILENT_PEER}
        conninfo = make_conninfo("", **{**defaults, **self._parameters, **more})
        return psycopg.connect(conninfo, autocommit=True, prepare_threshold=None)

    def _checked(self, connection: Connection) -> Connection:
        if connection.pgconn.server_version < _OLDEST:
            version = connection.pgconn.parameter_status(b"server_version") or b"?"
            connection.close()
            raise ServerError(
                f"the server is PostgreSQL {version.decode(errors='replace')}: pgoutput exists from version 10 on.",
                cure="pgtail cannot read an older server.",
            )
        return connection

    def _ask_for_password(self, prompt: str) -> bool:
        """Whether a password was asked for and given."""
        password = self._ask(prompt) if self._ask is not None else None
        if password is None:
            return False
        self._parameters["password"] = password
        return True

    def _for_user(self) -> str:
        user = self._parameters.get("user")
        return f" for user {user}" if user else ""
