"""The doctor on slots and open transactions: what it finds, why, and what it could not find out."""

from __future__ import annotations

import pytest

from pgtail.doctor import publication_age, slots
from pgtail.doctor.base import Severity
from pgtail.postgres import slot_copy
from pgtail.postgres.catalog import Slot
from pgtail.postgres.connection import Connection
from tests.conftest import StartServer
from tests.doctor.test_doctor import examine, of, of_severity, one, publish, role, wrong
from tests.support.servers import Database, fresh_database, installations, since
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


def test_an_inactive_slot_that_grows(newest_database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing limits it, so it is a warning long before it retains much."""
    newest_database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    publish(newest_database)
    monkeypatch.setattr(slots, "LONG", 0)
    unlimited = ", and nothing limits it (max_slot_wal_keep_size is -1)"
    assert one(examine(newest_database), "slots").text.endswith(unlimited)
    for number in (1, 2):
        newest_database.execute(f"INSERT INTO t VALUES ({number})", "SELECT pg_switch_wal()")
    finding = one(examine(newest_database), "slot_wal")
    assert finding.severity is Severity.WARNING
    assert "of WAL, not in use for " in finding.text
    assert finding.text.endswith(unlimited)
    monkeypatch.setattr(slots, "LONG", 3600)
    assert of(examine(newest_database), "slot_wal") == []


@pytest.mark.usefixtures("much_wal")
def test_wal_that_a_reader_has_confirmed_is_retained_for_an_open_transaction(newest_database: Database) -> None:
    newest_database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    with newest_database.connect() as session, tailing(newest_database, "-S", "s", "--ack", "commit") as running:
        session.execute("BEGIN")
        session.execute("INSERT INTO t VALUES (0)")
        newest_database.execute(WRITE)

        def causes() -> list[str]:
            newest_database.query("SELECT pg_log_standby_snapshot()")
            return [finding.cure[0] for finding in of_severity(newest_database, "slot_wal")]

        why = "-- Its reader has confirmed most of it: an old open transaction retains the rest (see transactions)."
        wait_for("acknowledgement", lambda: causes() == [why])
        session.execute("COMMIT")
        wait_for("cure", lambda: causes() == [])
        running.stop()


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


@pytest.mark.parametrize("version", list(installations()))
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
        assert wrong(examine(conninfo)) == dict.fromkeys(expected, Severity.WARNING)


@pytest.mark.parametrize(
    ("patience", "reason"),
    [
        ({"_SECONDS_PER_SLOT": 0.001}, "its first change was not found within 0.001 s"),
        ({"_SECONDS_IN_ALL": 0.0}, "all slots together took more than 0 s"),
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
        monkeypatch.setattr(publication_age, name, seconds)
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
        assert wrong(findings) == {}
        assert ("theirs",) in [finding.subjects for finding in of(findings, "slots")]
