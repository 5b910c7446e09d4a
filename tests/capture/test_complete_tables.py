"""--changed takes old values from the rows that were seen where a server or a capture tells that none is left out."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

from pgtail.capture.format import COMPLETE
from tests.capture.test_record import recording
from tests.support.captures import head, segments
from tests.support.limits import within
from tests.support.run import here
from tests.support.servers import Database
from tests.support.tail import wait_for, wait_for_reader

CHANGED = ("-o", "json", "--changed", "--op", "update")


def known(changes: list[dict[str, Any]]) -> list[tuple[str, bool]]:
    """Of each update the new value, and whether it is known what changed."""
    return [(one["new"]["v"], "maybe_changed" not in one) for one in changes]


def test_a_recorder_writes_of_which_tables_it_has_every_change(newest_database: Database, tmp_path: Path) -> None:
    capture, database = tmp_path / "capture", newest_database

    def changed_until(complete: str, statement: str) -> None:
        """Run a statement until the last two closed segments say this."""

        def says() -> bool:
            database.execute(statement)
            return [head(path).get(COMPLETE) for path in segments(capture)[-2:]] == [complete] * 2

        wait_for(f"segments with {complete}", says)

    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text, n serial)", "CREATE PUBLICATION p FOR TABLE t")
    with recording(database, capture, "--segment-age", "0.2") as process:
        wait_for_reader(database)
        database.execute("INSERT INTO t VALUES (1, 'a')")
        changed_until("all", "UPDATE t SET v = v || 'b'")
        # What is left out for a while is noticed.
        database.execute("ALTER PUBLICATION p SET (publish = 'insert, delete')", "UPDATE t SET v = 'hidden'")
        changed_until("[]", "INSERT INTO t SELECT max(id) + 1 FROM t")
        database.execute("ALTER PUBLICATION p SET (publish = 'insert, update, delete')")
        changed_until("all", "UPDATE t SET v = v || 'c' WHERE id = 1")
        process.send_signal(signal.SIGINT)
        assert process.wait(within(30)) == 0
    ran = here("decode", *CHANGED, capture)
    assert ran.status == 0, ran.stderr
    assert "without the old row" in ran.stderr
    found = known(ran.objects)
    assert (found[0], ran.objects[0]["changed"]) == (("ab", True), ["v"])
    after = [is_known for value, is_known in found if value.startswith("hidden")]
    assert (after[0], True in after) == (False, True)
    explicit = here("decode", *CHANGED, "--old-values", "seen", capture)
    assert "nothing is taken from public.t: the publications leave out some of its changes" in explicit.stderr
    assert known(here("decode", *CHANGED, "--old-values", "sent", capture).objects)[0] == ("ab", False)


def test_a_server_says_of_which_tables_it_sends_every_change(database: Database) -> None:
    database.execute(
        *[f"CREATE TABLE {name} (id int PRIMARY KEY, v text)" for name in ("whole", "part", "joint")],
        "CREATE PUBLICATION p FOR TABLE whole",
        "CREATE PUBLICATION q FOR TABLE part, joint WITH (publish = 'insert, update')",
        "CREATE PUBLICATION r FOR TABLE joint WITH (publish = 'delete')",
        "SELECT pg_create_logical_replication_slot('s', 'pgoutput')",
        *[f"INSERT INTO {name} VALUES (1, 'a')" for name in ("whole", "part", "joint")],
        *[f"UPDATE {name} SET v = '{name}'" for name in ("whole", "part", "joint")],
    )
    slot = (database.conninfo(), "-S", "s", "--until", "now", *CHANGED)
    every = here("stream", *slot, "-P", "p", "-P", "q", "-P", "r")
    assert known(every.objects) == [("whole", True), ("part", False), ("joint", True)], every.stderr
    refused = here("stream", *slot, "-P", "p", "--old-values", "seen", "--origin", "none")
    assert database.version < 16 or (refused.status, "--origin none leaves some out" in refused.stderr) == (2, True)
    # A publication that was altered since the slot's position may have left out changes.
    database.execute("ALTER PUBLICATION p SET (publish = 'insert, delete')", "UPDATE whole SET v = 'hidden'")
    database.execute("ALTER PUBLICATION p SET (publish = 'insert, update, delete')", "UPDATE whole SET v = 'shown'")
    assert known(here("stream", *slot, "-P", "p").objects) == [("whole", False), ("shown", False)]


def test_what_the_server_describes_again_in_a_backlog_is_no_doubt(database: Database) -> None:
    """The publications are older than the slot, and publish everything: an ANALYZE was the reason."""
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "CREATE PUBLICATION p FOR TABLE t",
        "SELECT pg_create_logical_replication_slot('s', 'pgoutput')",
        "INSERT INTO t VALUES (1, 'a')",
        *[f"UPDATE t SET v = '{value}'" for value in ("b", "c")],
        "ANALYZE t",
        *[f"UPDATE t SET v = '{value}'" for value in ("d", "e")],
    )
    ran = here("stream", database.conninfo(), "-S", "s", "--until", "now", *CHANGED)
    assert known(ran.objects) == [("b", True), ("c", True), ("d", False), ("e", True)], ran.stderr


def test_what_a_recorder_that_starts_again_is_told_first_is_no_doubt(newest_database: Database, tmp_path: Path) -> None:
    """It asks when it starts; a description after that one may stand for an ALTER PUBLICATION."""
    database, capture = newest_database, tmp_path / "capture"
    recorded = ("record", database.conninfo(), "-S", "cap", "-D", capture, "--until", "now")
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE PUBLICATION p FOR TABLE t")
    database.execute("INSERT INTO t VALUES (1, 'a')")
    assert here(*recorded, "--snapshot").status == 0
    for number in (2, 3):
        database.execute(f"INSERT INTO t VALUES ({number}, 'a')", f"UPDATE t SET v = 'b{number}' WHERE id = {number}")
        assert here(*recorded).status == 0
    assert known(here("decode", *CHANGED, capture).objects) == [("b2", True), ("b3", True)]
    database.execute("ALTER PUBLICATION p SET (publish = 'insert')", "UPDATE t SET v = 'hidden'")
    database.execute(
        "ALTER PUBLICATION p SET (publish = 'insert, update, delete')", "UPDATE t SET v = 'c' WHERE id = 3"
    )
    assert here(*recorded).status == 0
    assert known(here("decode", *CHANGED, capture).objects)[2:] == [("c", False)]
