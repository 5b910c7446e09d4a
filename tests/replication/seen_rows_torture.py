"""`make torture`: old values from before reconnections, while tables and publications are altered and sessions end.

Each statement runs on two tables. The other one has REPLICA IDENTITY FULL: what the server sends of it is the truth.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import random
import time
from collections import Counter, defaultdict
from typing import Any, Final

import psycopg

from tests.support.servers import Database, embedded_server, fresh_database, installations
from tests.support.tail import PATIENCE, tailing, wait_for

MINUTES: Final = 10.0
_TABLES: Final = 4
_ROWS: Final = 5
_STEPS: Final = 400
_EXPECTED: Final = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected, psycopg.errors.UniqueViolation)
_ALTERED: Final = "ALTER TABLE {} ALTER v TYPE int USING v + 1"
_CUT: Final = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active"
Session = psycopg.Connection[Any]


class History:
    """Random statements in one database, one after another; some transactions stay open for a while."""

    def __init__(self, database: Database, choose: random.Random) -> None:
        self._database, self._choose = database, choose
        self._numbers = itertools.count(1)
        self._open: list[Session] = []

    def setup(self) -> None:
        names = [f"{kind}{number}" for number in range(_TABLES) for kind in ("keyed", "full")]
        self._database.execute(
            *[f"CREATE TABLE {name} (id int PRIMARY KEY, v int)" for name in names],
            *[f"ALTER TABLE full{number} REPLICA IDENTITY FULL" for number in range(_TABLES)],
            f"CREATE PUBLICATION p FOR TABLE {', '.join(names)}",
            "SELECT pg_create_logical_replication_slot('s', 'pgoutput')",
        )

    def step(self) -> None:
        kinds = ("change", "hide", "alter", "analyze", "leave", "end", "cut", "pause")
        kind, number = self._choose.choices(kinds, (80, 2, 1, 1, 2, 4, 4, 4))[0], self._choose.randrange(_TABLES)
        with contextlib.suppress(*_EXPECTED), self._session() as session:
            if kind == "change":
                self._change(session, number)
            elif kind == "hide":
                self._hide(session, number)
            elif kind == "alter":
                both(session, number, self._choose.choice((_ALTERED, "TRUNCATE {}")))
            elif kind == "analyze":
                both(session, number, "ANALYZE {}")
            elif kind == "leave":
                self._leave(number)
            elif kind == "end":
                self.end()
            elif kind == "cut":
                session.execute(_CUT)
            else:
                time.sleep(self._choose.random() / 3)

    def end(self) -> None:
        """End the transactions that were left open or prepared."""
        while self._open:
            with contextlib.closing(self._open.pop()) as session:
                session.execute(self._ending().encode())
        for (gid,) in self._database.query("SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"):
            self._database.execute(f"{self._ending()} PREPARED '{gid}'")

    def _ending(self) -> str:
        return self._choose.choice(("COMMIT", "COMMIT", "ROLLBACK"))

    @contextlib.contextmanager
    def _session(self) -> Any:
        with contextlib.closing(self._connect()) as session:
            yield session

    def _connect(self) -> Session:
        session = self._database.connect()
        session.execute("SET lock_timeout = '20ms'")
        return session

    def _change(self, session: Session, number: int) -> None:
        row, value = self._choose.randrange(_ROWS), next(self._numbers)
        update = f"UPDATE {{}} SET v = {value} WHERE id <= {row}"
        insert = f"INSERT INTO {{}} VALUES ({row}, {value}) ON CONFLICT DO NOTHING"
        both(session, number, self._choose.choice((insert, update, update, f"DELETE FROM {{}} WHERE id = {row}")))

    def _hide(self, session: Session, number: int) -> None:
        """Change tables while the publication does not have them, or not these changes."""
        tables = f"keyed{number}, full{number}"
        away, back = self._choose.choice(
            (
                (f"DROP TABLE {tables}", f"ADD TABLE {tables}"),
                ("SET (publish = 'insert')", "SET (publish = 'insert, update, delete')"),
            )
        )
        at_once = self._choose.random() < 0.3
        with session.transaction() if at_once else contextlib.nullcontext():
            session.execute(f"ALTER PUBLICATION p {away}".encode())
            for _ in range(self._choose.randrange(4)):
                with contextlib.nullcontext() if at_once else contextlib.suppress(*_EXPECTED):
                    self._change(session, number)
            if self._choose.random() < 0.3:
                self._database.execute(_CUT)
            self.end()  # which may have locked a table
            session.execute(f"ALTER PUBLICATION p {back}".encode())

    def _leave(self, number: int) -> None:
        """A transaction that stays open or prepared."""
        session = self._connect()
        self._open.append(session)
        session.execute("BEGIN")
        with contextlib.suppress(*_EXPECTED):
            self._change(session, number)
            if self._choose.random() < 0.3:
                both(session, number, _ALTERED)
            if self._choose.random() < 0.3:
                session.execute(f"PREPARE TRANSACTION '{self._database.name}-{next(self._numbers)}'".encode())


def both(session: Session, number: int, statement: str) -> None:
    """Run a statement on both tables, or on none."""
    with session.transaction():
        for kind in ("keyed", "full"):
            session.execute(statement.format(f"{kind}{number}").encode())


def compare(changes: list[dict[str, Any]]) -> Counter[str]:
    """How many old rows were known, and how many not. Raises AssertionError if one is wrong."""
    full: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    rows = [
        (one, {**one.get("old", {}), **one.get("new", {})}["id"]) for one in changes if "new" in one or "old" in one
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
            counts["known" if known else "unknown"] += 1
    return counts


def trial(database: Database, seed: int) -> Counter[str]:
    """One history. Raises AssertionError."""
    history = History(database, random.Random(seed))
    history.setup()
    way = random.Random(seed).choice((["--old-values", "seen"], ["--changed"]))
    with tailing(database, "-S", "s", "-o", "json", *way) as running:
        running.wait_for_slot(database, "s")
        for _ in range(_STEPS):
            history.step()
        history.end()
        database.execute("INSERT INTO keyed0 VALUES (-1)")
        wait_for("the last change", lambda: b'"id":-1' in (running.out or [b""])[-1], 3 * PATIENCE)
        running.stop()
        counts = compare(running.changes)
        counts["sessions"] = running.stderr.count("connected again")
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--server", action="append", choices=[*installations()])
    given = parser.parse_args()
    names = given.server or [*installations()]
    seeds, ending = itertools.count(given.seed), time.monotonic() + 60 * given.minutes
    total: Counter[str] = Counter()
    for name in itertools.cycle(names):
        if time.monotonic() > ending:
            break
        with embedded_server(installations()[name]) as server:
            for seed in itertools.islice(seeds, 5):
                print(f"{name}: --seed {seed}", end=": ", flush=True)
                with fresh_database(server) as database:
                    found = trial(database, seed)
                total += found
                print(", ".join(f"{count} {what}" for what, count in found.items()), flush=True)
    print(f"all right: {', '.join(f'{count} {what}' for what, count in total.items())}")


if __name__ == "__main__":
    main()
