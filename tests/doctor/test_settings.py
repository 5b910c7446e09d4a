"""Checks of settings and standbys, on a server of their own: set a wrong value, find it, apply the cure."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from pgtail.demo.server import EmbeddedServer, Setting
from pgtail.doctor import slots
from pgtail.doctor.base import Severity
from tests.doctor.test_cures import paste
from tests.doctor.test_doctor import examine, of, of_severity, one, publish, role, wrong
from tests.support.servers import Database, embedded_server, installations, some_versions
from tests.support.standbys import standby_of
from tests.support.tail import wait_for

WARNING, PROBLEM = Severity.WARNING, Severity.PROBLEM


@dataclass(frozen=True)
class Setup:
    """Wrong settings, the checks that find them, and further SQL that is needed for the problem."""

    found: dict[str, Severity]
    settings: dict[str, Setting] = field(default_factory=dict)
    made: tuple[str, ...] = ()
    before: int = 100
    """The first version in which nothing is wrong with them."""


SETUPS = {
    "wal_level": Setup({"wal_level": PROBLEM}, {"wal_level": "replica"}, before=19),
    "no replication at all": Setup(
        {"wal_level": PROBLEM, "free_senders": PROBLEM, "replication_connection": PROBLEM},
        {"wal_level": "minimal", "max_wal_senders": 0},
    ),
    "no slot": Setup({"free_slots": PROBLEM}, {"max_replication_slots": 0}),
    "no free slot": Setup(
        {"free_slots": PROBLEM},
        {"max_replication_slots": 1},
        ("SELECT pg_create_physical_replication_slot('s')",),
    ),
    "a timeout of nothing": Setup({"timeouts": WARNING}, {"wal_sender_timeout": 0}),
    "a short timeout": Setup({"timeouts": WARNING}, {"wal_sender_timeout": "5s"}),
}


@pytest.fixture(scope="module", params=some_versions())
def own(request: pytest.FixtureRequest) -> Iterator[EmbeddedServer]:
    """A server for this file, because its settings are changed."""
    with ExitStack() as stack:
        yield stack.enter_context(embedded_server(installations()[request.param]))


@pytest.fixture
def alone(own: EmbeddedServer) -> Iterator[Database]:
    """Its database, without problems; its settings are restored afterwards."""
    database = Database(own, "postgres")
    publish(database)
    configuration = own.data / "postgresql.conf"
    before = configuration.read_bytes()
    yield database
    database.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
    database.execute("DROP PUBLICATION p", "DROP TABLE t", "ALTER SYSTEM RESET ALL")
    own.stop()
    configuration.write_bytes(before)
    own.start()


@pytest.mark.parametrize("name", SETUPS)
def test_settings_are_found_and_cured(alone: Database, name: str) -> None:
    setup = SETUPS[name]
    if alone.version >= setup.before:
        pytest.skip(f"nothing is wrong with it since PostgreSQL {setup.before}")
    alone.server.configure(**setup.settings)
    alone.server.restart()
    alone.execute(*setup.made)
    findings = examine(alone)
    assert wrong(findings) == setup.found
    restart = False
    for finding in findings:
        if finding.severity is not Severity.OK and finding.check != "replication_connection":
            paste(alone, finding)
            restart |= any("restart the server" in line for line in finding.cure)
    if restart:
        alone.server.restart()
    wait_for("cure", lambda: wrong(examine(alone)) == {})


def test_logical_slots_raise_the_wal_level(alone: Database) -> None:
    """Since PostgreSQL 19. REPACK (CONCURRENTLY) does not use the slots that are free for others."""
    if alone.version < 19:
        pytest.skip("wal_level has to be logical before PostgreSQL 19")
    alone.server.configure(wal_level="replica", max_replication_slots=1)
    alone.server.restart()

    def texts(check: str) -> list[str]:
        findings = examine(alone)
        assert wrong(findings) == {}
        return [finding.text for finding in of(findings, check)]

    assert texts("wal_level") == ["wal_level is replica: the first logical slot turns logical decoding on"]
    alone.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    [finding] = of(examine(alone), "wal_level")
    assert finding.text == "effective_wal_level is logical, as long as there is a logical slot"
    alone.query("SELECT pg_drop_replication_slot('s')")
    wait_for("lower level", lambda: texts("wal_level")[0].startswith("wal_level is replica"))
    alone.execute("INSERT INTO t SELECT generate_series(1, 5)")
    with alone.connect() as repacking, alone.connect() as session:
        session.execute("BEGIN; INSERT INTO t VALUES (6)")  # REPACK waits for it, with a slot
        thread = threading.Thread(target=repacking.execute, args=(b"REPACK (CONCURRENTLY) t",))
        thread.start()
        wait_for("slot", lambda: alone.query("SELECT 1 FROM pg_replication_slots"))
        assert of(examine(alone), "free_slots")[0].text == "0 of 1 replication slots are in use"
        alone.query("SELECT pg_create_physical_replication_slot('own')")
        session.execute("COMMIT")
        thread.join()


def test_a_setting_of_a_role_is_changed_there(alone: Database) -> None:
    if alone.version < 12:
        pytest.skip("roles and sessions have no wal_sender_timeout before PostgreSQL 12")
    with role(alone, "impatient", "REPLICATION IN ROLE pg_monitor") as conninfo:
        alone.execute("ALTER ROLE impatient SET wal_sender_timeout = '3s'")
        [finding] = [one for one in examine(conninfo) if one.severity is not Severity.OK]
        assert finding.cure == ("ALTER ROLE impatient SET wal_sender_timeout = '1min';",)
        paste(alone, finding)
        assert wrong(examine(conninfo)) == {}
    [finding] = [one for one in examine(alone.conninfo(options="-c wal_sender_timeout=0")) if one.severity]
    assert finding.cure == (
        "-- the options of this connection, or PGOPTIONS, set it: change it there, wal_sender_timeout = '1min'",
    )


def test_standbys_that_commits_wait_for(alone: Database) -> None:
    alone.execute("ALTER SYSTEM SET synchronous_standby_names = '*'", "ALTER SYSTEM SET synchronous_commit = 'local'")
    alone.server.restart()
    [finding] = of_severity(alone, "synchronous_standby_names")
    assert "(*) matches pgtail" in finding.text
    assert "PGAPPNAME" not in " ".join(finding.cure), "every name matches"
    alone.execute("ALTER SYSTEM SET synchronous_standby_names = 'a, pgtail'", "SELECT pg_reload_conf()")
    wait_for("reload", lambda: alone.value("SHOW synchronous_standby_names") == "a, pgtail")
    [finding] = of_severity(alone, "synchronous_standby_names")
    assert finding.cure[0] == "-- Read with pgtail stream --ack none, or as another: PGAPPNAME=..."
    assert wrong(examine(alone.conninfo(application_name="other"))) == {}


def test_roles_without_rights(alone: Database) -> None:
    with role(alone, "mere") as conninfo:
        findings = examine(conninfo)
        assert wrong(findings) == {"replication_right": PROBLEM, "visibility": WARNING}
        assert one(findings, "replication_connection").text == "pg_hba.conf allows replication connections"
        for check in wrong(findings):
            paste(alone, one(findings, check))
        assert wrong(examine(conninfo)) == {}


def test_a_walsender_is_freed(alone: Database) -> None:
    """Either by a restart with a higher limit, or at once by ending one."""
    alone.server.restart(max_wal_senders=1)
    walsender = alone.connect(replication="database")
    assert walsender.info.backend_pid
    findings = examine(alone)
    assert wrong(findings) == {"free_senders": PROBLEM, "replication_connection": PROBLEM}
    finding, connection = (one(findings, check) for check in ("free_senders", "replication_connection"))
    assert "a replication connection fails" in connection.text
    assert "max_wal_senders" in connection.cure[0]
    pid = walsender.info.backend_pid
    assert "-- SELECT pg_terminate_backend(...);" in finding.cure
    alone.query(f"SELECT pg_terminate_backend({pid})")
    wait_for("end", lambda: wrong(examine(alone)) == {})
    walsender.close()
    paste(alone, finding)
    alone.server.restart()
    assert alone.value("SHOW max_wal_senders") == "11"


def switch(database: Database, times: int, *more: str) -> None:
    """Add whole segments to the WAL."""
    for _ in range(times):
        database.execute("SELECT pg_switch_wal()", "INSERT INTO t VALUES (0)", "DELETE FROM t", *more)


def test_slots_that_hold_back_vacuum_or_lost_wal(alone: Database) -> None:
    if alone.version < 13:
        pytest.skip("PostgreSQL 13 has max_slot_wal_keep_size first")
    alone.server.restart(max_slot_wal_keep_size="64MB", autovacuum_freeze_max_age=100_000, max_wal_size="1GB")
    for name in ("lost", "old"):
        alone.query(f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')")
    alone.query("SELECT pg_create_physical_replication_slot('never_used')")
    assert wrong(examine(alone)) == {}
    alone.execute("DO 'BEGIN FOR i IN 1..10001 LOOP PERFORM txid_current(); COMMIT; END LOOP; END'")
    found = of_severity(alone, "slot_vacuum")
    assert {(finding.severity, *finding.subjects) for finding in found} == {(WARNING, "lost"), (WARNING, "old")}
    assert "prevents vacuum from cleaning the system catalogs" in found[0].text
    assert found[0].cure[0] == "-- Let its consumer read it."
    paste(alone, found[1], decide=True)
    assert {finding.subjects for finding in of_severity(alone, "slot_vacuum")} == {("lost",)}
    switch(alone, 4)
    [finding] = of_severity(alone, "slot_wal")
    assert finding.severity is WARNING
    assert "will be invalidated after" in finding.text
    assert "ALTER SYSTEM SET max_slot_wal_keep_size = '128MB';" in finding.cure
    paste(alone, finding)
    wait_for("cure", lambda: of_severity(alone, "slot_wal") == [])
    while [finding.severity for finding in of_severity(alone, "slot_wal")] != [PROBLEM]:
        switch(alone, 1)
    [finding] = of_severity(alone, "slot_wal")
    assert "loses it at the next checkpoint" in finding.text
    paste(alone, finding)
    wait_for("cure", lambda: of_severity(alone, "slot_wal") == [])
    switch(alone, 19, "CHECKPOINT")
    [finding] = of_severity(alone, "slot_invalid")
    assert finding.severity is PROBLEM
    assert finding.subjects == ("lost",)
    paste(alone, finding, decide=True)
    assert wrong(examine(alone)) == {}


def test_a_slot_that_was_not_used_for_long(alone: Database) -> None:
    if alone.version < 18:
        pytest.skip("there is no idle_replication_slot_timeout")
    alone.server.restart(idle_replication_slot_timeout=1)
    alone.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    wait_for("timeout", lambda: [alone.query("CHECKPOINT"), of_severity(alone, "slot_invalid")][1])
    [finding] = of_severity(alone, "slot_invalid")
    assert "idle_timeout" in finding.text
    paste(alone, finding, decide=True)
    assert wrong(examine(alone)) == {}


def test_an_abandoned_session(alone: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "LONG", 0)
    with alone.connect() as session:
        session.execute("BEGIN")
        session.execute("INSERT INTO t VALUES (1)")
        finding = wait_for("finding", lambda: next(iter(of_severity(alone, "transactions")), None))
        assert finding.cure[0] == "-- Commit it in its session."
        paste(alone, finding, decide=True)
        wait_for("cure", lambda: of_severity(alone, "transactions") == [])
        session.close()


def test_a_standby(own: EmbeddedServer) -> None:
    """Before 16 the cure is to use the primary; later a standby needs hot_standby_feedback."""
    primary = Database(own, "postgres")
    publish(primary)
    with standby_of(own) as other:
        standby = Database(other, "postgres")
        wait_for("replay", lambda: standby.value("SELECT count(*) FROM pg_publication") == 1)
        if standby.version < 16:
            [finding] = of_severity(standby, "standby")
            assert finding.cure == ("-- Connect to the primary.",)
            assert finding.severity is PROBLEM
        else:
            assert wrong(examine(standby)) == {}
            other.restart(hot_standby_feedback=False)
            [finding] = of_severity(standby, "standby")
            paste(standby, finding)
            wait_for("cure", lambda: wrong(examine(standby)) == {})
            invalidated(primary, standby)
    primary.execute("DROP PUBLICATION p", "DROP TABLE t")


def invalidated(primary: Database, standby: Database) -> None:
    """A lower wal_level on the primary invalidates a slot of the standby; the cure starts on the primary."""
    create = "SELECT pg_create_logical_replication_slot('s', 'pgoutput')"
    creating = threading.Thread(target=standby.query, args=(create,))
    creating.start()
    while creating.is_alive():
        primary.query("SELECT pg_log_standby_snapshot()")
        creating.join(0.2)
    assert wrong(examine(standby)) == {"slot_wal": WARNING}
    primary.server.restart(wal_level="replica")
    wait_for("invalidation", lambda: of_severity(standby, "slot_invalid"))
    [finding] = of_severity(standby, "slot_invalid")
    if primary.version < 19:
        assert ("on the primary: ALTER SYSTEM SET wal_level" in finding.cure[0]) == ("wal_level" in finding.text)
        primary.server.restart(wal_level="logical")
    else:
        assert finding.text.startswith("slot s is invalidated (wal_level_insufficient)")
        assert "-- On the primary, create a logical slot and keep it: pgtail slot create NAME" in finding.cure
        [level] = of_severity(standby, "wal_level")
        assert level.text.startswith("the primary's effective_wal_level is replica")
        primary.query("SELECT pg_create_logical_replication_slot('kept', 'pgoutput')")
        wait_for("higher level", lambda: of_severity(standby, "wal_level") == [])
    paste(standby, finding, decide=True)
    wait_for("cure", lambda: wrong(examine(standby)) == {})
