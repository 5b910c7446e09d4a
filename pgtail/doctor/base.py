"""The interface of a check: what it gets (Context) and what it returns (Finding)."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from msgspec import Struct

from pgtail.postgres import rows
from pgtail.postgres.catalog import ServerFacts
from pgtail.postgres.connection import Connection, Connector
from pgtail.postgres.rows import Row
from pgtail.terminal.escape import escape_sql, shell_word

COMMENT: Final = "-- "
_RELOAD: Final = "SELECT pg_reload_conf();"
_SOURCE: Final = """
SELECT source, context, quote_ident(current_user) AS role, quote_ident(current_database()) AS database
FROM pg_settings WHERE name = %s
"""
_OF_SESSION: Final = {
    "user": "ALTER ROLE {role} SET",
    "database": "ALTER DATABASE {database} SET",
    "database user": "ALTER ROLE {role} IN DATABASE {database} SET",
}
"""Source of a setting -> the SQL that changes it there; it overrides what ALTER SYSTEM sets."""
_SET_ELSEWHERE: Final = {
    "command line": "the server's command line sets it",
    "client": "the options of this connection, or PGOPTIONS, set it",
}


class Severity(enum.IntEnum):
    """How bad a finding is; the number is the exit status."""

    OK = 0
    WARNING = 1
    PROBLEM = 2

    @property
    def word(self) -> str:
        return self.name.lower()


class Finding(Struct, frozen=True):
    """The result of a check: a sentence, the objects it is about (names quoted as in SQL), and a cure, line by line.

    A cure can be pasted into psql: lines that are not SQL are comments, and so is SQL that destroys something.
    """

    check: str
    severity: Severity
    text: str
    subjects: tuple[str, ...] = ()
    cure: tuple[str, ...] = ()


class Context(Struct, frozen=True):
    """The server to check. `settings` are the visible rows of pg_settings, in their own units."""

    connection: Connection
    connector: Connector
    server: ServerFacts
    settings: dict[str, str]

    def rows(self, purpose: str, query: str, *values: object) -> list[Row]:
        """All rows of a query; `purpose` names the result in errors."""
        return rows.rows(self.connection, purpose, query, *values)

    def only(self, purpose: str, query: str, *values: object) -> Row:
        """The only row of a query."""
        return rows.only(self.connection, purpose, query, *values)

    def command(self, words: str, database: str | None = None) -> str:
        """A command of pgtail for this server, as a comment; in this database, or the one connected to."""
        return comment(f"{words} {shell_word(self.connector.dsn(database or self.server.database))}")

    def number(self, setting: str) -> int | None:
        """A numeric setting; None if the server does not have it."""
        return Row("the settings", self.settings).optional_integer(setting)

    def change(self, setting: str, value: str) -> tuple[str, ...]:
        """The SQL that changes a setting at its source and makes the change take effect."""
        row = next(iter(self.rows("the settings", _SOURCE, setting)), Row("the settings", {}))
        source, setting_context, role, database = map(row.optional_text, ("source", "context", "role", "database"))
        if source in _OF_SESSION:
            return (f"{_OF_SESSION[source].format(role=role, database=database)} {setting} = {value};",)
        restart = setting_context == "postmaster"
        if source in _SET_ELSEWHERE:
            return (comment(f"{_SET_ELSEWHERE[source]}: change it there, {setting} = {value}"),)
        if self.settings.get("allow_alter_system") == "off":
            then = "and restart the server" if restart else "and reload it"
            return (
                comment(
                    f"In the server's configuration file (allow_alter_system is off): {setting} = {value}, {then}."
                ),
            )
        change = f"ALTER SYSTEM SET {setting} = {value};"
        return (change, comment("and restart the server: that ends all sessions.") if restart else _RELOAD)


Check: TypeAlias = Callable[[Context], Iterable[Finding]]
"""Checks one thing. If it raises ServerError, the report says that it could not be checked, and why."""


def ok(check: str, text: str, *subjects: str) -> Finding:
    """No problem."""
    return _finding(check, Severity.OK, text, subjects, ())


def warning(check: str, text: str, *cure: str, subjects: Iterable[str] = ()) -> Finding:
    """Something may go wrong, or differs from what people expect."""
    return _finding(check, Severity.WARNING, text, subjects, cure)


def problem(check: str, text: str, *cure: str, subjects: Iterable[str] = ()) -> Finding:
    """Something does not work, or loses data."""
    return _finding(check, Severity.PROBLEM, text, subjects, cure)


def _finding(check: str, severity: Severity, text: str, subjects: Iterable[str], cure: Iterable[str]) -> Finding:
    """A finding whose text and lines of a cure are one line each: no name in a comment can end it."""
    return Finding(check, severity, escape_sql(text), tuple(subjects), tuple(map(escape_sql, cure)))


def comment(text: str) -> str:
    """A line of a cure that is not SQL, or SQL that must not run without a decision."""
    return COMMENT + text


def destructive(words: str, *statements: str) -> tuple[str, ...]:
    """SQL or commands that destroy something, as comments; `words` say what is lost."""
    return (comment(f"{words}:"), *[one if one.startswith(COMMENT) else comment(one) for one in statements])
