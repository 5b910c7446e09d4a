"""Connections through a pooler: the doctor detects it, and no setting persists for the pooler's next client."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from pgtail import doctor
from pgtail.doctor.base import Severity
from pgtail.postgres.connection import Connector, parameters
from tests.support.run_process import pgtail, started
from tests.support.servers import Database
from tests.support.tail import stream, wait_for

PORT = 6999


@pytest.fixture
def pooled(newest_database: Database) -> Iterator[str]:
    """The connection string of a database behind pgbouncer, in transaction mode, on a unix socket."""
    program = shutil.which("pgbouncer") or shutil.which("/usr/sbin/pgbouncer")
    if program is None:
        pytest.skip("pgbouncer is not installed")
    server = newest_database.server
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        Path(directory).chmod(0o777)
        configuration = Path(directory, "pgbouncer.ini")
        configuration.write_text(
            f"[databases]\n* = host={server.directory} port={server.port} user=postgres\n"
            f"[pgbouncer]\nlisten_addr =\nunix_socket_dir = {directory}\nlisten_port = {PORT}\n"
            "auth_type = any\npool_mode = transaction\ndefault_pool_size = 1\n"
        )
        user = ["-u", "nobody"] if os.geteuid() == 0 else []
        with started([program, "-q", *user, configuration]):
            wait_for("pgbouncer", lambda: Path(directory, f".s.PGSQL.{PORT}").exists())
            yield f"host={directory} port={PORT} dbname={newest_database.name} user=postgres"


def test_a_pooler_is_detected_and_its_sessions_stay_unchanged(pooled: str, newest_database: Database) -> None:
    newest_database.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
    newest_database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    newest_database.execute("CREATE PUBLICATION young FOR TABLE t")
    report = doctor.examine(Connector(parameters(pooled)))
    found = {finding.check: finding for _, finding in report.all()}
    assert found["pooler"].severity is Severity.WARNING
    if found["replication_connection"].severity is not Severity.OK:
        assert "pgbouncer" in " ".join(found["replication_connection"].cure)
        stream(pooled, "--fork", "s", "-P", "young", status=3)
    pgtail("slot", "list", pooled)
    with psycopg.connect(pooled, autocommit=True, prepare_threshold=None) as other:
        for name, value in (("search_path", '"$user", public'), ("lock_timeout", "0"), ("statement_timeout", "0")):
            assert other.execute(f"SHOW {name}".encode()).fetchone() == (value,)
    temporary = "SELECT slot_name FROM pg_replication_slots WHERE temporary"
    wait_for("end of the temporary slots", lambda: not newest_database.query(temporary))
