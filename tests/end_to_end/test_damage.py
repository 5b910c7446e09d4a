"""Damage is reported with its position, after everything before it was written; no traceback, no hang."""

from __future__ import annotations

import json
import random
import re
import struct
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support import encode
from tests.support.captures import data_frames, record, segments
from tests.support.corpus import capture, read
from tests.support.run import Result, decode

SMALL = capture("Z_small", "p1")
FORMS = sorted(SMALL.forms)

PLACE = re.compile(r"pgtail: error: \S+: byte \d+: [^\n]+")
"""Source, byte offset, then message and field where they are known, then what is wrong."""


@cache
def whole(form: str) -> Result:
    result = decode(SMALL.forms[form])
    assert (result.status, result.stderr) == (0, "")
    assert len(result.lines) == 7
    return result


BINARY = ("recv.bin", "walsender.bin", "copy.bin")
"""Forms that are read fast enough to be damaged at many bytes; the others at some."""


def check(result: Result) -> None:
    """Check what every damaged input must give: its exit status, a message, and nothing but JSON."""
    assert result.status in (0, 1)
    assert "Traceback" not in result.stderr
    assert all(line.startswith(("pgtail: ", "        ")) for line in result.stderr.splitlines())
    assert bool(result.status) == any(word in result.stderr for word in ("error: ", "damage: ", "warning: ")), result
    assert result.stdout == b"" or result.stdout.endswith(b"\n")
    for line in result.lines:
        json.loads(line)


def without_lsn(lines: list[bytes]) -> list[bytes]:
    """A short beginning of psql's expanded output may not show yet that there is an lsn column."""
    return [re.sub(rb'"lsn":"[^"]*",', b"", line) for line in lines]


# -- cut off -----------------------------------------------------------------------------------------------------------


def clean_cuts(form: str) -> set[int] | None:
    """Where a file of this form may end without a message being incomplete, by the form's own rules."""
    data, ends, position = read(SMALL.forms[form]), {0}, 0
    if form == "walsender.bin":
        while position < len(data):
            position += 4 + struct.unpack_from(">i", data, position)[0]
            ends.add(position)
    elif form == "recv.bin":
        for raw in SMALL.messages():
            position += len(raw.data) + 1
            ends |= {position - 1, position}
    elif form in ("peek_At.hex", "peek_dataonly.hex"):
        for line in data.split(b"\n")[:-1]:
            position += len(line) + 1
            ends |= {position - 1, position}
    else:
        return {0} if form == "copy.bin" else None
    return ends - {len(data)}


@pytest.mark.parametrize("form", FORMS)
def test_cut_anywhere(form: str) -> None:
    """The output is a prefix of the whole output; an end that is not clean is an error."""
    data, lines = read(SMALL.forms[form]), without_lsn(whole(form).lines)
    clean = set()
    cuts = range(0, len(data), 8 if form in BINARY else len(data) // 40)
    for cut in cuts:
        result = decode(input=data[:cut])
        check(result)
        assert without_lsn(result.lines) == lines[: len(result.lines)], cut
        if result.status == 0:
            clean.add(cut)
    assert 0 in clean
    wanted = clean_cuts(form)
    assert wanted is None or clean == wanted & set(cuts)


def test_cut_is_reported_with_source_offset_message_and_field() -> None:
    data = encode.recvlogical(encode.begin(), encode.relation(), encode.insert("1", "hello"))
    place = len(data) - len(b"hello\n")
    result = decode(input=data[:-3])
    assert result.status == 1
    assert re.search(rf"/input: byte {place}: Insert\.new\[1\]: ", result.stderr)


@pytest.mark.parametrize("name", ["C_stream/p2_stream", "D_twophase/p3_2pc_stream", "E_parallel/p4_parallel_bin"])
def test_cuts_of_streams(name: str) -> None:
    scenario, _, slot = name.partition("/")
    found = capture(scenario, slot)
    choose = random.Random(name)
    for form in ("recv.bin", "walsender.bin"):
        data, lines = read(found.forms[form]), decode(found.forms[form]).lines
        for _ in range(10):
            result = decode(input=data[: choose.randrange(len(data))])
            check(result)
            assert result.lines == lines[: len(result.lines)]


# -- damaged -----------------------------------------------------------------------------------------------------------


def places(data: bytes, choose: random.Random, form: str) -> range:
    step = 64 if form in BINARY else len(data) // 8
    return range(choose.randrange(step), len(data), step)


def flipped(data: bytes, choose: random.Random, form: str = "recv.bin") -> Iterator[bytes]:
    """One bit."""
    for at in places(data, choose, form):
        yield data[:at] + bytes([data[at] ^ 1 << choose.randrange(8)]) + data[at + 1 :]


def overwritten(data: bytes, choose: random.Random, form: str = "recv.bin") -> Iterator[bytes]:
    """Invalid lengths and counts, at any position."""
    values = [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x3f\xff\xff\xff", b"\xff\xff", b"\0\0"]
    for at in places(data, choose, form):
        value = choose.choice(values)
        yield data[:at] + value + data[at + len(value) :]


def shifted(data: bytes, choose: random.Random, form: str = "recv.bin") -> Iterator[bytes]:
    """One byte too many, or a few too few."""
    for at in places(data, choose, form):
        if at % 2:
            yield data[:at] + choose.randbytes(1) + data[at:]
        else:
            yield data[:at] + data[at + choose.randrange(1, 5) :]


@pytest.mark.parametrize("resync", [False, True], ids=["stop", "resync"])
@pytest.mark.parametrize("damage", [flipped, overwritten, shifted], ids=["flip", "overwrite", "shift"])
@pytest.mark.parametrize("form", FORMS)
def test_damaged_anywhere(form: str, damage: Callable[..., Iterator[bytes]], resync: bool) -> None:
    data = read(SMALL.forms[form])
    options = ("--resync",) if resync else ()
    statuses = set()
    for damaged in damage(data, random.Random(f"{form} {damage.__name__} {resync}"), form):
        result = decode(*options, input=damaged)
        check(result)
        statuses.add(result.status)
    assert 1 in statuses


@pytest.mark.parametrize("output", ["json-tx", "table"])
def test_other_outputs_stay_well_formed(output: str) -> None:
    data = read(SMALL.forms["recv.bin"])
    for damaged in (*flipped(data, random.Random(1)), *overwritten(data, random.Random(2))):
        result = decode("-o", output, "--resync", input=damaged)
        assert result.status in (0, 1)
        assert "Traceback" not in result.stderr
        if output == "json-tx":
            check(result)


def test_everything_before_the_damage_is_written() -> None:
    messages = [encode.insert(str(number), "x") for number in range(1000)]
    good = encode.recvlogical(encode.relation(), encode.begin(), *messages)
    for output, shown in (("json", 1000), ("json-tx", 1)):
        result = decode("-o", output, input=good + b"I\0\0\0\x64X" + good)
        assert result.status == 1
        assert len(result.lines) == shown
        assert re.search(rf"byte {len(good) + 5}: Insert\.", result.stderr)
    assert json.loads(result.lines[0])["incomplete"] is True
    assert len(json.loads(result.lines[0])["changes"]) == 1000


@pytest.mark.parametrize("form", ["recv.bin", "walsender.bin", "copy.bin", "peek_At.hex", "peek.txt", "peek.csv"])
def test_resync_continues_after_the_damage(form: str) -> None:
    """Damage in the second quarter of the file costs the transactions around it and nothing else."""
    data, lines = read(SMALL.forms[form]), whole(form).lines
    for at in range(len(data) // 4, len(data) // 2):
        damaged = data[:at] + b"#" * 9 + data[at + 9 :]
        stopped = decode(input=damaged)
        if "pgtail: error: " in stopped.stderr:
            break
    went_on = decode("--resync", input=damaged)
    assert (stopped.status, went_on.status) == (1, 1)
    assert len(stopped.lines) < len(went_on.lines)
    assert went_on.lines[-3:] == lines[-3:]
    told = r"damage: .*: byte (\d+): .*; skipped (\d+) bytes? from byte (\d+) on, going on at byte (\d+)"
    [numbers] = re.findall(told, went_on.stderr)
    bad, skipped, start, after = map(int, numbers)
    assert start <= bad
    assert start + skipped == after


def test_resync_reports_that_nothing_follows() -> None:
    data = read(SMALL.forms["recv.bin"])
    result = decode("--resync", input=data[:300] + b"#" * 400)
    assert result.status == 1
    assert re.search(r"skipped \d+ bytes from byte \d+ on, nothing decodes after that", result.stderr)
    assert result.lines == whole("recv.bin").lines[: len(result.lines)]
    assert len(result.lines) > 2


def test_resync_does_not_count_what_was_not_decompressed(tmp_path: Path) -> None:
    record(tmp_path, data_frames(capture("A_dml", "p1")))
    last = segments(tmp_path)[-1]
    last.write_bytes(last.read_bytes()[:-100])
    result = decode("--resync", tmp_path)
    assert result.status == 1
    assert "; skipped the rest of the member, nothing decodes after that" in result.stderr


def test_resync_in_a_stream_of_many_segments() -> None:
    found = capture("C_stream", "p2_stream")
    data = read(found.forms["recv.bin"])
    at = len(data) // 2
    result = decode("--resync", input=data[:at] + b"\xff" * 50 + data[at + 50 :])
    check(result)
    assert result.status == 1
    assert len(result.lines) > 300


# -- inputs that are not dumps -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [b"", b"\n", b"\0", b"B", b"hello\n", b"\x1f\x8b", b"\x1f\x8b" + bytes(20), b"PGCOPY\n\xff\r\n\0", b"PGDMP\1\2",
     b"\xff\xfeI\0", bytes(30_000), b"A" * 30_000, b"\xff" * 30_000, b"d\0\0\0\5w", b"{}", b"<html>"],
    ids=lambda data: repr(data[:12]),
)  # fmt: skip
def test_input_that_is_not_a_dump_is_an_error(data: bytes) -> None:
    for options in ((), ("--resync",), ("--strict",)):
        result = decode(*options, input=data)
        check(result)
        assert (result.status == 0) == (data in (b"", b"\n")), "psql -t prints an empty line where there are no rows"


@pytest.mark.parametrize(
    "form", ["recvlogical", "raw", "copydata", "lengths", "psql", "csv", "hex", "copytext", "pgcopy"]
)
def test_every_form_read_as_every_other(form: str) -> None:
    for name in FORMS:
        for options in ((), ("--resync",)):
            check(decode("--input-format", form, *options, SMALL.forms[name]))
