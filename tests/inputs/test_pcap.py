"""Packet captures made from the data that real servers sent."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
import threading
from itertools import zip_longest
from pathlib import Path

import pytest

from pgtail.errors import InputError
from tests.support.corpus import capture
from tests.support.forms import FORMS, Reading, copydata, read_bytes, server_message
from tests.support.limits import within
from tests.support.pcaps import (
    ACK,
    CLIENT,
    FIN,
    LINKS,
    RST,
    SERVER,
    Link,
    Packet,
    blocks,
    linked,
    network,
    pcap,
    pcapng,
    segments,
)
from tests.support.run import command, decode
from tests.support.run_process import PROGRAM

SMALL, DML, STREAMED = capture("Z_small", "p1"), capture("A_dml", "p1"), capture("C_stream", "p2_stream_msg")
OTHER_CLIENT = ("127.0.0.1", 45999)
LOGIN = server_message("R", bytes(4)) + server_message("S", b"server_version\x0016.4\0") + server_message("Z", b"I")


def copy_both(name: str = "A_dml") -> bytes:
    """What a server sends on a connection: authentication, parameters, replication."""
    return LOGIN + copydata(capture(name, "p1"))


def lines_of(data: bytes, *arguments: str, status: int = 0) -> list[bytes]:
    result = decode(*arguments, input=data)
    assert result.status == status, result.stderr
    return result.lines


DML_LINES = lines_of(FORMS["lengths"](DML))
SMALL_LINES = lines_of(FORMS["lengths"](SMALL))


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("six", [False, True], ids=["v4", "v6"])
def test_every_link_and_both_formats(link: Link, six: bool) -> None:
    source, target = (("::1", 5432), ("2001:db8::7", 40000)) if six else (SERVER, CLIENT)
    packets = list(segments(copy_both(), source=source, target=target))
    for data in (pcap(packets, link), pcap(packets, link, nano=True), pcapng(packets, link)):
        assert lines_of(data) == DML_LINES


def test_interfaces_with_their_own_links_and_concatenated_files() -> None:
    packets = list(segments(copy_both()))
    half = len(packets) // 2
    assert lines_of(pcapng(packets, links=["ethernet", "cooked2", "null"])) == DML_LINES
    assert lines_of(pcapng(packets[:half], "raw") + pcapng(packets[half:], "cooked")) == DML_LINES


def test_files_of_the_other_byte_order() -> None:
    packets = list(segments(copy_both(), 60_000))
    little = pcap(packets)
    head = struct.pack(">IHHIIII", *struct.unpack_from("<IHHIIII", little))
    big, pos = [head], 24
    while pos < len(little):
        fields = struct.unpack_from("<IIII", little, pos)
        big += [struct.pack(">IIII", *fields), little[pos + 16 : pos + 16 + fields[2]]]
        pos += 16 + fields[2]
    assert lines_of(b"".join(big)) == DML_LINES


@pytest.mark.parametrize("seed", range(5))
def test_packets_late_repeated_and_split_differently(seed: int) -> None:
    chance, stream = random.Random(seed), copy_both()
    packets = [*segments(stream, 500, first=(1 << 32) - 5000)]
    again = [*segments(stream, 700, first=(1 << 32) - 5000, open_=False, close=False)]
    packets += [*chance.sample(packets[1:-1], 20), *chance.sample(again, 30)]
    order = [(packet.number & 0xFFFFFFFF) - (0 if packet.number < 1 << 32 else -(1 << 32)) for packet in packets]
    mixed = [
        packet
        for _, packet in sorted(zip(order, packets, strict=True), key=lambda one: one[0] + chance.uniform(0, 9000))
    ]
    syn = packets[0]
    mixed.remove(syn)
    assert lines_of(pcapng([syn, *mixed])) == DML_LINES


def test_both_directions_and_other_connections_interleaved() -> None:
    login = struct.pack(">IIII", 16, 0x30000, 0, 0) + server_message("p", b"secret\0")
    status = server_message("d", b"r" + bytes(33))
    there = [*segments(copy_both(), 900)]
    back = [*segments(login + status * 50, 300, source=CLIENT, target=SERVER, first=5)]
    query = LOGIN + server_message("T", b"\0\1" + b"x" * 30) + server_message("D", b"\0\1\0\0\0\1x") * 200
    other = [*segments(query, 400, target=OTHER_CLIENT)]
    web = [*segments(b"HTTP/1.1 200 OK\r\n\r\n" * 500, source=("10.0.0.1", 80), target=CLIENT)]
    mixed: list[Packet] = []
    queues = [there, back, other, web]
    chance = random.Random(1)
    while any(queues):
        mixed.append(chance.choice([queue for queue in queues if queue]).pop(0))
    assert lines_of(pcap(mixed)) == DML_LINES


def test_two_replication_connections_are_read_one_after_another() -> None:
    one, two = [*segments(copy_both(), 900)], [*segments(copy_both("Z_small"), 50, target=OTHER_CLIENT)]
    mixed = [packet for pair in zip(one, two, strict=False) for packet in pair]
    shorter = min(len(one), len(two))
    mixed += one[shorter:] + two[shorter:]
    assert lines_of(pcap(mixed)) == DML_LINES + SMALL_LINES


def twice(stream: bytes, again: int = 1448) -> list[Packet]:
    """A stream as `tcpdump -i any` sees it on the host of a container; behind it, in segments of `again` bytes."""
    there = segments(stream)
    behind = segments(stream, again, source=("172.17.0.2", 5432), target=("172.17.0.1", 45678), first=7)
    return [packet for pair in zip_longest(there, behind) for packet in pair if packet is not None]


@pytest.mark.parametrize("again", [1448, 900], ids=["address translation", "proxy"])
def test_a_stream_that_was_captured_twice_is_read_once(again: int, tmp_path: Path) -> None:
    path = tmp_path / "any.pcap"
    path.write_bytes(pcap([*twice(copy_both(), again), *segments(copy_both("Z_small"), target=OTHER_CLIENT)]))
    result = decode(path)
    assert (result.status, result.lines) == (0, DML_LINES + SMALL_LINES)
    left_out = f"{path}: 172.17.0.2:5432 to 172.17.0.1:45678: left out, the same stream as {path}: 127.0.0.1:5432 to "
    assert left_out in result.stderr
    assert left_out in command("inspect", path).stderr
    recorded = command("record", "--from", path, "-D", tmp_path / "capture")
    assert (recorded.status, left_out in recorded.stderr) == (0, True)
    assert decode(tmp_path / "capture").lines == DML_LINES + SMALL_LINES


def test_a_stream_that_was_captured_twice_from_its_middle_is_read_once() -> None:
    packets = [*segments(copy_both())][6:]
    assert lines_of(pcap(twice(copy_both())[12:])) == lines_of(pcap(packets))


def test_a_port_that_is_used_again_is_another_connection() -> None:
    first, second = segments(copy_both(), close=False), segments(copy_both("Z_small"), first=77)
    assert lines_of(pcap([*first, *second])) == DML_LINES + SMALL_LINES
    reset = Packet(SERVER, CLIENT, 1000 + len(copy_both()), flags=RST)
    assert lines_of(pcap([*segments(copy_both(), close=False), reset])) == DML_LINES


@pytest.mark.parametrize("first", [3, 8, 20, 33])
def test_a_capture_that_begins_in_the_middle(first: int) -> None:
    packets = [*segments(copy_both(), 700)]
    result = decode(input=pcap(packets[first:]))
    assert result.status == 0
    known = {line.partition(b'"commit_lsn"')[2].partition(b",")[0] for line in DML_LINES}
    shown = [line.partition(b'"commit_lsn"')[2].partition(b",")[0] for line in result.lines]
    assert set(shown[1:]) <= known
    last = [line for line in result.lines if b'"relid"' not in line][-3:]
    assert first > 30 or last == DML_LINES[-3:]
    assert len(result.lines) > 20 or first > 20


def test_a_second_connection_that_begins_in_the_middle_is_not_mixed_with_the_first() -> None:
    one = [*segments(copy_both(), 900)]
    two = [*segments(copydata(DML), 900, target=OTHER_CLIENT)][9:]
    result = decode(input=pcap([*one, *two]))
    assert result.status == 1
    assert result.lines == DML_LINES
    assert "127.0.0.1:5432 to 127.0.0.1:45999: the capture begins in the middle of this connection" in result.stderr
    assert lines_of(pcap([*one, *two]), "--resync", status=1) == DML_LINES


def test_missing_packets_are_damage() -> None:
    packets = [*segments(copy_both(), 700)]
    gone = packets[20]
    data = pcapng(packets[:20] + packets[21:])
    result = decode(input=data)
    assert result.status == 1
    assert 0 < len(result.lines) < len(DML_LINES)
    assert result.lines == DML_LINES[: len(result.lines)]
    assert f"{len(gone.data)} bytes are missing in the capture" in result.stderr
    assert "127.0.0.1:5432 to 127.0.0.1:45678: byte " in result.stderr
    on = decode("--resync", input=data)
    assert on.status == 1
    assert on.lines[: len(result.lines)] == result.lines
    assert on.lines[-50:] == DML_LINES[-50:]
    assert "damage: " in on.stderr


def snapped(whole: bytes, most: int) -> bytes:
    """A capture of at most this many bytes of each packet (tcpdump -s)."""
    cut, pos = [whole[:24]], 24
    while pos < len(whole):
        seconds, micros, size, length = struct.unpack_from("<IIII", whole, pos)
        kept = min(size, most)
        cut += [struct.pack("<IIII", seconds, micros, kept, length), whole[pos + 16 : pos + 16 + kept]]
        pos += 16 + size
    return b"".join(cut)


def test_packets_that_were_cut_when_they_were_captured_are_damage() -> None:
    result = decode(input=snapped(pcap(segments(copy_both(), 1400)), 1000))
    assert result.status == 1
    assert "bytes are missing in the capture; " in result.stderr
    assert "packets were cut when captured (tcpdump -s 0" in result.stderr


@pytest.mark.parametrize("close", [False, True])
def test_a_last_packet_that_was_cut_is_damage(close: bool) -> None:
    """Even where the cut is between two messages: nothing else shows that there were more."""
    frames = [server_message("d", frame) for frame in SMALL.frames()]
    begun = LOGIN + server_message("W", b"\0\0\0") + b"".join(frames[:-8])
    last = Packet(SERVER, CLIENT, 1000 + len(begun), b"".join(frames[-8:]), FIN | ACK if close else ACK)
    whole = pcap([*segments(begun, 20, close=False), last])
    assert lines_of(whole) == SMALL_LINES
    headers = len(linked(network(last), "ethernet")) - len(last.data)
    result = decode(input=snapped(whole, headers + len(frames[-8])))
    assert result.status == 1
    assert f"{len(last.data) - len(frames[-8])} bytes are missing in the capture; 1 packet was cut" in result.stderr


def test_file_that_ends_inside_a_packet_is_damaged_at_its_end() -> None:
    for data in (pcap(segments(copy_both())), pcapng(segments(copy_both()))):
        result = decode(input=data[:-200])
        assert result.status == 1
        assert "the capture ends inside a packet" in result.stderr
        assert len(result.lines) > 400
        assert result.lines == DML_LINES[: len(result.lines)]


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ((1, b"\1"), "a pcapng block of 16 bytes"),
        ((6, struct.pack("<IIIII", 7, 0, 0, 4, 4) + b"data"), "a packet of an interface that was never described"),
        ((6, struct.pack("<IIIII", 0, 0, 0, 99, 99) + b"data"), "or longer than its block"),
        ((0x0A0D0D0A, b"????" + bytes(12)), "a pcapng section without its byte order"),
    ],
)
def test_blocks_that_no_program_writes_are_damage(block: tuple[int, bytes], words: str) -> None:
    result = decode(input=pcapng(segments(copy_both())) + blocks((1, struct.pack("<HHI", 1, 0, 0)), block))
    assert result.status == 1
    assert words in result.stderr
    assert result.lines == DML_LINES


def test_what_is_said_to_be_a_capture_and_is_none() -> None:
    result = decode("--input-format", "pcap", input=b"no packets here, but enough of them")
    assert (result.status, result.lines) == (1, [])
    assert "neither a pcap nor a pcapng file" in result.stderr


def test_packets_that_are_not_tcp_are_skipped() -> None:
    first, *rest = segments(copy_both())
    arp = b"\2\0\0\0\0\1\2\0\0\0\0\2" + struct.pack(">HHHBBH", 0x0806, 1, 0x0800, 6, 4, 1) + bytes(20)
    tags = b"\2\0\0\0\0\1\2\0\0\0\0\2" + struct.pack(">HH", 0x8100, 42) * 20 + b"\x08\x00" + network(first)
    udp = linked(network(first).replace(b"\x06", b"\x11", 1), "ethernet")
    packets = [arp, linked(network(first), "ethernet"), tags, udp, *[linked(network(one), "ethernet") for one in rest]]
    simple = [(3, struct.pack("<I", len(data)) + data) for data in packets]
    found = [(1, struct.pack("<HHI", 1, 0, 0)), (99, b"unknown"), *simple]
    assert lines_of(blocks(*found)) == DML_LINES


def test_offsets_are_those_of_the_stream() -> None:
    stream = copydata(DML)
    start = stream.index(b"W\0\0\0\x07") + 8
    for one in read_bytes(pcap(segments(LOGIN + stream))).decoded:
        assert stream[start + one[2] : start + one[2] + 1] in b"wk"


# -- no replication stream ---------------------------------------------------------------------------------------------


def said(data: bytes) -> str:
    result = decode(input=data)
    assert (result.status, result.lines) == (1, [])
    return result.stderr


def test_other_plugins_and_physical_replication_are_reported() -> None:
    head = LOGIN + server_message("W", b"\0\0\0")
    keepalive = server_message("d", b"k" + bytes(17))
    for data in (b"BEGIN 743", b"table public.t: INSERT: id[integer]:1", b'{"action":"B"}', bytes(range(256)) * 30):
        frames = keepalive + b"".join(server_message("d", b"w" + bytes(24) + data) for _ in range(9))
        words = said(pcap(segments(head + frames)))
        assert "127.0.0.1:5432: replication that is not pgoutput's (physical, or another plugin)" in words, data


def test_tls_is_recognised_from_its_start_and_from_the_middle() -> None:
    record = b"\x17\x03\x03\x01\x00" + bytes(256)
    for stream, open_ in ((b"S\x16\x03\x03\0\x30" + bytes(48) + record * 9, True), (record * 9, False)):
        words = said(pcap(segments(stream, open_=open_)))
        assert "127.0.0.1:5432: encrypted (TLS), which cannot be read" in words


def test_a_capture_without_postgresql() -> None:
    assert "no replication stream in these 0 packets of 0 connections" in said(pcapng([]))
    assert "of 1 connections" in said(pcap(segments(b"HTTP/1.1 200 OK\r\n" * 99, source=("10.0.0.1", 80))))


def test_a_refusal_of_encryption_is_skipped() -> None:
    assert lines_of(pcap(segments(b"N" + copy_both()))) == DML_LINES
    assert lines_of(pcap(segments(b"NN" + copy_both("Z_small"), 1))) == SMALL_LINES
    notice = server_message("N", b"SNOTICE\0Mhello\0\0")
    assert lines_of(pcap(segments(notice + copy_both()))) == DML_LINES


@pytest.mark.parametrize("seed", range(25))
def test_noise_gives_only_documented_errors(seed: int) -> None:
    chance = random.Random(seed)
    make = chance.choice([pcap, pcapng])
    data = bytearray(make(segments(copy_both("Z_small"), chance.choice([40, 400])), chance.choice([*LINKS])))  # type: ignore[operator]
    for _ in range(chance.randint(1, 40)):
        data[chance.randrange(4, len(data))] = chance.randrange(256)
    for resync in (False, True):
        reading: Reading = read_bytes(bytes(data), format="pcap")
        assert reading.error is None or isinstance(reading.error, InputError)
        decode("--resync" if resync else "--strict", "--input-format", "pcap", input=bytes(data))
    decode("--input-format", "pcap", input=bytes(data[:4]) + chance.randbytes(2000))


def test_without_dpkt_the_error_says_how_to_install_it(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap(segments(copy_both())))
    code = "import sys; sys.modules['dpkt'] = None; from pgtail.cli import main; main()"
    ran = subprocess.run([sys.executable, "-c", code, "decode", str(path)], capture_output=True, check=False)
    assert ran.returncode == 2
    assert b"packet captures need dpkt" in ran.stderr
    assert b"pip install '.[pcap]'" in ran.stderr


def test_inspect_shows_the_bytes_of_a_capture(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap(segments(copy_both("Z_small"))))
    result = command("inspect", path)
    assert result.status == 0, result.stderr
    assert b"Relation" in result.stdout


def test_a_live_capture_is_read_as_it_comes() -> None:
    data = pcap(segments(copy_both("Z_small"), 100))
    process = subprocess.Popen([*PROGRAM, "decode", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    timer = threading.Timer(within(30), process.kill)
    timer.start()
    try:
        process.stdin.write(data[:-200])
        process.stdin.flush()
        assert process.stdout.readline() == SMALL_LINES[0] + b"\n"
        process.stdin.write(data[-200:])
        process.stdin.close()
        assert process.stdout.read().splitlines() == SMALL_LINES[1:]
        assert process.wait(within(30)) == 0
    finally:
        timer.cancel()
        process.kill()
        process.wait()
        process.stdout.close()
