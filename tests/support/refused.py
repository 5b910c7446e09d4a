"""Runs of `pgtail stream` that fail, and what they need on the server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.support.servers import Database
from tests.support.tail import stream

SECRET = "open-sesame-42"


def fails(database: Database | str, *arguments: str, status: int = 3, **options: Any) -> str:
    """Standard error of a run that fails without output."""
    lines, words = stream(database, *arguments, status=status, **options)
    assert lines == []
    assert SECRET not in words
    return words


def publish(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")


def create_slot(database: Database, name: str, plugin: str = "pgoutput") -> None:
    """Create a slot. Skips the test if the server comes without the plugin."""
    try:
        database.query(f"SELECT pg_create_logical_replication_slot('{name}', '{plugin}')")
    except psycopg.errors.UndefinedFile:
        pytest.skip(f"this server comes without {plugin}")


@contextmanager
def physical_slot(database: Database) -> Iterator[None]:
    """The slot phys, which belongs to no database: it would disturb other tests."""
    database.query("SELECT pg_create_physical_replication_slot('phys', true)")
    try:
        yield
    finally:
        database.query("SELECT pg_drop_replication_slot('phys')")


@contextmanager
def role(database: Database, name: str, rights: str) -> Iterator[str]:
    """A role with a password; yields its connection string for TCP."""
    database.execute(f"CREATE ROLE {name} LOGIN {rights} PASSWORD '{SECRET}'")
    try:
        yield database.conninfo(tcp=True, user=name, password=SECRET)
    finally:
        database.execute(f"DROP ROLE {name}")


def without_password(conninfo: str) -> str:
    parameters = conninfo_to_dict(conninfo)
    del parameters["password"]
    return make_conninfo("", **parameters)
