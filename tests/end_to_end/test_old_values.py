"""`--old-values seen` on random histories: what is marked as seen is what REPLICA IDENTITY FULL sends.

Each statement runs in two databases. In the other one all tables have REPLICA IDENTITY FULL: its changes are the truth.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from pgtail.pgoutput.scalars import parse_lsn
from tests.support.encode import begin, commit, insert, lengths, relation, update
from tests.support.limits import within
from tests.support.render import WAYS, Way, rows_by
from tests.support.run import here
from tests.support.servers import Database, client_program, fresh_database, since
from tests.support.tail import tailing
from tests.support.workload import pgoutput

STEPS: Final = 250
_NAMES: Final = ("one", "two", "three")
_SETUP: Final = (
    "CREATE TYPE mood AS ENUM ('sad', 'ok')",
    "CREATE TABLE one (id int PRIMARY KEY, n numeric, v text, big text)",
    "CREATE TABLE two (a text, n int, b int, v text, big text, PRIMARY KEY (b, a))",
    "CREATE TABLE three (id uuid NOT NULL UNIQUE, n float8, v mood, big bytea)",
    "ALTER TABLE three REPLICA IDENTITY USING INDEX three_id_key",
    *[f"ALTER TABLE {table} ALTER big SET STORAGE EXTERNAL" for table in _NAMES],
    # Its locks would make a statement fail in one of the databases only.
    *[f"ALTER TABLE {table} SET (autovacuum_enabled = off, toast.autovacuum_enabled = off)" for table in _NAMES],
    "CREATE PUBLICATION pub FOR TABLE one, two, three",
)
_EXPECTED: Final = (
    psycopg.errors.UniqueViolation,
    psycopg.errors.LockNotAvailable,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.InvalidSavepointSpecification,
)


Sessions = tuple[psycopg.Connection[Any], ...]
Xids = tuple[int | None, ...]
"""The xids of a transaction in all databases, None before it has one."""


class History:
    """Sessions that write to the tables of all databases, in an order that only `choose` decides."""

    def __init__(self, databases: Sequence[Database], choose: random.Random, *, hides: bool) -> None:
        self._databases, self._choose, self._hides = databases, choose, hides
        self._open: list[Sessions | None] = [None, None, None]
        self._prepared: list[tuple[str, Xids]] = []
        self.altered: set[Xids] = set()
        """The transactions that were open while the publication was altered."""

    def run(self, steps: int) -> None:
        """Fill the tables, and change them."""
        with self._connected() as sessions:
            for _ in range(40):
                execute(sessions, self._insert())
        for _ in range(steps):
            with contextlib.suppress(*_EXPECTED):
                self._step(self._choose.randrange(len(self._open)))
        self._end_all("COMMIT")

    def _step(self, index: int) -> None:
        choose, sessions = self._choose, self._sessions(index)
        kind = choose.choices(
            ("change", "big", "savepoint", "roll back to", "end", "prepare", "outcome", "hide", "ddl"),
            (120, 6, 6, 4, 28, 6, 6, self._hides, self._hides),
        )[0]
        try:
            if kind == "change":
                execute(sessions, self._change())
            elif kind == "big":
                for _ in range(30):
                    execute(sessions, self._change())
            elif kind == "savepoint":
                execute(sessions, "SAVEPOINT s")
            elif kind == "roll back to":
                execute(sessions, "ROLLBACK TO s")
            elif kind == "end":
                self._end(index, choose.choice(("COMMIT", "COMMIT", "COMMIT", "ROLLBACK")))
            elif kind == "prepare":
                if len(self._prepared) == 10:  # the server has 25 at a time, for both databases
                    self._outcomes()
                gid = f"g{index}-{choose.randrange(1 << 30)}"
                xids = xids_of(sessions)
                self._end(index, f"PREPARE TRANSACTION '{{database}}-{gid}'")
                self._prepared.append((gid, xids))
            elif kind == "outcome":
                self._outcomes()
            elif kind == "hide":
                self._hide()
            else:
                execute(sessions, self._ddl())
        except _EXPECTED:
            self._end(index, "ROLLBACK")
            raise

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Sessions]:
        with contextlib.ExitStack() as stack:
            sessions = tuple(stack.enter_context(contextlib.closing(one.connect())) for one in self._databases)
            execute(sessions, "SET lock_timeout = '5ms'")
            yield sessions

    def _sessions(self, index: int) -> Sessions:
        """Sessions inside a transaction."""
        sessions = self._open[index]
        if sessions is None:
            sessions = self._open[index] = tuple([one.connect() for one in self._databases])
            execute(sessions, "SET lock_timeout = '5ms'")
            execute(sessions, "BEGIN")
        return sessions

    def _end(self, index: int, how: str) -> None:
        sessions, self._open[index] = self._open[index], None
        if sessions is not None:
            execute(sessions, how)
            for session in sessions:
                session.close()

    def _end_all(self, how: str) -> None:
        for index in range(len(self._open)):
            self._end(index, how)
        self._outcomes()

    def _outcomes(self) -> None:
        while self._prepared:
            (gid, _), how = self._prepared.pop(), self._choose.choice(("COMMIT", "COMMIT", "ROLLBACK"))
            with self._connected() as sessions:
                execute(sessions, f"{how} PREPARED '{{database}}-{gid}'")

    def _change(self) -> str:
        return self._choose.choice((self._insert, self._update, self._update, self._delete))()

    def _table(self) -> tuple[str, list[str]]:
        """A table, and the condition of a row in it as the values of its key."""
        number, letter = self._choose.randrange(16), self._choose.choice("abc")
        return self._choose.choice(
            [
                ("one", [f"id = {number}"]),
                ("two", [f"b = {number % 9}", f"a = '{letter}'"]),
                ("three", [f"id = '{number:032x}'"]),
            ]
        )

    def _value(self, table: str, column: str) -> str:
        choose = self._choose
        if column == "big":
            repeated = f"repeat('{choose.choice('xyz')}', {choose.choice((3, 3000, 9000))})"
            return choose.choice((repeated, repeated, "NULL")) + ("::bytea" if table == "three" else "")
        if column == "n":
            return choose.choice(("NULL", "0", "1", "2", "7"))
        return choose.choice(("NULL", "''", "'sad'", "'ok'") if table != "three" else ("NULL", "'sad'", "'ok'"))

    def _insert(self) -> str:
        table, key = self._table()
        pairs = [one.split(" = ") for one in key] + [[name, self._value(table, name)] for name in ("n", "v", "big")]
        names, values = zip(*pairs, strict=True)
        into = f"INSERT INTO {table} ({', '.join(names)})"
        return f"{into} VALUES ({', '.join(values)}) ON CONFLICT DO NOTHING"

    def _update(self) -> str:
        table, key = self._table()
        columns = self._choose.sample(("n", "v", "big", "key"), self._choose.choice((1, 1, 2)))
        to_set = [f"{name} = {self._value(table, name)}" for name in columns if name != "key"]
        if "key" in columns:
            to_set += next(other for name, other in iter(self._table, None) if name == table)[:1]
        return f"UPDATE {table} SET {', '.join(to_set)} WHERE {' AND '.join(key)}"

    def _delete(self) -> str:
        table, key = self._table()
        return f"DELETE FROM {table} WHERE {' AND '.join(key)}"

    def _ddl(self) -> str:
        table = self._choose.choice(("one", "two"))
        return self._choose.choice(
            [
                f"TRUNCATE {table}",
                f"ALTER TABLE {table} ALTER n TYPE {'numeric' if table == 'one' else 'int'} USING n + 1",
                f"ALTER TABLE {table} ADD IF NOT EXISTS more int DEFAULT 5",
                f"ALTER TABLE {table} DROP IF EXISTS more",
            ]
        )

    def _hide(self) -> None:
        """Changes that the stream does not have, as the publication leaves them out for a moment."""
        truncate = ", truncate" if self._databases[0].version >= 11 else ""
        away, back = self._choose.choice(
            [
                ("SET (publish = 'insert')", f"SET (publish = 'insert, update, delete{truncate}')"),
                ("DROP TABLE one, two", "ADD TABLE one, two"),
            ]
        )
        self.altered |= {xids_of(one) for one in self._open if one is not None} | {xids for _, xids in self._prepared}
        with self._connected() as sessions:
            execute(sessions, f"ALTER PUBLICATION pub {away}")
            for _ in range(self._choose.randrange(6)):
                with contextlib.suppress(*_EXPECTED):
                    execute(sessions, self._change())
            try:
                execute(sessions, f"ALTER PUBLICATION pub {back}")
            except psycopg.errors.LockNotAvailable:
                self._end_all("ROLLBACK")
                execute(sessions, f"ALTER PUBLICATION pub {back}")


def xids_of(sessions: Sessions) -> Xids:
    """The xids of the transaction that is open in all of these sessions."""
    found = [session.execute("SELECT txid_current_if_assigned()").fetchall() for session in sessions]
    return tuple([xid for [(xid,)] in found])


def execute(sessions: Sessions, statement: str) -> None:
    """Run a statement in all sessions, where it does the same."""
    errors = []
    for number, session in enumerate(sessions):
        try:
            session.execute(statement.replace("{database}", str(number)).encode())
        except _EXPECTED as error:
            errors.append(error)
    if errors:
        assert [type(error) for error in errors] == [type(errors[0])] * len(sessions)
        raise errors[0]


@contextlib.contextmanager
def databases(first: Database) -> Iterator[list[Database]]:
    """The database and another, in which all tables have REPLICA IDENTITY FULL, each with slots."""
    with fresh_database(first.server) as second:
        for database in (first, second):
            database.execute(*_SETUP)
        second.execute(*[f"ALTER TABLE {table} REPLICA IDENTITY FULL" for table in _NAMES])
        for database in (first, second):
            two_phase = [("two_phase", True)] if database.version >= 15 else []
            for name, prepares in [("plain", False), *two_phase]:
                more = ", false, true" if prepares else ""
                database.execute(
                    f"SELECT pg_create_logical_replication_slot('{database.name}_{name}', 'pgoutput'{more})"
                )
        yield [first, second]


def dumps(database: Database, folder: Path) -> Iterator[Path]:
    """What the slots have, as files: also streamed in small segments, and prepared transactions at their prepare."""
    ways: list[tuple[str, dict[str, str]]] = [("plain", {})]
    if database.version >= 15:
        ways.append(("two_phase", {"proto_version": "3", "two_phase": "on"}))
    if database.version >= 14:
        ways = [*ways, *[(slot, {"proto_version": "2", **options, "streaming": "on"}) for slot, options in ways]]
    for number, (slot, options) in enumerate(ways):
        settings = {"logical_decoding_work_mem": "64kB"} if database.version >= 13 else {}
        messages = pgoutput(database, f"{database.name}_{slot}", settings, **options)
        file = folder / f"{database.name}.{number}.{'streamed' if 'streaming' in options else 'whole'}"
        file.write_bytes(b"".join([lengths(data, lsn=parse_lsn(lsn)) for lsn, data in messages]))
        yield file


def changes(file: Path) -> list[dict[str, Any]]:
    """The changes of rows; of what was rolled back after its prepare the server may have sent any part."""
    ran = here("decode", "-o", "json", "--old-values", "seen", file)
    assert ran.status == 0, ran.stderr
    found = ran.objects
    rolled_back = {change["xid"] for change in found if change["op"] == "rollback_prepared"}
    return [change for change in found if "new" in change or "old" in change if change["xid"] not in rolled_back]


def sent_in_both(both: list[list[dict[str, Any]]], altered: set[Xids]) -> list[list[dict[str, Any]]]:
    """The changes without transactions of `altered` that have not the same changes in both databases.

    PostgreSQL 14 leaves out a change of a transaction that it streams while a publication is altered.
    """
    differ: set[tuple[int, int | None]] = set()
    operations = [Counter((change["xid"], change["op"], change["table"]) for change in found) for found in both]
    for xids in altered:
        own = [
            {(op, table): count for (xid, op, table), count in counts.items() if xid == wanted}
            for counts, wanted in zip(operations, xids, strict=True)
        ]
        if own[0] != own[1]:
            differ.update(enumerate(xids))
    return [[one for one in found if (place, one["xid"]) not in differ] for place, found in enumerate(both)]


def test_what_was_seen_is_what_the_whole_identity_sends(
    database: Database, tmp_path: Path, seed: random.Random
) -> None:
    with databases(database) as pair:
        history = History(pair, seed, hides=True)
        history.run(STEPS)
        counts: Counter[str] = Counter()
        for files in zip(*(dumps(one, tmp_path) for one in pair), strict=True):
            both = [*map(changes, files)]
            if files[0].suffix == ".streamed":
                both = sent_in_both(both, history.altered)
            for keyed, full in zip(*both, strict=True):
                assert (keyed["op"], keyed["table"]) == (full["op"], full["table"])
                assert "old_seen" not in full
                seen, old, new = keyed.get("old_seen"), keyed.get("old", {}), keyed.get("new", {})
                counts[keyed["op"] if seen else "not seen"] += "old" in full
                assert old == {name: full["old"][name] for name in old}, (keyed, full)
                assert seen is None or set(seen) == set(old) - set(keyed["key"])
                assert new == {name: full["new"][name] for name in new}, (keyed, full)
                if "new" in keyed and set(old) == set(full.get("old", ())):
                    assert set(new) == set(full["new"])
        assert counts["update"] + counts["delete"] > 2, counts


@since(11)  # the script calls a procedure
def test_everything_that_was_seen_can_be_undone(database: Database, tmp_path: Path, seed: random.Random) -> None:
    with databases(database) as pair:
        history = History(pair[:1], seed, hides=False)
        history.run(STEPS // 4)
        before, start = rows(database), database.value("SELECT pg_current_wal_lsn()")
        history.run(STEPS)
        assert before != rows(database)
        file = next(dumps(database, tmp_path))
        ran = here("decode", "-o", "sql", "--undo", "--old-values", "seen", "--since", start, file)
        assert ran.status == 0, ran.stderr
        assert "cannot be undone" not in ran.stderr
        psql(database, ran.stdout)
        assert rows(database) == before


def rows(database: Database) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of the tables."""
    return {table: database.query(f"SELECT t.*::text FROM {table} t ORDER BY 1") for table in _NAMES}


def psql(database: Database, script: bytes) -> None:
    """Run a script as its first line says."""
    program = client_program(database.server.installation, "psql")
    command = [str(program), f"--dbname={database.conninfo()}", "-Xq", "-v", "ON_ERROR_STOP=1", "-f", "-"]
    done = subprocess.run(command, input=script, capture_output=True, timeout=within(120), check=False)
    assert done.returncode == 0, done.stderr.decode()


_REASONS_SETUP: Final = (
    "CREATE TABLE orders (id int PRIMARY KEY, v text, big text)",
    "ALTER TABLE orders ALTER big SET STORAGE EXTERNAL",
    "CREATE TABLE noise (id int PRIMARY KEY, v text)",
    "CREATE TABLE inexact (id float8 PRIMARY KEY, v text)",
    "CREATE PUBLICATION pub FOR TABLE orders, noise, inexact",
    "INSERT INTO orders VALUES (9, 'before', '')",
    "SELECT pg_create_logical_replication_slot('s', 'pgoutput')",
)
_SEEN: Final = ("-o", "sql", "--undo", "--old-values", "seen")


@pytest.mark.parametrize("way", WAYS)
def test_what_cannot_be_undone_has_its_reason_and_fails(database: Database, tmp_path: Path, way: Way) -> None:
    database.execute(
        *_REASONS_SETUP,
        "INSERT INTO orders SELECT i, 'v', repeat('x', 3000) FROM generate_series(1, 3) i",
        "INSERT INTO noise SELECT i, repeat('y', 100) FROM generate_series(1, 1000) i",
        "UPDATE orders SET v = 'w' WHERE id = 1",
        "DELETE FROM orders WHERE id = 9",
        "INSERT INTO inexact VALUES (1, 'a')",
        "DELETE FROM inexact",
        "ALTER TABLE orders ADD w int",
        "DELETE FROM orders WHERE id = 2",
        "UPDATE orders SET w = 1 WHERE id = 3",
        "DELETE FROM orders WHERE id = 3",
    )
    file = tmp_path / "dump"
    file.write_bytes(b"".join([lengths(data, lsn=parse_lsn(lsn)) for lsn, data in pgoutput(database, "s")]))
    lsn = next(one["commit_lsn"] for one in here("decode", "-o", "json", file).objects if one.get("old") == {"id": 2})
    described = f"the rows of public.orders were forgotten at {lsn}: the server described the table again"
    inexact = "the rows of public.inexact are not remembered: its key has type double precision"
    expected = [
        "delete on public.orders: the old row is not known: it was never seen",
        f"delete on public.inexact: the old row is not known: {inexact}",
        f"delete on public.orders: the old row is not known: {described}",
        f"update on public.orders: the old row is not known: {described}",
        f"delete on public.orders: the old big is not known: {described}",
    ]
    small = ("--old-values-limit", "100kB")
    too_much = (
        "update on public.orders: the old row is not known: it did not fit in --old-values-limit, or was never seen"
    )
    with rows_by(way):
        runs = [
            here("decode", *_SEEN, *more, file) for more in ((), small, (*small, "-t", "orders"), ("--op", "insert"))
        ]
    whole, limited, selected, inserts = runs
    assert (whole.status, limited.status, selected.status, inserts.status) == (1, 1, 1, 0)
    assert _reasons(whole.stderr) == sorted(expected)
    assert too_much in _reasons(limited.stderr)
    assert _reasons(selected.stderr) == sorted(one for one in expected if "inexact" not in one)
    script = whole.stdout.decode()
    assert all(script.count(f": {reason.partition(': ')[2]}\n") for reason in expected)
    pure = {"PGTAIL_PURE": "1" if way == "decoder" else ""}
    with tailing(database, "-S", "s", "-P", "pub", "--until", "now", *_SEEN, env=pure) as running:
        assert _reasons(running.end(status=1)) == sorted(expected)


@pytest.mark.parametrize("way", WAYS)
def test_rows_are_forgotten_at_a_transaction_that_begins_with_an_excluded_row(tmp_path: Path, way: Way) -> None:
    file = tmp_path / "dump"
    described = (relation(), relation(101, "s"))
    first = (begin(1, 0x100), *described, insert("1", "a"), commit(0x100, 0x108))
    without_key = (begin(2, 0x200), insert("1", "x", oid=101), insert(None, "b"), commit(0x200, 0x208))
    last = (begin(3, 0x300), update(("1", "c")), commit(0x300, 0x308))
    file.write_bytes(lengths(*first, *without_key, *last))
    with rows_by(way):
        ran = here("decode", *_SEEN, "--exclude", "s", file)
    assert ran.status == 1
    assert "the rows of public.t were forgotten at 0/200: a change does not say of which row it is" in ran.stderr


def _reasons(stderr: str) -> list[str]:
    """The reasons that are told, in their order by name."""
    return sorted(line.removeprefix("pgtail: ") for line in stderr.splitlines() if " on public." in line)
