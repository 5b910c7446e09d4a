"""Common errors of slots, publications and names: each message says what is wrong and what to do."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgtail.demo.server import EmbeddedServer
from tests.conftest import StartServer
from tests.support.encode import lengths
from tests.support.refused import create_slot, fails, physical_slot, publish
from tests.support.run import here
from tests.support.run_process import lines, pgtail
from tests.support.servers import Database, fresh_database, since
from tests.support.tail import ids, stream, tailing, wait_for, wait_for_reader
from tests.support.workload import pgoutput

# -- slots -----------------------------------------------------------------------------------------------------


def test_a_missing_slot_lists_the_existing_ones(database: Database) -> None:
    publish(database)
    words = fails(database, "-S", "nosuch")
    assert "there is no slot nosuch" in words
    create_slot(database, "one")
    with physical_slot(database):
        words = fails(database, "-S", "nosuch")
    assert f"one, pgoutput, database {database.name}, free, confirmed" in words
    assert "phys, physical" in words
    cure = "Without --slot, pgtail stream and pgtail stats --for TIME use a temporary slot."
    assert cure in words
    assert cure in fails(database, "-S", "nosuch", command="stats")
    stream(database, "--for", "0.1", "-o", "json", command="stats")
    words = fails(database, "-S", "NOSUCH")
    assert "The name of a slot has at most 63 characters: lower case letters" in words
    assert "slot create" not in words  # it would be refused


def test_a_slot_in_use_names_its_reader(database: Database) -> None:
    publish(database)
    create_slot(database, "s")
    with tailing(database, "-S", "s", env={"PGAPPNAME": "first reader"}) as running:
        running.wait_for_slot(database, "s")
        pid = database.value("SELECT active_pid FROM pg_replication_slots WHERE slot_name = 's'")
        words = fails(database, "-S", "s", status=75)
        assert f"slot s is in use by pid {pid}, user postgres, first reader, local." in words
        assert f"pg_terminate_backend({pid})" in words
        assert ("pgtail stream --fork s" in words) == (database.version >= 12)
        running.stop()


def test_slots_of_other_kinds_are_refused(database: Database) -> None:
    publish(database)
    with physical_slot(database):
        assert "slot phys is a physical slot" in fails(database, "-S", "phys")
    with fresh_database(database.server) as other:
        publish(other)
        create_slot(other, "elsewhere")
        words = fails(database, "-S", "elsewhere")
        assert f"slot elsewhere belongs to database {other.name}, but this is {database.name}." in words
        assert f"-d {other.name}" in words
    create_slot(database, "s")
    assert "slot s exists already" in fails(database, "-S", "s", "--create-slot")


def test_a_slot_of_another_plugin_is_refused(database: Database) -> None:
    publish(database)
    create_slot(database, "td", "test_decoding")
    words = fails(database, "-S", "td")
    assert "slot td uses the plugin test_decoding; pgtail reads pgoutput." in words
    assert ("pgtail stream --fork td" in words) == (database.version >= 12)


def test_two_phase_is_not_turned_on_for_an_existing_slot(database: Database) -> None:
    publish(database)
    create_slot(database, "s")
    words = fails(database, "-S", "s", "--two-phase", status=2)
    assert "slot s was created without it, and this would change the slot permanently" in words
    if database.version >= 14:
        assert database.value("SELECT two_phase FROM pg_replication_slots WHERE slot_name = 's'") is False


# -- publications ----------------------------------------------------------------------------------------------


def test_publications_that_are_read(database: Database) -> None:
    words = fails(database)
    assert f"database {database.name} has no publication" in words
    assert "CREATE PUBLICATION some_name FOR TABLE" in words
    publish(database)
    database.execute('CREATE PUBLICATION "Quer, ""Straße"" 🦊" FOR TABLE t')
    database.execute("CREATE PUBLICATION empty")
    create_slot(database, "s")
    words = fails(database, "-S", "s")
    assert 'has 3 publications: "Quer, ""Straße"" 🦊" (1 table), empty (0 tables), p (1 table).' in words
    assert "Name the ones to read: -P 'Quer, \"Straße\" 🦊' -P p\n" in words
    database.execute("INSERT INTO t VALUES (1)")
    flags = shlex.split(words.partition("to read: ")[2].splitlines()[0])
    assert ids(stream(database, "-S", "s", *flags, "--until", "now")[0]) == [1], "the cure works"
    words = fails(database, "-P", "p", "-P", "quer")
    assert 'has no publication "quer"' in words
    assert 'CREATE PUBLICATION "quer" FOR TABLE' in words
    assert ("--allow-missing-publication" in words) == (database.version >= 18)


def test_a_temporary_slot_reads_all_publications(database: Database) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY)",
        "CREATE TABLE u (id int PRIMARY KEY)",
        "CREATE PUBLICATION empty",
        "CREATE PUBLICATION one FOR TABLE t",
        "CREATE PUBLICATION other FOR TABLE u",
    )
    words = "note: reading all publications: empty (0 tables), one (1 table), other (1 table); -P selects"
    with tailing(database) as running:
        running.wait_for_words(words)
        wait_for_reader(database, temporary=True)
        database.execute("INSERT INTO t VALUES (1)", "INSERT INTO u VALUES (2)")
        running.wait_for_lines(2)
        assert "has no tables" not in running.stop()
        assert ids(running.changes) == [1, 2]
    with tailing(database, "-t", "u", command="expect") as running:
        running.wait_for_words("ready")
        database.execute("INSERT INTO u VALUES (3)")
        assert words in running.end()
    create_slot(database, "s")
    database.execute("INSERT INTO t VALUES (4)", "INSERT INTO u VALUES (5)")
    if database.version >= 12:
        lines, errors = stream(database, "--fork", "s", "--until", "now")
        assert ids(lines) == [4, 5]
        assert words in errors


@since(15)
def test_publications_with_different_columns_are_not_read_together(database: Database) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v int)",
        "CREATE TABLE u (id int PRIMARY KEY)",
        "CREATE PUBLICATION few FOR TABLE t (id)",
        "CREATE PUBLICATION most FOR TABLE t, u",
        "CREATE PUBLICATION others FOR TABLE u",
    )
    with tailing(database) as running:
        wait_for_reader(database, temporary=True)
        database.execute("INSERT INTO t VALUES (1, 2)")
        words = running.end(status=3)
    assert 'cannot use different column lists for table "public.t" in different publications' in words
    assert "-P names those to read" in words
    database.execute("ALTER PUBLICATION few SET TABLE t (id, v)")
    stream(database, "--for", "0.1")


def test_a_publication_newer_than_the_slot(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    create_slot(database, "s")
    database.execute("INSERT INTO t VALUES (1)", "CREATE PUBLICATION p FOR TABLE t", "INSERT INTO t VALUES (2)")
    lines, words = stream(database, "-S", "s", "--until", "now", status=3)
    assert lines == []
    if database.version < 18:
        assert 'publication "p" does not exist' in words
        assert "the server reads the catalog as it was" in words
    else:
        assert 'skipped loading publication "p"' in words
        assert "--allow-missing-publication" in words
        lines, words = stream(database, "-S", "s", "--until", "now", "--allow-missing-publication")
        assert "WARNING" in words
        assert [line["new"]["id"] for line in lines] == ["2"]
    before = database.value("SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = 's'")
    assert before is not None


@since(18)
def test_a_missing_publication_may_be_allowed(database: Database) -> None:
    publish(database)
    create_slot(database, "s")
    database.execute("INSERT INTO t VALUES (1)")
    lines, words = stream(database, "-S", "s", "-P", "p", "-P", "gone", "--until", "now", "--allow-missing-publication")
    assert [line["new"]["id"] for line in lines] == ["1"]
    assert "gone" in words


def test_warnings_when_nothing_will_be_shown(newest_database: Database) -> None:
    newest_database.execute("CREATE PUBLICATION empty", "CREATE TABLE t (id int)")
    _, words = stream(newest_database, "--for", "100ms")
    assert "warning: publication empty has no tables" in words
    newest_database.execute("DROP PUBLICATION empty", "CREATE PUBLICATION p FOR TABLE t")
    _, words = stream(newest_database, "--for", "0.1", "-t", "public.t", "-t", "T*", "-t", "other.*")
    assert "--table T* matches no published table (of 1); did you mean t?\n" in words
    assert "--table other.* matches no published table" in words
    assert "public.t " not in words


# -- acknowledging ---------------------------------------------------------------------------------------------


def test_a_session_that_acknowledges_is_no_synchronous_standby(start_server: StartServer) -> None:
    server = start_server(synchronous_standby_names="FIRST 1 (other, PgTail)", synchronous_commit="local")
    with fresh_database(server) as database:
        publish(database)
        create_slot(database, "s")
        for arguments in ([], ["-S", "s", "--ack", "commit"], ["-S", "s", "--ack", "exit"]):
            words = fails(database, *arguments)
            assert "counts as a synchronous standby" in words
            assert "pgtail stream --ack none" in words
        stream(database, "--for", "0.1", "--ack", "none")
        stream(database, "--for", "0.1", env={"PGAPPNAME": "somebody else"})
        server.configure(synchronous_standby_names="*")
        server.reload()
        wait_for("setting", lambda: database.value("SHOW synchronous_standby_names") == "*")
        fails(database, env={"PGAPPNAME": "somebody else"})
        with tailing(database, "-S", "s") as running:
            running.wait_for_slot(database, "s")
            database.execute("INSERT INTO t VALUES (1)")
            running.wait_for_lines(1)
            time.sleep(1.2)
            assert database.query("SELECT sync_state FROM pg_stat_replication") == [("async",)]
            running.stop()


def test_slot_creation_reports_the_transactions_it_waits_for(database: Database) -> None:
    publish(database)
    with database.connect() as session:
        session.execute("SET application_name TO 'long runner'")
        session.execute("BEGIN")
        session.execute("INSERT INTO t VALUES (7)")
        with tailing(database, "-S", "made", "--create-slot") as running:
            running.wait_for_words("waits for a transaction to end")
            who = f"pid {session.info.backend_pid}, user postgres, long runner, idle in transaction"
            assert f"{who}: INSERT INTO t VALUES (7), running for" in running.stderr
            words = running.stop()
            assert "stopped before anything was read" in words
        wait_for("end of the slot", lambda: not database.query("SELECT 1 FROM pg_replication_slots"))
        with tailing(database, "-S", "made", "--create-slot") as running:
            running.wait_for_words("waits for a transaction to end")
            session.execute("COMMIT")
            running.wait_for_slot(database, "made")
            database.execute("INSERT INTO t VALUES (8)")
            assert running.changes_of(1)[0]["new"] == {"id": "8"}
            running.stop()
    session.close()
    database.execute("BEGIN; INSERT INTO t VALUES (9); PREPARE TRANSACTION 'held';")
    with tailing(database) as running:
        running.wait_for_words("waits for a transaction to end: the prepared transaction 'held'")
        database.execute("ROLLBACK PREPARED 'held'")
        wait_for("slot", lambda: database.query("SELECT 1 FROM pg_replication_slots WHERE active AND temporary"))
        running.stop()


# -- encodings and names ---------------------------------------------------------------------------------------


def test_a_character_that_utf8_does_not_have(server: EmbeddedServer) -> None:
    with fresh_database(server, encoding="WIN1252") as database:
        database.execute("CREATE TABLE t (id int, v text)", "CREATE PUBLICATION p FOR TABLE t")
        create_slot(database, "s")
        database.execute(r"INSERT INTO t VALUES (1, E'n\xe9')", "INSERT INTO t VALUES (2, chr(129))")
        lines, words = stream(database, "-S", "s", "--until", "now", status=3)
        assert [line["new"] for line in lines] == [{"id": "1", "v": "né"}]
        assert "has no equivalent in encoding" in words
        assert "pgtail stream --encoding NAME" in words
        expected = ("-S", "s", "--where", "id = 2")  # not the row before it, with which the command could end
        assert "pgtail stream --encoding NAME" in stream(database, *expected, command="expect", status=3)[1]
        lines, _ = stream(database, "-S", "s", "--until", "now", "--encoding", "latin1")
        assert [line["new"]["v"] for line in lines] == ["né", "\x81"]


def test_a_database_without_an_encoding(server: EmbeddedServer) -> None:
    with fresh_database(server, encoding="SQL_ASCII") as database:
        database.execute("CREATE TABLE t (id int, v text)", "CREATE PUBLICATION p FOR TABLE t")
        create_slot(database, "s")
        database.execute(r"INSERT INTO t VALUES (1, E'n\xe9'), (2, 'né')")
        lines, _ = stream(database, "-S", "s", "--until", "now")
        assert [line["new"]["v"] for line in lines] == [r"\x6ee9", "né"]
        assert [line.get("undecoded") for line in lines] == [["v"], None]
        lines, _ = stream(database, "-S", "s", "--until", "now", "--encoding", "latin1")
        assert [line["new"]["v"] for line in lines] == ["né", "nÃ©"]


def test_names_of_all_kinds(database: Database) -> None:
    names = ['Groß, "klein"', "a,b", "x'y\\z", "🦊 Fuchs", "select", " lead"]
    for number, name in enumerate(names):
        quoted = '"' + name.replace('"', '""') + '"'
        database.execute(
            f"CREATE SCHEMA {quoted}",
            f"CREATE TABLE {quoted}.{quoted} ({quoted} int PRIMARY KEY)",
            f"CREATE PUBLICATION {quoted} FOR TABLE {quoted}.{quoted}",
        )
        create_slot(database, f"s{number}")
        database.execute(f"INSERT INTO {quoted}.{quoted} VALUES ({number})")
    for number, name in enumerate(names):
        lines, _ = stream(database, "-S", f"s{number}", "-P", name, "--until", "now")
        assert [(line["schema"], line["table"], line["new"]) for line in lines] == [(name, name, {name: str(number)})]
    arguments = [argument for name in names for argument in ("-P", name)]
    create_slot(database, "all")
    database.execute('INSERT INTO "a,b"."a,b" VALUES (99)', 'INSERT INTO "🦊 Fuchs"."🦊 Fuchs" VALUES (98)')
    lines, _ = stream(database, "-S", "all", *arguments, "--until", "now", "-t", "🦊*")
    assert [line["table"] for line in lines] == ["🦊 Fuchs"]
    odd = 'Ünü "x" =\\'
    quoted = '"' + odd.replace('"', '""') + '"'
    database.execute(f"CREATE DATABASE {quoted}")
    try:
        assert f"database {odd} has no publication" in fails(database.server.conninfo(odd))
    finally:
        database.execute(f"DROP DATABASE {quoted}")


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("-h {host} -p {port} -U postgres -d {name}", "-h {host} -p {port} -U postgres -d {name}"),
        ("-h {host} -p {port} -U postgres {name}", "-h {host} -p {port} -U postgres {name}"),
        (
            "-p {port} postgresql://postgres:geheim@/{name}?host={host}",
            "'host={host} port={port} user=postgres dbname={name}'",
        ),
    ],
)
def test_commands_in_cures_repeat_the_connection_and_no_password(database: Database, given: str, shown: str) -> None:
    server = database.server
    values = {"host": server.directory, "port": server.port, "name": database.name}
    ran = here("stream", *given.format(**values).split(), "-S", "nosuch")
    assert f"To create it: pgtail slot create nosuch {shown.format(**values)}\n" in ran.stderr
    created = here("slot", "create", *given.format(**values).split(), "kept")
    assert created.stderr.endswith(
        f"It retains WAL until it is dropped: pgtail slot drop kept {shown.format(**values)}\n"
    )
    assert "geheim" not in ran.stderr + created.stderr
    repeated = created.stderr.rpartition("pgtail ")[2]
    assert here(*shlex.split(repeated), "--yes").status == 0


@since(14)
def test_a_type_without_a_binary_form_has_its_cure(database: Database) -> None:
    database.execute(
        "CREATE TABLE a (id int PRIMARY KEY, acl aclitem[])",
        "CREATE PUBLICATION p FOR TABLE a",
        "SELECT pg_create_logical_replication_slot('s', 'pgoutput')",
        "INSERT INTO a VALUES (1, '{postgres=r/postgres}')",
    )
    options = ("-S", "s", "-P", "p", "--until", "now", "-o", "json")
    failed = here("stream", database.conninfo(), *options, "--binary")
    assert failed.status == 3
    assert "no binary output function available for type aclitem" in failed.stderr
    assert "Values of this type have no binary form: read without --binary." in failed.stderr
    [row] = here("stream", database.conninfo(), *options).objects
    assert row["new"] == {"id": 1, "acl": ["postgres=r/postgres"]}


@since(14)
def test_enums_that_are_not_known_are_undecoded(database: Database, tmp_path: Path) -> None:
    """Those of a binary dump, unless --type names them, and of a binary stream those that were dropped."""
    database.execute(
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "CREATE TABLE e (id int PRIMARY KEY, m mood)",
        "CREATE PUBLICATION pub FOR TABLE e",
        "SELECT pg_create_logical_replication_slot('s', 'pgoutput')",
        "INSERT INTO e VALUES (1, 'sad')",
    )
    dump = tmp_path / "dump"
    dump.write_bytes(b"".join([lengths(data) for _, data in pgoutput(database, "s", proto_version="2", binary="on")]))

    def read(*arguments: str | Path) -> tuple[str, list[str]]:
        [row] = here(*arguments, "-o", "json").objects
        return row["new"]["m"], row.get("undecoded", [])

    stream = ("stream", database.conninfo(), "-S", "s", "-P", "pub", "--binary", "--until", "now")
    assert read(*stream) == ("sad", [])
    assert read("decode", "--type", "mood=enum", dump) == ("sad", [])
    assert read("decode", dump) == ("\\x736164", ["m"])
    database.execute("ALTER TABLE e DROP m", "DROP TYPE mood")
    assert read(*stream) == ("\\x736164", ["m"])


STRAY = b'"caf\xe9"'


# -- names that are not UTF-8 ------------------------------------------------------------------------------------


@pytest.fixture
def plain(newest_server: EmbeddedServer) -> Iterator[Database]:
    """An SQL_ASCII database with such a table name; another database has such a name itself."""
    with fresh_database(newest_server, encoding="SQL_ASCII") as database, database.connect() as session:
        run = session.pgconn.exec_
        run(b"SET client_encoding TO SQL_ASCII")
        for statement in (b"CREATE TABLE %b (id int)", b"CREATE PUBLICATION p FOR TABLE %b", b"CREATE DATABASE %b"):
            assert not run(statement % STRAY).error_message
        try:
            there = newest_server.conninfo("HERE").encode().replace(b"HERE", STRAY.strip(b'"'))
            create = b"SELECT pg_create_logical_replication_slot('theirs', 'pgoutput')"
            psql = str(newest_server.installation.program("psql")).encode()
            subprocess.run([psql, b"-Xq", b"-d", there, b"-c", create], check=True, capture_output=True)
            yield database
        finally:
            run(b"SELECT pg_drop_replication_slot('theirs') FROM pg_replication_slots WHERE slot_name = 'theirs'")
            assert not run(b"DROP DATABASE %b" % STRAY).error_message


def test_stray_names_are_shown_with_their_bytes(plain: Database, newest_database: Database) -> None:
    for database in (plain, newest_database):
        listed, _ = pgtail("slot", "list", "-o", "json", database.conninfo())
        found = {line["slot_name"]: line for line in lines(listed)}
        assert found["theirs"]["database"] == r"caf\xe9"
        assert r"caf\xe9" in pgtail("slot", "list", database.conninfo(), "-o", "table", "-v")[0]
        pgtail("doctor", database.conninfo(), "-o", "table", status=2)
    found = {line["check"]: line for line in lines(pgtail("doctor", "-o", "json", plain.conninfo(), status=2)[0])}
    assert found["replica_identity"]["subjects"] == [r'public."caf\xe9"']
    pgtail("slot", "drop", "theirs", newest_database.conninfo(), "--yes")


def last_line(stderr: str) -> str:
    return stderr.rstrip("\n").rpartition("\n")[2]


def make(database: Database, publication: str) -> None:
    database.execute(
        "CREATE TABLE w (id int PRIMARY KEY, v int)",
        'CREATE TABLE "a, b" (id int PRIMARY KEY, v int, z int)',
        f"CREATE PUBLICATION p FOR {publication}",
    )
    database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")


@since(15)
def test_row_filters_and_column_lists_are_named(database: Database, tmp_path: Path) -> None:
    make(database, """TABLE w WHERE (id > 100), "a, b" (id, z) WHERE (id > 7)""")
    database.execute("INSERT INTO w VALUES (1, 1), (2, 2)")
    reason = (
        'pgtail: note: publication "p" sends of public."a, b" only rows with (id > 7) and columns id, z;'
        " of public.w only rows with (id > 100)"
    )
    read = database.conninfo(), "--slot", "s"
    lines, words = stream(database, "-S", "s", "--until", "now")
    assert (lines, last_line(words)) == ([], reason)
    assert last_line(pgtail("stats", *read, "--until", "now")[1]) == reason
    assert last_line(pgtail("expect", *read, "--timeout", "0.5s", status=1)[1]) == reason
    record = "record", database.conninfo(), "--slot", "other", "-D", str(tmp_path / "c"), "--until", "now"
    assert last_line(pgtail(*record)[1]) == reason
    assert stream(database, "-S", "s", "--until", "now", "-q")[1] == ""
    database.execute("INSERT INTO w VALUES (101, 1)")
    for number in (1, 2):  # the second time with a filter, of an operation that came
        lines, words = stream(database, "-S", "s", "--until", "now", *(["--op", "insert"] if number == 2 else []))
        assert (len(lines), "publication" in words) == (1, False)


def test_operations_that_are_left_out_are_named(database: Database) -> None:
    make(database, "TABLE w WITH (publish = 'insert, delete')")
    database.execute("INSERT INTO w VALUES (1, 1)", "UPDATE w SET v = 2")
    ops = "update, truncate" if database.version >= 11 else "update"
    assert last_line(stream(database, "-S", "s", "--until", "now", "-t", "nothing")[1]).endswith(
        f'note: publication "p" sends no {ops}'
    )
    lines, words = stream(database, "-S", "s", "--until", "now", "--op", "insert", "--op", "update")
    assert [line["op"] for line in lines] == ["insert"]
    assert last_line(words) == 'pgtail: note: publication "p" sends no update'
    for op in ("insert", "delete"):  # which it does send
        assert "publication" not in stream(database, "-S", "s", "--until", "now", "--op", op)[1]


def test_an_operation_that_another_publication_sends_is_not_left_out(database: Database) -> None:
    make(database, 'TABLE w, "a, b"')
    database.execute("CREATE PUBLICATION q FOR TABLE w WITH (publish = 'insert')", "INSERT INTO w VALUES (1, 1)")
    read = "-S", "s", "-P", "p", "-P", "q", "--until", "now", "--op", "update"
    assert "publication" not in stream(database, *read)[1]
    database.execute('ALTER PUBLICATION p SET TABLE "a, b"')
    assert last_line(stream(database, *read)[1]) == 'pgtail: note: publication "q" sends no update'


def test_nothing_is_told_of_a_publication_that_sends_all(database: Database) -> None:
    make(database, 'TABLE w, "a, b"')
    assert "publication" not in stream(database, "-S", "s", "--until", "now")[1]
