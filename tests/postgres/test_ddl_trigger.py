"""The event triggers of `pgtail ddl` on real servers: what they send, and what they leave alone."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pgtail.demo.server import EmbeddedServer
from pgtail.pgoutput.decoder import Decoder
from pgtail.pgoutput.transaction import Message
from pgtail.postgres.ddl_trigger import SINCE, install_sql, remove_sql
from tests.support.servers import Database, every_version, fresh_database, run_program

pytestmark = every_version(SINCE)

_CHANGES = """
SELECT data FROM pg_logical_slot_get_binary_changes('{slot}', NULL, NULL,
    'proto_version', '1', 'publication_names', 'p', 'messages', 'on')
"""
_CATALOGS = ("pg_class", "pg_proc", "pg_namespace", "pg_event_trigger", "pg_description", "pg_depend", "pg_type")


class Watched:
    """A database with the triggers, and what they have sent since the last question."""

    def __init__(self, database: Database, *, set_up: bool = True) -> None:
        self.database = database
        self._slot = f"s_{database.name}"
        if set_up:
            database.execute("CREATE PUBLICATION p FOR ALL TABLES")
            database.query(f"SELECT pg_create_logical_replication_slot('{self._slot}', 'pgoutput')")

    def sent(self) -> list[dict[str, Any]]:
        frames = [bytes(data) for (data,) in self.database.query(_CHANGES.format(slot=self._slot))]
        messages = [Decoder().message(data, 0, len(data)) for data in frames if data[:1] == b"M"]
        assert all(isinstance(one, Message) and one.transactional and one.prefix == "pgtail.ddl" for one in messages)
        return [json.loads(one.content) for one in messages if isinstance(one, Message)]

    def after(self, *statements: str) -> list[dict[str, Any]]:
        """What these statements have sent."""
        self.database.execute(*statements)
        return self.sent()

    def tables(self, *statements: str) -> list[tuple[str, str]]:
        """The same as command tags and names."""
        return [(one["tag"], one["name"]) for one in self.after(*statements)]


@contextlib.contextmanager
def installed(database: Database, *before: str, with_statement: bool = False) -> Iterator[Watched]:
    watched = Watched(database)
    database.execute(*before, install_sql(with_statement=with_statement))
    yield watched


def columns(message: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The columns by name, without their names."""
    return {one["name"]: {key: value for key, value in one.items() if key != "name"} for one in message["columns"]}


def test_install_describes_each_published_table(database: Database) -> None:
    with installed(database, "CREATE TABLE t (id int PRIMARY KEY, n numeric(10, 2) NOT NULL)") as watched:
        [message] = watched.sent()
        assert message["tag"] == "baseline"
        assert (message["schema"], message["name"], message["identity"]) == ("public", "t", "default")
        assert message["oid"] == database.value("SELECT 't'::regclass::oid::int8")
        assert columns(message) == {
            "id": {"attnum": 1, "type": "integer", "not_null": True, "key": True},
            "n": {"attnum": 2, "type": "numeric(10,2)", "not_null": True},
        }


def test_commands_that_create_alter_and_drop_tables_are_sent(database: Database) -> None:
    with installed(database) as watched:
        tables = watched.tables
        assert tables("CREATE TABLE t (id int PRIMARY KEY, s serial)") == [("CREATE TABLE", "t")]
        assert tables("ALTER TABLE t ADD v text, ADD w text") == [("ALTER TABLE", "t")]
        assert tables("ALTER TABLE t RENAME v TO x") == [("ALTER TABLE", "t")]
        assert tables("ALTER TABLE t DROP x") == [("ALTER TABLE", "t")]
        assert tables("ALTER TABLE t RENAME TO u") == [("ALTER TABLE", "u")]
        assert tables("CREATE SCHEMA s CREATE TABLE v (id int)") == [("CREATE SCHEMA", "v")]
        assert tables("ALTER TABLE u SET SCHEMA s") == [("ALTER TABLE", "u")]
        assert tables("CREATE TABLE w AS SELECT 1 AS a") == [("CREATE TABLE AS", "w")]
        assert tables("SELECT 1 AS a INTO x") == [("SELECT INTO", "x")]
        assert tables("DO $$ BEGIN EXECUTE 'CREATE TABLE y (id int)'; END $$") == [("CREATE TABLE", "y")]
        assert sorted(tables("DROP TABLE w, x")) == [("DROP TABLE", "w"), ("DROP TABLE", "x")]
        assert sorted(tables("DROP SCHEMA s CASCADE")) == [("DROP SCHEMA", "u"), ("DROP SCHEMA", "v")]
        [drop] = watched.after("DROP TABLE y")
        assert set(drop) == {"version", "tag", "oid", "schema", "name", "dropped"}
        assert drop["dropped"] is True


def test_everything_else_is_silent(database: Database) -> None:
    with installed(database, "CREATE TABLE t (id int PRIMARY KEY, v text)") as watched:
        watched.sent()
        silent = (
            "CREATE TEMP TABLE a (id int); ALTER TABLE a ADD b int; DROP TABLE a",
            "CREATE TEMP TABLE a AS SELECT 1 AS i; DROP TABLE a",
            "CREATE UNLOGGED TABLE b (id int); ALTER TABLE b ADD c int",
            "CREATE INDEX i ON t (v)",
            "CREATE INDEX CONCURRENTLY j ON t (v)",
            "DROP INDEX i",
            "CREATE VIEW w AS SELECT 1 AS a",
            "DROP VIEW w",
            "CREATE SEQUENCE q",
            "CREATE TYPE e AS ENUM ('a')",
            "ALTER TYPE e ADD VALUE 'b'",
            "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
            "DROP FUNCTION f()",
            "COMMENT ON TABLE t IS 'x'",
            "TRUNCATE t",
            "VACUUM FULL t",
        )
        assert [(one, found) for one in silent if (found := watched.after(one))] == []


def test_a_column_dropped_with_its_type_is_sent(database: Database) -> None:
    with installed(database, "CREATE TYPE e AS ENUM ('a')", "CREATE TABLE t (id int, e e)") as watched:
        watched.sent()
        [message] = watched.after("DROP TYPE e CASCADE")
        assert (message["tag"], list(columns(message))) == ("DROP TYPE", ["id"])


def test_what_older_rows_have_is_sent(database: Database) -> None:
    with installed(database, "CREATE DOMAIN d AS int DEFAULT 3", "CREATE TABLE t AS SELECT 1 AS id") as watched:
        watched.sent()
        [message] = watched.after("ALTER TABLE t ADD a int, ADD b int DEFAULT 5, ADD d d")
        found = {name: (one.get("has_default"), one.get("missing")) for name, one in columns(message).items()}
        assert found == {"id": (None, None), "a": (None, None), "b": (True, "5"), "d": (True, "3")}
        [message] = watched.after("ALTER TABLE t ADD c float DEFAULT random()")
        assert columns(message)["c"] == {"attnum": 5, "type": "double precision", "has_default": True}


def test_partitions_and_tables_that_inherit_are_sent_with_their_root(database: Database) -> None:
    setup = (
        "CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10) PARTITION BY RANGE (id)",
        "CREATE TABLE p11 PARTITION OF p1 FOR VALUES FROM (0) TO (5)",
        "CREATE TABLE h (id int)",
        "CREATE TABLE i () INHERITS (h)",
    )
    with installed(database, *setup) as watched:
        assert [one["name"] for one in watched.sent()] == ["p11", "h", "i"]
        root, middle, leaf = watched.after("ALTER TABLE p ADD v int NOT NULL DEFAULT 7")
        assert [one["name"] for one in (root, middle, leaf)] == ["p", "p1", "p11"]
        column = {"attnum": 2, "type": "integer", "not_null": True, "has_default": True}
        for one in (root, middle):
            assert one["partitioned"] is True
            assert columns(one)["v"] == {**column, "default": "7"}
        assert columns(leaf)["v"] == {**column, "missing": "7"}
        assert watched.tables("ALTER TABLE h ADD v int") == [("ALTER TABLE", "h"), ("ALTER TABLE", "i")]
        detach = "ALTER TABLE p1 DETACH PARTITION p11 CONCURRENTLY"
        assert watched.tables(detach) == [("ALTER TABLE", "p1")]
        attach = "ALTER TABLE p1 ATTACH PARTITION p11 FOR VALUES FROM (0) TO (5)"
        assert watched.tables(attach) == [("ALTER TABLE", "p1"), ("ALTER TABLE", "p11")]


MISSING = {
    "a1": ("int[]", "'{1,NULL,3}'", "{1,NULL,3}"),
    "a2": ("text[]", """'{"a b","c\\"d",NULL}'""", '{"a b","c\\"d",NULL}'),
    "b1": ("box", "'(1,1),(0,0)'", "(1,1),(0,0)"),
    "b2": ("bytea", "'\\x00ff'", "\\x00ff"),
    "c1": ("char(5)", "'ab'", "ab   "),
    "d1": ("date", "'2020-02-29'", "2020-02-29"),
    "f1": ("float8", "0.1::float4", "0.10000000149011612"),
    "i1": ("interval", "'1 day 2 hours'", "1 day 02:00:00"),
    "j1": ("jsonb", """'{"a": [1, null]}'""", '{"a": [1, null]}'),
    "m1": ("money", "12.5", "$12.50"),
    "n1": ("numeric", "1.230", "1.230"),
    "q1": ("text", "E'it''s a \"\\\\ test\\n'", "it's a \"\\ test\n"),
    "r1": ("int4range", "'[1,5)'", "[1,5)"),
    "t1": ("text", "''", ""),
    "t2": ("timestamptz", "'2020-01-01 00:00+02'", "2019-12-31 22:00:00+00"),
    "u1": ("uuid", "'00000000-0000-0000-0000-000000000001'", "00000000-0000-0000-0000-000000000001"),
    "x1": ("pair", "ROW(1, 'a,b')", '(1,"a,b")'),
    "y1": ("boolean", "true", "t"),
    "z1": ("text", "'ä€🙂'", "ä€🙂"),
}


def test_the_value_in_older_rows_is_the_text_that_rows_have(database: Database) -> None:
    """Whatever the settings of the session are."""
    setup = ("CREATE TYPE pair AS (a int, b text)", "CREATE TABLE t (id int)", "INSERT INTO t VALUES (1)")
    settings = "SET DateStyle = 'SQL, DMY'; SET TimeZone = 'Asia/Tokyo'; SET IntervalStyle = 'sql_standard';"
    settings += "SET bytea_output = 'escape'; SET extra_float_digits = -5; SET quote_all_identifiers = on"
    with installed(database, *setup) as watched, database.connect() as session:
        watched.sent()
        session.execute(settings.encode())
        for name, (type_, value, _) in MISSING.items():
            session.execute(f"ALTER TABLE t ADD {name} {type_} DEFAULT {value}".encode())
        found = columns(watched.sent()[-1])
        assert {name: found[name]["missing"] for name in MISSING} == {name: one[2] for name, one in MISSING.items()}
        # It goes with a rewrite, and a volatile default has none.
        session.execute("ALTER TABLE t ADD r float8 DEFAULT random(), ALTER id TYPE int8")
        assert not any("missing" in one for one in columns(watched.sent()[-1]).values())


def test_the_key_and_the_identity_are_those_of_the_table(database: Database) -> None:
    table = "CREATE TABLE t (a int NOT NULL, b int NOT NULL, c int, PRIMARY KEY (b, a))"
    with installed(database, table, "CREATE UNIQUE INDEX i ON t (a) INCLUDE (b)") as watched:

        def keys(statement: str) -> tuple[str, list[str]]:
            [message] = watched.after(statement)
            return message["identity"], [name for name, one in columns(message).items() if one.get("key")]

        watched.sent()
        assert keys("ALTER TABLE t REPLICA IDENTITY FULL") == ("full", ["a", "b"])
        assert keys("ALTER TABLE t REPLICA IDENTITY NOTHING") == ("nothing", ["a", "b"])
        assert keys("ALTER TABLE t REPLICA IDENTITY USING INDEX i") == ("index", ["a"])
        assert keys("ALTER TABLE t REPLICA IDENTITY DEFAULT") == ("default", ["a", "b"])
        assert keys("ALTER TABLE t DROP CONSTRAINT t_pkey") == ("default", [])


def test_generated_columns_are_marked(database: Database) -> None:
    with installed(database) as watched:
        virtual = ", c int GENERATED ALWAYS AS (2) VIRTUAL" if database.version >= 18 else ""
        [message] = watched.after(f"CREATE TABLE t (a int, b int GENERATED ALWAYS AS (1) STORED{virtual})")
        marks = {name: one.get("generated") for name, one in columns(message).items()}
        assert marks == {"a": None, "b": "stored", **({"c": "virtual"} if virtual else {})}


def test_names_of_any_kind_in_any_encoding(server: EmbeddedServer) -> None:
    names = ['a"b', "it's", "x\ny", "käse", "\\", "select"]
    with fresh_database(server, encoding="LATIN1", locale="C") as database, installed(database) as watched:
        quoted = ['"{}"'.format(name.replace('"', '""')) for name in names]
        statement = f"CREATE TABLE {quoted[3]} ({', '.join([f'{name} int' for name in quoted])})"
        with database.connect(client_encoding="utf8") as session:
            session.execute(statement.encode())
        [message] = watched.sent()
        assert message["name"] == "käse"
        assert list(columns(message)) == names


def test_a_user_without_rights_on_the_schema_alters_tables(database: Database) -> None:
    role = f"joe_{database.name}"
    same_name = "CREATE FUNCTION pg_logical_emit_message() RETURNS int LANGUAGE sql AS 'SELECT 1'"
    setup = [same_name, "REVOKE ALL ON FUNCTION public.pg_logical_emit_message() FROM PUBLIC"]
    setup += [f"CREATE ROLE {role} LOGIN", f"CREATE SCHEMA AUTHORIZATION {role}"]
    with installed(database, *setup) as watched:
        try:
            with database.connect(user=role) as session:
                session.execute("CREATE TABLE t (id int)")
                session.execute("ALTER TABLE t ADD v int DEFAULT 1")
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    session.execute("CREATE TABLE pgtail.x (id int)")
                with pytest.raises(psycopg.Error):
                    session.execute("SELECT pgtail.ddl()")
                # Tables of the session that have the names of catalogs are not read.
                session.execute("CREATE TEMP TABLE pg_class (oid oid); CREATE TEMP TABLE pg_attribute (attrelid oid)")
                session.execute("ALTER TABLE t ADD w int")
                session.execute("DROP TABLE t")
            assert [one["tag"] for one in watched.sent()] == [
                "CREATE TABLE",
                "ALTER TABLE",
                "ALTER TABLE",
                "DROP TABLE",
            ]
        finally:
            database.execute(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_a_command_goes_through_although_the_function_fails(database: Database) -> None:
    broken = "SELECT 'CREATE OR REPLACE FUNCTION pgtail.ddl() RETURNS event_trigger LANGUAGE plpgsql AS ' ||"
    broken += " quote_literal(replace(prosrc, 'tables := array(', 'PERFORM 1 / 0; tables := array('))"
    with installed(database) as watched:
        statement = database.value(broken + " FROM pg_proc WHERE oid = 'pgtail.ddl'::regproc")
        database.execute(statement)
        error = {"version": 1, "tag": "CREATE TABLE", "error": "22012 division by zero"}
        assert watched.after("CREATE TABLE t (id int)") == [error]
        assert watched.after("DROP TABLE t") == [error | {"tag": "DROP TABLE"}]
        assert database.value("SELECT to_regclass('t') IS NULL") is True


def test_a_command_goes_through_without_the_right_to_send_messages(database: Database) -> None:
    role, signature = f"joe_{database.name}", "bool, text, bytea" + (", bool" if database.version >= 17 else "")
    function = f"FUNCTION pg_logical_emit_message({signature})"
    setup = (
        f"CREATE ROLE {role} LOGIN",
        f"CREATE SCHEMA AUTHORIZATION {role}",
        f"REVOKE ALL ON {function} FROM PUBLIC",
    )
    with installed(database, *setup) as watched:
        try:
            with database.connect(user=role) as session:
                notices: list[str | None] = []
                session.add_notice_handler(lambda notice: notices.append(notice.message_primary))
                session.execute("CREATE TABLE t (id int)")
                session.execute("DROP TABLE t")
            assert watched.sent() == []
            assert notices == [f"pgtail.ddl: role {role} may not execute pg_logical_emit_message"] * 2
        finally:
            database.execute(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_a_message_precedes_the_rows_after_the_command(database: Database) -> None:
    with installed(database, "CREATE TABLE t (id int PRIMARY KEY)") as watched:
        watched.sent()
        database.execute("INSERT INTO t VALUES (1); ALTER TABLE t ADD v int; INSERT INTO t VALUES (2, 2)")
        frames = database.query(_CHANGES.format(slot=f"s_{database.name}"))
        assert b"".join([bytes(data)[:1] for (data,) in frames]) == b"BRIMRIC"


def test_the_statement_is_sent_only_if_asked_for(database: Database) -> None:
    statements = ["CREATE TABLE t (id int)", "ALTER TABLE t ADD v int", "DROP TABLE t"]
    with installed(database) as watched:
        assert not any("statement" in one for one in watched.after(*statements))
        database.execute(remove_sql(), install_sql(with_statement=True))
        assert [one["statement"] for one in watched.after(*statements)] == statements


def test_what_was_removed_leaves_nothing(database: Database) -> None:
    def counts() -> list[int]:
        return [database.value(f"SELECT count(*) FROM {name}") for name in _CATALOGS]

    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    before = counts()
    database.execute(install_sql(with_statement=True))
    assert counts() != before
    database.execute(install_sql(with_statement=False, replace=True), remove_sql())
    assert counts() == before


def test_a_dump_of_the_database_restores_the_triggers(database: Database) -> None:
    with installed(database, "CREATE TABLE t (id int PRIMARY KEY, v text)"):
        dump = run_program(database, "pg_dump").stdout
    with fresh_database(database.server) as other:
        other.query(f"SELECT pg_create_logical_replication_slot('s_{other.name}', 'pgoutput')")
        run_program(other, "psql", "-X", "-q", input=dump)
        watched = Watched(other, set_up=False)
        assert watched.sent() == []
        assert watched.tables("ALTER TABLE t ADD w int") == [("ALTER TABLE", "t")]
        assert watched.tables("DROP TABLE t") == [("DROP TABLE", "t")]
        other.execute(remove_sql())
