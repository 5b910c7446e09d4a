"""Hex dumps yield the messages of the bytes that they show, and nothing else when they are damaged."""

from __future__ import annotations

import re
import shutil
import subprocess
import tracemalloc
from pathlib import Path

import pytest

from pgtail.pgoutput.decoder import AnyFrame
from tests.support import encode
from tests.support.corpus import capture
from tests.support.forms import Reading, gzipped, hexdump, read_bytes, read_pipe

DUMPS = Path(__file__).parent / "dumps"
DUMPED = capture("Z_small", "p1").forms["recv.bin"]
BYTES = DUMPED.read_bytes()
COMMANDS = {
    "xxd.txt": ["xxd"],
    "xxd-g1.txt": ["xxd", "-u", "-g", "1"],
    "xxd-g4-c20.txt": ["xxd", "-g", "4", "-c", "20"],
    "xxd-g0-c7.txt": ["xxd", "-g", "0", "-c", "7"],
    "xxd-p.txt": ["xxd", "-p"],
    "xxd-p-c13.txt": ["xxd", "-p", "-c", "13"],
    "hexdump-C.txt": ["hexdump", "-C"],
    "od-An-tx1.txt": ["od", "-v", "-An", "-tx1"],
}
WITH_TEXT = ["xxd.txt", "xxd-g4-c20.txt", "hexdump-C.txt"]
MESSAGES = read_bytes(BYTES).messages


def dump(name: str) -> bytes:
    return (DUMPS / name).read_bytes()


def is_start(reading: Reading, messages: list[AnyFrame]) -> bool:
    """Whether only messages of the undamaged source were read."""
    return reading.messages == messages[: len(reading.messages)]


@pytest.mark.parametrize("name", COMMANDS)
def test_dumps_of_real_programs(name: str) -> None:
    whole = read_bytes(dump(name))
    assert (whole.form, whole.error, whole.messages) == ("hexdump", None, MESSAGES)
    assert [one[2] for one in whole.decoded] == [one[2] for one in read_bytes(BYTES).decoded]
    assert read_bytes(gzipped(dump(name), 3)) == whole
    assert read_bytes(dump(name).replace(b"\n", b"\r\n")) == whole
    for piece in (1, 100):
        assert read_pipe(dump(name), piece) == whole


def made(command: list[str], data: bytes) -> bytes:
    """What a real program writes."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    return subprocess.run(command, input=data, capture_output=True, check=True).stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_the_dumps_are_what_the_programs_write(name: str) -> None:
    assert made(COMMANDS[name], BYTES) == dump(name)


def test_the_dumps_of_other_tests_are_those_of_hexdump() -> None:
    assert hexdump(BYTES) == dump("hexdump-C.txt")


@pytest.mark.parametrize("name", ["repeats-hexdump-C.txt", "repeats-xxd-a.txt"])
def test_repeated_lines(name: str) -> None:
    reading = read_bytes(dump(name))
    assert reading.error is None
    assert reading.messages == read_bytes(dump("repeats.bin")).messages


def test_repeated_lines_may_be_more_than_fits_in_memory() -> None:
    line, gap = b"%08x  " + b"00 " * 16 + b" |" + b"." * 16 + b"|\n", 1 << 29
    text = b"*\n".join(line % (number * gap) for number in range(100))
    tracemalloc.start()
    reading = read_bytes(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "the bytes of this hex dump are none of the known forms" in str(reading.error)
    assert peak < 40 << 20


@pytest.mark.parametrize("name", ["xxd.txt", "hexdump-C.txt", "repeats-hexdump-C.txt"])
def test_a_changed_character_is_an_error(name: str) -> None:
    """Only bytes that the text shows as dots on both sides may differ without a word."""
    text = dump(name)
    messages = read_bytes(text).messages
    silent = 0
    for number, at in enumerate(range(0, len(text), 11)):
        for other in [(text[at] ^ 1, ord("7"), ord(" "))[number % 3]]:
            changed = text[:at] + bytes([other]) + text[at + 1 :]
            if changed == text or other == ord("\n"):
                continue
            reading = read_bytes(changed, format="hexdump")
            if not is_start(reading, messages):
                line = text[text.rfind(b"\n", 0, at) + 1 : text.find(b"\n", at)]
                assert re.match(rb"[0-9a-f]{8}:? ", line), line
                assert chr(other) in "0123456789abcdef", (at, other)
                silent += 1
            elif reading.messages != messages:
                assert reading.error is not None, (at, chr(other))
    assert silent < len(text) // 2


@pytest.mark.parametrize("name", WITH_TEXT)
def test_a_missing_line_is_named(name: str) -> None:
    lines = dump(name).splitlines(keepends=True)
    size = 20 if "c20" in name else 16
    reading = read_bytes(b"".join(lines[:5] + lines[6:]))
    assert str(reading.error).endswith(
        f": line 6: offset {6 * size:#x} instead of {5 * size:#x}: {size} bytes before it are missing"
    )
    assert is_start(reading, MESSAGES)
    again = read_bytes(b"".join(lines[:5] + lines[6:]), resync=True)
    assert again.resyncs == 1
    assert all(message in MESSAGES for message in again.messages)
    assert again.messages[-1] == MESSAGES[-1]


@pytest.mark.parametrize("name", WITH_TEXT)
@pytest.mark.parametrize("form", ["recv", "walsender"])
def test_bytes_are_counted_on_if_the_offsets_go_back(name: str, form: str) -> None:
    """Offsets of messages and what was skipped would be negative, and errors would name wrong lines."""
    data = capture("Z_small", "p1").forms[f"{form}.bin"].read_bytes()
    lines = made(COMMANDS[name], data).splitlines(keepends=True)
    for end, start in ((20, 9), (len(lines), 0)):
        reading = read_bytes(b"".join(lines[:end] + lines[start:]), resync=True)
        assert f": line {end + 1}: offset " in str(reading.error)
        assert (reading.resyncs, 0 <= reading.skipped < 128) == (1, True)
        offsets = [one[2] for one in reading.decoded]
        assert offsets == sorted(offsets)
        assert reading.messages[-1] == read_bytes(data).messages[-1]


def test_an_error_in_a_message_names_the_line_and_the_byte_of_the_dump() -> None:
    damaged = BYTES.replace(b"N\0\2t\0\0\0\1" + b"1", b"N\0\2t\0\1\0\1" + b"1", 1)
    reading = read_bytes(hexdump(damaged))
    raw = read_bytes(damaged)
    assert raw.error is not None
    assert raw.error.offset is not None
    assert f": line {raw.error.offset // 16 + 1}: byte {raw.error.offset}: " in str(reading.error)
    assert reading.messages == raw.messages


def test_a_dump_that_was_cut_off() -> None:
    reading = read_bytes(dump("hexdump-C.txt").rpartition(b"\n0")[0] + b"\n")
    assert "the dump is cut off" in str(reading.error)
    assert reading.messages == MESSAGES
    short = read_bytes(dump("xxd-p.txt").replace(b"6", b"", 1))
    assert short.error is not None
    assert is_start(short, MESSAGES)


def test_a_dump_of_something_else() -> None:
    reading = read_bytes(hexdump(b"hello world, this is no message at all\n"))
    assert "the bytes of this hex dump are none of the known forms" in str(reading.error)


@pytest.mark.parametrize("end", [b"\n", b""])
@pytest.mark.parametrize("form", ["recvlogical", "raw"])
def test_a_binary_dump_whose_first_message_contains_a_hex_dump(form: str, end: bytes) -> None:
    """Such a message is longer than what one read returns, so that its own form is not sure at first."""
    content = b"notes" + end + hexdump(bytes(400_000))
    frames = [encode.message(content), encode.begin(), encode.relation(), encode.insert("1", "x"), encode.commit()]
    reading = read_bytes(b"".join(frame + b"\n" * (form == "recvlogical") for frame in frames))
    assert (reading.form, reading.error, len(reading.messages)) == (form, None, 5)
