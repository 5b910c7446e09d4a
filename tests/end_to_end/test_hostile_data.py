"""Hostile names and values in every output and message: none of them acts on a terminal, in SQL or in a shell.

The texts have control sequences, reordering and invisible characters, newlines before what looks like a message or a
command, quotes, SQL, shell syntax and rich's markup.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import re
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgtail.cli import main
from pgtail.demo.server import EmbeddedServer
from pgtail.outputs import OUTPUTS
from pgtail.terminal.escape import escape_sql, hides, shell_word, sql_identifier
from tests.outputs.test_sql import psql
from tests.support import forked
from tests.support.encode import (
    INT4,
    TEXT,
    begin,
    begin_prepare,
    commit,
    commit_prepared,
    delete,
    insert,
    message,
    origin,
    prepare,
    recvlogical,
    relation,
    truncate,
    type_,
    update,
)
from tests.support.run import here
from tests.support.servers import Database, fresh_database
from tests.support.tail import wait_for
from tests.support.terminals import open_terminal

NAME = "a\x1b]0;p\x07\x9b2J\u202e\"';DROP TABLE v;--\n    forged $(x)[red]%s\\"
"""At most 63 bytes: PostgreSQL takes it for the name of anything."""
VALUE = f"{NAME}\npgtail: error: forged\r\x1b[8m\u2066=cmd|'/C calc'!A0\u2028{{y}}:smile:"
STRAY = b"\xff\x1b[31m\xed\xa0\x80"
"""Bytes that are not UTF-8: a lone byte, and a lone surrogate."""
_FORGED = re.compile(r"^\s*(?:pgtail: )?(?:error: )?forged", re.MULTILINE)
_WIDTH = 5000
"""Cells of a line: nothing is wrapped, so that a forged line is one."""
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
PEOPLE = ("table", "line")

HOSTILE = (
    begin(),
    origin(NAME),
    type_(20000, NAME, NAME),
    relation(1, NAME, [("id", INT4), (NAME, TEXT), ("=1+1", 20000)], schema=NAME, key=(0, 1)),
    insert("1", NAME, VALUE, oid=1),
    update(("1", NAME, "=2"), ("1", VALUE, None), oid=1),
    delete("1", VALUE, None, oid=1),
    message(VALUE.encode(), NAME),
    message(STRAY, NAME),
    commit(),
    begin(8, 0x110),
    relation(1, f"b{NAME[1:]}", [("id", INT4), (f"c{NAME[1:]}", TEXT), ("=1+1", 20000)], schema=NAME, key=(0, 1)),
    insert("1", VALUE, None, oid=1),
    truncate(1),
    commit(0x110, 0x118),
    begin_prepare(9, NAME, 0x120, 0x128),
    insert("2", VALUE, VALUE, oid=1),
    prepare(9, NAME, 0x120, 0x128),
    commit_prepared(9, NAME, 0x130, 0x138),
)
DUMP = recvlogical(*HOSTILE)
COMMANDS = {
    **{name: ["decode", "-o", name, "--schema-changes"] for name in OUTPUTS if name in (*PEOPLE, "json", "sql")},
    **{name: ["decode", "-o", name] for name in OUTPUTS if name not in (*PEOPLE, "json", "sql", "csv")},
    "undo": ["decode", "-o", "sql", "--undo"],
    "csv": ["decode", "-o", "csv", "-t", "b*"],
    "format string": ["decode", "--format-string", f"%o %t %S %T %k %v %O %r %g %m %{{{NAME}}} %[=1+1]"],
    "keys": ["decode", "-o", "debezium", "--keys"],
    "wide": ["decode", "-o", "table", "--max-width", "0", "--all-columns", "--old-values", "seen"],
    "stats": ["stats"],
    "stats json": ["stats", "-o", "json"],
    "inspect": ["inspect"],
    "inspect json": ["inspect", "-o", "json"],
    "no such column": ["decode", "--where", f"{sql_identifier('z' + NAME[1:].replace(chr(10), ''))} = 1"],
    "no such table": ["decode", "-t", f"z{NAME}"],
    "nothing masked": ["decode", "--redact", "nothing"],
}


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(_WIDTH))


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """A file that has a hostile name, too."""
    file = tmp_path / "d\x1b[31m\n    forged"
    file.write_bytes(DUMP)
    return file


def unsafe(text: str) -> str:
    """What of a text would act on a terminal, or imitates a message; nothing if all is well."""
    hidden = "".join([char for char in text if char not in "\n\t" and hides(char)])
    return repr(hidden) if hidden else "a forged line" if _FORGED.search(text) else ""


@contextlib.contextmanager
def _terminal() -> Iterator[bytearray]:
    """Standard output and error are a pseudo-terminal; what they show is in the result afterwards."""
    user, program = open_terminal()
    termios.tcsetwinsize(program, (24, _WIDTH))
    shown = bytearray()

    def read() -> None:
        with contextlib.suppress(OSError):  # the program's end is closed
            while data := os.read(user, 1 << 16):
                shown.extend(data)

    reader = threading.Thread(target=read)
    reader.start()
    with pytest.MonkeyPatch.context() as patch:
        with open(program, "w", errors="backslashreplace") as file:
            patch.setattr(sys, "stdout", file)
            patch.setattr(sys, "stderr", file)
            patch.setenv("TERM", "xterm")
            patch.setenv("PAGER", "")
            yield shown
        reader.join()
    os.close(user)


@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_acts_on_a_terminal(name: str, dump: Path) -> None:
    with _terminal() as shown, pytest.raises(SystemExit):
        main([*COMMANDS[name], str(dump)], prog_name="pgtail")
    text = _STYLE.sub("", shown.decode()).replace("\r\n", "\n").replace("\x1b[?25l", "").replace("\x1b[?25h", "")
    assert len(text) > 100
    assert unsafe(text.replace("\n", "") if name == "csv" else text) == ""  # its values have lines


@pytest.mark.parametrize("name", COMMANDS)
def test_outputs_in_a_pipe(name: str, dump: Path) -> None:
    """Text for people has nothing hidden; JSON has a line for each object, and every output can be read back."""
    found = here(*COMMANDS[name], dump)
    assert unsafe(found.stderr) == ""
    text = found.stdout.decode()
    if name in (
        "json",
        "json-tx",
        "wal2json",
        "wal2json-v1",
        "debezium",
        "stats json",
        "inspect json",
        "nothing masked",
    ):
        assert [json.loads(line) for line in text.split("\n") if line]
    elif name == "csv":
        assert VALUE in next(row for row in csv.reader(text.splitlines(keepends=True)) if row[0] == "insert")
    elif name in ("sql", "undo"):
        assert "DROP TABLE" in text
        assert unsafe(text) == ""
        assert _statements(text) == []
    elif name not in ("keys", "format string"):
        assert unsafe(text) == ""


def _statements(script: str) -> list[str]:
    """The lines outside of comments and quotes that begin like none of a script's statements."""
    plain = re.sub(r"""(?s)\$(\w*)\$.*?\$\1\$|'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*""", "q", script)
    known = re.compile(
        r"\) LANGUAGE|SET |BEGIN|COMMIT|INSERT |UPDATE |DELETE |CALL |DO |CREATE |PREPARE |SELECT |\\|q|$| |ROLLBACK"
    )
    return [line for line in plain.split("\n") if not known.match(line)]


@pytest.mark.parametrize("lines", [(NAME, "x"), ("a'b\\\n", 'c"\u202ed'), ("$$\n", "-- \n"), ("E'\n", "U&\x1b")])
def test_statements_for_people_name_the_same(newest_database: Database, lines: tuple[str, str]) -> None:
    name, text = lines
    spelled = [f"convert_from('\\x{one.encode().hex()}', 'UTF8')" for one in lines]
    quoted = newest_database.query("SELECT format('%I', {}), format('%L', {})".format(*spelled))[0]
    statement = escape_sql(f"SELECT {quoted[1]} AS {quoted[0]}")
    assert not hides(statement)
    with newest_database.connect() as session:
        cursor = session.execute(statement.encode())
        assert cursor.description is not None
        assert (cursor.description[0].name, cursor.fetchall()) == (name, [(text,)])
    word = subprocess.run(["bash", "-c", f"printf %s {shell_word(name + text)}"], capture_output=True, check=True)
    assert word.stdout.decode() == name + text


@pytest.fixture
def hostile(newest_server: EmbeddedServer) -> Iterator[Database]:
    """A database in which everything has such a name."""
    quoted, literal = sql_identifier(NAME), f"convert_from('\\x{VALUE.encode().hex()}', 'UTF8')"
    with fresh_database(newest_server) as database:
        database.execute(
            f"CREATE SCHEMA {quoted}",
            "CREATE TABLE v (id int PRIMARY KEY)",
            f"CREATE TABLE {quoted}.{quoted} (id int, {quoted} text, PRIMARY KEY (id, {quoted}))",
            f"CREATE TABLE {sql_identifier('b' + NAME[1:])} ({quoted} text)",
            f"CREATE PUBLICATION {quoted} FOR ALL TABLES",
            "SELECT pg_create_logical_replication_slot('s', 'pgoutput')",
            f"INSERT INTO {quoted}.{quoted} VALUES (1, {literal}), (2, '')",
            f"UPDATE {quoted}.{quoted} SET id = 3 WHERE id = 2",
            f"INSERT INTO {sql_identifier('b' + NAME[1:])} VALUES ({literal})",
            f"SELECT pg_logical_emit_message(true, {literal}, {literal})",
            f"SELECT pg_logical_emit_message(false, {literal}, {literal})",
        )
        yield database


def test_commands_on_a_server(hostile: Database, tmp_path: Path) -> None:
    forked.load()
    dsn, publication = hostile.conninfo(), ["-P", NAME]
    stream = ["stream", dsn, *publication, "-S", "s", "--until", "now"]
    for status, arguments in [
        *[(0, [*stream, "-o", name]) for name in PEOPLE],
        (0, [*stream, "-vv", "-o", "line"]),
        (3, ["stream", dsn, "-P", "none", "--until", "now"]),
        (3, ["stream", dsn, *publication, "-S", NAME, "--until", "now"]),
        (2, [*stream, "-o", "line", "--where", f"{sql_identifier('z' + NAME[1:].replace(chr(10), ''))} = 1"]),
        (0, [*stream, "-o", "line", "-t", f"z{NAME[1:]}"]),
        (2, ["doctor", dsn]),
        (0, ["slot", "list", dsn, "-o", "table"]),
        (2, ["slot", "create", NAME, dsn]),
        (0, ["stats", "--slot", "s", dsn, *publication]),
        (0, ["record", dsn, *publication, "-S", "c", "-D", str(tmp_path / "capture"), "--snapshot", "--until", "now"]),
        (0, ["decode", str(tmp_path / "capture"), "-o", "table"]),
        (0, ["decode", str(tmp_path / "capture"), "-o", "csv", "-f", f"{tmp_path}/csv/"]),
        (0, ["stats", str(tmp_path / "capture")]),
        (3, ["slot", "list", hostile.server.conninfo(NAME)]),
        (3, ["slot", "list", hostile.server.conninfo(hostile.name, user=NAME)]),
    ]:
        ran = forked.run(*arguments)
        shown = (ran.out + ran.err).decode()
        assert (ran.status, unsafe(shown)) == (status, ""), f"{arguments}\n{shown}"
        assert "Traceback" not in shown
    assert [file.name for file in (tmp_path / "csv").iterdir() if hides(file.name) or "/" in file.name] == []


def test_pasted_statements_do_what_they_say(hostile: Database, tmp_path: Path) -> None:
    """A cure of the doctor, and the output sql, in psql: they change what they name, and nothing else."""
    forked.load()
    found = [json.loads(line) for line in forked.run("doctor", hostile.conninfo(), "-o", "json").out.splitlines()]
    [cure] = [one["cure"] for one in found if one["check"] == "replica_identity"]
    assert psql(hostile, "\n".join(cure).encode()).returncode == 0
    wait_for(
        "cure",
        lambda: b'"replica_identity","severity":"ok"' in forked.run("doctor", hostile.conninfo(), "-o", "json").out,
    )
    script = forked.run("stream", hostile.conninfo(), "-P", NAME, "-S", "s", "--until", "now", "-o", "sql").out
    tables = [f"{sql_identifier(NAME)}.{sql_identifier(NAME)}", sql_identifier(f"b{NAME[1:]}"), "v"]
    before = [hostile.query(f"SELECT * FROM {table} ORDER BY 1") for table in tables]
    hostile.execute(f"TRUNCATE {', '.join(tables)}")
    ran = psql(hostile, script)
    assert ran.returncode == 0, ran.stderr
    assert [hostile.query(f"SELECT * FROM {table} ORDER BY 1") for table in tables] == before
