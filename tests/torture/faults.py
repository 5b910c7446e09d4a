"""`make torture`: faults of networks, servers, disks and processes, while changes are read and acknowledged.

Each round has a seed of its own, so that a round can be repeated. A round disturbs one way to read a slot for some
seconds, ends, reads the rest in peace, and compares everything with the table itself; or it causes one fault after
which the slot cannot be read on. The rounds take turns on all servers that are found. With --state FILE a run that was
interrupted goes on where it ended, and the table at the end is of all rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from pgtail.demo.installation import Installation
from pgtail.demo.server import EmbeddedServer
from tests.support.every import new_seed
from tests.support.servers import embedded_server, fresh_database, installations
from tests.torture import last_faults
from tests.torture.fault_round import (
    KINDS,
    NETWORK,
    OTHER,
    PROCESS,
    SCHEMA,
    SERVER,
    SLOT,
    TIMEOUT,
    Round,
    Writer,
    small_disk,
)

ROUNDS: Final = 170
"""More than a thousand faults."""
FAULTS: Final = 8
"""Faults of one round."""
LAST: Final = 5
"""Each so many rounds one has a fault after which the slot cannot be read on."""
Say = Callable[[str], None]


def disturbed(
    server: EmbeddedServer, kind: str, choose: random.Random, faults: int = FAULTS
) -> tuple[Round, list[str]]:
    """Disturb this way to read a slot; returns the faults, too."""
    others, tried = [*NETWORK, *SERVER, *OTHER.get(kind, ())], []
    with fresh_database(server) as database, tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        if database.version >= 12:
            database.execute(f"ALTER DATABASE {database.name} SET wal_sender_timeout = '{TIMEOUT}s'")
        database.execute(*SCHEMA)
        if kind == "snapshot":
            database.execute("INSERT INTO log SELECT i, repeat('x', 200) FROM generate_series(1, 20000) i")
        else:
            database.query(SLOT)
        with small_disk(Path(folder), in_file=choose.random() < 0.5):
            one = Round(database, kind, Path(folder), choose)
            writer = Writer(database, choose)
            writer.start()
            try:
                one.start()
                for _ in range(faults):
                    fault = choose.choice(PROCESS if choose.random() < 0.3 else others)
                    tried.append(fault)
                    one.torn += {"SIGKILL": 1, "full disk": 1, "disk error": float("inf")}.get(fault, 0)
                    time.sleep(choose.uniform(0.1, 0.6))
                    one.disturb(fault)
                writer.stopping = True
                writer.join()
                one.finish()
            finally:
                writer.stopping = True
                writer.join()
                one.close()
    return one, tried


def run_round(server: EmbeddedServer, seed: int, number: int, kinds: Sequence[str], faults: int) -> dict[str, Any]:
    """Run a round; returns what is kept of it."""
    choose = random.Random(f"{seed} {number}")
    kind = kinds[number % len(kinds)]
    if number % LAST == LAST - 1:
        kind = choose.choice(last_faults.KINDS)
        possible = [one for one in last_faults.FAULTS if last_faults.possible(one, server.installation.major)]
        tried = [possible[number // LAST % len(possible)]]
        one = last_faults.run(server, tried[0], kind, choose)
    else:
        one, tried = disturbed(server, kind, choose, faults)
    return {"seed": seed, "round": number, "kind": kind, "faults": tried, "kilobytes": one.peak, "wrong": one.wrong}


def torture(
    rounds: Iterable[int],
    seed: int,
    names: Sequence[str],
    say: Say,
    *,
    kinds: Sequence[str] = KINDS,
    faults: int = FAULTS,
    state: Path | None = None,
) -> list[str]:
    """Run rounds on servers of their own, in turn on each of these names; returns what is wrong."""
    done = [json.loads(line) for line in state.read_text().splitlines()] if state and state.exists() else []
    seed = done[0]["seed"] if done else seed
    known = {one["round"] for one in done}
    with contextlib.ExitStack() as stack:
        servers: dict[str, EmbeddedServer] = {}
        for number in rounds:
            if number in known:
                continue
            name = names[number // len(kinds) % len(names)]
            if name not in servers:
                servers[name] = stack.enter_context(_server(installations()[name]))
            begun, repeat = time.monotonic(), f"repeat: python -m tests.torture.faults 1 {seed} --from {number}"
            try:
                one = {**run_round(servers[name], seed, number, kinds, faults), "server": name}
            except AssertionError:  # a step that did not end in time
                say(repeat)
                raise
            done.append(one)
            took = f"{time.monotonic() - begun:.0f} s"
            say(f"round {number}: {one['kind']} on {name}, {took}: {', '.join(one['faults'])}: {one['wrong'] or 'ok'}")
            if one["wrong"]:
                say(repeat)
            if state is not None:
                with state.open("a") as file:
                    file.write(json.dumps(one) + "\n")
    say(table(done))
    return [f"{one['kind']} on {one['server']}, round {one['round']}: {text}" for one in done for text in one["wrong"]]


def table(done: Sequence[dict[str, Any]]) -> str:
    """How often each fault was tried and survived, with the memory of the processes."""
    tried, survived, worst = Counter[str](), Counter[str](), Counter[str]()
    for one in done:
        for fault in one["faults"]:
            tried[fault] += 1
            survived[fault] += not one["wrong"]
            worst[fault] = max(worst[fault], one["kilobytes"])
    lines = [f"{'fault':20} {'tried':>6} {'survived':>9} {'memory':>8}"]
    lines += [
        f"{fault:20} {tried[fault]:6} {survived[fault]:9} {worst[fault] / 1024:5.0f} MB" for fault in sorted(tried)
    ]
    lines.append(f"{'all':20} {tried.total():6} {survived.total():9} {max(worst.values(), default=0) / 1024:5.0f} MB")
    seeds = ", ".join(sorted({str(one["seed"]) for one in done}))
    return "\n".join([*lines, f"{len(done)} rounds, seed {seeds}; a fault counts as survived if its round was right"])


def _server(installation: Installation) -> EmbeddedServer:
    streams = {"logical_decoding_work_mem": "64kB"} if installation.major >= 13 else {}
    return embedded_server(installation, **streams)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rounds", nargs="?", type=int, default=ROUNDS)
    parser.add_argument("seed", nargs="?", type=int)
    parser.add_argument("--from", dest="first", type=int, default=0, help="the number of the first round")
    parser.add_argument("--state", type=Path, metavar="FILE", help="keep here what was done, and go on after it")
    parser.add_argument("--server", action="append", choices=[*installations()], help="default: all of them")
    given = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGHUP):  # a shell ignores them in the background, and so would pgtail
        signal.signal(number, signal.default_int_handler)
    seed = new_seed() if given.seed is None else given.seed
    rounds = range(given.first, given.first + given.rounds)
    names = given.server or list(installations())
    sys.exit(1 if torture(rounds, seed, names, lambda text: print(text, flush=True), state=given.state) else 0)


if __name__ == "__main__":
    main()
