"""Random histories of published tables, recorded in steps with snapshots: a replay has the server's rows.

The truth are SELECTs of the published columns and rows, at positions where nobody writes.
"""

from __future__ import annotations

import contextlib
import json
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from pgtail.pgoutput.scalars import parse_lsn
from pgtail.postgres.snapshot_plan import snapshot_plan
from pgtail.replication import record_snapshot, snapshot
from tests.support.copied_tables import wait_for_walsender
from tests.support.render import rows_by
from tests.support.replay import UNKNOWN, Replica, Snapshots
from tests.support.run import here
from tests.support.servers import Database, fresh_database
from tests.support.tail import parse
from tests.support.threads import meanwhile
from tests.torture.bench import Bench

PAGE: Final = 8192
_MOST: Final = 200
"""How much a session writes beside one run of the command, however long the creation of a slot waits."""
_COLUMNS: Final = ("id", "n", "v", "big")
_DDL: Final = "id int NOT NULL, n int, v text, big text"
_TEXTS: Final = ("", "a\tb", "\\N", "ä\n\\")
_IGNORED: Final = (
    psycopg.errors.UniqueViolation,
    psycopg.errors.LockNotAvailable,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.QueryCanceled,
    psycopg.errors.FeatureNotSupported,  # a column that a row filter needs
    psycopg.errors.SerializationFailure,  # a row that is in another partition now
)
Rows = Counter[tuple[str | None, ...]]


@contextlib.contextmanager
def small_parts(pages: int) -> Iterator[None]:
    """In this process, split tables into parts of so many pages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_snapshot, "snapshot_plan", partial(snapshot_plan, part_bytes=pages * PAGE))
        patch.setattr(snapshot, "snapshot_plan", partial(snapshot_plan, part_bytes=pages * PAGE))
        yield


@dataclass(frozen=True)
class Shown:
    """A table as the stream names it, and the query of its published rows."""

    name: str
    columns: tuple[str, ...]
    where: str = "true"
    only: str = ""

    def rows(self, session: psycopg.Connection[Any]) -> Rows:
        columns = ", ".join(f"{one}::text" for one in self.columns)
        query = f"SELECT {columns} FROM {self.only}{self.name} WHERE {self.where}"
        return Counter(session.execute(query.encode()).fetchall())


@dataclass
class Table:
    """A table to write to. `changed`: whether it takes updates and deletes."""

    name: str
    shown: list[Shown]
    create: list[str]
    changed: bool = True
    partitioned: bool = False
    dropped: list[str] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        return [one.name for one in self.shown]


def _plain(name: str, *create: str, **options: Any) -> Table:
    publish = f"ALTER PUBLICATION p ADD TABLE {name}{options.pop('published', '')}"
    columns, where = options.pop("columns", _COLUMNS), options.pop("where", "true")
    extra = options.pop("extra", "")
    statements = [f"CREATE TABLE {name} ({_DDL}{extra})", *[one.format(name) for one in create]]
    statements.append(f"ALTER TABLE {name} ALTER big SET STORAGE external")
    return Table(name, [Shown(name, columns, where, "ONLY ")], [*statements, publish], **options)


def _partitioned(name: str, *, root: bool) -> Table:
    parts = [f"{name}_a", f"{name}_b", f"{name}_c"]
    create = [
        f"CREATE TABLE {name} ({_DDL}, PRIMARY KEY (id)) PARTITION BY RANGE (id)",
        f"CREATE TABLE {parts[0]} PARTITION OF {name} FOR VALUES FROM (MINVALUE) TO (500)",
        f"CREATE TABLE {parts[1]} (v text, big text, gone int, {_DDL.partition(', v')[0]}, PRIMARY KEY (id))",
        f"ALTER TABLE {parts[1]} DROP gone",
        f"ALTER TABLE {name} ATTACH PARTITION {parts[1]} FOR VALUES FROM (500) TO (2000)",
        f"CREATE TABLE {parts[2]} PARTITION OF {name} DEFAULT",
        f"ALTER PUBLICATION {'r' if root else 'p'} ADD TABLE {name}",
    ]
    shown = [Shown(name, _COLUMNS)] if root else [Shown(one, _COLUMNS, only="ONLY ") for one in parts]
    return Table(name, shown, create, partitioned=True)


_KEY: Final = "ALTER TABLE {} ADD PRIMARY KEY (id)"
_FULL: Final = "ALTER TABLE {} REPLICA IDENTITY FULL"


def make_table(kind: str, name: str) -> Table:
    """A table of one of KINDS."""
    match kind:
        case "key":
            return _plain(name, _KEY)
        case "full":
            return _plain(name, _FULL)
        case "both":
            return _plain(name, _KEY, _FULL)
        case "index":
            using = "ALTER TABLE {0} REPLICA IDENTITY USING INDEX {0}_i"
            return _plain(name, "CREATE UNIQUE INDEX {0}_i ON {0} (id)", using)
        case "nothing":
            return _plain(name, "ALTER TABLE {} REPLICA IDENTITY NOTHING", changed=False)
        case "list":
            return _plain(name, _KEY, published=" (id, big, n)", columns=("id", "n", "big"))
        case "filter":
            where = "id % 3 <> 0"
            return _plain(name, _KEY, published=f" WHERE ({where})", where=where)
        case "where":
            where = "n > 20 OR v IS NULL"
            return _plain(name, _FULL, published=f" WHERE ({where})", where=where)
        case "computed":
            return _plain(name, _KEY, extra=", twice int GENERATED ALWAYS AS (n * 2) STORED")
        case "generated":
            listed = " (id, n, v, big, twice)"
            columns = (*_COLUMNS, "twice")
            extra = ", twice int GENERATED ALWAYS AS (n * 2) STORED"
            return _plain(name, _KEY, extra=extra, published=listed, columns=columns)
        case _:
            return _partitioned(name, root=kind == "root")


KINDS: Final = {
    "key": 10, "full": 10, "both": 10, "index": 10, "nothing": 10, "computed": 12, "leaves": 13, "root": 13,
    "list": 15, "filter": 15, "where": 15, "generated": 18,
}  # fmt: skip
"""Each with the first version of the server that has it."""


class Writer:
    """Random transactions on the tables of a history, in a session of its own."""

    def __init__(self, session: psycopg.Connection[Any], rng: random.Random, tables: Sequence[Table]) -> None:
        self._rng = rng
        self.tables = list(tables)
        self.session = session
        self.session.execute("SET lock_timeout = '80ms'")

    def close(self) -> None:
        self.session.close()

    def transaction(self) -> None:
        """Some statements, some of them in subtransactions; one that fails because of others is left out."""
        with contextlib.suppress(*_IGNORED), self.session.transaction():
            self.statements(self._rng.randint(1, 4))

    def statements(self, count: int) -> None:
        for _ in range(count):
            with contextlib.suppress(*_IGNORED), self.session.transaction():
                self.session.execute(self._statement(self._rng.choice(self.tables)).encode())

    def other(self) -> None:
        """A statement that gives the table another file, or none: the stream has all of what it changes."""
        table = self._rng.choice(self.tables)
        statements = [f"TRUNCATE {table.name}", f"VACUUM FULL {table.name}", f"VACUUM {table.name}"]
        if "twice" not in table.create[0]:
            statements.append(f"ALTER TABLE {table.name} ALTER n TYPE {self._rng.choice(['int', 'bigint'])}")
        with contextlib.suppress(*_IGNORED):
            self.session.execute(self._rng.choice(statements).encode())

    def _statement(self, table: Table) -> str:
        rng, name = self._rng, table.name
        kind = rng.choice(["insert", "insert", "update", "big", "move", "delete"]) if table.changed else "insert"
        near = f"id IN (SELECT id FROM {name} ORDER BY random() LIMIT {rng.choice([1, 3, 20])})"
        big = f"repeat(md5({rng.randrange(1 << 30)}::text), {rng.choice([1, 90, 130])})"
        match kind:
            case "insert":
                values = f"i, i % 50, nullif(i % 7, 0)::text || $${rng.choice(_TEXTS)}$$, {big}"
                return (
                    f"INSERT INTO {name} (id, n, v, big) SELECT {values}"
                    f" FROM generate_series({(low := rng.randrange(3000))}, {low + rng.choice([0, 1, 40])}) i"
                )
            case "update":
                return f"UPDATE {name} SET n = n + 1, v = nullif(v, 'x') WHERE {near}"
            case "big":
                return f"UPDATE {name} SET big = {big} WHERE {near}"
            case "move":
                return f"UPDATE {name} SET id = id + {rng.choice([1, 1000, 3000])} WHERE {near}"
            case _:
                return f"DELETE FROM {name} WHERE {near}"


@dataclass
class Check:
    """What the tables had at a position at which nobody wrote."""

    position: int
    rows: dict[Shown, Rows]


class History:
    """One history: run() makes it, compare() replays the capture."""

    def __init__(self, database: Database, directory: Path, seed: int, *, concurrent: bool) -> None:
        self._database = database
        self._directory = directory
        self._rng = random.Random(seed)
        self._concurrent = concurrent
        self._names = iter(f"t{number}" for number in range(1000))
        self._tables: list[Table] = []
        self._wrong: set[str] = set()
        """Tables of which the capture cannot have all rows: they are not copied yet, or since a gap or other change."""
        self._checks: list[Check] = []
        self._prepared: list[str] = []
        self._gids = iter(f"g{number}" for number in range(1000))
        self._log: list[str] = []
        self._session = database.connect()
        self._binary = self._rng.random() < 0.3 and database.version >= 14
        self._two_phase = self._rng.random() < 0.5 and database.version >= 15

    def close(self) -> None:
        self._session.close()

    @property
    def log(self) -> str:
        """The steps, for a history that fails."""
        return "\n".join(self._log)

    # -- making it ---------------------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        self._execute("CREATE PUBLICATION p", f"CREATE PUBLICATION r{self._via_root}")
        for _ in range(self._rng.randint(1, 3)):
            self._add_table()
        self._write(self._rng.randrange(15))
        self._record(snapshot=self._rng.random() < 0.7)
        for _ in range(steps):
            step = self._rng.choice(
                [self._some_writes] * 4
                + [self._other, self._unseen, self._add_table, self._drop_table, self._gap, self._prepare, self._finish]
                + [partial(self._record, snapshot=False), partial(self._record, snapshot=True), self._again] * 2
                + [self._prepared_across],
            )
            step()
            self._check()
        self._finish()
        self._some_writes()
        self._record(snapshot=True, options=["--snapshot-table", "*"] if self._wrong else [])
        self._check()
        self._record(snapshot=False)

    @property
    def _via_root(self) -> str:
        return " WITH (publish_via_partition_root = true)" if self._database.version >= 13 else ""

    def _execute(self, *statements: str) -> None:
        for statement in statements:
            self._log.append(statement)
            self._session.execute(statement.encode())

    def _add_table(self) -> None:
        kind = self._rng.choice([kind for kind, since in KINDS.items() if since <= self._database.version])
        table = make_table(kind, next(self._names))
        self._execute(*table.create)
        self._tables.append(table)
        self._wrong |= {*table.names}

    def _drop_table(self) -> None:
        if len(self._tables) > 1 and not self._prepared:
            table = self._tables.pop(self._rng.randrange(len(self._tables)))
            self._execute(f"DROP TABLE {table.name}")

    def _writer(self) -> contextlib.closing[Writer]:
        return contextlib.closing(Writer(self._database.connect(), random.Random(self._rng.random()), self._tables))

    def _write(self, transactions: int) -> None:
        self._log.append(f"{transactions} transactions")
        with self._writer() as writer:
            for _ in range(transactions):
                writer.transaction()

    def _some_writes(self) -> None:
        self._write(self._rng.randint(1, 12))

    def _other(self) -> None:
        with self._writer() as writer:
            writer.other()
        self._log.append("TRUNCATE, VACUUM FULL, TYPE or VACUUM")

    def _unseen(self) -> None:
        """A change that the stream does not show."""
        table = self._rng.choice(self._tables)
        with contextlib.suppress(*_IGNORED):
            self._session.execute("SET lock_timeout = '80ms'")
            self._execute(f"ALTER TABLE {table.name} ALTER v TYPE text USING v || 'z'")
            self._wrong |= {*table.names}

    def _prepare(self) -> None:
        gid = f"{self._database.name}_{next(self._gids)}"
        with self._writer() as one:
            one.session.execute("BEGIN")
            one.statements(3)
            one.session.execute(f"PREPARE TRANSACTION '{gid}'".encode())
        self._prepared.append(gid)
        self._log.append(f"PREPARE {gid}")

    def _finish(self) -> None:
        """The outcome of every prepared transaction."""
        for gid in self._prepared:
            self._execute(f"{self._rng.choice(['COMMIT', 'COMMIT', 'ROLLBACK'])} PREPARED '{gid}'")
        self._prepared.clear()

    def _gap(self) -> None:
        """Another slot of the same name, which lacks what was written before."""
        self._record(snapshot=False)
        self._finish()
        self._some_writes()
        self._wrong |= {name for table in self._tables for name in table.names}
        self._execute("SELECT pg_drop_replication_slot('cap')")
        options = ", false, true" if self._two_phase else ""
        self._execute(f"SELECT pg_create_logical_replication_slot('cap', 'pgoutput'{options})")
        self._write(2)
        self._record(snapshot=self._rng.random() < 0.5, options=["--allow-gap"])

    def _again(self) -> None:
        """Another snapshot of some tables."""
        some = self._rng.sample(self._tables, self._rng.randint(1, len(self._tables)))
        globs = [word for table in some for name in table.names for word in ("--snapshot-table", f"public.{name}")]
        self._record(snapshot=True, options=globs)

    def _prepared_across(self) -> None:
        """A transaction that is prepared before a snapshot's position, and committed after it.

        Creating a slot waits for what runs twice, and not for what begins at the second time. If it waits for this one
        all the same, because of other writers, the transaction ends meanwhile.
        """
        self._finish()
        waits = "0 = ANY(pg_blocking_pids(pid)) AND datname = current_database()"
        first, second = self._database.connect(), self._database.connect()

        def sessions(recorded: threading.Event) -> None:
            try:
                wait_for_walsender(self._database, first)
                second.execute("SELECT txid_current()")
                first.execute("COMMIT")
                wait_for_walsender(self._database, second)
                self._prepare()
                second.execute("COMMIT")
                while not recorded.wait(0.2):
                    if self._database.query(f"SELECT 1 FROM pg_stat_activity WHERE {waits}"):
                        self._finish()
            except BaseException:
                first.close()
                second.close()
                raise

        for session in (first, second):
            session.execute("BEGIN")
        first.execute("SELECT txid_current()")
        try:
            with meanwhile(sessions):
                self._record(snapshot=True, options=["--snapshot-table", "*"], finish=False)
        finally:
            first.close()
            second.close()
        self._log.append("prepared across")

    def _record(self, *, snapshot: bool, options: Sequence[str] = (), finish: bool = True) -> None:
        """Run the command. Creating a slot waits for prepared transactions: they end meanwhile."""
        arguments = ["-S", "cap", "-D", str(self._directory), "--until", "now", "-P", "p", "-P", "r", *options]
        arguments += ["--segment-size", self._rng.choice(["3kB", "100kB"])]
        arguments += ["--binary"] if self._binary else []
        arguments += ["--two-phase"] if self._two_phase else []
        if snapshot:
            arguments += ["--snapshot", "--snapshot-jobs", str(self._rng.randint(1, 3))]
        before = {(one["lsn"], one["table"]) for one in self._listed()}
        published = self._database.value("SELECT count(*) FROM pg_publication_tables")
        if snapshot and not published:
            return
        new = not self._database.query("SELECT 1 FROM pg_replication_slots WHERE slot_name = 'cap'")
        if finish and (snapshot or new):
            self._finish()
        self._log.append(" ".join(arguments))
        with self._concurrent_writers(active=snapshot and self._concurrent), small_parts(self._rng.choice([1, 4, 100])):
            ran = here("record", self._database.conninfo(), *arguments)
        self._log.append(ran.stderr)
        assert ran.status == 0, ran.stderr
        self._wrong -= {one["table"] for one in self._listed() if (one["lsn"], one["table"]) not in before}

    @contextlib.contextmanager
    def _concurrent_writers(self, *, active: bool) -> Iterator[None]:
        """Sessions that write all the time."""
        writers = [
            Writer(self._database.connect(), random.Random(self._rng.random()), self._tables) for _ in range(2 * active)
        ]

        def write(writer: Writer, rng: random.Random, stop: threading.Event) -> None:
            for _ in range(_MOST):
                if stop.is_set():
                    break
                (writer.other if rng.random() < 0.1 else writer.transaction)()
                time.sleep(0.02)

        try:
            with meanwhile(*[partial(write, one, random.Random(self._rng.random())) for one in writers]):
                yield
        finally:
            for writer in writers:
                writer.close()

    def _listed(self) -> list[dict[str, Any]]:
        """The snapshots in capture.json."""
        path = self._directory / "capture.json"
        found: list[dict[str, Any]] = json.loads(path.read_text()).get("snapshots", []) if path.exists() else []
        return found

    def _check(self) -> None:
        """Keep what the tables have now, if the capture shall have it."""
        position = parse_lsn(self._database.value("SELECT pg_current_wal_insert_lsn()"))
        shown = [one for table in self._tables for one in table.shown if one.name not in self._wrong]
        self._checks.append(Check(position, {one: one.rows(self._session) for one in shown}))

    # -- comparing ---------------------------------------------------------------------------------------------

    def compare(self) -> int:
        """Replay the capture; returns how many tables were compared. Raises AssertionError."""
        decoded = here("decode", "-o", "json", self._directory)
        with rows_by("decoder"):
            assert here("decode", "-o", "json", self._directory) == decoded
        assert decoded.status == 0, decoded.stderr
        assert all("gap" in line for line in decoded.stderr.splitlines()), decoded.stderr
        changes = [parse(line) for line in decoded.lines]
        rows = [(_lsn_of(change), change.get("seq")) for change in changes if "table" in change]
        assert len(rows) == len({*rows})
        return replay(changes, self._checks, Snapshots(self._listed()))


def replay(changes: Sequence[dict[str, Any]], checks: Sequence[Check], snapshots: Snapshots) -> int:
    """Apply the changes, and compare the tables at the checks; returns how many were. Raises AssertionError."""
    replica, waiting, compared = Replica(snapshots), list(checks), 0
    for change in changes:
        while waiting and waiting[0].position <= parse_lsn(_lsn_of(change)):
            compared += _compare(replica, waiting.pop(0))
        replica.apply([change])
    for check in waiting:
        compared += _compare(replica, check)
    snapshots.check_all_rows_were_there()
    return compared


def _compare(replica: Replica, check: Check) -> int:
    replica.reach(check.position)
    for shown, expected in check.rows.items():
        rows = [[row.get(column) for column in shown.columns] for row in replica.rows(f"public.{shown.name}")]
        found = Counter([tuple(_completed(row, expected)) for row in rows])
        differences = f"{found - expected} {expected - found}"
        assert found == expected, f"at {check.position:X}, {shown}: {differences[:2000]}"
    return len(check.rows)


def _lsn_of(change: dict[str, Any]) -> str:
    """Where a change is in the stream."""
    return next(str(change[name]) for name in ("commit_lsn", "prepare_lsn", "rollback_end_lsn") if change.get(name))


def _completed(row: list[Any], expected: Rows) -> list[Any]:
    """A row with the values that the stream did not send, if the server has one with the others."""
    if UNKNOWN not in row:
        return row
    known = [at for at, value in enumerate(row) if value is not UNKNOWN]
    return list(next((one for one in expected if all(one[at] == row[at] for at in known)), row))


def trial(bench: Bench, choose: random.Random) -> str:
    """One history."""
    with fresh_database(bench.server(choose, 14)) as database, tempfile.TemporaryDirectory() as folder:
        compared = try_history(database, Path(folder, "capture"), choose.randrange(1 << 30), steps=8)
    return f"{compared} tables on {database.version}"


def try_history(database: Database, directory: Path, seed: int, *, steps: int) -> int:
    """Make and compare a history; returns how many tables were compared."""
    history = History(database, directory, seed, concurrent=seed % 2 == 0)
    try:
        history.run(steps)
        return history.compare()
    except BaseException:
        print(f"history {seed} of {steps} steps on {database.version}", history.log, sep="\n")
        raise
    finally:
        history.close()
