"""Connections that fail: each message says what is wrong and what to do, and shows no password."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import StartServer
from tests.support.refused import SECRET, create_slot, fails, publish, role, without_password
from tests.support.servers import Database, fresh_database
from tests.support.tail import COMMAND, stream, tailing, wait_for
from tests.support.terminals import on_terminal

# -- connections -----------------------------------------------------------------------------------------------


def test_passwords(database: Database, tmp_path: Path) -> None:
    publish(database)
    with role(database, "reader", "REPLICATION") as conninfo:
        wrong = database.conninfo(tcp=True, user="reader", password=SECRET + "!")
        words = fails(wrong)
        assert 'password authentication failed for user "reader"' in words
        assert "~/.pgpass" in words
        missing = without_password(database.conninfo(tcp=True, user="reader"))
        environment = {"PGPASSFILE": str(tmp_path / "none")}
        words = fails(missing, env=environment, start_new_session=True)
        assert "no password supplied" in words
        assert "-W" in words
        stream(conninfo, "--for", "0.1")
        stream(missing, "--for", "0.1", env={"PGPASSWORD": SECRET})
        passfile = tmp_path / "pgpass"
        passfile.write_text(f"127.0.0.1:{database.server.port}:*:reader:{SECRET}\n")
        passfile.chmod(0o600)
        stream(missing, "--for", "0.1", env={"PGPASSFILE": str(passfile)})


def test_a_missing_password_is_asked_for(newest_database: Database, tmp_path: Path) -> None:
    publish(newest_database)
    environment = {"PGPASSFILE": str(tmp_path / "none")}
    with role(newest_database, "asked", "REPLICATION"):
        missing = without_password(newest_database.conninfo(tcp=True, user="asked"))
        command = [*COMMAND, missing, "--for", "0.5", "-v"]
        status, shown = on_terminal(command, until="Password", answer=f"{SECRET}\n", env=environment)
        assert status == 0, shown
        assert "Password for user asked:" in shown
        assert SECRET not in shown
        assert f"PostgreSQL {newest_database.version}" in shown
        assert "publication p (1 table)" in shown
        status, shown = on_terminal([*command, "-W"], until="Password", answer="no\n", env=environment)
        assert status == 3
        assert "password authentication failed" in shown
        status, shown = on_terminal([*command, "-w"], env=environment)
        assert status == 3
        assert "no password supplied" in shown
        assert "Password for" not in shown


def test_a_host_without_an_address_is_named_wherever_it_comes_from() -> None:
    for conninfo, environment in (("host=nosuch.invalid", {}), ("dbname=shop", {"PGHOST": "nosuch.invalid"})):
        words = fails(conninfo, env=environment)
        assert "failed to resolve host 'nosuch.invalid'" in words
        assert "--host, --port" in words


def test_the_right_to_replicate_is_missing(database: Database) -> None:
    publish(database)
    with role(database, "mere", "") as conninfo:
        words = fails(conninfo)
        assert "ALTER ROLE mere REPLICATION;" in words
        words = fails(conninfo.replace("user=mere", ""), env={"PGUSER": "mere"})
        assert "ALTER ROLE mere REPLICATION;" in words
        assert "rds_replication" in words


def test_addresses_without_a_server(newest_database: Database) -> None:
    server = newest_database.server
    assert "Check that the server runs, and where" in fails("host=127.0.0.1 port=1 dbname=x", status=75)
    assert "Check that the server runs, and where" in fails("host=/nowhere dbname=x", status=75)
    assert "Check that the server runs, and where: --host" in fails("host=no.such.host.invalid dbname=x")
    assert "Name a database that exists" in fails(server.conninfo("nosuch"))
    assert "--username NAME" in fails(newest_database.conninfo(user="nosuch"))
    words = fails(newest_database.conninfo(tcp=True, sslmode="require"))
    assert "server does not support SSL" in words
    assert "sslmode=prefer" in words
    assert "service" in fails("service=nosuch")


def test_pg_hba_and_full_servers(start_server: StartServer) -> None:
    server = start_server(max_wal_senders=1, max_replication_slots=1, max_slot_wal_keep_size="1MB")
    with fresh_database(server) as database:
        publish(database)
        create_slot(database, "s")
        with tailing(database, "-S", "s", "-v") as running:
            running.wait_for_slot(database, "s")
            words = fails(database, status=75)
            assert "max_wal_senders" in words
            running.stop()
        words = fails(database)
        assert "all replication slots are in use" in words
        assert "max_replication_slots" in words
        with tailing(database, command="expect") as running:
            words = running.end(status=3)
        assert "all replication slots are in use" in words
        assert "not as expected" not in words
        database.execute("CREATE TABLE big AS SELECT generate_series(1, 100000) i")
        for _ in range(3):
            database.execute(
                "SELECT pg_switch_wal()", "INSERT INTO big SELECT generate_series(1, 100000)", "CHECKPOINT"
            )
        words = fails(database, "-S", "s")
        assert "slot s is invalidated" in words
        assert "Drop it and create it again" in words
        hba = server.data / "pg_hba.conf"
        hba.write_text("local all all trust\nhost all nobody 127.0.0.1/32 trust\nhost all postgres all reject\n")
        server.reload()
        wait_for("rules", lambda: "rejects" in fails(database.conninfo(tcp=True)))
        words = fails(database.conninfo(tcp=True, user="somebody"))
        assert "no pg_hba.conf entry" in words
        assert "add a line to its pg_hba.conf" in words


READY = "SELECT 1 FROM pg_replication_slots WHERE active AND confirmed_flush_lsn IS NOT NULL"


def test_wal_level_must_be_logical(start_server: StartServer) -> None:
    """Since PostgreSQL 19 replica suffices: slots, also temporary ones, raise the level."""
    server = start_server(wal_level="replica")
    with fresh_database(server) as database:
        publish(database)
        if database.version < 19:
            words = fails(database)
            assert "wal_level is replica" in words
            assert "ALTER SYSTEM SET wal_level = logical;" in words
            return
        for round_ in range(2):
            wait_for("lower level", lambda: database.value("SHOW effective_wal_level") == "replica")
            with tailing(database) as running:
                wait_for("level", lambda: database.value("SHOW effective_wal_level") == "logical")
                wait_for("slot", lambda: database.query(READY))
                database.execute(f"INSERT INTO t VALUES ({round_})")
                running.wait_for_lines(1)
                running.stop()


def test_errors_do_not_quote_the_dsn() -> None:
    for dsn in (
        f"host=x password={SECRET} {SECRET}",
        f"postgresql://user:{SECRET}@{SECRET}@host/db",
        f"postgresql://user:x/{SECRET}@host/db",
        f"postgresql://user:{SECRET}[@host/db?x",
        f"host=x pass word='{SECRET}",
        f'postgresql://user:a"{SECRET}@[::1/db',
        f'postgresql://user:%zz"{SECRET}@host/db',
        f"user:{SECRET}@host/db",
    ):
        words = fails(dsn, status=2)
        assert "connection" in words
    words = fails(f"postgresql://user:{SECRET}@127.0.0.1:1/db", status=75)
    assert "Connection refused" in words
