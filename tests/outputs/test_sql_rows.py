"""The row of a second database that a statement of `-o sql` matches, in the less obvious cases."""

from __future__ import annotations

import pytest

from pgtail.terminal.escape import quoted
from tests.outputs.test_sql import contents, databases, psql, run, server
from tests.support.encode import snapshot
from tests.support.render import render
from tests.support.servers import Database
from tests.support.workload import make_slots, pgoutput, published, write

__all__ = ["databases", "server"]


T = {("public", "t")}


def execute(databases: tuple[Database, Database], *statements: str) -> tuple[Database, Database]:
    """Run statements on both databases."""
    for database in databases:
        database.execute(*statements)
    return databases


def publish(source: Database) -> None:
    """Send every change from now on to the slot `one`."""
    source.execute("CREATE PUBLICATION pub FOR ALL TABLES")
    make_slots(source, [("one", "pgoutput", False)])


@pytest.mark.parametrize("undone", [False, True])
def test_keys_of_types_without_a_visible_operator(databases: tuple[Database, Database], undone: bool) -> None:
    """Composite types have no operator for a string; those of extensions are not in search_path."""
    values = {"pair": ('(1,"a b")', "(2,)"), "hstore": ("a=>1", "b=>NULL"), "ltree": ("A.b", "C"), "mood": ("x", "y z")}
    source, target = execute(
        databases,
        "CREATE EXTENSION hstore; CREATE EXTENSION ltree; CREATE TYPE pair AS (a int, b text)",
        "CREATE TYPE mood AS ENUM ('x', 'y z')",
        *[f"CREATE TABLE {name}_key (k {name} PRIMARY KEY)" for name in values],
    )
    publish(source)
    for name, (one, other) in values.items():
        source.execute(f"INSERT INTO {name}_key VALUES ('{one}'), ('{other}')")
        source.execute(f"DELETE FROM {name}_key WHERE k = '{one}'::{name}", f"UPDATE {name}_key SET k = '{one}'")
    tables, messages = published(source), pgoutput(source, "one")
    before = contents(target, tables)
    for undo in (False, True)[: undone + 1]:
        run(target, write("sql", messages, undo=undo).written)
    assert contents(target, tables) == (before if undone else contents(source, tables))


def test_rows_of_child_tables_are_not_matched(databases: tuple[Database, Database]) -> None:
    source, target = execute(
        databases,
        "CREATE TABLE base (id int PRIMARY KEY, v text); CREATE TABLE whole (v text)",
        "CREATE TABLE derived (PRIMARY KEY (id)) INHERITS (base); CREATE TABLE part () INHERITS (whole)",
        "ALTER TABLE whole REPLICA IDENTITY FULL; ALTER TABLE part REPLICA IDENTITY FULL",
        "INSERT INTO derived VALUES (1, 'a'); INSERT INTO part VALUES ('a')",
    )
    source.execute("INSERT INTO base VALUES (1, 'a'); INSERT INTO whole VALUES ('a')")
    publish(source)
    source.execute("UPDATE ONLY base SET v = 'b'; UPDATE ONLY whole SET v = 'b'", "DELETE FROM ONLY base")
    tables, written = published(source), write("sql", pgoutput(source, "one")).written
    before = contents(target, tables)
    assert "0 rows instead of 1: UPDATE ONLY public.base" in psql(target, written).stderr
    assert contents(target, tables) == before
    target.execute("INSERT INTO base VALUES (1, 'a'); INSERT INTO whole VALUES ('a')")
    run(target, written)
    assert contents(target, tables) == contents(source, tables)


def test_a_table_that_is_copied_again_has_the_rows_of_the_later_snapshot(databases: tuple[Database, Database]) -> None:
    """A partitioned table with those of its partitions, any other one with its own."""
    _, target = databases
    target.execute(
        "CREATE TABLE base (id int PRIMARY KEY, v text); CREATE TABLE derived (PRIMARY KEY (id)) INHERITS (base)",
        "CREATE TABLE root (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE part PARTITION OF root FOR VALUES FROM (0) TO (100)",
        "INSERT INTO derived VALUES (9, 'kept')",
    )
    first, second = ([["1", "a"], ["2", None]], [["2", "b"], ["3", "c"]])
    copied = [
        part
        for end, rows in ((0x100, first), (0x200, second))
        for oid, name in ((100, "base"), (101, "root"))
        for part in snapshot(*rows, oid=oid, name=name, end=end)
    ]
    run(target, render(*copied, *snapshot(oid=101, name="root", end=0x300), output="sql").written)
    tables = {("public", name) for name in ("base", "derived", "root")}
    assert contents(target, tables) == {
        ("public", "base"): ["(2,b)", "(3,c)", "(9,kept)"],
        ("public", "derived"): ["(9,kept)"],
        ("public", "root"): [],
    }


def test_an_update_that_changed_nothing_still_needs_its_row(databases: tuple[Database, Database]) -> None:
    """The UPDATE sets nothing: a GENERATED ALWAYS column cannot be set, not even to its own value."""
    table = "CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v text)"
    source, target = execute(databases, table, "ALTER TABLE t REPLICA IDENTITY FULL; INSERT INTO t (v) VALUES ('a')")
    publish(source)
    source.execute("UPDATE t SET v = v")
    written = write("sql", pgoutput(source, "one")).written
    run(target, written)
    target.execute("DELETE FROM t")
    assert "0 rows instead of 1: SELECT FROM" in psql(target, written).stderr


def test_values_do_not_depend_on_database_settings(databases: tuple[Database, Database]) -> None:
    table = "CREATE TABLE t (id int PRIMARY KEY, a text[], d date, i interval, x xml, m money)"
    source, target = execute(databases, table)
    settings = ("array_nulls = off", "DateStyle = 'SQL, DMY'", "IntervalStyle = sql_standard", "xmloption = document")
    for setting in settings:
        target.execute(f"ALTER DATABASE {target.name} SET {setting}")
    publish(source)
    values = "'{NULL,\"NULL\"}', '0044-02-03 BC', '-1 year +2 days -3:00', 'no document', '-1234.5'"
    source.execute(f"INSERT INTO t VALUES (1, {values})")
    run(target, write("sql", pgoutput(source, "one")).written)
    assert contents(target, T) == contents(source, T)


STYLES: list[tuple[str, str, list[str]]] = [
    ("DateStyle", "SQL, DMY", ["d", "ts", "tz", "days", "spans", "moments"]),
    ("DateStyle", "SQL, MDY", ["d", "ts", "tz", "days", "spans", "moments"]),
    ("DateStyle", "German", ["d", "ts", "tz", "days", "spans", "moments"]),
    ("DateStyle", "Postgres, DMY", ["d", "ts", "tz", "days", "spans", "moments"]),
    ("IntervalStyle", "sql_standard", ["i", "waits"]),
    ("IntervalStyle", "iso_8601", []),
    ("IntervalStyle", "postgres_verbose", []),
    ("TimeZone", "Asia/Kolkata", []),
    ("extra_float_digits", "0", []),
    ("bytea_output", "escape", []),
]
"""A setting of the session that dumps, its value, and the columns whose text then must not be repeated as it is."""


COLUMNS = {
    "d": ("date", "2026-02-01"),
    "ts": ("timestamp", "2026-02-01 03:04:05.678"),
    "tz": ("timestamptz(0)", "2026-02-01 03:04:05+05:30"),
    "days": ("date[]", '[0:2]={12026-02-01,"0044-03-15 BC",infinity}'),
    "spans": ("daterange", "[2026-02-01,2026-03-04)"),
    "moments": ("tstzrange[]", '{empty,NULL,"[2026-02-01 03:04:05+00,)"}'),
    "i": ("interval day to second(3)", "-1 days -02:03:04"),
    "waits": ("interval[]", '{"-1 days -02:03:04","1 year -2 mons",00:00:00}'),
    "b": ("bytea", r"\x00ff415c"),
    "f": ("float8", "0.25"),
    "m": ("money", "-$1,234.50"),
}
"""A type and a value, by the name of a table."""

USER_TYPES = {
    "pair": ("pair", '(7,"2026-02-01","2026-02-01 03:04:05+05:30","-1 days -02:03:04","-$1,234.50","1-2, 4.5.26")'),
    "pairs": ("pair[]", r'{NULL,"(1,0044-03-15 BC,,,$7.00,\"a \\\\\"\"b\")"}'),
    "span": ("span", "[2026-02-01 03:04:05+00,)"),
    "spans": ("span[]", '{empty,"(,2026-02-01 03:04:05+00)"}'),
    "nested": ("nested", '("(,2026-02-01,,,,x)","[2026-02-01 00:00:00+00,]")'),
    "waits": ("waits", "[-1 days -02:03:04,3 days 00:00:00)"),
    "amounts": ("money[]", '[0:2]={"$1,234.50",NULL,-$7.25}'),
    "word": ("word", "01/02/2026"),
}

LEFT_OUT = {"DateStyle": ["pair", "pairs", "span", "spans", "nested"], "IntervalStyle": ["pair", "waits"]}
USER_STYLES = [(setting, value, LEFT_OUT[setting] if left_out else []) for setting, value, left_out in STYLES]


@pytest.mark.parametrize(("types", "styles"), [(COLUMNS, STYLES), (USER_TYPES, USER_STYLES)], ids=["built-in", "user"])
def test_values_of_a_dump_with_other_settings_are_repeated_or_left_out(
    databases: tuple[Database, Database], types: dict[str, tuple[str, str]], styles: list[tuple[str, str, list[str]]]
) -> None:
    source, target = execute(
        databases,
        "CREATE TYPE pair AS (n int, d date, tz timestamptz, i interval, m money, note text)",
        "CREATE TYPE span AS RANGE (subtype = timestamptz)",
        "CREATE TYPE waits AS RANGE (subtype = interval)",
        "CREATE TYPE nested AS (p pair, s span)",
        "CREATE TYPE word AS ENUM ('01/02/2026')",
        *[f"CREATE TABLE t_{name} (id int PRIMARY KEY, v {kind})" for name, (kind, _) in types.items()],
    )
    publish(source)
    for name, (_, value) in types.items():
        source.execute(f"INSERT INTO t_{name} VALUES (1, {quoted(value)}), (2, NULL)")
    whole = contents(source, published(source))
    for setting, value, left_out in [("DateStyle", "ISO, DMY", []), *styles]:
        found = write("sql", pgoutput(source, "one", {setting: value}))
        run(target, found.written)
        wanted = {name: rows[1:] if name[1][2:] in left_out else rows for name, rows in whole.items()}
        assert contents(target, published(source)) == wanted, (setting, value)
        assert found.written.count(b"was not written under") == len(left_out)
        assert len(found.reported) == bool(left_out)
        target.execute("TRUNCATE " + ", ".join(f"t_{name}" for name in types))


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("TimeZone", "Asia/Kolkata"),
        ("bytea_output", "escape"),
        ("IntervalStyle", "iso_8601"),
        ("IntervalStyle", "postgres_verbose"),
    ],
)
def test_rows_without_a_key_are_found_in_a_dump_with_other_settings(
    databases: tuple[Database, Database], setting: str, value: str
) -> None:
    kinds = ("timestamptz(3)", "timestamptz[]", "tstzrange", "bytea", "bytea[]", "interval", "text")
    columns = ", ".join(f"c{at} {kind}" for at, kind in enumerate(kinds))
    source, target = execute(databases, f"CREATE TABLE t (id int, {columns})", "ALTER TABLE t REPLICA IDENTITY FULL")
    row = (
        "'2026-02-01 03:04:05.678+00', '{NULL,infinity,2026-02-01 03:04:05+00}', '[2026-02-01 03:04:05+00,)',"
        r" '\x00ff415c', '{\\x00ff,NULL}', '1 day -02:03:04', '2026-02-01 03:04:05+00'"
    )
    publish(source)
    source.execute(f"INSERT INTO t VALUES (1, {row}), (2, {row})", "INSERT INTO t (id) VALUES (3), (4)")
    source.execute("UPDATE t SET id = id + 10", "DELETE FROM t WHERE id IN (11, 13)")
    run(target, write("sql", pgoutput(source, "one", {setting: value})).written)
    assert contents(target, T) == contents(source, T)


def test_a_row_whose_text_depends_on_a_setting_is_an_error_with_a_cure(databases: tuple[Database, Database]) -> None:
    source, target = execute(databases, "CREATE TABLE t (id int, f float8)", "ALTER TABLE t REPLICA IDENTITY FULL")
    publish(source)
    target.execute("INSERT INTO t VALUES (1, 1.0 / 3)")
    source.execute("INSERT INTO t VALUES (1, 1.0 / 3)", "DELETE FROM t")
    written = write("sql", pgoutput(source, "one", {"extra_float_digits": "0"})).written
    deletion = written[: written.index(b"INSERT INTO")] + written[written.index(b"CALL pg_temp.one_row('DELETE") :]
    ran = psql(target, deletion)
    assert ran.returncode != 0
    assert "0 rows instead of 1" in ran.stderr
    assert "PGOPTIONS='-c TimeZone=UTC -c bytea_output=hex -c extra_float_digits=3'" in ran.stderr


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_xml_keeps_its_leading_newlines(databases: tuple[Database, Database], identity: str) -> None:
    """xml_out removes a leading newline; rows are compared with its output."""
    values = [r"\n\n<a/>", r"\n<a/>", r'<?xml version="1.0"?>\n\n<a/>', r'<?xml version="1.1"?>\n\n<a/>']
    table = "CREATE DOMAIN doc AS xml; CREATE TABLE t (id int PRIMARY KEY, x xml, d doc)"
    source, target = execute(databases, table, f"ALTER TABLE t REPLICA IDENTITY {identity}")
    publish(source)
    for number, value in enumerate(values):
        text = f"E'{value}'"
        source.execute(f"INSERT INTO t VALUES ({number}, {text}, {text}), ({number} + 10, {text}, '<b/>')")
    source.execute("UPDATE t SET d = x WHERE id >= 10", "DELETE FROM t WHERE id = 0")
    run(target, write("sql", pgoutput(source, "one")).written)
    assert (found := contents(target, T)) == contents(source, T)
    assert '(10,"\n<a/>","\n<a/>")' in found["public", "t"]


def test_an_always_as_identity_column_that_an_update_sets_is_an_error_with_a_cure(
    databases: tuple[Database, Database],
) -> None:
    """The stream does not say which columns these are; updates set them unless they are in the replica identity."""
    table = "CREATE TABLE t (id int PRIMARY KEY, seq int GENERATED ALWAYS AS IDENTITY, v text)"
    source, target = execute(databases, table)
    publish(source)
    source.execute("INSERT INTO t (id, v) VALUES (1, 'a')", "UPDATE t SET v = 'b'", "UPDATE t SET seq = DEFAULT")
    written = write("sql", pgoutput(source, "one")).written
    assert 'column "seq" can only be updated to DEFAULT' in psql(target, written).stderr
    target.execute("TRUNCATE t; ALTER TABLE t ALTER seq SET GENERATED BY DEFAULT")
    run(target, written)
    assert contents(target, T) == contents(source, T)
