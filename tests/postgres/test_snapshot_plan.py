"""The plan of a copy: the same tables, descriptions and rows as the walsender sends, on every server."""

from __future__ import annotations

from contextlib import closing

import pytest

from pgtail.errors import ServerError
from pgtail.postgres.snapshot_plan import PublishedTable, snapshot_plan
from tests.support.copied_tables import copied, described, inserted, snapshot_of, streamed
from tests.support.servers import Database, fresh_database, since

SLOT = "SELECT pg_create_logical_replication_slot('s', 'pgoutput')"


def same_as_streamed(
    database: Database, *publications: str, binary: bool = False, encoding: str | None = None
) -> dict[str, PublishedTable]:
    """Check that the plan's tables, and their rows, are those that slot `s` sends; returns the tables by name."""
    with snapshot_of(database, encoding=encoding) as (session, _):
        tables = snapshot_plan(session, publications)
        rows = {table.oid: copied(session, table, binary=binary) for table in tables}
        descriptions = {table.oid: table.descriptions(encoding or "utf-8") for table in tables}
    messages = streamed(database, "s", publications, binary=binary, encoding=encoding)
    expected = inserted(messages)
    sent = described(messages)
    for table in tables:
        assert sorted(rows[table.oid]) == sorted(expected.get(table.oid, [])), table.name
        assert len(rows[table.oid]) <= sum(part.ordinals for part in table.parts)
        if rows[table.oid]:
            assert descriptions[table.oid] == sent[table.oid], table.name
    assert {table.oid for table in tables} >= expected.keys()
    return {table.name: table for table in tables}


@pytest.mark.parametrize("form", ["text", "binary"])
def test_types_and_identities(database: Database, form: str) -> None:
    if form == "binary" and database.version < 14:
        pytest.skip("its pgoutput has no binary form")
    database.execute(
        'CREATE SCHEMA "S 1"',
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "CREATE TYPE pair AS (a int, b text)",
        "CREATE DOMAIN doc AS jsonb",
        'CREATE DOMAIN "S 1".own AS doc',
        "CREATE DOMAIN how AS mood",
        "CREATE TYPE spans AS RANGE (subtype = float8)",
        'CREATE TABLE "S 1"."My t" (gone int, "A b" numeric(9, 2)[], id int PRIMARY KEY, at timestamptz(3), b bytea)',
        'ALTER TABLE "S 1"."My t" DROP COLUMN gone',
        'CREATE TABLE typed (id bigint PRIMARY KEY, m mood, d doc, o "S 1".own, h how, p pair, s spans,'
        " ms mood[], ps pair[], two mood, c information_schema.cardinal_number, acl aclitem, f float8, i interval)",
        "CREATE TABLE in_full (a int, b text)",
        "ALTER TABLE in_full REPLICA IDENTITY FULL",
        "CREATE TABLE by_index (a int NOT NULL, b text NOT NULL, c int PRIMARY KEY)",
        "CREATE UNIQUE INDEX by_two ON by_index (b, a)",
        "ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_two",
        "CREATE TABLE nothing (a int PRIMARY KEY)",
        "ALTER TABLE nothing REPLICA IDENTITY NOTHING",
        "CREATE TABLE no_key (a int, b text)",
        "CREATE TABLE deferred (a int PRIMARY KEY DEFERRABLE, b int UNIQUE)",
        "CREATE TABLE no_columns ()",
        "CREATE TABLE empty (id int)",
        "CREATE TABLE parent (id int PRIMARY KEY, v text)",
        "CREATE TABLE child (w text) INHERITS (parent)",
        "CREATE UNLOGGED TABLE unlogged (id int)",
        "CREATE PUBLICATION pub FOR ALL TABLES",
        SLOT,
        """INSERT INTO "S 1"."My t" VALUES ('{1.5,NULL}', 1, '2026-01-02 03:04:05.678+09', '\\x00ff5c'),
            (NULL, 2, NULL, NULL)""",
        """INSERT INTO typed VALUES (1, 'sad', '{"a": "\\\\"}', '[1]', 'ok', '(1,"x y")', '[1,2)', '{sad}',
            '{"(2,z)"}', 'ok', 7, format('%s=r/%s', current_user, current_user)::aclitem, 0.1, '1 day 2 hours')""",
        "INSERT INTO typed (id) VALUES (2)",
        r"INSERT INTO in_full VALUES (1, E'tab\there\nline\rreturn\\back\b\f\v\x01'), (2, ''), (NULL, NULL), (4, '\N')",
        "INSERT INTO by_index VALUES (1, 'x', 3)",
        "INSERT INTO nothing VALUES (1)",
        "INSERT INTO no_key SELECT n, repeat('x', n) FROM generate_series(1, 2000) n",
        "INSERT INTO deferred VALUES (1, 2)",
        "INSERT INTO no_columns SELECT FROM generate_series(1, 3)",
        "INSERT INTO parent VALUES (1, 'p')",
        "INSERT INTO child VALUES (2, 'c', 'w')",
    )
    tables = same_as_streamed(database, "pub", binary=form == "binary")
    assert "unlogged" not in tables
    assert tables["empty"].parts
    assert len(tables["typed"].types) == 10


def test_a_primary_key_with_more_columns_in_its_index(database: Database) -> None:
    include = "INCLUDE (b)" if database.version >= 11 else ""
    database.execute(
        f"CREATE TABLE t (a int, b int, PRIMARY KEY (a) {include})",
        "CREATE PUBLICATION pub FOR TABLE t",
        SLOT,
        "INSERT INTO t VALUES (1, 2)",
    )
    same_as_streamed(database, "pub")


PARTITIONS = (
    "CREATE TABLE root (id int, v text, gone int) PARTITION BY RANGE (id)",
    "ALTER TABLE root DROP COLUMN gone",
    "CREATE TABLE low PARTITION OF root FOR VALUES FROM (0) TO (10)",
    "CREATE TABLE middle (v text, x int, id int NOT NULL) PARTITION BY RANGE (id)",
    "ALTER TABLE middle DROP COLUMN x",
    "ALTER TABLE root ATTACH PARTITION middle FOR VALUES FROM (10) TO (30)",
    "CREATE TABLE leaf (y int, id int NOT NULL, v text)",
    "ALTER TABLE leaf DROP COLUMN y",
    "ALTER TABLE middle ATTACH PARTITION leaf FOR VALUES FROM (10) TO (20)",
    "CREATE UNLOGGED TABLE unlogged PARTITION OF middle FOR VALUES FROM (20) TO (25)",
)
ALL_OF_THEM = {"low", "leaf", "parent", "child", "other"}
FILL = "INSERT INTO root SELECT n, 'v' || n FROM generate_series(0, 22) n"


@since(13)
@pytest.mark.parametrize(
    ("publications", "names"),
    [
        (("FOR TABLE root",), {"low", "leaf"}),
        (("FOR TABLE root WITH (publish_via_partition_root = true)",), {"root"}),
        (("FOR TABLE middle WITH (publish_via_partition_root = true)", "FOR TABLE root"), {"middle", "low"}),
        (("FOR TABLE leaf, root WITH (publish_via_partition_root = true)", "FOR TABLE leaf"), {"root"}),
        (("FOR TABLE middle, low WITH (publish_via_partition_root = true)",), {"middle", "low"}),
        (("FOR ALL TABLES",), {"low", "leaf"}),
        (("FOR ALL TABLES WITH (publish_via_partition_root = true)",), {"root"}),
        (("FOR ALL TABLES WITH (publish_via_partition_root = true)", "FOR TABLE low"), {"root"}),
    ],
)
def test_partitions(database: Database, publications: tuple[str, ...], names: set[str]) -> None:
    database.execute(
        *PARTITIONS,
        *[f"CREATE PUBLICATION p{number} {text}" for number, text in enumerate(publications)],
        SLOT,
        FILL,
    )
    assert same_as_streamed(database, *[f"p{number}" for number in range(len(publications))]).keys() == names


@since(19)
@pytest.mark.parametrize(
    ("publications", "names"),
    [
        (("FOR ALL TABLES EXCEPT (TABLE root, parent)",), {"other"}),
        (("FOR ALL TABLES EXCEPT (TABLE ONLY parent), ALL SEQUENCES",), {"low", "leaf", "child", "other"}),
        (
            ("FOR ALL TABLES EXCEPT (TABLE child) WITH (publish_via_partition_root = true)",),
            {"root", "parent", "other"},
        ),
        (("FOR ALL TABLES EXCEPT (TABLE root)", "FOR TABLE low"), {"low", "parent", "child", "other"}),
        (
            (
                "FOR ALL TABLES EXCEPT (TABLE root, parent) WITH (publish_via_partition_root = true)",
                "FOR TABLE middle WITH (publish_via_partition_root = true)",
            ),
            {"middle", "other"},
        ),
        (("FOR ALL TABLES EXCEPT (TABLE root)", "FOR ALL TABLES EXCEPT (TABLE parent, other)"), ALL_OF_THEM),
        (("FOR ALL SEQUENCES", "FOR TABLE other"), {"other"}),
    ],
)
def test_tables_that_are_left_out(database: Database, publications: tuple[str, ...], names: set[str]) -> None:
    database.execute(
        *PARTITIONS,
        "CREATE TABLE parent (id serial PRIMARY KEY)",
        "CREATE TABLE child () INHERITS (parent)",
        "CREATE TABLE other (id int)",
        *[f"CREATE PUBLICATION p{number} {text}" for number, text in enumerate(publications)],
        SLOT,
        FILL,
        *[f"INSERT INTO {name} (id) SELECT generate_series(1, 3)" for name in ("parent", "child", "other")],
    )
    assert same_as_streamed(database, *[f"p{number}" for number in range(len(publications))]).keys() == names


@since(13)
def test_identities_of_partitioned_tables(database: Database) -> None:
    database.execute(
        "CREATE TABLE keyed (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE keyed_1 PARTITION OF keyed FOR VALUES FROM (0) TO (10)",
        "ALTER TABLE keyed_1 REPLICA IDENTITY FULL",
        "CREATE TABLE invalid (id int NOT NULL) PARTITION BY RANGE (id)",
        "CREATE TABLE invalid_1 PARTITION OF invalid FOR VALUES FROM (0) TO (10)",
        "ALTER TABLE ONLY invalid ADD PRIMARY KEY (id)",
        "CREATE PUBLICATION pub FOR ALL TABLES WITH (publish_via_partition_root = true)",
        SLOT,
        "INSERT INTO keyed VALUES (1, 'x')",
        "INSERT INTO invalid VALUES (1)",
    )
    same_as_streamed(database, "pub")


@since(13)
def test_a_partitioned_table_without_partitions(database: Database) -> None:
    database.execute(
        "CREATE TABLE root (id int) PARTITION BY RANGE (id)",
        "CREATE PUBLICATION pub FOR TABLE root WITH (publish_via_partition_root = true)",
        SLOT,
    )
    [table] = same_as_streamed(database, "pub").values()
    assert [part.source for part in table.parts] == [None]


@since(15)
def test_column_lists_filters_and_schemas(database: Database) -> None:
    database.execute(
        "CREATE SCHEMA s",
        *PARTITIONS,
        "CREATE TABLE listed (id int PRIMARY KEY, secret text, b varchar(7))",
        "CREATE TABLE filtered (id int PRIMARY KEY, v text)",
        "CREATE TABLE in_one (id int PRIMARY KEY, v text)",
        "CREATE TABLE s.t (id int PRIMARY KEY, v text)",
        "CREATE PUBLICATION p1 FOR TABLE listed (b, id), filtered WHERE (id < 5 AND v <> 'v3'), in_one WHERE (id = 1),"
        " root (id) WHERE (id > 5), s.t WHERE (id = 1) WITH (publish_via_partition_root = true)",
        "CREATE PUBLICATION p2 FOR TABLE listed (id, b), filtered WHERE (id = 7), in_one",
        "CREATE PUBLICATION p3 FOR TABLES IN SCHEMA s",
        SLOT,
        "INSERT INTO listed VALUES (1, 'no', 'b'), (2, NULL, NULL)",
        *[
            f"INSERT INTO {name} SELECT n, 'v' || n FROM generate_series(1, 9) n"
            for name in ("filtered", "in_one", "s.t")
        ],
        FILL,
    )
    tables = same_as_streamed(database, "p1", "p2", "p3")
    assert tables.keys() == {"listed", "filtered", "in_one", "root", "t"}
    assert [column.description.name for column in tables["listed"].columns] == ["id", "b"]
    assert [tables[name].row_filter for name in ("in_one", "t")] == [None, None]


@since(15)
def test_publications_with_other_columns(database: Database) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "CREATE PUBLICATION p1 FOR TABLE t (id)",
        "CREATE PUBLICATION p2 FOR TABLE t",
    )
    with (
        snapshot_of(database) as (session, _),
        pytest.raises(ServerError, match="different column lists for table") as e,
    ):
        snapshot_plan(session, ["p1", "p2"])
    assert "-P names those to read" in str(e.value)


@since(12)
@pytest.mark.parametrize("published", ["none", "stored", "listed"])
def test_generated_columns(database: Database, published: str) -> None:
    if database.version < 18 and published != "none":
        pytest.skip("it never publishes them")
    virtual = ", w int GENERATED ALWAYS AS (id * 3) VIRTUAL" if database.version >= 18 else ""
    columns = " (id, g)" if published == "listed" else ""
    options = " WITH (publish_generated_columns = stored)" if published == "stored" else ""
    database.execute(
        f"CREATE TABLE t (id int PRIMARY KEY, g int GENERATED ALWAYS AS (id * 2) STORED{virtual})",
        f"CREATE PUBLICATION pub FOR TABLE t{columns}{options}",
        SLOT,
        "INSERT INTO t VALUES (1), (2)",
    )
    same_as_streamed(database, "pub")


@since(14)
@pytest.mark.parametrize("filtered", [False, True])
def test_parts(database: Database, filtered: bool) -> None:
    where = " WHERE (id % 3 = 0)" if filtered and database.version >= 15 else ""
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "CREATE TABLE u (id int)",
        f"CREATE PUBLICATION pub FOR TABLE t{where}, u",
        "INSERT INTO t SELECT n, repeat('x', n % 90) FROM generate_series(1, 5000) n",
        "INSERT INTO u VALUES (1)",
    )
    with snapshot_of(database) as (session, _):
        database.execute("INSERT INTO t SELECT n, 'later' FROM generate_series(5001, 6000) n")
        [whole, other] = snapshot_plan(session, ["pub"])
        [split, _] = snapshot_plan(session, ["pub"], part_bytes=10 * 8192, sessions=4)
        rows = copied(session, whole)
        assert copied(session, split) == rows
    assert len(rows) == database.value(f"SELECT count(*) FROM t{where or ' WHERE true'} AND id <= 5000")
    assert len(split.parts) == 8
    pages = split.parts[0].size // 8192
    assert 5 <= pages <= 10
    assert [part.number for part in split.parts] == list(range(8))
    assert [part.first_page for part in split.parts] == list(range(0, 8 * pages, pages))
    assert [part.before for part in split.parts[:3]] == [0, 291 * pages, 582 * pages]
    assert split.parts[-1].end_page is None
    assert sum(part.size for part in split.parts) == split.size == whole.size
    assert whole.parts[0].ordinals == other.parts[0].before == 291 * whole.size // 8192


def test_no_publication_has_no_tables(newest_database: Database) -> None:
    newest_database.execute("CREATE TABLE t (id int)", "CREATE PUBLICATION pub FOR TABLE t", "CREATE PUBLICATION none")
    with snapshot_of(newest_database) as (session, _):
        assert snapshot_plan(session, ["none", "missing"]) == []
        newest_database.execute("DROP PUBLICATION pub", "ALTER TABLE t ADD v int")
        [table] = snapshot_plan(session, ["pub"])
        assert [column.description.name for column in table.columns] == ["id"]


@pytest.mark.parametrize("encoding", [None, "latin-1"])
def test_another_encoding(newest_database: Database, encoding: str | None) -> None:
    with fresh_database(newest_database.server, encoding="LATIN1", lc_collate="C", lc_ctype="C") as database:
        with closing(database.connect(client_encoding="utf8")) as client:
            for statement in (
                "CREATE TYPE \"Größe\" AS ENUM ('groß')",
                'CREATE TABLE "Tür" (id int PRIMARY KEY, "Größe" "Größe", v text)',
                'CREATE PUBLICATION "Öl" FOR TABLE "Tür" WHERE (v <> \'ä\')',
                SLOT,
                "INSERT INTO \"Tür\" VALUES (1, 'groß', 'ü'), (2, NULL, 'ä')",
            ):
                client.execute(statement.encode())
        [table] = same_as_streamed(database, "Öl", encoding=encoding).values()
        assert table.name == "Tür"
