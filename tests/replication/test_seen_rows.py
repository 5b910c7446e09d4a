"""Old values from before a reconnection: known where the catalogs prove that nothing changed unseen, else forgotten."""

from __future__ import annotations

import threading

from tests.support.servers import Database
from tests.support.tail import Tailing, tailing, terminate, wait_for

SEEN = ("-S", "s", "-o", "json", "--old-values", "seen", "--op", "update")
SAME = {"kept", "analyzed", "leaf"}
CHANGED = {"rewritten", "hidden", "backlog", "early"}


def hidden_update(table: str) -> list[str]:
    """Change a row of a table while the publication does not have the table."""
    away, back = f"ALTER PUBLICATION p DROP TABLE {table}", f"ALTER PUBLICATION p ADD TABLE {table}"
    return [away, f"UPDATE {table} SET v = 'hidden' WHERE id = 1", back]


def known(running: Tailing, database: Database, value: str, tables: set[str], row: int = 1) -> set[str]:
    """Update a row of each table; returns the tables whose old rows are known, and right."""
    before = dict(
        database.query(" UNION ALL ".join(f"SELECT '{one}', v FROM {one} WHERE id = {row}" for one in tables))
    )
    count = len(running.out)
    database.execute(*[f"UPDATE {table} SET v = '{value}' WHERE id = {row}" for table in tables])
    changes = running.changes_of(count + len(tables))[count:]
    assert {one["table"] for one in changes} == tables
    found = {one["table"]: one["old"]["v"] for one in changes if "old" in one}
    assert found == {table: before[table] for table in found}
    return {*found}


def reconnected(running: Tailing, database: Database, *meanwhile: str) -> None:
    """End the session, run statements, and wait for the next session."""
    count = running.stderr.count("connected again")
    terminate(database)
    database.execute(*meanwhile)
    wait_for("another session", lambda: running.stderr.count("connected again") > count)


def test_a_reconnection_forgets_only_tables_that_may_have_changed_unseen(database: Database) -> None:
    statements = [f"CREATE TABLE {table} (id int PRIMARY KEY, v text)" for table in SAME | CHANGED]
    if database.version >= 11:
        statements += [
            "DROP TABLE leaf",
            "CREATE TABLE root (id int, v text) PARTITION BY RANGE (id)",
            "CREATE TABLE leaf PARTITION OF root (PRIMARY KEY (id)) FOR VALUES FROM (0) TO (9)",
        ]
    database.execute(
        *statements,
        f"CREATE PUBLICATION p FOR TABLE {', '.join(SAME | CHANGED)}",
        "SELECT pg_create_logical_replication_slot('s', 'pgoutput')",
        "INSERT INTO early VALUES (1, '0')",
        *hidden_update("early"),  # before pgtail asks what the catalogs have
    )
    with tailing(database, *SEEN) as running:
        running.wait_for_slot(database, "s")
        later = SAME | CHANGED - {"early"}
        database.execute(*[f"INSERT INTO {table} VALUES (1, '0')" for table in later])
        assert known(running, database, "1", later) == later
        database.execute("ANALYZE analyzed")
        assert known(running, database, "2", {"analyzed"}) == set()  # it was described again
        reconnected(
            running,
            database,
            "ANALYZE kept",
            "ALTER TABLE rewritten ALTER v TYPE text USING v || 'x'",
            *hidden_update("hidden"),
            *hidden_update("backlog"),
            "UPDATE backlog SET v = '3'",
        )
        running.wait_for_lines(len(later) + 2)
        assert known(running, database, "4", SAME | CHANGED) == SAME | {"backlog"}
        reconnected(running, database)
        with database.connect() as session:  # it may be a commit that is not visible yet
            session.execute("BEGIN")
            session.execute("SELECT txid_current()")
            assert known(running, database, "5", {"kept"}) == set()
        reconnected(running, database)
        assert known(running, database, "6", SAME | CHANGED - {"backlog"}) == SAME | CHANGED - {"backlog"}
        running.stop()


def test_what_a_commit_hid_that_is_not_visible_yet_is_forgotten(newest_database: Database) -> None:
    """It is in the stream, and waits for a synchronous standby before others see it."""
    database = newest_database

    def set_standbys(names: str) -> None:
        database.server.configure(synchronous_standby_names=names)
        database.server.reload()
        wait_for("setting", lambda: database.value("SHOW synchronous_standby_names") == names)

    database.execute(
        f"ALTER DATABASE {database.name} SET synchronous_commit = local",
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "CREATE PUBLICATION p FOR TABLE t",
        "SELECT pg_create_logical_replication_slot('s', 'pgoutput')",
    )
    hides = ";".join(["SET LOCAL synchronous_commit = on", *hidden_update("t")])
    with tailing(database, *SEEN) as running, database.connect() as session:
        running.wait_for_slot(database, "s")
        database.execute("INSERT INTO t VALUES (1, '0'), (2, '0')")
        assert known(running, database, "1", {"t"}) == {"t"}
        session.execute("BEGIN")
        session.execute("SELECT txid_current()")  # older than the commit: no snapshot's xmax is beyond that
        committing = threading.Thread(target=database.execute, args=(hides,))
        set_standbys("nobody")
        try:
            committing.start()
            wait_for("commit", lambda: database.query("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"))
            reconnected(running, database)
            session.execute("UPDATE t SET v = '2' WHERE id = 2")
            session.execute("COMMIT")
            assert "old" not in running.changes_of(2)[-1]
        finally:
            set_standbys("")
        committing.join()
        assert known(running, database, "3", {"t"}) == set()
        running.stop()
