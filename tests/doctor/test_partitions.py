"""The doctor on partitions: identities weaker than their root's, and what of partitions is not sent."""

from __future__ import annotations

from pgtail.doctor.base import Severity
from tests.doctor.test_doctor import examine, of, of_severity, one, wrong
from tests.support.servers import Database, since
from tests.support.tail import stream

VIA_ROOT = "WITH (publish_via_partition_root = true)"


@since(13)
def test_partitions_with_less_identity_than_their_root(database: Database) -> None:
    """ALTER TABLE of the root does not reach them, nor those that come later; the cure is a statement for each."""
    database.execute(
        "CREATE TABLE whole (id int, d int, v text, PRIMARY KEY (id, d)) PARTITION BY LIST (d)",
        "CREATE TABLE whole_1 PARTITION OF whole FOR VALUES IN (1)",
        "CREATE TABLE whole_2 (v text, d int NOT NULL, id int NOT NULL, PRIMARY KEY (id, d))",
        "ALTER TABLE whole ATTACH PARTITION whole_2 FOR VALUES IN (2)",
        "CREATE TABLE whole_3 PARTITION OF whole FOR VALUES IN (3)",
        "ALTER TABLE whole_3 REPLICA IDENTITY FULL",
        "CREATE TABLE keyed (id int PRIMARY KEY, u int NOT NULL) PARTITION BY RANGE (id)",
        'CREATE UNIQUE INDEX "U" ON keyed (u, id)',
        "CREATE TABLE keyed_1 PARTITION OF keyed FOR VALUES FROM (0) TO (9) PARTITION BY RANGE (id)",
        'CREATE TABLE "keyed 1a" PARTITION OF keyed_1 FOR VALUES FROM (0) TO (9)',
        "CREATE TABLE weak (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE weak_1 PARTITION OF weak FOR VALUES FROM (0) TO (9)",
        "ALTER TABLE weak_1 REPLICA IDENTITY FULL",
        f"CREATE PUBLICATION r FOR TABLE whole, keyed, weak {VIA_ROOT}",
    )
    assert of(examine(database), "partition_identity") == []
    database.execute(
        "ALTER TABLE whole REPLICA IDENTITY FULL",
        'ALTER TABLE keyed REPLICA IDENTITY USING INDEX "U"',
        "ALTER TABLE weak REPLICA IDENTITY NOTHING",
    )
    finding = one(examine(database), "partition_identity")
    assert finding.severity is Severity.WARNING
    assert finding.subjects == ('public."keyed 1a"', "public.whole_1", "public.whole_2")
    assert finding.cure == (
        'ALTER TABLE public."keyed 1a" REPLICA IDENTITY FULL;',
        "ALTER TABLE public.whole_1 REPLICA IDENTITY FULL;",
        "ALTER TABLE public.whole_2 REPLICA IDENTITY FULL;",
    )
    database.execute("ALTER PUBLICATION r SET (publish_via_partition_root = false)")
    assert of(examine(database), "partition_identity") == []
    database.execute("ALTER PUBLICATION r SET (publish_via_partition_root = true)", *finding.cure)
    assert wrong(examine(database)) == {}


@since(13)
def test_a_partition_without_identity_below_a_full_root_gets_one_cure(database: Database) -> None:
    """An index would serve the partition, but not send what the root's identity has."""
    database.execute(
        "CREATE TABLE t (id int NOT NULL, v text) PARTITION BY LIST (id)",
        "CREATE TABLE t_1 PARTITION OF t FOR VALUES IN (1)",
        "CREATE UNIQUE INDEX ON t_1 (id)",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        f"CREATE PUBLICATION r FOR TABLE t {VIA_ROOT}",
    )
    cure = one(examine(database), "replica_identity").cure
    assert cure == ("ALTER TABLE public.t_1 REPLICA IDENTITY FULL;",)
    database.execute(*cure)
    assert wrong(examine(database)) == {}


@since(15)
def test_full_is_not_advised_where_updates_would_fail(database: Database) -> None:
    """A column list must have all columns of the identity of a partition; the root's own does not count."""
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (9)",
        f"CREATE PUBLICATION r FOR TABLE t (id) {VIA_ROOT}",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "INSERT INTO t VALUES (1, 'a')",
        "UPDATE t SET v = 'b'",
    )
    [line] = one(examine(database), "partition_identity").cure
    assert line.startswith("-- public.t_1: FULL does not work with its column list")


@since(13)
def test_partitions_that_are_not_sent(database: Database) -> None:
    database.execute(
        "CREATE FOREIGN DATA WRAPPER w",
        "CREATE SERVER s FOREIGN DATA WRAPPER w",
        "CREATE TABLE parts (id int) PARTITION BY RANGE (id)",
        "CREATE FOREIGN TABLE far PARTITION OF parts FOR VALUES FROM (0) TO (9) SERVER s",
        "CREATE UNLOGGED TABLE scratch PARTITION OF parts FOR VALUES FROM (9) TO (99)",
        f'CREATE PUBLICATION "R" FOR TABLE parts {VIA_ROOT}',
    )
    findings = examine(database)
    assert wrong(findings) == {"unlogged": Severity.WARNING, "foreign": Severity.WARNING}
    assert one(findings, "unlogged").subjects == ("public.scratch",)
    assert one(findings, "foreign").subjects == ("public.far",)
    via_root = one(findings, "via_root")
    assert via_root.severity is Severity.OK
    assert 'publication "R" sends changes of partitions under the name of their root' in via_root.text
    assert "DETACH PARTITION, and TRUNCATE or DROP of a partition send nothing" in via_root.text
    database.execute('ALTER PUBLICATION "R" SET (publish_via_partition_root = false)')
    assert of_severity(database, "via_root") == of(examine(database), "via_root") == []


@since(13)
def test_what_the_doctor_says_is_not_sent_is_not(database: Database) -> None:
    database.execute(
        "CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE part_1 PARTITION OF parts FOR VALUES FROM (0) TO (9)",
        "CREATE TABLE part_2 PARTITION OF parts FOR VALUES FROM (9) TO (99)",
        "CREATE TABLE part_3 (id int PRIMARY KEY)",
        "INSERT INTO parts VALUES (1), (9)",
        "INSERT INTO part_3 VALUES (100)",
        f"CREATE PUBLICATION r FOR TABLE parts {VIA_ROOT}",
    )
    database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    database.execute(
        "ALTER TABLE parts ATTACH PARTITION part_3 FOR VALUES FROM (100) TO (200)",
        "TRUNCATE part_1",
        "ALTER TABLE parts DETACH PARTITION part_2",
        "DROP TABLE part_3",
        "INSERT INTO parts VALUES (2)",
        "TRUNCATE parts",
    )
    lines, _ = stream(database, "-S", "s", "--until", "now")
    assert [(line["op"], line["table"]) for line in lines] == [("insert", "parts"), ("truncate", "parts")]
