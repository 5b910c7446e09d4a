"""The doctor on tables that refuse UPDATE and DELETE because of a publication, and its cures."""

from __future__ import annotations

from pgtail.doctor import Severity
from tests.doctor.test_doctor import examine, of, of_severity, one, refusing, wrong
from tests.support.servers import Database, since


def found_and_cured(database: Database, names: tuple[str, ...], check: str, refused: set[str]) -> None:
    """The check finds the tables that refuse an UPDATE, which are these, and its cures work."""
    assert refusing(database, names) == refused
    found = of(examine(database), check)
    assert {subject for finding in found for subject in finding.subjects} == refused
    for finding in found:
        database.execute(*finding.cure)
    assert refusing(database, names) == set()
    assert of(examine(database), check) == []


@since(15)
def test_lists_and_filters_of_a_partitioned_table_apply_to_its_partitions(database: Database) -> None:
    names = ("listed_1", "fits_1", "filtered_1")
    database.execute(
        "CREATE TABLE listed (v int, id int, k int, PRIMARY KEY (id, k)) PARTITION BY RANGE (id)",
        "CREATE TABLE fits (v int, id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE filtered (id int PRIMARY KEY, v int) PARTITION BY RANGE (id)",
        *[f"CREATE TABLE {name} PARTITION OF {name[:-2]} FOR VALUES FROM (0) TO (9)" for name in names[::2]],
        "CREATE TABLE fits_1 (id int NOT NULL, v int)",  # the same columns under other numbers
        "ALTER TABLE fits ATTACH PARTITION fits_1 FOR VALUES FROM (0) TO (9)",
        "CREATE PUBLICATION p FOR TABLE listed (id, v), fits (id), filtered WHERE (v > 1)"
        " WITH (publish_via_partition_root = true)",
    )
    found_and_cured(database, names, "identity_coverage", {"public.listed_1", "public.filtered_1"})


@since(18)
def test_generated_columns_of_the_identity_must_be_published(database: Database) -> None:
    names = ("complete", "by_index", "beside", "virtual", "listed")
    stored = "g int GENERATED ALWAYS AS (id * 2) STORED NOT NULL"
    database.execute(
        *[f"CREATE TABLE {name} (id int PRIMARY KEY, v int, {stored} UNIQUE)" for name in names if name != "virtual"],
        "CREATE TABLE virtual (id int PRIMARY KEY, v int, g int GENERATED ALWAYS AS (id * 2) VIRTUAL)",
        "ALTER TABLE complete REPLICA IDENTITY FULL",
        "ALTER TABLE virtual REPLICA IDENTITY FULL",
        "ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_index_g_key",
        "ALTER TABLE listed REPLICA IDENTITY USING INDEX listed_g_key",
        'CREATE PUBLICATION "P" FOR TABLE complete, by_index, beside, virtual, listed (id, g)',
    )
    refused = {"public.complete", "public.by_index", "public.virtual"}
    found_and_cured(database, names, "identity_generated", refused)


@since(12)
def test_no_cure_makes_a_table_refuse_updates(database: Database) -> None:
    """REPLICA IDENTITY FULL would, with a column list, and since 18 with unpublished generated columns."""
    names = ("plain", *(("listed",) if database.version >= 15 else ()), "made")
    database.execute(
        *[f"CREATE TABLE {name} (id int PRIMARY KEY, v int, body text)" for name in names],
        "ALTER TABLE made ADD g int GENERATED ALWAYS AS (id * 2) STORED",
        *[f"ALTER TABLE {name} ALTER body SET STORAGE EXTERNAL" for name in names],
        *[f"INSERT INTO {name} VALUES (1, 1, repeat('x', 9000))" for name in names],
        *[f"VACUUM {name}" for name in names],
        f"CREATE PUBLICATION p FOR TABLE plain, made{', listed (id, body)' if 'listed' in names else ''}",
    )
    finding = one(of_severity(database, "toast"), "toast")
    assert set(finding.subjects) == {f"public.{name}" for name in names}
    assert refusing(database, names) == set()
    database.execute(*finding.cure[1:])
    assert refusing(database, names) == set()


def test_unlogged_tables_that_refer_to_each_other(newest_database: Database) -> None:
    """No order of SET LOGGED works until one of the foreign keys is dropped."""
    newest_database.execute(
        "CREATE UNLOGGED TABLE a (id int PRIMARY KEY)",
        "CREATE UNLOGGED TABLE b (id int PRIMARY KEY REFERENCES a)",
        "ALTER TABLE a ADD CONSTRAINT a_to_b FOREIGN KEY (id) REFERENCES b",
        "CREATE PUBLICATION p FOR ALL TABLES",
    )
    finding = one(of_severity(newest_database, "unlogged"), "unlogged")
    assert finding.cure[0] in {
        f"-- First drop a foreign key between {tables}, which refer to each other."
        for tables in ("public.a, public.b", "public.b, public.a")
    }
    assert all(line.startswith("-- ") for line in finding.cure), "as they are, the statements would fail"
    newest_database.execute("ALTER TABLE a DROP CONSTRAINT a_to_b")
    newest_database.execute(*one(of_severity(newest_database, "unlogged"), "unlogged").cure)
    assert of_severity(newest_database, "unlogged") == []


def test_a_publication_of_all_tables_where_there_are_none(newest_database: Database) -> None:
    newest_database.execute("CREATE PUBLICATION p FOR ALL TABLES")
    finding = one(examine(newest_database), "publications")
    assert "has no tables" in finding.text
    assert "ADD TABLE" not in " ".join(finding.cure), "the server refuses that"


@since(19)
def test_a_publication_of_all_tables_but_some(database: Database) -> None:
    database.execute(
        "CREATE TABLE without_key (v int)",
        'CREATE TABLE "My t" (id int PRIMARY KEY)',
        "CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE UNLOGGED TABLE part PARTITION OF parts DEFAULT",
        'CREATE PUBLICATION p FOR ALL TABLES EXCEPT (TABLE "My t", without_key, parts)',
    )
    findings = examine(database)
    assert wrong(findings) == {"publications": Severity.WARNING}
    except_ = 'EXCEPT (public."My t", public.parts, public.without_key)'
    [cure] = one(findings, "publications").cure
    assert cure == f"-- It is FOR ALL TABLES {except_}, and there is no other table yet: new tables will be in it."
    assert refusing(database, ("without_key",)) == set()
    database.execute("CREATE UNLOGGED TABLE scratch (id int PRIMARY KEY)", "CREATE TABLE t (id int PRIMARY KEY)")
    findings = examine(database)
    assert wrong(findings) == {"unlogged": Severity.WARNING}
    assert one(findings, "unlogged").subjects == ("public.scratch",)
    assert f'"p": 1 table, all tables {except_}, including future ones' in one(findings, "publications").text
    database.execute(
        "DROP TABLE scratch",
        *[f"CREATE TABLE t{n} (id int PRIMARY KEY)" for n in range(6)],
        "ALTER PUBLICATION p SET ALL TABLES EXCEPT (TABLE t, t0, t1, t2, t3, t4, t5)",
    )
    text = one(examine(database), "publications").text
    assert "EXCEPT (public.t, public.t0, public.t1, public.t2, public.t3, 2 more), including" in text


@since(19)
def test_a_publication_of_sequences_has_nothing_for_the_stream(database: Database) -> None:
    database.execute("CREATE TABLE t (id serial PRIMARY KEY)", "CREATE PUBLICATION s FOR ALL SEQUENCES")
    [finding] = of_severity(database, "publications")
    assert "has sequences only, which are not in the stream" in finding.text
    database.execute(*finding.cure)
    assert [one.severity for one in of(examine(database), "publications")] == [Severity.WARNING, Severity.OK]
    database.execute("ALTER PUBLICATION s SET ALL TABLES, ALL SEQUENCES")
    assert of_severity(database, "publications") == []
