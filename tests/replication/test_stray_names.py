"""Names that are not UTF-8: a server may have databases in several encodings, and any bytes under SQL_ASCII."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from pgtail.demo.server import EmbeddedServer
from tests.support.run_process import lines, pgtail
from tests.support.servers import Database, fresh_database

STRAY = b'"caf\xe9"'


@pytest.fixture
def plain(newest_server: EmbeddedServer) -> Iterator[Database]:
    """An SQL_ASCII database with such a table name; another database has such a name itself."""
    with fresh_database(newest_server, encoding="SQL_ASCII") as database, database.connect() as session:
        run = session.pgconn.exec_
        run(b"SET client_encoding TO SQL_ASCII")
        for statement in (b"CREATE TABLE %b (id int)", b"CREATE PUBLICATION p FOR TABLE %b", b"CREATE DATABASE %b"):
            assert not run(statement % STRAY).error_message
        try:
            there = newest_server.conninfo("HERE").encode().replace(b"HERE", STRAY.strip(b'"'))
            create = b"SELECT pg_create_logical_replication_slot('theirs', 'pgoutput')"
            psql = str(newest_server.installation.program("psql")).encode()
            subprocess.run([psql, b"-Xq", b"-d", there, b"-c", create], check=True, capture_output=True)
            yield database
        finally:
            run(b"SELECT pg_drop_replication_slot('theirs') FROM pg_replication_slots WHERE slot_name = 'theirs'")
            assert not run(b"DROP DATABASE %b" % STRAY).error_message


def test_stray_names_are_shown_with_their_bytes(plain: Database, newest_database: Database) -> None:
    for database in (plain, newest_database):
        listed, _ = pgtail("slot", "list", "-o", "json", database.conninfo())
        found = {line["slot_name"]: line for line in lines(listed)}
        assert found["theirs"]["database"] == r"caf\xe9"
        assert r"caf\xe9" in pgtail("slot", "list", database.conninfo(), "-o", "table")[0]
        pgtail("doctor", database.conninfo(), "-o", "table", status=2)
    found = {line["check"]: line for line in lines(pgtail("doctor", "-o", "json", plain.conninfo(), status=2)[0])}
    assert found["replica_identity"]["subjects"] == [r'public."caf\xe9"']
    pgtail("slot", "drop", "theirs", newest_database.conninfo(), "--yes")
