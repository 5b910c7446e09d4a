"""The doctor on slots and open transactions: what it finds, why, and what it could not find out."""

from __future__ import annotations

import itertools
import re

import pytest

from pgtail.commands.slot.table import render
from pgtail.doctor import publications, slots
from pgtail.doctor.base import Severity
from pgtail.postgres import slot_copy, slot_report, wal_holder
from pgtail.postgres.catalog import Slot
from pgtail.postgres.connection import Connection, Connector, parameters
from pgtail.terminal.style import PLAIN
from tests.conftest import StartServer
from tests.doctor.test_doctor import examine, limited, of, of_severity, one, publish, role, wrong
from tests.support.servers import Database, fresh_database, installations, since, some_versions
from tests.support.tail import stream, tailing, wait_for

SLOTS = "SELECT to_jsonb(s) - 'safe_wal_size' FROM pg_replication_slots s ORDER BY slot_name"
"""What a check must not change; any WAL that the server writes changes safe_wal_size."""


WRITE = "INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(1, 10000) i"


@pytest.fixture
def much_wal(newest_database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte is much, and WRITE writes more."""
    monkeypatch.setattr(slots, "MUCH_WAL", 1_000_000)
    publish(newest_database)


@pytest.mark.usefixtures("much_wal")
def test_retained_wal_is_explained(newest_database: Database) -> None:
    newest_database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    newest_database.execute(WRITE)
    finding = one(examine(newest_database), "slot_wal")
    assert "of WAL, not in use" in finding.text
    assert finding.text.endswith(", and nothing limits it (max_slot_wal_keep_size is -1)")
    assert finding.cure[0] == "-- Let its consumer read it."
    assert f"-- pgtail slot drop s '{newest_database.conninfo()}'" in finding.cure
    with tailing(newest_database, "-S", "s") as running:
        running.wait_for_slot(newest_database, "s")
        finding = one(examine(newest_database), "slot_wal")
        assert "of WAL, in use by pid" in finding.text
        assert finding.cure[1] == f"-- pgtail stream --fork s '{newest_database.conninfo()}'"
        running.stop()


def test_an_inactive_slot_that_nothing_limits(newest_database: Database) -> None:
    """It is a warning long before it retains much. A physical slot that was never used holds nothing."""
    database = newest_database
    database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    publish(database)
    database.query("SELECT pg_create_physical_replication_slot('unused')")
    finding = one(examine(database), "slot_wal")
    assert (finding.severity, finding.subjects) == (Severity.WARNING, ("s",))
    assert "of WAL, not in use" in finding.text
    assert finding.text.endswith(", and nothing limits it (max_slot_wal_keep_size is -1)")
    assert not any("Dropping" in line for line in finding.cure), "it frees nothing"
    with limited(database):
        assert of(examine(database), "slot_wal") == []
    database.execute("INSERT INTO t VALUES (1)", "SELECT pg_switch_wal()", "CHECKPOINT")
    [frees] = [line for line in one(examine(database), "slot_wal").cure if "Dropping" in line]
    assert re.search(r"^-- pg_wal has .* MB\. Dropping s frees [0-9.]+ MB, at the next checkpoint ", frees)
    database.query("SELECT pg_create_logical_replication_slot('newer', 'pgoutput')")
    assert [finding.subjects for finding in of(examine(database), "slot_wal")] == [("s",), ("newer",)]
    database.query("SELECT pg_drop_replication_slot('newer')")
    database.query("SELECT pg_drop_replication_slot('unused')")


def listed(conninfo: str, version: int) -> str:
    """What `pgtail slot list` says of the slot s, as one line."""
    with Connector(parameters(conninfo)).ordinary() as connection:
        report = slot_report.report(connection, version, "s")
    assert report is not None
    assert (report.facts["wal_held"] is None) == (report.holder is None)
    return " ".join(render([report], None, PLAIN, width=160, verbose=True).split())


@pytest.mark.parametrize("prepared", [False, True])
def test_the_transaction_that_holds_wal_is_named(
    database: Database, monkeypatch: pytest.MonkeyPatch, prepared: bool
) -> None:
    """It may be of another database; the reader has confirmed all that came after it."""
    monkeypatch.setattr(wal_holder, "KNOWN_AFTER", 0)
    publish(database)
    database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    reading = tailing(database, "-S", "s", "--ack", "commit")
    with fresh_database(database.server) as other, role(database, "mere", "REPLICATION") as mere, reading as running:
        other.execute("CREATE TABLE t (id int)")
        with other.connect(application_name="batch") as session:
            session.execute("BEGIN")
            session.execute("INSERT INTO t VALUES (0)")
            pid = session.info.backend_pid
            if prepared:
                session.execute("PREPARE TRANSACTION 'it''s'")
            for number in range(3):
                database.execute(f"INSERT INTO t VALUES ({number})", "SELECT pg_switch_wal()")
            [finding] = wait_for("finding", lambda: of_severity(database, "slot_wal"))
            who = f"user postgres, database {other.name}"
            who = f"prepared transaction 'it''s', {who}" if prepared else f"pid {pid}, batch, {who}"
            state = "prepared" if prepared else "idle in transaction"
            assert ", in use by pid " in finding.text
            assert ", although its lag is " in finding.text
            assert finding.cure[0].startswith("-- Its consumer has confirmed most of the WAL, which is held by ")
            assert f" held by {who}, open for " in finding.cure[0]
            assert finding.cure[0].endswith(f" ({state}).")
            end = "ROLLBACK PREPARED 'it''s';" if prepared else f"SELECT pg_terminate_backend({pid});"
            assert f"-- {end}" in finding.cure
            assert f"WAL held by {who}, open for " in listed(database.conninfo(), database.version)
            shown = listed(mere, database.version)
            if prepared:
                assert f"WAL held by {who}, open for " in shown
            else:
                hidden = "(since when is hidden from this role: it needs pg_read_all_stats)"
                assert f"by {who} {hidden}" in shown
            session.execute("ROLLBACK PREPARED 'it''s'" if prepared else "ROLLBACK")
        assert of_severity(database, "slot_wal") == []
        shown = listed(database.conninfo(), database.version)
        # A server that has just logged its running transactions (it does so every 15 seconds) holds nothing any more.
        assert "WAL held until the next checkpoint confirmed" in shown or "WAL held" not in shown

        def moved() -> bool:
            database.execute("CHECKPOINT", "INSERT INTO t SELECT max(id) + 1 FROM t")
            return "WAL held" not in listed(database.conninfo(), database.version)

        wait_for("a moved restart_lsn", moved)
        running.stop()


def test_wal_that_nobody_reads_is_held_until_the_consumer_reads_again(database: Database) -> None:
    publish(database)
    database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    numbers = itertools.count()

    def is_held() -> bool:
        """It is not if the server logs its running transactions meanwhile, which it does every 15 seconds."""
        for _ in range(3):
            database.execute(f"INSERT INTO t VALUES ({next(numbers)})", "SELECT pg_switch_wal()")
        assert "WAL held" not in listed(database.conninfo(), database.version)  # the lag explains it
        stream(database, "-S", "s", "--ack", "commit", "--until", "now")
        return "WAL held until its consumer reads again confirmed" in listed(database.conninfo(), database.version)

    wait_for("held WAL", is_held)
    [finding] = of_severity(database, "slot_wal")
    assert ", and nothing limits it" in finding.text
    assert finding.cure[0].endswith(" which is held until its consumer reads again.")


@pytest.mark.usefixtures("much_wal")
def test_a_standby_that_lags(newest_database: Database) -> None:
    newest_database.query("SELECT pg_create_physical_replication_slot('standby', true)")
    newest_database.execute(WRITE)
    start = newest_database.value("SELECT restart_lsn FROM pg_replication_slots WHERE slot_name = 'standby'")
    assert one(examine(newest_database), "slot_wal").cure[0] == "-- Let its standby read it."
    with newest_database.connect(replication="true") as walsender:
        walsender.pgconn.exec_(f"START_REPLICATION SLOT standby PHYSICAL {start}".encode())
        [finding] = of_severity(newest_database, "slot_wal")
        assert finding.cure[0] == "-- Its standby lags, or holds it back itself: check there."
        walsender.close()
    newest_database.execute(  # the walsender ends a moment later; a slot that is left would disturb other tests
        "DO $$ BEGIN WHILE EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = 'standby' AND active)"
        " LOOP PERFORM pg_sleep(0.05); END LOOP; END $$"
    )
    newest_database.query("SELECT pg_drop_replication_slot('standby')")


@since(12)
def test_a_publication_newer_than_the_changes_of_a_slot(database: Database) -> None:
    """What counts is the slot's first change, not when the slot was created."""
    database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    publish(database)
    database.query("SELECT pg_create_logical_replication_slot('t', 'pgoutput')")
    assert of(examine(database), "publication_age") == []
    database.execute("INSERT INTO t VALUES (1)", "CREATE PUBLICATION young FOR TABLE t", "INSERT INTO t VALUES (2)")
    before = database.query(SLOTS)
    finding = one(examine(database), "publication_age")
    assert finding.severity is Severity.WARNING
    assert 'slots have changes older than publication "young"' in finding.text
    assert finding.subjects == ("s", "t")
    assert ("decoding them fails" in finding.text) == (database.version < 18)
    assert 'One that does can request only "p" until it has passed them.' in finding.cure[0]
    assert database.query(SLOTS) == before
    for name in ("s", "t"):
        lines, _ = stream(database, "-S", name, "-P", "p", "--ack", "commit", "--until", "now")
        assert [line["new"]["id"] for line in lines] == ["1", "2"]
    assert of(examine(database), "publication_age") == []


@pytest.mark.parametrize("version", some_versions())
def test_skipped_check_is_reported(version: str, start_server: StartServer) -> None:
    """Without enough free slots no copy is made: another client may need the last one."""
    database = Database(start_server(installations()[version], max_replication_slots=2), "postgres")
    database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    publish(database)
    finding = one(examine(database), "publication_age")
    copies = database.version >= 12
    reason = (
        "there are too few free replication slots" if copies else f"PostgreSQL {database.version} cannot copy slots"
    )
    assert f"not checked, because {reason}" in finding.text
    assert [line.partition(" s ")[0] for line in finding.cure[1:]] == ["-- pgtail stream --fork"] * copies
    with role(database, "mere", "REPLICATION") as conninfo:
        database.server.restart(max_replication_slots=3)
        expected = ["visibility"] if copies else ["publication_age", "visibility"]
        assert wrong(examine(conninfo)) == dict.fromkeys([*expected, "slot_wal"], Severity.WARNING)


@pytest.mark.parametrize(
    ("patience", "reason"),
    [
        ({"SECONDS_PER_SLOT": 0.001}, "its first change was not found within 0.001 s"),
        ({"SECONDS_IN_ALL": 0.0}, "all slots together took more than 0 s"),
        ({}, "permission denied for function pg_copy_logical_replication_slot"),
    ],
)
def test_an_age_that_could_not_be_found_out(
    newest_database: Database, monkeypatch: pytest.MonkeyPatch, patience: dict[str, float], reason: str
) -> None:
    newest_database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    publish(newest_database)
    newest_database.execute("INSERT INTO t SELECT generate_series(1, 20000)")
    if not patience:
        newest_database.execute(
            "REVOKE EXECUTE ON FUNCTION pg_copy_logical_replication_slot(name, name, bool, name) FROM PUBLIC"
        )
    for name, seconds in patience.items():
        monkeypatch.setattr(publications, name, seconds)
    with role(newest_database, "mere", "REPLICATION IN ROLE pg_monitor") as conninfo:
        finding = one(examine(conninfo), "publication_age")
    assert finding.severity is Severity.WARNING
    assert f"not checked, because {reason}" in finding.text


def test_slots_that_lag_least_are_tried_first(newest_database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new slot has a verdict even where those before it use up the time."""
    tried: list[str] = []
    missing_from = slot_copy.missing_from

    def noted(connection: Connection, slot: Slot, names: list[str], seconds: float) -> list[str]:
        tried.append(slot.name)
        return missing_from(connection, slot, names, seconds)

    monkeypatch.setattr(slot_copy, "missing_from", noted)
    newest_database.query("SELECT pg_create_logical_replication_slot('a_old', 'pgoutput')")
    publish(newest_database)
    newest_database.execute("INSERT INTO t VALUES (1)")
    newest_database.query("SELECT pg_create_logical_replication_slot('new', 'pgoutput')")
    assert of_severity(newest_database, "publication_age") == []
    assert tried == ["new", "a_old"]


def test_slots_of_other_databases_are_seen(newest_database: Database) -> None:
    with fresh_database(newest_database.server) as other:
        other.query("SELECT pg_create_logical_replication_slot('theirs', 'pgoutput')")
        publish(newest_database)
        findings = examine(newest_database)
        assert ("theirs",) in [finding.subjects for finding in of(findings, "slot_wal")]
