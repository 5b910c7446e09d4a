"""Kills of the program in pgtail-follow(3) that copies an outbox: nothing may be lost, nothing come twice."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pgtail.demo.server import EmbeddedServer
from tests.support.live_examples import OUTBOX, service_file
from tests.support.servers import fresh_database
from tests.support.tail import wait_for, wait_for_free_slots
from tests.torture.bench import Bench, Session, Writer

KILLS = 100


def trial(bench: Bench, choose: random.Random) -> str:
    """Kill it a hundred times on one of the servers."""
    return kill(bench.server(choose), choose, bench.size(KILLS, 20))


def kill(server: EmbeddedServer, choose: random.Random, kills: int) -> str:
    """Kill it so often, soon after it has stored something; raises AssertionError if the tables differ."""
    random_rows = random.Random(choose.random())

    def transaction(session: Session) -> None:
        rows = 500 if random_rows.random() < 0.02 else random_rows.randint(1, 5)
        with session.transaction():
            session.execute(
                "INSERT INTO outbox SELECT coalesce((SELECT max(id) FROM outbox), 0) + i, md5(i::text)"
                " FROM generate_series(1, %s) i",
                (rows,),
            )

    with fresh_database(server) as shop, fresh_database(server) as reports, tempfile.TemporaryDirectory() as folder:
        shop.execute("CREATE TABLE outbox (id int PRIMARY KEY, event text)", "CREATE PUBLICATION p FOR TABLE outbox")
        shop.query("SELECT pg_create_logical_replication_slot('outbox', 'pgoutput')")
        reports.execute("CREATE TABLE inbox (id int, event text)")  # without a key, which would refuse what comes twice
        reports.execute("CREATE TABLE progress (done pg_lsn)", "INSERT INTO progress VALUES ('0/0')")
        services = service_file(Path(folder, "services"), shop=shop, reports=reports)

        def run() -> subprocess.Popen[bytes]:
            wait_for_free_slots(shop)
            return subprocess.Popen([sys.executable, "-c", OUTBOX], env={**os.environ, "PGSERVICEFILE": services})

        def count() -> int:
            return int(reports.value("SELECT count(*) FROM inbox"))

        with Writer(shop, transaction, 0.05) as writer:
            for _ in range(kills):
                before, running = count(), run()
                wait_for("rows", lambda: count() > before)  # noqa: B023
                time.sleep(choose.uniform(0, 0.2))
                assert running.poll() is None, "it ended by itself"
                running.kill()
                running.wait()
            writer.stop()
        with run() as running:
            wait_for("all rows", lambda: count() >= shop.value("SELECT count(*) FROM outbox"))
            running.kill()
        rows = "SELECT id, event FROM {} ORDER BY id"
        sent = shop.query(rows.format("outbox"))
        assert reports.query(rows.format("inbox")) == sent
        return f"{len(sent)} rows, {kills} kills"
