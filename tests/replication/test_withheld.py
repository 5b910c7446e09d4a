"""What the last line of a command says when nothing came, and the publication is the reason."""

from __future__ import annotations

from pathlib import Path

from tests.support.run_process import pgtail
from tests.support.servers import Database, since
from tests.support.tail import stream


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
