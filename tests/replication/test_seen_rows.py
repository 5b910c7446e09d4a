"""Old values from before a reconnection: known where the catalogs tell that nothing changed unseen, else forgotten."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.support.run import command, here
from tests.support.servers import Database, since
from tests.support.standbys import set_synchronous_standbys, wait_for_synchronous_commit
from tests.support.tail import Tailing, tailing, terminate, wait_for

SEEN = ("-S", "s", "-o", "json", "--old-values", "seen", "--op", "update")
TABLES = ("kept", "rewritten", "hidden", "retyped")


def questions(database: Database) -> int:
    """How often the server was asked how far it is."""
    return database.server.log.read_bytes().count(b"txid_current_snapshot")


@contextlib.contextmanager
def started(database: Database, *arguments: str, command: str = "stream") -> Iterator[Tailing]:
    """Run pgtail, and wait until it has asked twice how far the server is: before and after the versions of tables."""
    asked = questions(database)
    with tailing(database.conninfo(options="-c log_statement=all"), *arguments, command=command) as running:
        running.wait_for_slot(database, "s")
        wait_for("questions", lambda: questions(database) >= asked + 2)
        yield running
        running.stop()


def unpublished(table: str, *statements: str) -> list[str]:
    """Statements that run while the publication does not have a table."""
    return [f"ALTER PUBLICATION p DROP TABLE {table}", *statements, f"ALTER PUBLICATION p ADD TABLE {table}"]


def reconnect(running: Tailing, database: Database, *meanwhile: str) -> None:
    """End the session, run statements, and wait for the next session."""
    count = running.stderr.count("connected again")
    terminate(database)
    database.execute(*meanwhile)
    wait_for("another session", lambda: running.stderr.count("connected again") > count)


def old_values(running: Tailing, database: Database, value: str, *tables: str) -> dict[str, str]:
    """Update row 1 of these tables; returns the old values that are known."""
    count = len(running.out)
    database.execute(*[f"UPDATE {table} SET v = '{value}' WHERE id = 1" for table in tables])
    changes = running.changes_of(count + len(tables))[count:]
    assert [one["table"] for one in changes] == [*tables]
    return {one["table"]: one["old"]["v"] for one in changes if "old" in one}


def kept_values(
    running: Tailing, database: Database, values: str, *tables: str, hides: Sequence[str] = ()
) -> dict[str, str]:
    """The old values that are known after a reconnection in which these statements ran, once there are any.

    `values` are three: two for updates before it, and one for the update after it.
    """
    found: dict[str, str] = {}

    def is_kept() -> bool:
        for value in values[:2]:
            old_values(running, database, value, *tables)
        reconnect(running, database, *hides)
        found.update(old_values(running, database, values[2], *tables))
        return bool(found)

    wait_for("old values", is_kept)
    return found


@since(14)
def test_a_reconnection_forgets_only_tables_that_may_have_changed_unseen(database: Database) -> None:
    database.execute(
        "CREATE TYPE mood AS ENUM ('good')",
        *[f"CREATE TABLE {table} (id int PRIMARY KEY, v text, m mood)" for table in TABLES],
        f"CREATE PUBLICATION p FOR TABLE {', '.join(TABLES)}",
        "SELECT pg_create_logical_replication_slot('s', 'pgoutput')",
        *[f"INSERT INTO {table} VALUES (1, '0')" for table in TABLES],
    )
    with started(database, *SEEN) as running:
        values = map(str, itertools.count())

        def kept_over(*meanwhile: str) -> set[str]:
            """Tables whose old values are known after a reconnection: none before the server has told enough."""
            old_values(running, database, next(values), *TABLES)
            before = next(values)
            old_values(running, database, before, *TABLES)
            reconnect(running, database, *meanwhile)
            found = old_values(running, database, next(values), *TABLES)
            assert {*found.values()} <= {before}
            return {*found}

        wait_for("all old values", lambda: kept_over() == {*TABLES})
        kept = kept_over(
            "ANALYZE kept",
            "ALTER TABLE rewritten ALTER v TYPE text USING v || 'x'",
            *unpublished("hidden", "UPDATE hidden SET v = 'unseen' WHERE id = 1"),
            "ALTER TABLE retyped ALTER m TYPE text",
        )
        assert kept <= {"kept"}
        wait_for("the others", lambda: "kept" in kept | kept_over())


def test_what_a_commit_hid_that_cannot_be_seen_yet_is_forgotten(newest_database: Database) -> None:
    """It is in the stream, and waits for a synchronous standby before others see it."""
    database = newest_database

    database.execute(
        f"ALTER DATABASE {database.name} SET synchronous_commit = local",
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "CREATE PUBLICATION p FOR TABLE t",
        "SELECT pg_create_logical_replication_slot('s', 'pgoutput')",
        "INSERT INTO t VALUES (1, '0'), (2, '0')",
    )
    hides = ["SET LOCAL synchronous_commit = on", *unpublished("t", "UPDATE t SET v = 'unseen' WHERE id = 1")]
    with started(database, *SEEN) as running:
        kept_values(running, database, "abc", "t")
        count = len(running.out)
        committing = threading.Thread(target=database.execute, args=(";".join(hides),))
        set_synchronous_standbys(database, "nobody")
        try:
            committing.start()
            wait_for_synchronous_commit(database)
            reconnect(running, database, "UPDATE t SET v = '1' WHERE id = 2")
            assert "old" not in running.changes_of(count + 1)[-1]
        finally:
            set_synchronous_standbys(database, "")
        committing.join()


def test_what_a_filter_hid_of_a_partition_is_forgotten(newest_database: Database) -> None:
    """The filter has come and gone beside the partitioned table, of which the publication has the partition."""
    database = newest_database
    database.execute(
        "CREATE TABLE plain (id int PRIMARY KEY, v text)",
        "CREATE TABLE whole (LIKE plain INCLUDING ALL) PARTITION BY RANGE (id)",
        "CREATE TABLE part PARTITION OF whole DEFAULT",
        "CREATE PUBLICATION p FOR TABLE plain, whole",
        "SELECT pg_create_logical_replication_slot('s', 'pgoutput')",
        "INSERT INTO plain VALUES (1, '0')",
        "INSERT INTO part VALUES (1, '0')",
    )
    hides = (
        "ALTER PUBLICATION p ADD TABLE part WHERE (id <> 1)",
        "UPDATE part SET v = 'unseen' WHERE id = 1",
        "ALTER PUBLICATION p DROP TABLE part",
    )
    with started(database, *SEEN) as running:
        assert kept_values(running, database, "abc", "plain", "part", hides=hides) == {"plain": "b"}


@since(19)
def test_what_an_exception_hid_is_forgotten(database: Database) -> None:
    """A table has come to the EXCEPT of a publication and gone, of which the catalogs have no trace."""
    database.execute(
        *[f"CREATE TABLE {table} (id int PRIMARY KEY, v text)" for table in ("listed", "hidden")],
        "CREATE PUBLICATION p FOR ALL TABLES",
        "CREATE PUBLICATION q FOR TABLE listed",
        "SELECT pg_create_logical_replication_slot('s', 'pgoutput')",
        *[f"INSERT INTO {table} VALUES (1, '0')" for table in ("listed", "hidden")],
    )
    hides = [
        "ALTER PUBLICATION p SET ALL TABLES EXCEPT (TABLE listed, hidden)",
        "UPDATE hidden SET v = 'unseen' WHERE id = 1",
        "ALTER PUBLICATION p SET ALL TABLES",
    ]
    with started(database, "-P", "p", "-P", "q", *SEEN) as running:
        old_values(running, database, "a", "listed", "hidden")
        database.execute(*hides)
        assert "hidden" not in old_values(running, database, "b", "listed", "hidden"), "in one session"
        assert kept_values(running, database, "cde", "listed", "hidden", hides=hides) == {"listed": "d"}


@since(14)
def test_the_rows_of_a_snapshot_are_known_unless_they_may_have_changed_unseen(database: Database) -> None:
    tables = ("kept", "rewritten", "hidden")
    database.execute(
        *[f"CREATE TABLE {table} (id int PRIMARY KEY, v text)" for table in tables],
        f"CREATE PUBLICATION p FOR TABLE {', '.join(tables)}",
        *[f"INSERT INTO {table} VALUES (1, '0')" for table in tables],
    )
    for create in ((), ("-S", "s", "--create-slot")):
        with tailing(database, *create, "--snapshot", "-o", "json", "--old-values", "seen") as running:
            running.wait_for_lines(len(tables))
            running.wait_for_words("copied")
            database.execute(
                "ALTER TABLE rewritten ALTER v TYPE text USING v || 'x'",
                *unpublished("hidden", "UPDATE hidden SET v = 'unseen' WHERE id = 1"),
            )
            assert old_values(running, database, "1", *tables) == {"kept": "0"}
            running.stop()
        database.execute(*[f"UPDATE {table} SET v = '0'" for table in tables])


@since(14)
def test_a_capture_tells_that_tables_are_the_same_since_their_snapshot(database: Database, tmp_path: Path) -> None:
    """The tables are copied when the slot is created; later one of them again, and one that was added."""
    tables = ("kept", "rewritten", "hidden", "added")
    arguments = ("-S", "s", "-D", str(tmp_path), "--snapshot", "--sync-interval", "0.05")
    database.execute(
        *[f"CREATE TABLE {table} (id int PRIMARY KEY, v text)" for table in tables],
        f"CREATE PUBLICATION p FOR TABLE {', '.join(tables[:3])}",
        *[f"INSERT INTO {table} VALUES (1, '0')" for table in tables],
    )

    def recorded(value: str, *tables: str) -> tuple[dict[str, str], ...]:
        """Update each table; returns the old values that readers of the capture know, asked for and by default."""
        database.execute(*[f"UPDATE {table} SET v = '{value}'" for table in tables])
        read = ("decode", "-o", "json", "--op", "update", "--where", f"new.v = '{value}'", tmp_path)
        wait_for("changes", lambda: len(here(*read).lines) == len(tables))
        changes = [here(*read, *options).objects for options in (("--old-values", "seen"), ("--changed",))]
        return tuple({one["table"]: one["old"]["v"] for one in found if "v" in one.get("old", {})} for found in changes)

    with tailing(database, *arguments, command="record") as running:
        running.wait_for_slot(database, "s")
        database.execute(
            "ALTER TABLE rewritten ALTER v TYPE text USING v || 'x'",
            *unpublished("hidden", "UPDATE hidden SET v = 'unseen' WHERE id = 1"),
        )
        assert recorded("1", *tables[:3]) == ({"kept": "0"}, {"kept": "0"})
        database.execute("ANALYZE kept")  # the next description is in doubt, as any other
        asked, _ = recorded("2", *tables[:3])
        assert asked == {"rewritten": "1", "hidden": "1"}
        running.stop()
    database.execute("ALTER PUBLICATION p ADD TABLE added", "UPDATE kept SET v = '3'")
    with tailing(database, *arguments, "--snapshot-table", "*", command="record") as running:
        running.wait_for_slot(database, "s")
        asked, _ = recorded("4", "kept", "added")
        assert asked == {"kept": "3", "added": "0"}
        database.execute(*unpublished("hidden", "UPDATE hidden SET v = 'unseen' WHERE id = 1"))
        asked, _ = recorded("5", "rewritten", "hidden")
        assert asked == {"rewritten": "2"}
        running.stop()
    read = ("decode", "-o", "json", "--old-values", "seen", tmp_path)
    pure = command(*read, environment={"PGTAIL_PURE": "1"})
    assert (pure.stdout, pure.status) == (here(*read).stdout, 0)
    assert command(*read, "--jobs", "2").stdout == pure.stdout
