"""A server with a backlog to stream."""

from __future__ import annotations

import pytest

from tests.support.servers import Database


@pytest.fixture
def shop(newest_database: Database) -> Database:
    """A table with ten transactions of one row, which slot s holds."""
    newest_database.execute("CREATE TABLE t (id int PRIMARY KEY, note text)", "CREATE PUBLICATION p FOR TABLE t")
    newest_database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    newest_database.execute(*[f"INSERT INTO t VALUES ({i}, 'row {i}')" for i in range(10)])
    return newest_database
