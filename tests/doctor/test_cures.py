"""Every check of the doctor on every server: create a problem, find it, paste its cure into psql, find it gone."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

import pytest

from pgtail.doctor import slots
from pgtail.doctor.base import Finding, Severity
from tests.doctor.test_doctor import examine, limited, of_severity, publish, wrong
from tests.doctor.test_slots import SLOTS
from tests.support.run_process import pgtail
from tests.support.servers import Database, fresh_database, run_program
from tests.support.tail import wait_for

_COMMAND = re.compile("^-- pgtail (slot .*)", re.MULTILINE)
_DECIDED = re.compile(r"-- ((?:SELECT|ALTER|ROLLBACK) .*;)")
DESTROYS = ("slot drop", "DROP PUBLICATION", "terminate", "ROLLBACK", "slot advance", "'insert')", "100GB")
PARTED = "CREATE TABLE parts (id int PRIMARY KEY, v int) PARTITION BY RANGE (id)"
PART = "CREATE {} TABLE part PARTITION OF parts FOR VALUES FROM (0) TO (10)"
BIG = "CREATE TABLE big (id int PRIMARY KEY, v text); ALTER TABLE big ALTER v SET STORAGE EXTERNAL;"
HERE = "DO $$BEGIN EXECUTE format('ALTER %s %%I SET wal_sender_timeout = %s', current_database()); END$$"
LATE = "SELECT pg_create_logical_replication_slot('s', 'pgoutput')"


def paste(database: Database, finding: Finding, *, decide: bool = False) -> None:
    """Paste a cure into psql; `decide` also runs the destructive SQL in its comments."""
    text = "\n".join(finding.cure)
    assert all(line.startswith("-- ") or line.endswith(";") for line in finding.cure), text
    assert not any(word in line for word in DESTROYS for line in finding.cure[:1]), (
        "a destructive cure is never the first"
    )
    assert all(line.startswith("-- ") for line in finding.cure for word in DESTROYS if word in line), text
    commands = _COMMAND.findall(text) if decide else []
    for command in commands:
        pgtail(*shlex.split(command), "--yes")
    if commands:
        return
    if decide:
        text = "\n".join(_DECIDED.findall(text))
    assert re.search("^[^-]", text, re.MULTILINE), "nothing to paste"
    arguments = ("--no-psqlrc", "--set=ON_ERROR_STOP=1", "--file=-")
    run_program(database, "psql", *arguments, input=text.encode())


@dataclass(frozen=True)
class Condition:
    """A problem, created by SQL in an otherwise sound database, and the doctor's name for it."""

    check: str
    severity: Severity
    made: tuple[str, ...]
    since: int = 0
    before: int = 100
    decide: bool = False
    """Whether its only cure is destructive."""
    pastes: int = 1
    """How many cures are needed, one after another."""
    said: str = ""
    """What the finding says, among other words."""


WARNING, PROBLEM = Severity.WARNING, Severity.PROBLEM
ALL_TABLES = "CREATE PUBLICATION alles FOR ALL TABLES"
CONDITIONS = {
    "nothing is published": Condition("publications", PROBLEM, ("DROP PUBLICATION p",)),
    "a publication is empty": Condition("publications", WARNING, ('CREATE PUBLICATION "e {m}"',)),
    "a publication sends nothing": Condition("publications", WARNING, ("ALTER PUBLICATION p SET (publish = '')",)),
    "no key": Condition(
        "replica_identity",
        PROBLEM,
        ("CREATE TABLE bare (id int)", "ALTER PUBLICATION p ADD TABLE bare"),
    ),
    "an index that would do": Condition(
        "replica_identity",
        PROBLEM,
        ('CREATE TABLE "Be\'spoke" (id int NOT NULL UNIQUE)', 'ALTER PUBLICATION p ADD TABLE "Be\'spoke"'),
    ),
    "identity nothing": Condition("replica_identity", PROBLEM, ("ALTER TABLE t REPLICA IDENTITY NOTHING",)),
    "a list without the key": Condition(
        "identity_coverage", PROBLEM, ("ALTER PUBLICATION p SET TABLE t (v) WHERE (id > 1)",), since=15
    ),
    "no key, and a list": Condition(
        "replica_identity",
        PROBLEM,
        ("CREATE TABLE bare (id int NOT NULL UNIQUE, v int)", "ALTER PUBLICATION p ADD TABLE bare (id)"),
        since=15,
    ),
    "a list under FULL": Condition(
        "identity_coverage",
        PROBLEM,
        ("ALTER TABLE t REPLICA IDENTITY FULL", "ALTER PUBLICATION p SET TABLE t (id)"),
        since=15,
    ),
    "a filter outside the key": Condition(
        "identity_coverage",
        PROBLEM,
        ("ALTER PUBLICATION p SET TABLE t WHERE (v = 'a''b' AND length(v) < 9)",),
        since=15,
    ),
    "a filter outside the key, and a list": Condition(
        "identity_coverage", PROBLEM, ("ALTER PUBLICATION p SET TABLE t (id, v) WHERE (v > 'a')",), since=15
    ),
    "a list and a filter, both wrong": Condition(
        "identity_coverage", PROBLEM, ("ALTER PUBLICATION p SET TABLE t (v) WHERE (v > 'a')",), since=15, pastes=2
    ),
    "a list of a whole that its parts' keys are not in": Condition(
        "identity_coverage",
        PROBLEM,
        (
            'CREATE TABLE parts (id int NOT NULL, "K" int NOT NULL, v int) PARTITION BY RANGE (id)',
            'CREATE TABLE one PARTITION OF parts (PRIMARY KEY (id, "K")) FOR VALUES FROM (0) TO (9)',
            "CREATE TABLE two PARTITION OF parts (PRIMARY KEY (id, v)) FOR VALUES FROM (9) TO (19)",
            "CREATE PUBLICATION w FOR TABLE parts (id) WITH (publish_via_partition_root = true)",
        ),
        since=15,
    ),
    "a generated key": Condition(
        "identity_generated",
        PROBLEM,
        (
            "CREATE TABLE made (id int, g int GENERATED ALWAYS AS (id * 2) STORED PRIMARY KEY)",
            "ALTER PUBLICATION p ADD TABLE made",
        ),
        since=18,
    ),
    "a virtual column under FULL": Condition(
        "identity_generated",
        PROBLEM,
        (
            "CREATE TABLE virtual (id int PRIMARY KEY, g int GENERATED ALWAYS AS (id * 2) VIRTUAL)",
            "ALTER TABLE virtual REPLICA IDENTITY FULL",
            "ALTER PUBLICATION p ADD TABLE virtual",
        ),
        since=18,
    ),
    "large values": Condition(
        "toast",
        WARNING,
        (BIG, "INSERT INTO big VALUES (1, repeat('x', 9000))", "VACUUM big", "ALTER PUBLICATION p ADD TABLE big"),
    ),
    "unlogged, one refers to the other": Condition(
        "unlogged",
        WARNING,
        (
            "CREATE UNLOGGED TABLE b (id int PRIMARY KEY)",
            "CREATE UNLOGGED TABLE a (id int PRIMARY KEY REFERENCES b)",
            "CREATE UNLOGGED TABLE c (id int PRIMARY KEY REFERENCES c)",
            ALL_TABLES,
        ),
    ),
    "an unlogged schema": Condition(
        "unlogged",
        WARNING,
        (
            'CREATE SCHEMA "S"',
            'CREATE UNLOGGED TABLE "S"."U" (id int)',
            'CREATE PUBLICATION s FOR TABLES IN SCHEMA "S"',
            'CREATE TABLE "S".l (id int PRIMARY KEY)',
        ),
        since=15,
    ),
    "an unlogged partition": Condition(
        "unlogged",
        WARNING,
        (
            PARTED,
            PART.format("UNLOGGED"),
            "CREATE PUBLICATION r FOR TABLE parts WITH (publish_via_partition_root = true)",
        ),
        since=13,
    ),
    "partitions by their names": Condition(
        "partitioned", WARNING, (PARTED, PART.format(""), "CREATE PUBLICATION r FOR TABLE parts"), since=13
    ),
    "a young publication": Condition(
        "publication_age",
        WARNING,
        (
            LATE,
            "INSERT INTO t VALUES (1)",
            "CREATE PUBLICATION young FOR TABLE t",
            'CREATE PUBLICATION "you""nger" FOR TABLE t',
            "INSERT INTO t VALUES (2)",
        ),
        since=12,
        decide=True,
    ),
    "a prepared transaction is forgotten": Condition(
        "transactions",
        WARNING,
        (r"BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'it''s \m';",),
        decide=True,
        said="user postgres",
    ),
    "much WAL": Condition(
        "slot_wal", WARNING, (LATE, "INSERT INTO t SELECT i FROM generate_series(1, 9000) i"), decide=True
    ),
    "two phases": Condition(
        "bugs",
        WARNING,
        ("SELECT pg_create_logical_replication_slot('s', 'pgoutput', false, true)",),
        since=14,
        before=19,
    ),
    "timeout of the role and database": Condition(
        "timeouts", WARNING, (HERE % ("ROLE postgres IN DATABASE", "0"),), since=12
    ),
    "timeout of the database": Condition("timeouts", WARNING, (HERE % ("DATABASE", "2000"),), since=12),
}


@pytest.fixture
def healthy(database: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
    """A database without problems; limits are seconds and kilobytes instead of hours and gigabytes."""
    monkeypatch.setattr(slots, "LONG", 0)
    monkeypatch.setattr(slots, "MUCH_WAL", 500_000)
    publish(database)
    return database


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_condition_is_found_and_cured(healthy: Database, name: str) -> None:
    condition = CONDITIONS[name]
    if not condition.since <= healthy.version < condition.before:
        pytest.skip(f"there is no such thing in PostgreSQL {healthy.version}")
    healthy.execute(*condition.made)
    others = wrong(examine(healthy)).keys() - {condition.check}
    for _ in range(condition.pastes):
        finding, *_ = of_severity(healthy, condition.check)
        assert finding.severity is condition.severity
        assert condition.said in finding.text
        if condition.check == "bugs":
            assert finding.cure[0].startswith("-- Update to ")
            healthy.query("SELECT pg_drop_replication_slot('s')")
        else:
            paste(healthy, finding, decide=condition.decide)
    wait_for("cure", lambda: of_severity(healthy, condition.check) == [])
    assert wrong(examine(healthy)).keys() <= others, "a cure caused another problem"


def test_healthy_server_has_status_0(healthy: Database) -> None:
    """Also with an older slot that holds back catalog_xmin, and with a slot that was read to its end."""
    if healthy.version < 14:
        pytest.skip("its last release has a bug that every server has")
    with limited(healthy), fresh_database(healthy.server) as other:
        other.query("SELECT pg_create_logical_replication_slot('older', 'pgoutput')")
        healthy.execute("CREATE PUBLICATION young FOR TABLE t", "INSERT INTO t VALUES (1)")
        healthy.query(LATE)
        pgtail("doctor", healthy.conninfo())
        healthy.execute("INSERT INTO t VALUES (2)")
        before = healthy.query(SLOTS)
        pgtail("doctor", healthy.conninfo())
        assert healthy.query(SLOTS) == before
