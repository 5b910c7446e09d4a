"""The scanner writes what the decoder writes of random streams, in all outputs and in Arrow, under AddressSanitizer.

A stream has plain, streamed, prepared and aborted transactions in any order. Standard output, files, standard error
and the exit status are the same in both ways, and every line of JSON parses. A failure says how to repeat its case.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from pgtail import InputError, OptionError, read_arrow
from tests.support.messages import messages_said
from tests.support.render import Way, rows_by
from tests.support.run import here
from tests.support.sanitized import load, run_sanitized
from tests.support.streams import Stream, arguments, damaged

if TYPE_CHECKING:  # its servers would be looked for under AddressSanitizer
    import pyarrow as pa

    from tests.torture.bench import Bench

JSON: Final = ("json", "json-tx", "wal2json", "wal2json-v1", "debezium")
"""The formats whose lines are JSON; with --keys a line has two objects, or an object and a tombstone."""
ARROW: Final = "read_arrow"
"""In place of a command: the function of this name."""
_FLAGS: Final = {"--resync": 0.5, "--old": 0.5, "--strict": 0.1}
"""Options of it without a value, and how often they are given."""
_SEVERAL: Final = ("tables", "exclude", "op", "xid", "where", "redact")
"""Arguments with several values."""
_MOST_MEMORY: Final = 1 << 20
"""kB by which the peak memory of a run may grow, about three times as much as it does under AddressSanitizer."""
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
    damage = 0.1
    chance = choose.random()
    if chance < 0.06:
        command = ["stats", "-o", choose.choice(("json", "table")), *_filters(choose, stream)]
    elif chance < 0.2 and find_spec("pyarrow"):
        command, damage = [ARROW, *_arrow_options(choose, stream)], 0.5
    else:
        command = ["decode", *arguments(choose, stream)]
    if data and choose.random() < damage:
        data = damaged(choose, data)
    piece = choose.choice((choose.randrange(1, 5000), 1 << 20))
    return Case([*command, "--input-format", form], data, piece)


def _filters(choose: random.Random, stream: Stream, *more: str) -> Iterator[str]:
    """Options of other commands than decode: its filters, and `more` of its options with values."""
    given = iter([*arguments(choose, stream)])
    for option in given:
        if option in ("--op", "--xid", "-t", "--exclude", "--where", *more):
            yield from (option, next(given))


def _arrow_options(choose: random.Random, stream: Stream) -> Iterator[str]:
    """Arguments of read_arrow(), as options; those of one table half of the time."""
    for flag, chance in _FLAGS.items():
        if choose.random() < chance:
            yield flag
    filters = [*_filters(choose, stream, "--since", "--until", "--limit", "--redact")]
    if choose.random() < 0.5:
        yield from ("--table", choose.choice(stream.tables).name)
        filters = [] if {"-t", "--exclude"} & {*filters} else filters
    yield from filters


def outcome(case: Case, way: Way, folder: Path) -> Outcome:
    """Run a case in this process; CSV goes to files, as a stream has several tables, if the folder is a new one."""
    given, out = folder / "input", folder / way
    given.write_bytes(case.data)
    target = ["-f", f"{out}/"] if "csv" in case.command and len(case.data) % 2 else []
    with rows_by(way), pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: _NOW)
        patch.setenv("COLUMNS", "100")
        patch.setattr("pgtail.inputs.source.file.os", _reading(case.piece))
        if case.command[0] == ARROW:
            return _read_arrow(case, given)
        done = here(*case.command, *target, given)
    files = {one.name: one.read_bytes() for one in sorted(out.iterdir())} if target and out.exists() else {}
    return Outcome(done.status, done.stdout, done.stderr.replace(str(out), "OUT"), files)


def _read_arrow(case: Case, file: Path) -> Outcome:
    """The schema and the rows that read_arrow() has, and after them the messages and the error."""
    given, arguments = iter(case.command[1:]), dict[str, Any]()
    for option in given:
        name = "tables" if option == "-t" else option[2:].replace("-", "_")
        value: Any = True if option in _FLAGS else next(given)
        value = int(value) if name in ("xid", "limit") else value
        arguments[name] = [*arguments.get(name, ()), value] if name in _SEVERAL else value
    found: list[object] = []
    with messages_said() as said:
        try:
            reader = read_arrow(file, **arguments)
            found.append(reader.schema.to_string())
            for batch in reader:
                assert batch.nbytes < (1 << 20) + 32 * len(case.data), f"a batch of {batch.nbytes} bytes"
                found += batch.cast(_with_numbers(batch.schema)).to_pylist()
        except (InputError, OptionError) as error:
            said.append(str(error))
    return Outcome(0, "\n".join(map(repr, found)).encode(), "\n".join(said), {})


def _with_numbers(fields: pa.Schema | pa.StructType) -> pa.Schema | pa.StructType:
    """Numbers in place of times, because those of Python end with the year 9999."""
    import pyarrow as pa

    found = []
    for field in fields:
        kind = field.type
        if pa.types.is_struct(kind):
            kind = _with_numbers(kind)
        elif pa.types.is_temporal(kind):
            kind = pa.int32() if pa.types.is_date(kind) else pa.int64()
        found.append(field.with_type(kind))
    return pa.schema(found) if isinstance(fields, pa.Schema) else pa.struct(found)


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
    end, number, before = time.monotonic() + seconds, 0, _peak_memory()
    while number == 0 or time.monotonic() < end:
        try_case(f"{seed} {number}")
        number += 1
    assert _peak_memory() - before < _MOST_MEMORY, f"seed {seed}: {_peak_memory() - before} kB"
    return number


def _peak_memory() -> int:
    """Of this process, in kB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


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
