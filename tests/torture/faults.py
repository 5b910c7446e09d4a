"""Faults of networks, servers, disks and processes, while changes are read and acknowledged.

A trial disturbs one way to read a slot for some seconds, ends, reads the rest in peace, and compares everything with
the table itself; or it causes one fault after which the slot cannot be read on.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from pathlib import Path
from typing import Final

from pgtail.demo.server import EmbeddedServer
from tests.support.servers import fresh_database
from tests.torture import last_faults
from tests.torture.bench import Bench, Writer
from tests.torture.fault_round import (
    KINDS,
    NETWORK,
    OTHER,
    PROCESS,
    SERVER,
    SLOT,
    Round,
    insert_rows,
    prepare,
    small_disk,
)

FAULTS: Final = 8
"""Faults of one trial."""


def trial(bench: Bench, choose: random.Random) -> str:
    """Disturb one way to read a slot."""
    return disturb(bench.server(choose), bench.turn(KINDS), choose)


def disturb(server: EmbeddedServer, kind: str, choose: random.Random, faults: int = FAULTS) -> str:
    """Cause so many faults; raises AssertionError if something was wrong."""
    others, tried = [*NETWORK, *SERVER, *OTHER.get(kind, ())], list[str]()
    with fresh_database(server) as database, tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        prepare(database)
        if kind == "snapshot":
            database.execute("INSERT INTO log SELECT i, repeat('x', 200) FROM generate_series(1, 20000) i")
        else:
            database.query(SLOT)
        with small_disk(Path(folder), in_file=choose.random() < 0.5):
            disturbed = Round(database, kind, Path(folder), choose)
            writer = Writer(database, insert_rows(random.Random(choose.random())), 0.01)
            try:
                with writer:
                    disturbed.start()
                    for _ in range(faults):
                        fault = choose.choice(PROCESS if choose.random() < 0.3 else others)
                        tried.append(fault)
                        disturbed.torn += {"SIGKILL": 1, "full disk": 1, "disk error": float("inf")}.get(fault, 0)
                        time.sleep(choose.uniform(0.1, 0.6))
                        disturbed.disturb(fault)
                disturbed.finish()
            finally:
                disturbed.close()
    return _result(disturbed, tried)


def last_trial(bench: Bench, choose: random.Random) -> str:
    """Cause one fault after which a slot cannot be read on."""
    fault = bench.turn(last_faults.FAULTS)
    server = bench.server(choose, last_faults.LEAST.get(fault, 10))
    return _result(last_faults.run(server, fault, choose.choice(last_faults.KINDS), choose), [fault])


def _result(disturbed: Round, tried: list[str]) -> str:
    database = disturbed.database
    where = f"{disturbed.kind} on {database.version}: {', '.join(tried)}"
    assert not disturbed.wrong, f"{where}: {disturbed.wrong}"
    return f"{where}; {disturbed.peak // 1024} MB"
