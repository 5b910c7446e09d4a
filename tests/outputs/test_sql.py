"""`-o sql` and its inverse, run on a second database: they give equal tables, and the original ones."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import sql

from pgtail.demo.server import EmbeddedServer
from pgtail.outputs.sql.statements import HEAD
from pgtail.postgres.connection import PINNED
from pgtail.terminal.escape import quoted, sql_identifier
from tests.support.encode import (
    UNCHANGED,
    begin,
    begin_prepare,
    commit,
    commit_prepared,
    delete,
    insert,
    message,
    origin,
    prepare,
    relation,
    rollback_prepared,
    truncate,
    update,
)
from tests.support.limits import within
from tests.support.render import Rendered, render
from tests.support.servers import FETCHED, Database, Servers, fresh_database, installations
from tests.support.truth import unpadded
from tests.support.workload import Message, make_slots, pgoutput, pinned, published, write
from tests.tools.scenarios import SCENARIOS, Sessions

Rows = dict[tuple[str, str], list[str]]


@pytest.fixture(scope="module")
def server(servers: Servers) -> EmbeddedServer:
    """A server with contrib, whose types A_types uses."""
    found = installations().items()
    installed = [name for name, one in found if one.libraries is None and not one.bindir.is_relative_to(FETCHED)]
    if not installed:
        pytest.skip("no PostgreSQL is installed besides the embedded and the fetched ones, which have no contrib")
    return servers.get(installed[-1])


def psql(database: Database, text: bytes) -> subprocess.CompletedProcess[str]:
    """Run a script as its first line says."""
    program = database.server.installation.program("psql")
    command = [str(program), f"--dbname={database.conninfo()}", "-Xq", "-v", "ON_ERROR_STOP=1", "-f", "-"]
    ran = subprocess.run(command, input=text, capture_output=True, timeout=within(120), check=False)
    return subprocess.CompletedProcess(command, ran.returncode, ran.stdout.decode(), ran.stderr.decode())


def run(database: Database, text: bytes) -> None:
    """Run a script, which must succeed."""
    ran = psql(database, text)
    assert ran.returncode == 0, ran.stderr


def contents(database: Database, tables: set[tuple[str, str]]) -> Rows:
    """All rows of these tables as text."""
    found = {}
    with pinned(database) as session:
        for table in sorted(tables):
            query = sql.SQL("SELECT ROW(t.*)::text FROM {} t").format(sql.Identifier(*table))
            found[table] = sorted([str(row[0]) for row in session.execute(query)])
    return found


class Pair:
    """Run a scenario on one database and only its set-up on another."""

    def __init__(self, source: Database, target: Database, name: str, *, full: bool, without: str = "(?!)") -> None:
        self.source, self.target = source, target
        [scenario] = [one for one in SCENARIOS if one.name == name]
        setup, workload = scenario.statements()
        with contextlib.ExitStack() as stack:
            sessions = Sessions(source.conninfo(), stack)
            for made in (sessions, Sessions(target.conninfo(), stack)):
                # A replication origin belongs to the whole server.
                assert all("ERROR" not in tag or "pg_replication_origin" in tag for tag in made.run(setup))
            self.tables = published(source)
            if full:
                for schema, table in self.tables:
                    for database in (source, target):
                        database.execute(f'ALTER TABLE "{schema}"."{table}" REPLICA IDENTITY FULL')
                # With it and a generated column, a published table refuses UPDATE and DELETE since PostgreSQL 18.
                for (publication,) in target.query("SELECT quote_ident(pubname) FROM pg_publication"):
                    target.execute(f"DROP PUBLICATION {publication}")
            make_slots(source, [("one", "pgoutput", False), ("two", "pgoutput", True)])
            list(sessions.run([(who, text) for who, text in workload if not re.search(without, text)]))

    def messages(self, slot: str = "one", **options: str) -> list[Message]:
        return pgoutput(self.source, slot, messages="true", **options)


@pytest.fixture
def databases(server: EmbeddedServer) -> Iterator[tuple[Database, Database]]:
    with fresh_database(server) as source, fresh_database(server) as target:
        yield source, target


@pytest.mark.parametrize("name", ["A_dml", "A_types"])
def test_sql_gives_equal_tables(databases: tuple[Database, Database], name: str) -> None:
    """All types, key changes, TOAST unchanged, every replica identity, truncates of tables that refer to each other."""
    pair = Pair(*databases, name, full=False)
    found = write("sql", pair.messages())
    assert found.reported == []
    before = contents(pair.target, pair.tables)
    run(pair.target, found.written)
    after = contents(pair.target, pair.tables)
    assert after == contents(pair.source, pair.tables)
    assert after != before


@pytest.mark.parametrize("name", ["A_dml", "A_types", "C_stream"])
def test_undo_gives_the_original_tables(databases: tuple[Database, Database], name: str) -> None:
    """Under REPLICA IDENTITY FULL everything can be undone but TRUNCATE; streamed transactions are, at their commit."""
    pair = Pair(*databases, name, full=True, without="TRUNCATE|ALTER TABLE|USING INDEX")
    before = contents(pair.target, pair.tables)
    messages = pair.messages(proto_version="2", streaming="true")
    run(pair.target, write("sql", messages).written)
    after = contents(pair.target, pair.tables)
    assert after == contents(pair.source, pair.tables)
    assert after != before
    undo = write("sql", messages, undo=True)
    assert undo.reported == []
    run(pair.target, undo.written)
    assert contents(pair.target, pair.tables) == before


def test_prepared_transactions_are_prepared_again_and_undone_where_they_were_committed(
    databases: tuple[Database, Database],
) -> None:
    pair = Pair(*databases, "D_twophase", full=True, without="TRUNCATE|ALTER TABLE|setup|_reset")
    before = contents(pair.target, pair.tables)
    messages = pair.messages("two", proto_version="3", two_phase="true")
    found = write("sql", messages)
    for words in (b"PREPARE TRANSACTION '", b"COMMIT PREPARED '", b"ROLLBACK PREPARED '"):
        assert words in found.written
    run(pair.target, found.written)
    assert contents(pair.target, pair.tables) == contents(pair.source, pair.tables) != before
    run(pair.target, write("sql", messages, undo=True).written)
    assert contents(pair.target, pair.tables) == before


def test_undecoded_binary_values_are_left_out_and_reported(databases: tuple[Database, Database]) -> None:
    pair = Pair(*databases, "A_types", full=False)
    found = write("sql", pair.messages(binary="true"))
    [reported] = found.reported
    assert re.fullmatch(r"\d+ changes could not be written as SQL; each is replaced by a comment", reported)
    assert b"-- left out: insert on public.ty_reg (xid " in found.written
    assert b"cannot be read as regclass" in found.written
    num = b'INSERT INTO "public"."ty_num"'
    plain = [unpadded(line) for line in write("sql", pair.messages()).lines if line.startswith(num)]
    assert plain
    assert plain == [line for line in found.lines if line.startswith(num)]


ODD = 'o"d\\d\n\u202e\x07日本'


def test_names_partitions_inheritance_and_a_second_transaction_on_the_same_rows(
    databases: tuple[Database, Database],
) -> None:
    source, target = databases
    odd = '"{}"'.format(ODD.replace('"', '""'))
    for database in databases:
        database.execute(
            f"CREATE TABLE {odd} ({odd} text PRIMARY KEY, found int, rows int, statement text)",
            "CREATE TABLE parted (id int, part int, v text) PARTITION BY LIST (part)",
            "CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1)",
            "CREATE TABLE parted_2 PARTITION OF parted FOR VALUES IN (2)",
            "ALTER TABLE parted REPLICA IDENTITY FULL",
            "ALTER TABLE parted_1 REPLICA IDENTITY FULL",
            "ALTER TABLE parted_2 REPLICA IDENTITY FULL",
            "CREATE TABLE base (v text)",
            "CREATE TABLE derived () INHERITS (base)",
        )
    source.execute("CREATE PUBLICATION pub FOR ALL TABLES WITH (publish_via_partition_root)")
    make_slots(source, [("one", "pgoutput", False)])
    source.execute(
        f"INSERT INTO {odd} VALUES ('$$ $_1$', 1, 2, 'x'), ('it''s', 3, 4, E'\\\\ \\x01 \u202e :var :''var''')",
        f"UPDATE {odd} SET found = found + 1, {odd} = {odd} || '!'",
        "INSERT INTO parted VALUES (1, 1, 'a'), (1, 1, 'a'), (2, 2, NULL)",
        "UPDATE parted SET part = 2 WHERE ctid = '(0,1)' AND part = 1",
        "DELETE FROM parted WHERE v IS NULL",
        "INSERT INTO base VALUES ('kept'); INSERT INTO derived VALUES ('kept')",
        "TRUNCATE ONLY base",
        "INSERT INTO parted VALUES (9, 1, 'gone')",
    )
    tables = published(source)
    messages = pgoutput(source, "one")
    run(target, write("sql", messages).written)
    assert contents(target, tables) == contents(source, tables)
    source.execute("TRUNCATE parted")
    more = pgoutput(source, "one")[len(messages) :]
    # The table was described before.
    relations = [(lsn, data) for lsn, data in messages if data.startswith(b"R")]
    run(target, write("sql", [*relations, *more]).written)
    assert contents(target, tables) == contents(source, tables)


def test_conflicts_are_errors(databases: tuple[Database, Database]) -> None:
    _, target = databases
    target.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    for change, rows in ((update(("1", "a")), 0), (delete("1", None), 0), (insert("1", "a"), None)):
        ran = psql(target, render(relation(), begin(), change, change, commit(), output="sql").written)
        assert ran.returncode == 3
        assert ("0 rows instead of 1: " in ran.stderr) if rows == 0 else ("duplicate key" in ran.stderr)
        assert target.query("SELECT * FROM t") == []


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20), max_size=20))
@settings(max_examples=50)
def test_any_text_is_quoted_so_that_the_server_reads_it(
    session: psycopg.Connection[tuple[str]], texts: list[str]
) -> None:
    for text in texts:
        assert quoted(text).isprintable() or not text.isascii()
        [value] = session.execute(f"SELECT {quoted(text)}".encode()).fetchall()
        assert value == (text,)
        if 0 < len(text.encode()) < 60:
            cursor = session.execute(f"SELECT 1 AS {sql_identifier(text)}".encode())
            assert cursor.description is not None
            assert cursor.description[0].name == text


@pytest.fixture(scope="module")
def session(server: EmbeddedServer) -> Iterator[psycopg.Connection[tuple[str]]]:
    with fresh_database(server) as database, contextlib.closing(database.connect()) as connection:
        connection.execute("SET standard_conforming_strings = on")
        yield connection


def test_script_head_sets_the_pinned_settings() -> None:
    set_ = dict(re.findall(r"^SET (\w+) = '?([^';]*)'?;$", HEAD, re.MULTILINE))
    for name, value in PINNED.items():
        assert set_[name].removesuffix(", MDY") == value


# -- by example --------------------------------------------------------------------------------------------------------


def statements(found: Rendered) -> list[str]:
    """The lines of a script without the head and empty lines."""
    return [line for line in found.written.decode().removeprefix(HEAD).splitlines() if line]


FULL = relation(identity="f", key=(0, 1))


NOT_SENT = "the server sent no old values: the replica identity lacks v"
HINT = "--old-values seen undoes those whose rows the input showed before"


def test_a_change_that_cannot_be_undone_is_a_comment_and_reported() -> None:
    reported: list[str] = []
    changes = (update(("1", "b")), update(("2", "b"), ("1", None)), delete("2", None), truncate(100), insert("3", "c"))
    found = statements(render(relation(), begin(), *changes, commit(), output="sql", undo=True, report=reported.append))
    assert found[0] == "-- 4 changes cannot be undone: a comment stands in the place of each"
    assert [line for line in found if "cannot be undone: " in line][1:] == [
        "-- cannot be undone: truncate on public.t (xid 7, seq 4): what the table held was not sent",
        *[
            f"-- cannot be undone: {op} on public.t (xid 7, seq {seq}): {NOT_SENT}"
            for op, seq in (("delete", 3), ("update", 2), ("update", 1))
        ],
    ]
    assert [line for line in found if line.startswith("CALL")] == [
        """CALL pg_temp.one_row('DELETE FROM', '"public"."t"', NULL, $$"id" = '3'$$);"""
    ]
    assert reported == [
        f"4 changes cannot be undone; each is replaced by a comment; {HINT}",
        f"2 times update on public.t: {NOT_SENT}",
        f"delete on public.t: {NOT_SENT}",
        "truncate on public.t: what the table held was not sent",
    ]


def test_row_of_key_columns_only_can_be_undone() -> None:
    key = relation(columns=(("id", 23),))
    changes = (update(("2",), ("1",)), delete("2"))
    found = statements(render(key, begin(), *changes, commit(), output="sql", undo=True))
    assert found[2:4] == [
        'INSERT INTO "public"."t" ("id") OVERRIDING SYSTEM VALUE VALUES (\'2\');',
        """CALL pg_temp.one_row('UPDATE', '"public"."t"', $$SET "id" = '1'$$, $$"id" = '2'$$);""",
    ]


def test_unchanged_toast_is_not_set() -> None:
    change = update(("1", UNCHANGED), ("2", "old"), "O")
    [_, _, redo, _] = statements(render(FULL, begin(), change, commit(), output="sql"))
    assert "$$SET \"id\" = '1'$$" in redo
    [_, _, undo, _] = statements(render(FULL, begin(), change, commit(), output="sql", undo=True))
    assert "$$SET \"id\" = '2'$$" in undo
    assert "ROW('1', 'old')::text" in undo


def test_an_update_of_the_key_alone_can_be_undone() -> None:
    changes = (update(("1", UNCHANGED)), update(("2", UNCHANGED), ("1", None)))
    assert statements(render(relation(), begin(), *changes, commit(), output="sql", undo=True))[2:-1] == [
        """CALL pg_temp.one_row('UPDATE', '"public"."t"', $$SET "id" = '1'$$, $$"id" = '2'$$);"""
    ]


def test_transactions_that_changed_nothing_are_not_undone() -> None:
    nothing = (begin(), update(("1", UNCHANGED), ("1", "a"), "O"), commit(), begin(), commit())
    assert statements(render(FULL, *nothing, output="sql", undo=True)) == ["-- nothing to undo"]
    assert len(statements(render(FULL, *nothing, begin(), insert("1", "a"), commit(), output="sql", undo=True))) == 4


def test_a_row_too_long_to_be_written_at_once_is_undone_whole() -> None:
    long = "x" * 2_000_000
    changes = (insert("1", "a"), delete("2", long, kind="O"))
    found = statements(render(FULL, begin(), *changes, commit(), output="sql", undo=True))
    values = f"""('2', '{long}');"""
    assert found[2] == f'INSERT INTO "public"."t" ("id", "v") OVERRIDING SYSTEM VALUE VALUES {values}'
    assert found[3].startswith("CALL pg_temp.one_row('DELETE FROM'")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (insert("1", UNCHANGED), "insert on public.t (xid 7, seq 1): a value was not sent"),
        (delete(None, None), "delete on public.t (xid 7, seq 1): a column of the replica identity was not sent"),
        (insert("1", "a", "b"), "insert on public.t (xid 7, seq 1): the row has more columns than its table"),
        (
            update((b"12", "a"), ("1", None)),
            "update on public.t (xid 7, seq 1): the value of id cannot be read as integer",
        ),
        (
            update((UNCHANGED, UNCHANGED)),
            "update on public.t (xid 7, seq 1): a column of the replica identity was not sent",
        ),
    ],
)
def test_the_reason_why_a_row_is_left_out(change: bytes, reason: str) -> None:
    found = statements(render(relation(), begin(), change, commit(), output="sql"))
    assert found[2:-1] == [f"-- left out: {reason}"]


def test_a_prepared_transaction_without_its_end_leaves_no_file_open() -> None:
    """Its text was kept in a file: one that nobody closes is a warning, and so an error here."""
    broken_off = render(relation(), begin_prepare(7), *[insert("1", 50_000 * "a")] * 40, output="sql")
    assert not any("PREPARE TRANSACTION" in one for one in statements(broken_off))


def test_heading_names_origin_prepare_and_missing_beginning() -> None:
    origin_seen = render(relation(), begin(), origin("a\x1b"), insert("1", "a"), commit(), output="sql")
    assert statements(origin_seen)[0] == "-- xid 7, 0/100, committed at 2000-01-01 00:00:00.000000Z, from a\\x1b"
    prepared = render(relation(), begin_prepare(7), insert("1", "a"), prepare(7), output="sql")
    assert statements(prepared)[0] == "-- xid 7, 0/100, prepared at 2000-01-01 00:00:00.000000Z"
    beginning_missing = render(relation(), insert("1", "a"), commit(), output="sql")
    assert (
        statements(beginning_missing)[0] == "-- xid unknown, committed at an unknown time, its beginning was not seen"
    )


def test_truncates_come_before_the_row_after_them() -> None:
    found = statements(render(relation(), begin(), truncate(100), insert("1", "a"), commit(), output="sql"))
    assert [line.split(" ")[0] for line in found[2:]] == ["DO", "INSERT", "COMMIT;"]


def test_uncommitted_transaction_is_rolled_back_or_not_undone() -> None:
    cut = (relation(), begin(), insert("1", "a"))
    assert statements(render(*cut, output="sql", broken_off=True))[-1] == "ROLLBACK;"
    assert statements(render(*cut, output="sql", undo=True, broken_off=True)) == ["-- nothing to undo"]
    prepared = (relation(), begin_prepare(7), insert("1", "a"), prepare(7))
    reported: list[str] = []
    assert statements(render(*prepared, output="sql", undo=True, report=reported.append)) == ["-- nothing to undo"]
    assert "neither committed nor rolled back" in reported[0]
    assert statements(render(*prepared, rollback_prepared(7), output="sql", undo=True)) == ["-- nothing to undo"]
    assert len(statements(render(*prepared, commit_prepared(7), output="sql", undo=True))) == 4


def test_a_change_that_sql_cannot_express_is_a_comment() -> None:
    reported: list[str] = []
    changes = (insert("1", "a"), message(b"hi\x1b[31m"), commit(), message(b"x" * 300, transactional=False))
    found = statements(render(begin(), *changes, output="sql", report=reported.append))
    assert found == [
        "-- xid 7, 0/100, committed at 2000-01-01 00:00:00.000000Z",
        "BEGIN;",
        "-- left out: insert on relation 100 (xid 7, seq 1): the table with OID 100 was never described",
        "-- message 'p': E'hi\\x1b[31m'",
        "COMMIT;",
        f"-- message 'p', not transactional: '{'x' * 200}'… (300 bytes)",
    ]
    assert reported[-1] == "1 change could not be written as SQL; each is replaced by a comment"


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (b"it's\nDROP TABLE t; --\r\xe2\x80\xa8\xc2\x85\\", "E'it''s\\nDROP TABLE t; --\\r\\u2028\\u0085\\\\'"),
        (b"\x00\xff\n", "\\x00ff0a"),
        (b"\xff" * 300, f"\\x{'ff' * 200}… (300 bytes)"),
        (b"", "''"),
    ],
)
def test_no_content_of_a_message_ends_its_comment(content: bytes, shown: str) -> None:
    found = render(message(content, "p\nq", transactional=False), output="sql")
    assert statements(found) == [f"-- message E'p\\nq', not transactional: {shown}"]
