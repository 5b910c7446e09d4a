"""Floor 5, what a check of the doctor gets and what it says; looks at nothing itself."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pgtail.server.connection import Connection, Connector
from pgtail.server.facts import ServerFacts

RELOAD: Final = "SELECT pg_reload_conf();"


class Severity(enum.IntEnum):
    """How bad a finding is; the number is the exit status."""

    OK = 0
    WARNING = 1
    PROBLEM = 2

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found: a sentence, what it is about (names as SQL writes them), and what to do, line by line."""

    check: str
    severity: Severity
    text: str
    subjects: tuple[str, ...] = ()
    cure: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Patient:
    """A server as the checks see it: `settings` are those of pg_settings that our role may see, in their own units."""

    connection: Connection
    connector: Connector
    server: ServerFacts
    settings: dict[str, str]

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        return self.connection.execute(query.encode(), values or None).fetchall()

    def value(self, query: str, *values: object) -> Any:
        """The only value of a query."""
        [(value,)] = self.rows(query, *values)
        return value

    def number(self, setting: str) -> int | None:
        """A setting that is a number, None where there is none."""
        found = self.settings.get(setting)
        return None if found is None else int(found)


Check: TypeAlias = Callable[[Patient], Iterable[Finding]]
"""Looks at one thing. What psycopg raises inside is said as what could not be looked at."""


def ok(check: str, text: str, *subjects: str) -> Finding:
    """All is well."""
    return Finding(check, Severity.OK, text, subjects)


def warning(check: str, text: str, *cure: str, subjects: Iterable[str] = ()) -> Finding:
    """Something may go wrong, or is not as people expect."""
    return Finding(check, Severity.WARNING, text, tuple(subjects), cure)


def problem(check: str, text: str, *cure: str, subjects: Iterable[str] = ()) -> Finding:
    """Something does not work, or loses what should be kept."""
    return Finding(check, Severity.PROBLEM, text, tuple(subjects), cure)


def setting(name: str, value: str) -> str:
    """The SQL that changes a setting."""
    return f"ALTER SYSTEM SET {name} = {value};"
