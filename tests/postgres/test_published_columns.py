"""The columns of the published tables: the same as the server itself describes in the stream."""

from __future__ import annotations

import contextlib

from msgspec.structs import replace

from pgtail.changes.relations import Relation, Relations
from pgtail.pgoutput.decoder import Decoder
from pgtail.pgoutput.schema import Relation as RelationMessage
from pgtail.pgoutput.schema import Type
from pgtail.postgres.published_columns import checked_tables
from pgtail.values import Types
from tests.support.servers import Database, every_version
from tests.support.workload import pgoutput

SLOT = "SELECT pg_create_logical_replication_slot('s', 'pgoutput')"


def in_catalog(database: Database, slot: str | None = None) -> tuple[dict[str, Relation], list[str]]:
    """The tables by name, and the names of those that were altered."""
    with contextlib.closing(database.connect()) as session:
        tables = checked_tables(session, ["pub"], slot)
    found = {table.relation.name: table.relation for table in tables}
    assert len(found) == len(tables)
    return found, [table.relation.name for table in tables if table.altered]


def in_stream(database: Database) -> dict[str, Relation]:
    """The tables as pgoutput described them."""
    relations, decoder = Relations(Types()), Decoder()
    for _, data in pgoutput(database, "s"):
        message = decoder.message(data, 0, len(data))
        if isinstance(message, Type):
            relations.see_type(message)
        elif isinstance(message, RelationMessage):
            relations.see(message)
    return {relation.name: relation for relation in relations.current.values()}


def without_key(relation: Relation) -> Relation:
    return replace(relation, columns=tuple([replace(column, key=False) for column in relation.columns]))


@every_version(11)  # partitioned tables have primary keys
def test_columns_and_types_are_those_of_the_stream(database: Database) -> None:
    version = database.version
    by_column = "listed (id, b)" if version >= 15 else "listed"
    options = ["publish_via_partition_root = true"] * (version >= 13)
    options += ["publish_generated_columns = stored"] * (version >= 18)
    generated = ", g int GENERATED ALWAYS AS (id * 2) STORED" if version >= 12 else ""
    database.execute(
        'CREATE SCHEMA "S 1"',
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "CREATE DOMAIN doc AS jsonb",
        'CREATE DOMAIN "S 1".own AS doc',
        "CREATE DOMAIN code AS char(3)",
        'CREATE TABLE "S 1"."My t" (id int PRIMARY KEY, "A b" numeric(9, 2)[], gone int, at timestamptz(3))',
        'ALTER TABLE "S 1"."My t" DROP COLUMN gone',
        'ALTER TABLE "S 1"."My t" REPLICA IDENTITY FULL',
        f'CREATE TABLE t (id bigint PRIMARY KEY, m mood, d doc, o "S 1".own, c code, ms mood[]{generated})',
        "CREATE TABLE listed (id int PRIMARY KEY, a text, b varchar(7))",
        "CREATE TABLE parts (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE part PARTITION OF parts FOR VALUES FROM (0) TO (9)",
        "CREATE TABLE unpublished (id int PRIMARY KEY)",
        f'CREATE PUBLICATION pub FOR TABLE "S 1"."My t", t, {by_column}'
        + (", parts" if version >= 13 else ", part")
        + (f" WITH ({', '.join(options)})" if options else ""),
        "CREATE PUBLICATION other FOR TABLE unpublished",
        SLOT,
        'INSERT INTO "S 1"."My t" VALUES (1)',
        "INSERT INTO t VALUES (1)",
        "INSERT INTO listed VALUES (1)",
        "INSERT INTO part VALUES (1)",
        "INSERT INTO unpublished VALUES (1)",
    )
    sent, (found, altered) = in_stream(database), in_catalog(database, "s")
    assert set(found) == {"My t", "t", "listed", "parts" if version >= 13 else "part"}
    for name, relation in found.items():
        assert relation == without_key(sent[name])
        assert [one.codec.kind for one in relation.columns] == [one.codec.kind for one in sent[name].columns]
    assert altered == []


def test_tables_that_were_altered_since_the_position_of_a_slot(database: Database) -> None:
    names = ("added", "dropped", "renamed", "retyped", "new", "analyzed", "same")
    database.execute(
        *[f"CREATE TABLE {name} (id int PRIMARY KEY, v text)" for name in names if name != "new"],
        f"CREATE PUBLICATION pub FOR TABLE {', '.join(name for name in names if name != 'new')}",
        SLOT,
    )
    assert in_catalog(database, "s")[1] == []
    database.execute(
        "ALTER TABLE added ADD w int",
        "ALTER TABLE dropped DROP v",
        "ALTER TABLE renamed RENAME v TO w",
        "ALTER TABLE retyped ALTER v TYPE varchar(5)",
        "CREATE TABLE new (id int PRIMARY KEY)",
        "ALTER PUBLICATION pub ADD TABLE new",
        "INSERT INTO analyzed SELECT generate_series(1, 9)",
        "ANALYZE analyzed",
        "VACUUM FREEZE pg_attribute",
    )
    found, altered = in_catalog(database, "s")
    assert sorted(altered) == ["added", "dropped", "renamed", "retyped"]
    assert [column.name for column in found["renamed"].columns] == ["id", "w"]
    assert in_catalog(database)[1] == []


def test_no_code_of_other_users_runs(database: Database) -> None:
    """The owner of a type may define its cast to JSON, and a column with a default has a value of it in the catalog."""
    database.execute(
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "CREATE TABLE t (id int)",
        "INSERT INTO t VALUES (1)",
        "ALTER TABLE t ADD v mood DEFAULT 'ok'",
        "CREATE PUBLICATION pub FOR TABLE t",
    )
    for kind in ("json", "jsonb"):
        database.execute(
            f"CREATE FUNCTION run(mood) RETURNS {kind} LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE EXCEPTION 'the cast ran'; END $$",
            f"CREATE CAST (mood AS {kind}) WITH FUNCTION run(mood)",
            "ALTER FUNCTION run(mood) RENAME TO ran" if kind == "json" else "SELECT 1",
        )
    found, _ = in_catalog(database)
    assert [column.name for column in found["t"].columns] == ["id", "v"]
