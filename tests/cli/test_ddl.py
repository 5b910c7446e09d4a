"""`pgtail ddl` as users run it, and what the other commands then show."""

from __future__ import annotations

import os

from tests.support.run_process import PROGRAM, lines, pgtail
from tests.support.servers import Database, run_program, since
from tests.support.terminals import on_terminal

TRIGGERS = "SELECT count(*) FROM pg_event_trigger"


def publish(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, total numeric(10, 2))", "CREATE PUBLICATION p FOR TABLE t")
    database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")


def test_install_asks_and_remove_takes_it_back(newest_database: Database) -> None:
    conninfo = newest_database.conninfo()
    command = [*PROGRAM, "ddl", "install", conninfo]
    status, shown = on_terminal(command, until="[y/N]", answer="n\n")
    assert (status, newest_database.value(TRIGGERS)) == (1, 0)
    assert "CREATE EVENT TRIGGER pgtail_ddl ON ddl_command_end" in shown
    assert "nothing was done" in shown
    status, shown = on_terminal(command, until="[y/N]", answer="y\n")
    assert (status, newest_database.value(TRIGGERS)) == (0, 2), shown
    _, said = pgtail("ddl", "install", conninfo)
    assert f"database {newest_database.name} has them already (pgtail ddl, version 1): nothing was done" in said
    _, said = pgtail("ddl", "install", conninfo, "--with-statement", "--yes")
    assert "with statement was installed in place of pgtail ddl, version 1 in database" in said
    newest_database.execute("DROP EVENT TRIGGER pgtail_ddl_drop")
    pgtail("ddl", "install", conninfo, "--with-statement", "--yes")
    assert newest_database.value(TRIGGERS) == 2
    status, shown = on_terminal([*PROGRAM, "ddl", "remove", conninfo], until="[y/N]", answer="y\n")
    assert (status, newest_database.value(TRIGGERS)) == (0, 0), shown
    assert newest_database.value("SELECT to_regnamespace('pgtail') IS NULL") is True
    _, said = pgtail("ddl", "remove", conninfo)
    assert "has nothing of pgtail ddl: nothing was done" in said


def test_nothing_is_changed_without_a_terminal(newest_database: Database) -> None:
    for action in ("install", "remove"):
        if action == "remove":
            pgtail("ddl", "install", newest_database.conninfo(), "--yes")
        before = newest_database.value(TRIGGERS)
        _, said = pgtail("ddl", action, newest_database.conninfo(), status=2)
        assert "was not changed: there is no terminal to ask on; --yes does it without asking" in said
        assert newest_database.value(TRIGGERS) == before


def test_a_role_that_is_no_superuser(newest_database: Database) -> None:
    role = f"joe_{newest_database.name}"
    newest_database.execute(f"CREATE ROLE {role} LOGIN CREATEDB REPLICATION")
    try:
        for action in ("install", "remove"):
            _, said = pgtail("ddl", action, newest_database.conninfo(user=role), "--yes", status=3)
            assert f"role {role} is not a superuser, and only superusers may create event triggers." in said
            assert f"pgtail ddl print | psql {newest_database.name}" in said
    finally:
        newest_database.execute(f"DROP ROLE {role}")


def test_a_schema_of_this_name(newest_database: Database) -> None:
    newest_database.execute("CREATE SCHEMA pgtail")
    _, said = pgtail("ddl", "install", newest_database.conninfo(), "--yes", status=3)
    assert "has a schema pgtail, which pgtail ddl did not create" in said
    assert newest_database.value(TRIGGERS) == 0


@since(10, before=14)
def test_servers_that_do_not_send_messages(database: Database) -> None:
    _, said = pgtail("ddl", "install", database.conninfo(), "--yes", status=3)
    assert "pgoutput sends logical messages since version 14." in said


@since(14)
def test_schema_changes_are_shown(database: Database) -> None:
    publish(database)
    printed, _ = pgtail("ddl", "print", "--with-statement", env={**os.environ, "PGHOST": "/there/is/no/server"})
    run_program(database, "psql", "-X", "-v", "ON_ERROR_STOP=1", input=printed.encode())
    change = "ALTER TABLE t ALTER total TYPE numeric(12, 2), ADD note text NOT NULL DEFAULT 'x'"
    database.execute("INSERT INTO t VALUES (1, 2)", change, "CREATE TABLE u (id int)", "DROP TABLE t")
    arguments = ("stream", database.conninfo(), "-S", "s", "--until", "now")
    changes = lines(pgtail(*arguments)[0])
    assert [(one["op"], one["table"], one.get("tag")) for one in changes] == [
        ("ddl", "t", "baseline"),
        ("insert", "t", None),
        ("ddl", "t", "ALTER TABLE"),
        ("ddl", "u", "CREATE TABLE"),
        ("ddl", "t", "DROP TABLE"),
    ]
    assert changes[2]["differences"] == ["total numeric(10,2) → numeric(12,2)", "+ note text not null (older rows: x)"]
    assert changes[2]["statement"] == change
    assert [one["op"] for one in lines(pgtail(*arguments, "-t", "u")[0])] == ["ddl"]
    assert [one["op"] for one in lines(pgtail(*arguments, "--no-messages")[0])] == ["insert"]
    shown, _ = pgtail("stats", database.conninfo(), "-S", "s", "--until", "now")
    assert "public.t  ALTER TABLE  total numeric(10,2) → numeric(12,2)" in shown
    assert "public.t  DROP TABLE\n" in shown
    assert "baseline" not in shown
