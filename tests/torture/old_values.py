"""Old values over reconnections, while tables, types and publications are altered.

Each statement runs on two tables. The other one has REPLICA IDENTITY FULL: what the server sends of it is the truth.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any, Final

import psycopg

from tests.support.run import here
from tests.support.servers import Database, fresh_database
from tests.support.tail import PATIENCE, Tailing, tailing, wait_for
from tests.torture.bench import Bench

_TABLES: Final = 2
_ROWS: Final = 5
_STEPS: Final = 400
_EXPECTED: Final = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected, psycopg.errors.UniqueViolation)
_ALTERED: Final = "ALTER TABLE {} ALTER v TYPE int USING v + 1"
_CUT: Final = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active"
_STREAMING: Final = "SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'"
_STREAMS_SINCE, _AT_ONCE_SINCE, _EXCEPT_SINCE = 14, 16, 19
Session = psycopg.Connection[Any]


class History:
    """Random statements in one database, one after another; some transactions stay open for a while."""

    def __init__(self, database: Database, choose: random.Random, *, records: bool) -> None:
        self._database, self._choose, self._records = database, choose, records
        self._unread = False
        """Whether the last session ended before everything was read."""
        self._numbers = itertools.count(1)
        self._session = self._connect()
        self._open: list[Session] = []
        self._running: Tailing | None = None
        self._of_all = False
        """Whether the publication has all tables but some."""
        self._kinds: dict[Callable[[int], None], int] = {
            self._change: 60,
            self._go_on: 12,
            self._hide: 2,
            self._stay: 2,
            self._alter: 1,
            self._analyze: 1,
            self._leave: 2,
            self._flood: 1,
            self._end_one: 6,
            self._cut: 6,
            self._pause: 3,
        }

    def setup(self, *, copies: bool) -> None:
        """Create tables and a slot; with `copies` rows instead, which pgtail copies when it creates the slot."""
        names = [f"{kind}{number}" for number in range(_TABLES) for kind in ("keyed", "full")]
        self._of_all = self._database.version >= _EXCEPT_SINCE and self._choose.random() < 0.4
        published = f"TABLE marks, idle, {', '.join(names)}"
        two_phase = ", false, true" if self._database.version >= _STREAMS_SINCE and self._choose.random() < 0.3 else ""
        self._database.execute(
            *[f"CREATE TYPE mood{number}_ AS ENUM ('good')" for number in range(_TABLES)],
            *[f"CREATE TABLE {name} (id int PRIMARY KEY, v int, m mood{name[-1]}_)" for name in names],
            *[f"ALTER TABLE full{number} REPLICA IDENTITY FULL" for number in range(_TABLES)],
            "CREATE TABLE marks (n int)",
            "CREATE TABLE idle ()",
            f"CREATE PUBLICATION p FOR {'ALL TABLES' if self._of_all else published}",
            *(
                [f"INSERT INTO {name} SELECT i, 0, 'good' FROM generate_series(0, {_ROWS - 1}) i" for name in names]
                if copies
                else [f"SELECT pg_create_logical_replication_slot('s', 'pgoutput'{two_phase})"]
            ),
        )

    def run(self, running: Tailing) -> None:
        self._running = running
        steps, weights = [*self._kinds], [*self._kinds.values()]
        for _ in range(_STEPS):
            with contextlib.suppress(*_EXPECTED):
                self._choose.choices(steps, weights)[0](self._choose.randrange(_TABLES))
        self.end()

    def end(self, _: int = 0) -> None:
        """End the transactions that were left open or prepared."""
        while self._open:
            self._end_one()
        for (gid,) in self._database.query("SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"):
            self._database.execute(f"{self._ending()} PREPARED '{gid}'")

    def _ending(self) -> str:
        return self._choose.choice(("COMMIT", "COMMIT", "COMMIT", "ROLLBACK"))

    def _connect(self) -> Session:
        session = self._database.connect()
        session.execute("SET lock_timeout = '20ms'")
        return session

    # -- steps -------------------------------------------------------------------------------------------------

    def _change(self, number: int, session: Session | None = None, row: int | None = None) -> None:
        row, value = self._choose.randrange(_ROWS) if row is None else row, next(self._numbers)
        update = f"UPDATE {{}} SET v = {value} WHERE id = {row}"
        insert = f"INSERT INTO {{}} VALUES ({row}, {value}, 'good') ON CONFLICT (id) DO UPDATE SET v = {value}"
        statement = self._choose.choice((insert, insert, update, update, update, f"DELETE FROM {{}} WHERE id = {row}"))
        both(session or self._session, number, statement)

    def _go_on(self, number: int) -> None:
        """Another change of a transaction that is open, of the table that it changed before or of another one."""
        for _ in range(_ROWS if self._open else 0):
            with contextlib.suppress(*_EXPECTED):
                self._change(number, self._choose.choice(self._open))

    def _hide(self, number: int) -> None:
        """Change tables while the publication does not have them, or not these changes."""
        hidden = self._hiding(f"keyed{number}, full{number}")
        away, back = self._choose.choice(
            (
                hidden,
                hidden,
                ("SET (publish = 'insert')", "SET (publish = 'insert, update, delete')"),
            )
        )
        at_once = self._choose.random() < 0.3
        session = self._session
        with session.transaction() if at_once else contextlib.nullcontext():
            session.execute(f"ALTER PUBLICATION p {away}".encode())
            for _ in range(self._choose.randrange(4)):
                with contextlib.nullcontext() if at_once else contextlib.suppress(*_EXPECTED):
                    self._change(number)
            if not at_once and self._choose.random() < 0.6:
                self._leave(number)
            if self._choose.random() < 0.3:
                self._cut()
            self._bring_back(back)

    def _hiding(self, tables: str) -> tuple[str, str]:
        """What ALTER PUBLICATION does to hide tables, and to bring them back."""
        if self._of_all:
            return f"SET ALL TABLES EXCEPT (TABLE {tables})", "SET ALL TABLES"
        return f"DROP TABLE {tables}", f"ADD TABLE {tables}"

    def _bring_back(self, back: str) -> None:
        """Alter the publication again, after ending the transactions that would keep it from that.

        Before PostgreSQL 14 those that run might leave out changes afterwards (pgtail-old-values(7)).
        """
        if self._database.version < _STREAMS_SINCE:
            self.end()
        try:
            with self._session.transaction():
                self._session.execute(f"ALTER PUBLICATION p {back}".encode())
        except psycopg.errors.LockNotAvailable:
            self.end()
            self._session.execute(f"ALTER PUBLICATION p {back}".encode())

    def _stay(self, number: int) -> None:
        """A transaction begins while the publication does not have a table, and goes on after a reconnection."""
        away, back = self._hiding(f"keyed{number}, full{number}")
        self.end()
        self._session.execute(f"ALTER PUBLICATION p {away}".encode())
        self._leave(number)
        self._bring_back(back)
        before = (self._cut, self.wait_until_read, self._several, self._go_on)
        for step in (*before, self._cut, self._commit, self._look_again, self._several):
            if self._choose.random() < 0.95:
                with contextlib.suppress(*_EXPECTED):
                    step(number)

    def _commit(self, _: int) -> None:
        for session in self._open:
            session.execute("COMMIT")
            session.close()
        self._open.clear()

    def _look_again(self, _: int) -> None:
        """Have the server look again which tables it publishes: servers before 14 do not describe them again."""
        for change in self._hiding("idle"):
            self._session.execute(f"ALTER PUBLICATION p {change}".encode())

    def _several(self, number: int) -> None:
        """A change of each row, unless it is locked."""
        for row in range(_ROWS):
            with contextlib.suppress(*_EXPECTED):
                self._change(number, row=row)

    def _alter(self, number: int) -> None:
        name = f"mood{number}_"
        statements = (_ALTERED, "TRUNCATE {}", f"ALTER TYPE {name} RENAME TO other; ALTER TYPE other RENAME TO {name}")
        statement, session = self._choose.choice((*statements, *statements, "ALTER TYPE")), self._session
        if statement != "ALTER TYPE":
            both(session, number, statement)
            return
        both(session, number, f"ALTER TABLE {{}} ALTER m TYPE mood{(number + 1) % _TABLES}_ USING 'good'")
        both(session, number, f"ALTER TABLE {{}} ALTER m TYPE {name} USING 'good'")

    def _analyze(self, number: int) -> None:
        both(self._session, number, "ANALYZE {}")

    def _leave(self, number: int) -> None:
        """A transaction that stays open or prepared."""
        session = self._connect()
        session.execute("BEGIN")
        self._open.append(session)
        with contextlib.suppress(*_EXPECTED):
            self._change(number, session)
            if self._choose.random() < 0.1:
                both(session, number, _ALTERED)
            if self._choose.random() < 0.2:
                self._change(number, session)
                session.execute(f"PREPARE TRANSACTION '{self._database.name}-{next(self._numbers)}'".encode())
                self._open.remove(session)
                session.close()

    def _flood(self, number: int) -> None:
        """A transaction in the middle of which a session ends."""
        with self._session.transaction():
            self._change(number)
            both(self._session, number, "INSERT INTO {} SELECT i, i FROM generate_series(1000, 3000) i")
            both(self._session, number, "DELETE FROM {} WHERE id >= 1000")
            self._change(number)
        time.sleep(self._choose.random() / 10)
        self._cut()

    def _end_one(self, _: int = 0) -> None:
        """End one of the transactions that were left open, or one that was prepared."""
        if self._open:
            with contextlib.closing(self._open.pop(self._choose.randrange(len(self._open)))) as session:
                session.execute(self._ending().encode())
            return
        gids = self._database.query("SELECT gid FROM pg_prepared_xacts WHERE database = current_database()")
        for (gid,) in gids[:1]:
            self._database.execute(f"{self._ending()} PREPARED '{gid}'")

    def _cut(self, _: int = 0) -> None:
        """End pgtail's session; not twice before it has read something: then it would give up some time."""
        self._unread = not self._unread and self._choose.random() < 0.3
        if not self._unread:
            self.wait_until_read()
        self._database.execute(_CUT)

    def wait_until_read(self, _: int = 0) -> None:
        """Wait until pgtail has processed everything."""
        running, number, mark = self._running, next(self._numbers), "INSERT INTO marks VALUES "
        assert running is not None
        end = self._database.value(f"{mark}({number}) RETURNING pg_current_wal_insert_lsn()")
        read = f"SELECT write_lsn > '{end}' FROM pg_stat_replication WHERE state = 'streaming'"

        locked = time.monotonic() + 3

        def is_read() -> bool:
            if time.monotonic() > locked:
                self.end()  # the walsender waits for a lock that one of the open transactions has
            assert running.process.poll() is None, running.stderr
            if self._records:
                return (True,) in self._database.query(read)
            return any(b'"n":%d}' % number in line for line in running.out[-100:])

        wait_for("the last change", is_read, 3 * PATIENCE)

    def _pause(self, _: int) -> None:
        time.sleep(self._choose.random() / 5)


def both(session: Session, number: int, statement: str) -> None:
    """Run a statement on both tables, or on none."""
    with session.transaction():
        for kind in ("keyed", "full") if "{}" in statement else ("",):
            session.execute(statement.format(f"{kind}{number}").encode())


def compare(changes: list[dict[str, Any]]) -> Counter[str]:
    """How many old rows were known, and how many not. Raises AssertionError if one is wrong."""
    full: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    rows = [
        (one, {**one.get("old", {}), **one.get("new", {})}["id"])
        for one in changes
        if one.get("table", "marks") != "marks" and ("new" in one or "old" in one)
    ]
    counts: Counter[str] = Counter()
    for one, row in rows:
        if one["table"].startswith("full") and "old" in one:
            full[one["xid"], one["op"], one["table"].removeprefix("full"), row].append(one["old"])
    for one, row in rows:
        if one["table"].startswith("keyed") and one["op"] in ("update", "delete"):
            sent = full[one["xid"], one["op"], one["table"].removeprefix("keyed"), row].pop(0)
            known = "v" in one.get("old", {})
            assert not known or one["old"] == sent, (one, sent)
            if int(row) < _ROWS:
                counts["known" if known else "unknown"] += 1
    return counts


def trial(bench: Bench, choose: random.Random) -> str:
    """One history, streamed or recorded. Raises AssertionError."""
    with fresh_database(bench.server(choose)) as database:
        counts = run_history(database, choose, records=choose.random() < 0.5)
    return f"{database.version}: {', '.join(f'{count} {what}' for what, count in counts.items())}"


def run_history(database: Database, choose: random.Random, *, records: bool) -> Counter[str]:
    """Run it and compare the old values; returns how many are known."""
    history = History(database, choose, records=records)
    copies = records and choose.random() < 0.5
    history.setup(copies=copies)
    shown = ("-o", "json", *choose.choice((*3 * (("--old-values", "seen"),), ("--changed",))))
    more = {}
    if database.version >= _AT_ONCE_SINCE and choose.random() < 0.15:
        more["options"] = "-c debug_logical_replication_streaming=immediate"
    elif database.version >= _STREAMS_SINCE:
        more["options"] = "-c logical_decoding_work_mem=64kB"
    with tempfile.TemporaryDirectory() as capture:
        words = ("-D", capture, "--segment-age", "1", "--sync-interval", "0.05") if records else shown
        words = (*words, "--snapshot") if copies else words
        command = "record" if records else "stream"
        with tailing(database.conninfo(**more), "-S", "s", *words, command=command) as running:
            running.wait_for_slot(database, "s")
            wait_for("stream", lambda: database.query(_STREAMING))
            history.run(running)
            history.wait_until_read()
            running.stop()
        counts = compare(here("decode", *shown, capture).objects if records else running.changes)
        counts["sessions"] = running.stderr.count("connected again")
        return counts
