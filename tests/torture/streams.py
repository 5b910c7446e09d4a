"""`make torture`: the scanner writes what the decoder writes of random streams, in all outputs, under AddressSanitizer.

A stream has plain, streamed, prepared and aborted transactions in any order. Standard output, files, standard error
and the exit status are the same in both ways, and every line of JSON parses. A failure says how to repeat its case.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Final, NamedTuple

import pytest

from tests.support.every import new_seed
from tests.support.render import Way, rows_by
from tests.support.run import here
from tests.support.sanitized import build, environment, load
from tests.support.streams import Stream, arguments, damaged

SECONDS: Final = 3600
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
    elif chance < 0.1:
        command = ["inspect", "-o", choose.choice(("json", "table")), *_filters(choose, stream)]
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


def run(seed: int, seconds: float) -> tuple[int, list[str]]:
    """Try cases for some seconds, at least one; returns how many, and what is wrong: the first of it ends the run."""
    end, number = time.monotonic() + seconds, 0
    while number == 0 or time.monotonic() < end:
        found = try_case(f"{seed} {number}")
        number += 1
        if found:
            return number, [found]
    return number, []


def try_case(name: str) -> str:
    """Run one case in both ways; returns what is wrong, with the command that repeats it, or an empty text."""
    case = case_of(name)
    with tempfile.TemporaryDirectory() as folder:
        found = wrong(case, *[outcome(case, way, Path(folder)) for way in ("decoder", "compiled")])
    repeat = f'python -m tests.torture.streams --case "{name}"'
    return found and f"{repeat}\npgtail {shlex.join(case.command)}\n{found}"


def sanitized(seed: int, seconds: float, built: Path) -> subprocess.CompletedProcess[str]:
    """The same with a build that checks every access to memory."""
    program = [sys.executable, "-m", "tests.torture.streams", str(seconds), str(seed), "--scanner", str(built)]
    return subprocess.run(
        program, capture_output=True, text=True, env=environment(), cwd=Path(__file__).parents[2], check=False
    )


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seconds", nargs="?", type=float, default=SECONDS)
    parser.add_argument("seed", nargs="?", type=int)
    parser.add_argument("--scanner", help="a build of pgtail.native._scanner; default: one with AddressSanitizer")
    parser.add_argument("--case", help="repeat this case alone, without AddressSanitizer, and keep its input")
    options = parser.parse_args(given)
    if options.case is not None:
        found = try_case(options.case)
        kept = Path(tempfile.gettempdir(), "pgtail-case")
        kept.write_bytes(case_of(options.case).data)
        sys.exit(f"{found}\nthe input is {kept}" if found else 0)
    seed = new_seed() if options.seed is None else options.seed
    sys.stdout.flush()
    if options.scanner is None:
        with tempfile.TemporaryDirectory() as folder:
            done = sanitized(seed, options.seconds, build(Path(folder)))
        print(done.stdout, done.stderr, sep="", flush=True)
        sys.exit(done.returncode)
    load(options.scanner)
    number, wrong_ones = run(seed, options.seconds)
    print(f"{number} cases, {len(wrong_ones)} wrong", *wrong_ones, sep="\n")
    sys.exit(1 if wrong_ones else 0)


if __name__ == "__main__":
    main()
