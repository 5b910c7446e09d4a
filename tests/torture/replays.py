"""A random workload, streamed or recorded over faults, and read again from a slot at the same position.

What was written is what the walsender sends, compiled or not; a replay of it has the rows of the tables.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import re
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import psycopg

from pgtail.pgoutput.scalars import parse_lsn
from tests.support.decoded import without_lsn
from tests.support.replay import Snapshots
from tests.support.run import command
from tests.support.servers import Database, client_program, fresh_database
from tests.support.tail import parse
from tests.tools.readers import Walsender, recvlogical, start_replication
from tests.tools.scenarios import Capture
from tests.torture.bench import Bench, Session
from tests.torture.bench import Writer as WriterThread
from tests.torture.fault_round import NETWORK, PROCESS, SERVER, Round, small_disk
from tests.torture.snapshot_histories import KINDS, Check, Table, Writer, make_table, replay

ROUNDS, FAULTS, WRITERS = 3, 4, 3
_FAULTS: Final = (*NETWORK, *SERVER[:4], *PROCESS[:4])
_OUTPUTS: Final = ("json-tx", "wal2json", "wal2json-v1", "sql", "line")
_ROWS: Final = ("insert", "update", "delete", "truncate", "commit_prepared", "rollback_prepared")
_EMPTY: Final = re.compile(rb'\{"op":"begin"[^\n]*\n(?:\{"op":"commit"[^\n]*\n|\Z)')
_ROLLED_BACK: Final = re.compile(rb'\{"op":"rollback_prepared".*"gid":"(\w+)"')
_ORIGIN: Final = re.compile(rb',"origin":"\w+"')
_PREPARED: Final = re.compile(rb'"gid":"(\w+)","state":"prepared"')


class Workload:
    """Random transactions of several sessions, one of them with an origin; checks where none of them writes."""

    def __init__(self, database: Database, choose: random.Random, *, two_phase: bool) -> None:
        self._database, self._choose = database, choose
        kinds = [kind for kind, since in KINDS.items() if since <= database.version]
        self._tables = [make_table(kind, f"t{number}") for number, kind in enumerate(choose.sample(kinds, 5))]
        self._numbers = itertools.count(1)
        self.checks: list[Check] = []
        database.execute(
            f"ALTER DATABASE {database.name} SET logical_decoding_work_mem = '64kB'",
            "CREATE PUBLICATION p; CREATE PUBLICATION r WITH (publish_via_partition_root = true)",
            *[statement for table in self._tables for statement in table.create],
            f"SELECT pg_replication_origin_create('{database.name}')",
            *[f"SELECT pg_create_logical_replication_slot('{s}', 'pgoutput', false, {two_phase})" for s in ("s", "t")],
        )

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Sessions write; at the end the rows are kept."""
        with contextlib.ExitStack() as stack:
            for number in range(WRITERS):
                write = partial(self._write, choose=random.Random(self._choose.random()), origin=number == 0)
                stack.enter_context(WriterThread(self._database, write, 0.1))
            yield
        for (gid,) in self._database.query("SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"):
            self._database.execute(f"ROLLBACK PREPARED '{gid}'")
        with self._database.connect() as session:
            position = parse_lsn(self._database.value("SELECT pg_current_wal_insert_lsn()"))
            rows = {one: one.rows(session) for table in self._tables for one in table.shown}
            self.checks.append(Check(position, rows))

    def _write(self, session: Session, *, choose: random.Random, origin: bool) -> None:
        if origin:
            setup = f"SELECT pg_replication_origin_session_setup('{self._database.name}')"
            session.execute(f"{setup} WHERE NOT pg_replication_origin_session_is_setup()".encode())
        writer, chance = Writer(session, choose, self._tables), choose.random()
        if chance < 0.7:
            writer.transaction()
        elif chance < 0.76:
            writer.other()
        elif chance < 0.84:
            self._emit(session, choose)
        else:
            with contextlib.suppress(psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
                self._write_large(writer, choose)
            session.execute("ROLLBACK")

    def _write_large(self, writer: Writer, choose: random.Random) -> None:
        """One that the server streams, with subtransactions, some rolled back; at last perhaps all of it."""
        session, table = writer.session, choose.choice(self._tables)
        session.execute("BEGIN")
        for _ in range(choose.randint(1, 4)):
            session.execute("SAVEPOINT a")
            self._insert(session, table, choose.choice((20, 300, 700)))
            writer.statements(choose.randint(0, 3))
            if choose.random() < 0.2:
                session.execute(f"ALTER TABLE {table.name} ADD COLUMN more{next(self._numbers)} int".encode())
            session.execute(choose.choice(("RELEASE a", "ROLLBACK TO a", "SAVEPOINT b")).encode())
            self._emit(session, choose)
            self._insert(session, table, choose.choice((1, 200)))
        gid = f"{self._database.name}_{next(self._numbers)}"
        end = choose.choice(("COMMIT", "COMMIT", "ROLLBACK", f"PREPARE TRANSACTION '{gid}'"))
        session.execute(end.encode())
        if "PREPARE" in end:
            time.sleep(choose.uniform(0, 0.2))
            session.execute(f"{choose.choice(('COMMIT', 'ROLLBACK'))} PREPARED '{gid}'".encode())

    def _insert(self, session: Session, table: Table, count: int) -> None:
        first = 10_000 * next(self._numbers)
        rows = f"SELECT i, i, md5(i::text), repeat(md5(i::text), 4) FROM generate_series({first}, {first + count}) i"
        session.execute(f"INSERT INTO {table.name} (id, n, v, big) {rows}".encode())
        if table.changed:
            session.execute(f"DELETE FROM {table.name} WHERE id > {first + 5}".encode())

    @staticmethod
    def _emit(session: Session, choose: random.Random) -> None:
        text = f"repeat('é', {choose.choice((0, 7, 3000))})"
        session.execute(f"SELECT pg_logical_emit_message({choose.random() < 0.5}, 'm', {text})".encode())

    def close(self) -> None:
        self._database.execute(f"SELECT pg_replication_origin_drop('{self._database.name}')")


class Replay(Round):
    """A slot is streamed to a file or recorded; `t` is another slot at the same position."""

    protocol: Mapping[str, str]
    """The options of pgoutput for `t`."""
    lines: Sequence[bytes] = ()
    """What the walsender sends of it, as JSON."""

    def _environment(self) -> dict[str, str]:
        return {**super()._environment(), "PGTAIL_PURE": self.choose.choice(("", "", "1"))}

    def compare(self, acknowledged: set[str] | None = None) -> None:
        """Compare what was written with what the walsender sends, and that with pg_recvlogical's file."""
        database, options = self.database, Capture("t", {**self.protocol})
        sender = Walsender(database, start_replication("t", options))
        sent, received = self.folder / "sent", self.folder / "received"
        sent.write_bytes(sender.finish(parse_lsn(database.value("SELECT pg_current_wal_flush_lsn()"))))
        program = client_program(database.server.installation, "pg_recvlogical")
        with recvlogical(program, database, "t", options, received):
            pass
        self.lines = lines = _decode(sent)
        check_same("what pg_recvlogical wrote", without_lsn(_decode(received)), without_lsn(lines))
        _decode(sent, self.choose.choice(_OUTPUTS))
        if self.kind == "record":
            check_same("the capture", _decode(self.disk / "capture"), lines)
            _decode(self.disk / "capture", self.choose.choice(_OUTPUTS))
        else:
            self._check_file((self.disk / "changes.json").read_bytes())

    def _check_file(self, text: bytes) -> None:
        """Each run goes on where one ended, or repeats what was not acknowledged."""
        places, place, back, torn = {line: at for at, line in enumerate(self.lines)}, 0, 0, 0
        assert len(places) == len(self.lines)
        for line in _lines(text, {*_ROLLED_BACK.findall(b"\n".join(self.lines))}):
            at = places.get(line)
            if at is None:
                torn += 1
                continue
            assert at <= place, f"{at - place} lines are missing before {line!r}"
            back += at < place
            place = at + 1
        assert place == len(places), f"the last {len(places) - place} lines are missing"
        assert back < self.runs, f"{back} repetitions in {self.runs} runs"
        assert torn <= self.torn, f"{torn} lines are torn"


def check_same(what: str, found: Sequence[bytes], expected: Sequence[bytes]) -> None:
    for number, (ours, theirs) in enumerate(itertools.zip_longest(found, expected), 1):
        assert ours == theirs, f"{what} differs in line {number}:\n{ours!r}\n{theirs!r}"


def _decode(path: Path, output: str = "json") -> list[bytes]:
    """The lines of a dump or capture; with and without compiled code they are the same."""
    words = ("decode", "-q", *(["--transactions"] if output == "json" else []), "-o", output, str(path))
    compiled, plain = [command(*words, timeout=300, environment={"PGTAIL_PURE": pure}) for pure in ("", "1")]
    assert (0, compiled.stderr) == (compiled.status, plain.stderr), f"{path.name}: {compiled.stderr} {plain.stderr}"
    check_same(f"{path.name} as {output}", plain.lines, compiled.lines)
    return _lines(compiled.stdout, {*_ROLLED_BACK.findall(compiled.stdout)})


def _lines(text: bytes, rolled_back: Collection[bytes]) -> list[bytes]:
    """Without transactions that have no change, without what was prepared and rolled back, and without origins.

    Whether a server sends these depends on what it knows of a transaction's end when it comes to its changes.
    """
    lines = _EMPTY.sub(b"", _ORIGIN.sub(b"", text)).splitlines()
    return [line for line in lines if not ((found := _PREPARED.search(line)) and found[1] in rolled_back)]


def trial(bench: Bench, choose: random.Random) -> str:
    """One workload, streamed or recorded."""
    with fresh_database(bench.server(choose, 14)) as database, tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        with small_disk(Path(folder), in_file=False, megabytes=1000):
            return run(database, bench.turn(("file", "record")), Path(folder), choose)


def run(database: Database, kind: str, folder: Path, choose: random.Random) -> str:
    """Write, disturb, read again and compare; returns what was there. Raises AssertionError."""
    version = choose.choice([1, 2, *[3] * (database.version >= 15), *[4] * (database.version >= 16)])
    protocol = {"proto_version": str(version), "publication_names": "p,r", "messages": "true"}
    protocol |= {"streaming": "parallel" if version == 4 else "on"} if version > 1 else {}
    protocol |= {"binary": "true"} if choose.random() < 0.5 else {}
    protocol |= {"two_phase": "on"} if version > 2 and choose.random() < 0.7 else {}
    options = ["-P", "r", *["--binary"] * ("binary" in protocol)]
    if kind == "file":
        streaming = protocol.get("streaming", "off")
        options += ["--proto-version", str(version), "--streaming", streaming, "--transactions"]
    workload = Workload(database, choose, two_phase="two_phase" in protocol)
    replayed, tried = Replay(database, kind, folder, choose, options), list[str]()
    replayed.protocol = protocol
    try:
        replayed.start()
        for _ in range(ROUNDS):
            with workload.running():
                for _ in range(FAULTS):
                    tried.append(choose.choice(_FAULTS))
                    replayed.torn += tried[-1] == "SIGKILL"
                    time.sleep(choose.uniform(0.1, 0.6))
                    replayed.disturb(tried[-1])
        replayed.finish()
    finally:
        replayed.close()
        workload.close()
    where = f"{kind} on {database.version}, {protocol}: {', '.join(tried)}"
    assert not replayed.wrong, f"{where}: {replayed.wrong}"
    changes = [change for change in map(parse, replayed.lines) if change["op"] in _ROWS]
    return f"{where}; {len(changes)} changes, {replay(changes, workload.checks, Snapshots([]))} tables"
