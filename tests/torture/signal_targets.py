"""The commands that get signals, with the exit statuses in their man pages."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pgtail.outputs import OUTPUTS

Arguments = Callable[["Place", random.Random], list[str]]


@dataclass(frozen=True)
class Place:
    """The test environment: a database with table t, publication p and slots; a folder, a capture and a dump in it."""

    conninfo: str
    folder: Path


@dataclass(frozen=True)
class Target:
    """A command. `statuses`: its normal exit statuses, also after a request to stop once it has begun."""

    name: str
    arguments: Arguments
    statuses: frozenset[int] = frozenset({0})
    begun: bytes | None = None
    """Its first output, after which it has begun; None if it may write nothing before its end."""
    span: float = 1.5
    """The moments of the signals are within so many seconds."""
    spark: bool = False
    dump: bool = False
    """Whether it reads dumps: a request to stop is an error then, unless they were read to the end. A pager shows its
    output on a terminal, and Ctrl-C does not end that."""


def _stream(*options: str) -> Arguments:
    def arguments(place: Place, chance: random.Random) -> list[str]:
        own = chance.choice([[], ["-S", "s"], ["-S", "s", "--ack", "exit"], ["--fork", "s"]])
        options_ = [option.replace("FOLDER", str(place.folder)) for option in options]
        return ["stream", place.conninfo, *own, *options_, *chance.choice([[], ["-v"]])]

    return arguments


def _record(place: Place, chance: random.Random) -> list[str]:
    size = chance.choice(["60kB", "1MB"])
    return ["record", place.conninfo, "-S", "cap", "-D", str(place.folder / "capture"), "--segment-size", size]


def _expect(place: Place, chance: random.Random) -> list[str]:
    own = chance.choice([[], ["-S", "s"]])
    return ["expect", place.conninfo, *own, "--count", chance.choice(["20", "1000000"]), "--timeout", "60s"]


def _stats_slot(place: Place, chance: random.Random) -> list[str]:
    own = chance.choice([["--for", "60s"], ["-S", "s", "--for", "60s"], ["-S", "s"]])
    return ["stats", place.conninfo, *own, *chance.choice([[], ["-o", "json"]])]


def _of_dump(*command: str) -> Arguments:
    return lambda place, chance: [*command, *[str(place.folder / "dump")] * 30]


def _slot_list(place: Place, chance: random.Random) -> list[str]:
    return ["slot", "list", place.conninfo, "--watch"]


def _spark(*command: str) -> Arguments:
    def arguments(place: Place, chance: random.Random) -> list[str]:
        out = place.folder / f"out-{chance.randrange(1 << 40):x}"
        options = ["--conf=spark.driver.memory=1g", "--master=local[2]", *chance.choice([[], ["-v"]])]
        return ["spark", *command, *options, str(place.folder / "finished"), str(out)]

    return arguments


_ANY = frozenset({0, 1, 2})

TARGETS = {
    target.name: target
    for target in [
        *[Target(f"stream -o {name}", _stream("-o", name), begun=b"\n") for name in OUTPUTS],
        Target("stream -o sql --undo", _stream("-o", "sql", "--undo")),
        Target("stream -f FILE", _stream("-o", "json", "-f", "FOLDER/file")),
        Target("stream --format-string", _stream("--format-string", "%t %o\\n"), begun=b"\n"),
        Target("record", _record),
        Target("expect", _expect, frozenset({0, 1}), begun=b"ready"),
        Target("stats SLOT", _stats_slot),
        Target("stats FILE", _of_dump("stats"), dump=True),
        Target("decode", _of_dump("decode"), begun=b"\n", dump=True),
        Target("inspect", _of_dump("inspect"), begun=b"\n", dump=True),
        Target("slot list --watch", _slot_list, begun=b"s"),
        Target("doctor", lambda place, chance: ["doctor", place.conninfo], _ANY, span=1.0),
        Target("spark changes", _spark("changes"), span=14, spark=True),
        Target("spark state --watch", _spark("state", "--watch", "--every", "1s"), span=20, spark=True),
    ]
}
