"""The scanner writes what the decoder writes of random streams, in all outputs, under AddressSanitizer.

A stream has plain, streamed, prepared and aborted transactions in any order. Standard output, files, standard error
and the exit status are the same in both ways, and every line of JSON parses. A failure says how to repeat its case.
"""

from __future__ import annotations

import json
import os
import random
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from tests.support.render import Way, rows_by
from tests.support.run import here
from tests.support.sanitized import load, run_sanitized
from tests.support.streams import Stream, arguments, damaged

if TYPE_CHECKING:  # its servers would be looked for under AddressSanitizer
    from tests.torture.bench import Bench

JSON: Final = ("json", "json-tx", "wal2json", "wal2json-v1", "debezium")
"""The formats whose lines are JSON; with --keys a line has two objects, or an object and a tombstone."""
_NOW: Final = 1_763_900_000_123_456_789
"""The time of both ways, in nanoseconds since 1970."""


class Case(NamedTuple):
    """A command without its input, the input, and how many bytes of it are read at once."""

    command: list[str]
    data: bytes
    piece: int


class Outcome(NamedTuple):
    """What a command did; `files` are those of -f DIR/ with their content."""

    status: int
    stdout: bytes
    stderr: str
    files: dict[str, bytes]


def case_of(name: str) -> Case:
    """The case of a name, which is its seed."""
    choose = random.Random(name)
    stream = Stream(choose)
    form, data = stream.framed()
    chance = choose.random()
    if chance < 0.06:
        command = ["stats", "-o", choose.choice(("json", "table")), *_filters(choose, stream)]
    else:
        command = ["decode", *arguments(choose, stream)]
    if data and choose.random() < 0.1:
        data = damaged(choose, data)
    piece = choose.choice((choose.randrange(1, 5000), 1 << 20))
    return Case([*command, "--input-format", form], data, piece)


def _filters(choose: random.Random, stream: Stream) -> Iterator[str]:
    """Options of other commands than decode: its filters."""
    given = iter([*arguments(choose, stream)])
    for option in given:
        if option in ("--op", "--xid", "-t", "--exclude", "--where"):
            yield from (option, next(given))


def outcome(case: Case, way: Way, folder: Path) -> Outcome:
    """Run a case in this process; CSV goes to files, as a stream has several tables, if the folder is a new one."""
    given, out = folder / "input", folder / way
    given.write_bytes(case.data)
    target = ["-f", f"{out}/"] if "csv" in case.command and len(case.data) % 2 else []
    with rows_by(way), pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: _NOW)
        patch.setenv("COLUMNS", "100")
        patch.setattr("pgtail.inputs.source.file.os", _reading(case.piece))
        done = here(*case.command, *target, given)
    files = {one.name: one.read_bytes() for one in sorted(out.iterdir())} if target and out.exists() else {}
    return Outcome(done.status, done.stdout, done.stderr.replace(str(out), "OUT"), files)


def _reading(piece: int) -> SimpleNamespace:
    """The module os with a pread() that returns at most so many bytes."""
    return SimpleNamespace(**{**vars(os), "pread": lambda fd, size, at: os.pread(fd, min(size, piece), at)})


def wrong(case: Case, decoded: Outcome, scanned: Outcome) -> str:
    """What is wrong with the outcomes of a case; empty if nothing is."""
    for name in Outcome._fields:
        if getattr(decoded, name) != getattr(scanned, name):
            return f"{name} differs:\n  decoder  {getattr(decoded, name)!r}\n  compiled {getattr(scanned, name)!r}"
    if decoded.status not in (0, 1, 2) or "Traceback" in decoded.stderr:
        return f"exit status {decoded.status}:\n{decoded.stderr}"
    return _not_json(case, decoded.stdout) if case.command[2] in JSON else ""


def _not_json(case: Case, text: bytes) -> str:
    """What of the output is not the JSON it should be."""
    if text and not text.endswith(b"\n"):
        return f"the last line is unfinished: {text.splitlines()[-1]!r}"
    for line in text.splitlines():
        for part in line.split(b"\t") if "--keys" in case.command else [line]:
            try:
                if part:
                    json.loads(part, parse_constant=_no_json)  # orjson refuses numbers such as 1e400
            except ValueError as error:
                return f"{error}: {part!r}"
    return ""


def _no_json(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def run(seed: int, seconds: float) -> int:
    """Try cases for some seconds, at least one; returns how many. Raises AssertionError at the first wrong one."""
    end, number = time.monotonic() + seconds, 0
    while number == 0 or time.monotonic() < end:
        try_case(f"{seed} {number}")
        number += 1
    return number


def try_case(name: str) -> None:
    """Run one case in both ways. Raises AssertionError, with the command that repeats it, if something is wrong."""
    case = case_of(name)
    with tempfile.TemporaryDirectory() as folder:
        found = wrong(case, *[outcome(case, way, Path(folder)) for way in ("decoder", "compiled")])
    if found:
        kept = Path(tempfile.gettempdir(), "pgtail-case")
        kept.write_bytes(case.data)
        repeat = f'python -m tests.torture.streams --case "{name}"'
        raise AssertionError(f"{repeat}\npgtail {shlex.join(case.command)} {kept}\n{found}")


def trial(bench: Bench, choose: random.Random) -> str:
    """Many cases, with a build that checks every access to memory."""
    words = [str(choose.randrange(1 << 30)), str(bench.size(120, 20)), str(bench.sanitized)]
    return f"{run_sanitized('tests.torture.streams', *words)} cases"


def main() -> None:
    """The arguments are a seed, seconds and a sanitized build; or --case and the name of one that was wrong."""
    if sys.argv[1] == "--case":
        try_case(sys.argv[2])
    else:
        load(sys.argv[3])
        print(run(int(sys.argv[1]), float(sys.argv[2])))


if __name__ == "__main__":
    main()
