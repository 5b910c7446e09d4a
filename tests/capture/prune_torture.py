"""`make torture`: kill pgtail record and pgtail capture prune beside each other; what is left is the end of the stream.

The truth is a second slot, made at the same time and read once at the end.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pgtail.capture.state import read_state
from pgtail.demo.server import EmbeddedServer
from pgtail.pgoutput.scalars import lsn_text
from pgtail.storage.local import LocalLocation
from tests.capture.torture import SCHEMA, Target, Workload, started_on
from tests.support.limits import within
from tests.support.object_store import ObjectStore, s3_store
from tests.support.run import command
from tests.support.run_process import PROGRAM
from tests.support.servers import Servers, fresh_database, installations

KILLS = 100


def torture(
    server: EmbeddedServer, kills: int, seed: int, say: Callable[[str], None], store: ObjectStore | None
) -> None:
    """Kill both so often; raises AssertionError if what is left is not the end of what was committed."""
    rng = random.Random(seed)
    say(f"seed {seed}")
    with fresh_database(server) as database, tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        target = Target(Path(folder), store)
        for statement in SCHEMA.strip().split(";\n"):
            database.execute(statement)
        for slot in ("cap", "truth"):
            database.execute(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")
        workload = Workload(database, random.Random(seed), 0.3)
        workload.start()
        removed = 0
        try:
            for _ in range(kills):
                recorder = started_on(database, target)
                time.sleep(rng.uniform(0.5, 2.5))
                removed += _prune_and_kill(target, rng)
                recorder.kill()
                recorder.communicate()
        finally:
            workload.stopping = True
            workload.join()
        run = started_on(database, target, "--until", "now")
        _, said = run.communicate(timeout=within(60))
        assert run.returncode == 0, said
        _prune_and_kill(target, None)
        ours = command("decode", "-o", "json", target.place, timeout=300, environment=target.environment)
        assert ours.status == 0, ours.stderr
        whole = command("capture", "verify", target.place, timeout=300, environment=target.environment)
        assert whole.status == 0, whole.stderr
        truth = command("stream", database.conninfo(), "-S", "truth", "--until", "now", "-o", "json", timeout=300)
        say(f"{len(ours.lines)} of {len(truth.lines)} changes are left; {removed} of {kills} prunes removed something")
        assert 0 < len(ours.lines) < len(truth.lines)
        assert ours.lines == truth.lines[-len(ours.lines) :]


def _prune_and_kill(target: Target, rng: random.Random | None) -> bool:
    """Prune what was recorded before now, killed at a random moment; returns whether the beginning has moved."""
    place = (
        LocalLocation(target.folder / "capture") if target.store is None else target.store.locate(target.folder.name)
    )
    before = read_state(place)
    if before is None:
        return False
    arguments = ["capture", "prune", target.place, "--before", lsn_text(before.position), "--delete"]
    run = subprocess.Popen(
        [*PROGRAM, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, **target.environment},
    )
    try:
        _, said = run.communicate(timeout=None if rng is None else rng.uniform(0.3, 1.5))
        assert run.returncode == 0, said.decode()
    except subprocess.TimeoutExpired:
        run.kill()
        run.communicate()
    after = read_state(place)
    return after is not None and after.pruned != before.pruned


def main() -> None:
    servers = Servers()
    name = list(installations())[-1]
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else KILLS
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else time.time_ns() % 1_000_000
    begun = time.monotonic()
    try:
        with s3_store() as store:
            for target in (None, store):
                torture(servers.get(name), kills, seed, lambda text: print(text, flush=True), target)
    finally:
        servers.close()
    print(f"{name}: twice {kills} kills of record and prune, what is left is right ({time.monotonic() - begun:.0f} s)")


if __name__ == "__main__":
    main()
