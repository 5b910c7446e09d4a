"""What few files have: damage of a form's own parts, values and lines longer than usual."""

from __future__ import annotations

import base64
import gzip
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pgtail.capture.format import SegmentName
from pgtail.errors import InputError
from pgtail.inputs.pcap import pcap as pcap_module
from pgtail.inputs.source import base as source_base
from pgtail.inputs.source import file as source_file
from pgtail.inputs.source.file import Source
from pgtail.inputs.text import base, restored, rows
from tests.support.corpus import capture
from tests.support.encode import INT4, TEXT, begin, commit, insert, message, recvlogical, relation
from tests.support.forms import FORMS, hexdump, piped, read_bytes, read_path, read_pipe, server_message
from tests.support.pcaps import CLIENT, SERVER, Packet, pcap, segments

HELLO = message(b"hello")
LARGE = 9 << 20
ROWS = [relation(), *[insert(str(number), "abc") for number in range(9)]]
SIGNATURE = b"PGCOPY\n\xff\r\n\0"
COPIED = SIGNATURE + bytes(8) + struct.pack(">hi", 1, len(HELLO)) + HELLO
DUMP = hexdump(recvlogical(*ROWS)).split(b"\n")
PLAIN = [recvlogical(*ROWS).hex()[at : at + 32].encode() for at in range(0, 2 * len(recvlogical(*ROWS)), 32)]


def hex_lines(*messages: bytes) -> bytes:
    return b"".join(one.hex().encode() + b"\n" for one in messages)


def zipped(lines: bytes) -> bytes:
    """Five members, of which the third is damaged."""
    members = [gzip.compress(lines, mtime=0)] * 5
    members[2] = members[2][:30] + b"\xff\xff\xff" + members[2][33:]
    return b"".join(members)


ESCAPED = b"0/1|7|%bM" + rb"\001\000\000\000\000\000\000\000\220p\000\000\000\000\005hello" + b"\n"
BASE64 = b"0/1|7|" + base64.b64encode(message(b"x" * 70))[:76] + b"+\n"
"""The first line of a value of two."""
DAMAGED = [
    ("pgcopy", COPIED, "byte 46: the end marker of the COPY is missing", 1),
    ("pgcopy", COPIED + b"\0\0", "byte 46: number of columns: a row of 0 columns", 1),
    ("pgcopy", SIGNATURE + bytes(3), "byte 0: 5 more bytes needed by the length of the frame", 0),
    ("pgcopy", COPIED + b"PGCOPX" + bytes(20), "byte 46: signature: the signature is damaged", 1),
    ("pgcopy", SIGNATURE + struct.pack(">II", 1 << 20, 0), "byte 11: flags: unknown flags 0x00100000", 0),
    ("pgcopy", SIGNATURE + struct.pack(">Ii", 0, -1), "byte 15: extension length: an extension of -1 bytes", 0),
    ("recvlogical", HELLO + b"X" + HELLO, "byte 21: Message: byte 0x58 instead of the newline", 2),
    ("recvlogical", HELLO + b"X" + recvlogical(*[HELLO] * 4), "byte 21: Message: byte 0x58 instead of", 5),
    ("raw", HELLO + b"\1" + HELLO * 3, "byte 21: no message starts with byte 0x01", 4),
    ("raw", HELLO + b"\1" + bytes(99), "byte 21: no message starts with byte 0x01", 0),
    ("hex", hex_lines(HELLO, HELLO) + b"zz", "byte 86: 'z' is not a hex digit", 2),
    ("hex", hex_lines(HELLO) + b"zz\n" + hex_lines(HELLO)[:-1], "byte 43: 'z' is not a hex digit", 2),
    ("psql", ESCAPED % b"" + ESCAPED % b'"', "this value is in quotes: --input-format csv reads it", 1),
    ("psql", BASE64 + BASE64[:-2] + b"\n", "29 more bytes needed", 0),
    ("hex", zipped(hex_lines(*[HELLO] * 50)), "is damaged", 199),
    ("psql", zipped(hex_lines(*[HELLO] * 50)), "is damaged", 199),
    ("hexdump", b"\n".join([*DUMP[:5], b"no line"]), "line 6: this is not a line of a dump", 2),
    ("hexdump", b"\n".join([*DUMP[:5], b"no line", b"", b"none", *DUMP[5:]]), "line 6: this is not a line", 9),
    ("hexdump", b"\n".join([*PLAIN[:-1], PLAIN[-1] + b"4"]), "a hex digit without its second half", 10),
    ("hexdump", b"\n".join([*PLAIN[:6], b"zz", *PLAIN[6:]]), "line 7: 'z' is not a hex digit", 9),
    ("hexdump", b"\n".join([*PLAIN[:6], PLAIN[6][:-2], *PLAIN[7:]]), "line 7: a line that is not the last", 9),
    ("hexdump", b"hello\n", "line 1: 'h' is not a hex digit", 0),
]


@pytest.mark.parametrize(("form", "data", "words", "count"), DAMAGED, ids=range(len(DAMAGED)))
def test_damage(form: str, data: bytes, words: str, count: int) -> None:
    """What is said of it, and how many messages are read before it and after."""
    reading = read_bytes(data, format=form, resync=True)
    assert words in str(reading.error)
    assert len(reading.messages) == count


@pytest.mark.parametrize("dump", [DUMP, PLAIN])
def test_blank_lines_in_a_hex_dump(dump: list[bytes]) -> None:
    reading = read_bytes(b"\n\n".join(dump))
    assert (reading.form, reading.error, len(reading.messages)) == ("hexdump", None, len(ROWS))


@pytest.mark.parametrize("form", ["raw", "recvlogical"])
def test_a_pipe_whose_first_row_may_be_of_a_streamed_transaction(form: str) -> None:
    data = recvlogical(ROWS[1], ROWS[2]) if form == "recvlogical" else ROWS[1] + ROWS[2]
    assert len(read_pipe(data, 1, format=form).messages) == 2


# -- with smaller limits -----------------------------------------------------------------------------------------------

WIDE = relation(columns=[("id", INT4), ("v", TEXT)])
LONG = insert("1", "x" * 100_000)
HEAD = f"(2 rows)\n\n lsn | data\n-----+{'-' * 300_000}\n".encode()


def cells(*messages: bytes, head: bytes = b"", end: bytes = b" |") -> bytes:
    return head + b"".join(b" 0/1 | \\x" + one.hex().encode() + end + b"\n" for one in messages)


@pytest.mark.parametrize(
    ("form", "data", "words", "count"),
    [
        ("psql", cells(begin(), WIDE) + cells(LONG, commit(), head=HEAD), None, 4),
        ("psql", cells(LONG, commit(), end=b""), None, 2),
        ("psql", cells(begin(), WIDE) + b"?" * 300_000 + b"\n" + cells(commit()), "not a row like the others", 3),
        (
            "hex",
            hex_lines(begin(), WIDE, insert("1", "x" * 5000) + b"more" * 50_000, commit()),
            "left over|longer than its message",
            3,
        ),
        (
            "hex",
            hex_lines(begin(), b"R" + bytes(4) + b"n" * 300_000, commit()),
            "not terminated within its limit|no end of the string within",
            2,
        ),
        ("hex", hex_lines(begin(), WIDE, LONG)[:-20_001], "missing", 2),
        ("hex", hex_lines(begin(), WIDE) + b"?" * 300_000 + b"\n" + hex_lines(LONG, commit()), "is not a hex digit", 4),
    ],
    ids=range(7),
)
def test_long_lines(monkeypatch: pytest.MonkeyPatch, form: str, data: bytes, words: str | None, count: int) -> None:
    monkeypatch.setattr(base, "LONG", 1 << 16)
    monkeypatch.setattr(base, "LARGE", 1 << 14)
    monkeypatch.setattr(rows, "FIRST_CHECK", 1 << 12)
    for reading in (read_bytes(data, format=form, resync=True), read_pipe(data, 1 << 14, format=form, resync=True)):
        assert re.search(words or "None", str(reading.error))
        assert len(reading.messages) == count
    assert words is not None or read_pipe(data, 1 << 14).form == form


def test_lines_of_a_long_dump_are_known_by_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restored, "MAX_KNOWN", 4)
    reading = read_bytes(b"\n".join([*DUMP[:-3], b"no line"]))
    assert f"line {len(DUMP) - 2}: " in str(reading.error)


def test_connections_that_ended_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one that was opened again between the same ports."""
    monkeypatch.setattr(pcap_module, "MAX_ENDED", 1)
    login = server_message("W", b"\0\0\0")
    stream = login + b"".join(server_message("d", b"w" + bytes(24) + one) for one in ROWS)
    packets = [
        *segments(b"HTTP/1.1 200 OK\r\n", first=10),
        *list(segments(stream, first=9000, close=False))[:1],
        *segments(b"HTTP/1.1 200 OK\r\n", source=("10.0.0.1", 80)),
        *segments(b"HTTP/1.1 200 OK\r\n", source=("10.0.0.2", 80)),
        *list(segments(stream, first=9000))[1:],
    ]
    reading = read_bytes(pcap(packets))
    assert (reading.error, len(reading.messages)) == (None, len(ROWS))


def test_what_a_client_sends_beside_a_stream() -> None:
    """A command of a wrong length, and another before anything of its server was captured."""
    stream = server_message("W", b"\0\0\0") + b"".join(server_message("d", b"w" + bytes(24) + one) for one in ROWS)
    command = b"Q\0\0\0%c START_REPLICATION SLOT s LOGICAL 0/0\0"
    wrong, right = command % 5, command % (len(command) - 2)
    packets = [Packet(CLIENT, SERVER, number, one) for number, one in ((5, right), (99, wrong))]
    reading = read_bytes(pcap([*packets, *segments(stream)]))
    assert (reading.error, len(reading.messages)) == (None, len(ROWS))


def test_a_connection_in_whose_middle_no_message_is_found() -> None:
    reading = read_bytes(pcap(segments(b"\x55" * (600 << 10), 16 << 10, open_=False)))
    assert "no replication stream in these" in str(reading.error)


def test_two_short_streams_that_are_the_same() -> None:
    stream = server_message("W", b"\0\0\0") + b"".join(server_message("d", b"w" + bytes(24) + one) for one in ROWS)
    reading = read_bytes(pcap([*segments(stream), *segments(stream, target=("127.0.0.1", 45999))]))
    assert (reading.error, len(reading.messages)) == (None, len(ROWS))


def test_a_value_that_is_whole_where_its_beginning_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "LONG", 1 << 16)
    monkeypatch.setattr(rows, "FIRST_CHECK", len(LONG))
    reading = read_bytes(hex_lines(LONG)[:-1], format="hex")
    assert (reading.error, len(reading.messages)) == (None, 1)


# -- segments, and sources ---------------------------------------------------------------------------------------------

SEGMENT = FORMS["pgcap"](capture("Z_small", "p1"))
_END = len(server_message("S", b"pgtail.end\0" + SEGMENT.rpartition(b"pgtail.end\0")[2]))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (SEGMENT[:-_END], "the segment has no end: it was cut off"),
        (SEGMENT[:-_END] + server_message("d", b"k" + bytes(17)) + SEGMENT[-_END:], "a part of the segment is missing"),
        (SEGMENT[:-_END] + server_message("c", b"") + SEGMENT[-_END:], "a part of the segment is missing"),
    ],
    ids=range(3),
)
def test_a_damaged_segment(data: bytes, words: str) -> None:
    reading = read_bytes(data)
    assert words in str(reading.error)
    assert len(reading.messages) >= len(read_bytes(SEGMENT).messages)


def test_a_closed_segment_whose_checksum_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / f"{SegmentName(16, 0)}.pgcap"
    path.write_bytes(SEGMENT.replace(b"w", b"x", 1))
    assert "nothing of it was read" in str(read_path(str(path)).error)
    with pytest.raises(InputError, match="is a directory"):
        read_path(str(tmp_path))


def test_gzip_in_a_pipe_that_gives_single_bytes() -> None:
    zipped_rows = gzip.compress(recvlogical(*ROWS))
    assert len(read_pipe(zipped_rows, 1).messages) == len(ROWS)
    assert read_pipe(zipped_rows[:1], 1).error is not None


def test_a_file_that_is_followed_until_it_loses_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(source_file, "PAUSE", 0)
    file = tmp_path / "file"
    file.write_bytes(b"one")
    steps: Iterator[Callable[[], object]] = iter([lambda: file.write_bytes(b"onetwo"), file.unlink])

    def step() -> None:
        next(steps)()

    with Source(str(file), follow=True, on_wait=step) as source:
        assert [source.read() for _ in range(3)] == [b"one", b"two", b""]


def test_what_is_given_back_to_a_pipe_is_read_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(source_base, "SPOOL_PAST", 20)
    data = bytes(range(100))
    with piped(data, 100) as path, Source(path) as source:
        assert source.peek(3, 2) == data[3:5]
        for _ in range(4):
            start = source.position
            assert source.read(10) == data[start : start + 10]
            source.give_back(data[start + 8 : start + 10])
        assert source.read_all(10) == data[32:42]
    file = tmp_path / "file"
    file.write_bytes(data)
    with Source(str(file)) as source:
        assert source.reaches(100)
        file.write_bytes(data[:50])
        with pytest.raises(InputError, match="became shorter"):
            source.read_all(100)
