"""Client messages in packet captures: START_REPLICATION and status updates, at their place in the stream."""

from __future__ import annotations

import itertools
import random
import re
import struct
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from pgtail.pgoutput.decoder import FromClient
from pgtail.pgoutput.scalars import lsn_text, time_text
from pgtail.pgoutput.walsender import StandbyStatusUpdate, StartReplication
from pgtail.stats.clients import Clients
from tests.inputs.test_pcap_recorded import recording, shop, through
from tests.support.corpus import capture
from tests.support.forms import copydata, server_message
from tests.support.pcaps import CLIENT, SERVER, Packet, blocks, linked, network, pcap, segments
from tests.support.run import command, decode, here
from tests.support.servers import Database
from tests.support.tail import tailing, wait_for

__all__ = ["shop"]  # the fixture

DML = capture("A_dml", "p1")
LOGIN = server_message("R", bytes(4)) + server_message("Z", b"I")
START = "START_REPLICATION SLOT \"s\" LOGICAL 0/0 (proto_version '1', publication_names '\"p\"')"
SECRET = b"hunter2hunter2"
UNIX_2023 = 1_700_000_000
"""The time of the first packet in the captures of tests/support/pcaps.py, in seconds since 1970."""


def status(flush: int, *, reply: bool = False) -> bytes:
    return server_message("d", struct.pack(">cQQQqB", b"r", flush + 8, flush, 0, 0, reply))


def query(text: str) -> bytes:
    return server_message("Q", text.encode() + b"\0")


def conversation(statuses: dict[int, bytes], size: int = 900) -> list[Packet]:
    """Both directions of a connection: the client's messages are sent before the server's packet of that number."""
    login = struct.pack(">II", 8, 0x30000) + server_message("p", SECRET + b"\0")
    there = [*segments(LOGIN + copydata(DML), size)]
    back, packets, number = 2000, [], 2000
    packets += [Packet(CLIENT, SERVER, back - 1, flags=2), there[0]]
    for data in (login, query("IDENTIFY_SYSTEM"), query(START)):
        packets.append(Packet(CLIENT, SERVER, number, data))
        number += len(data)
    for place, packet in enumerate(there[1:]):
        if place in statuses:
            packets.append(Packet(CLIENT, SERVER, number, statuses[place]))
            number += len(statuses[place])
        packets.append(packet)
    return packets


def objects(data: bytes, *arguments: str) -> list[dict[str, Any]]:
    result = decode("--client", *arguments, input=data)
    assert (result.status, result.stderr) == (0, "")
    return [orjson.loads(line) for line in result.lines]


PLAIN = decode(input=pcap(conversation({}))).lines


def test_json_shows_the_client_only_if_asked() -> None:
    data = pcap(conversation({2: status(100), 5: status(200, reply=True)}))
    assert PLAIN
    assert decode(input=data).lines == PLAIN
    found = objects(data)
    assert [one for one in found if one["op"] not in ("start_replication", "standby_status")] == [
        orjson.loads(line) for line in PLAIN
    ]
    start, first, second = [one for one in found if one["op"] in ("start_replication", "standby_status")]
    assert found[0] == start
    assert start["slot"] == "s"
    assert start["lsn"] == "0/0"
    assert start["options"] == {"proto_version": "1", "publication_names": '"p"'}
    assert start["command"] == START
    assert (start["client"], start["server"]) == ("127.0.0.1:45678", "127.0.0.1:5432")
    assert (first["flush_lsn"], first["write_lsn"], first["apply_lsn"]) == (lsn_text(100), lsn_text(108), "0/0")
    assert (first["reply_requested"], second["reply_requested"]) == (False, True)


def test_client_messages_do_not_break_a_json_tx_transaction() -> None:
    data = pcap(conversation({place: status(place) for place in range(30)}, 200))
    lines = decode("-o", "json-tx", input=data).lines
    found = decode("-o", "json-tx", "--client", input=data).lines
    assert [line for line in found if b'"changes":' in line] == lines
    assert sum(b'"op":"standby_status"' in line for line in found) == 30


@pytest.mark.parametrize("pure", ["", "1"], ids=["compiled", "plain"])
@pytest.mark.parametrize("seed", range(3))
def test_client_messages_are_shown_in_order_of_arrival(seed: int, pure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A status update is shown after all that arrived before it and before all that arrived after it."""
    chance = random.Random(seed)
    size = chance.choice([150, 700, 1448])
    place = chance.randrange(1, 40 * 150 // size + 2)
    packets = conversation({place: status(1)}, size)
    monkeypatch.setenv("PGTAIL_PURE", pure)
    found = objects(pcap(packets))
    at = [one["op"] for one in found].index("standby_status")
    cut = next(number for number, packet in enumerate(packets) if packet.data == status(1))
    before = decode("--client", input=pcap(packets[:cut]))
    assert found[:at] == [orjson.loads(line) for line in before.lines]


INTERFACE, OLD_PACKET, SIMPLE_PACKET, ENHANCED_PACKET = 1, 2, 3, 6
ETHERNET = struct.pack("<HHI", 1, 0, 0)
RESOLUTION = "<HHB3x"
NANOSECONDS = struct.pack(RESOLUTION, 9, 1, 9)
PARTS_OF_TWO = struct.pack(RESOLUTION, 9, 1, 0x80 | 20)
HOUR_LATER = struct.pack("<HHq", 14, 8, 3600)
NAME, END = struct.pack("<HH4s", 2, 3, b"eth"), bytes(4)


@pytest.mark.parametrize(
    ("options", "ticks", "offset"),
    [
        (b"", 1_000_000, 0),
        (NANOSECONDS, 10**9, 0),
        (NAME + PARTS_OF_TWO + END, 1 << 20, 0),
        (HOUR_LATER + NANOSECONDS, 10**9, 3600),
        (END + NANOSECONDS, 1_000_000, 0),
    ],
    ids=["none", "nanoseconds", "a power of two", "an offset", "after the end"],
)
@pytest.mark.parametrize("kind", [ENHANCED_PACKET, OLD_PACKET])
def test_an_interface_has_its_own_clock(kind: int, options: bytes, ticks: int, offset: int) -> None:
    sent = UNIX_2023 * ticks
    found = [(INTERFACE, ETHERNET + options)]
    for packet in conversation({4: status(7)}):
        data = linked(network(packet), "ethernet")
        head = struct.pack("<IIIII", 0, sent >> 32, sent & 0xFFFFFFFF, len(data), len(data))
        found.append((kind, head + data))
    (shown,) = [one for one in objects(blocks(*found)) if one["op"] == "standby_status"]
    assert shown["packet_ts"] == time_text((UNIX_2023 + offset - 946_684_800) * 1_000_000)


def test_packets_without_a_time() -> None:
    found = [(INTERFACE, ETHERNET)]
    for packet in conversation({4: status(7)}):
        data = linked(network(packet), "ethernet")
        found.append((SIMPLE_PACKET, struct.pack("<I", len(data)) + data))
    assert decode(input=blocks(*found)).lines == PLAIN
    (shown,) = [one for one in objects(blocks(*found)) if one["op"] == "standby_status"]
    assert "packet_ts" not in shown


def test_client_messages_in_lost_packets_are_skipped() -> None:
    packets = conversation({place: status(place) for place in range(2, 8)}, 300)
    gone = next(number for number, packet in enumerate(packets) if packet.data == status(4))
    found = [one for one in objects(pcap(packets[:gone] + packets[gone + 1 :])) if one["op"] == "standby_status"]
    assert [one["flush_lsn"] for one in found] == [lsn_text(place) for place in (2, 3, 5, 6, 7)]


def test_lines_show_client_messages_at_the_time_of_their_packets() -> None:
    lines = decode("-o", "line", input=pcap(conversation({3: status(0x1234)}))).stdout.decode().splitlines()
    shown = [line for line in lines if "CLIENT" in line]
    assert all(re.match(r"\S+ \S+Z - CLIENT  127\.0\.0\.1:45678 +", line) for line in shown)
    assert 'START_REPLICATION SLOT "s" LOGICAL 0/0' in shown[0]
    assert shown[1].partition("45678")[2].strip().startswith("flush=0/1234 write=")


def test_table_shows_client_messages_unless_filtered() -> None:
    data = pcap(conversation({3: status(0x1234)}))
    shown = decode("-o", "table", input=data).stdout.decode()
    assert "CLIENT   127.0.0.1:45678" in shown
    assert "flush 0/1234" in shown
    assert 'START_REPLICATION SLOT "s" LOGICAL 0/0' in shown
    assert SECRET.decode() not in shown
    assert "CLIENT" not in decode("-o", "table", "--no-client", input=data).stdout.decode()
    assert "CLIENT" not in decode("-o", "table", "--op", "insert", input=data).stdout.decode()


def test_other_formats_refuse() -> None:
    result = decode("-o", "csv", "--client", input=pcap(conversation({})))
    assert result.status == 2
    assert "--client: only with -o table, line, json, json-tx; this is csv" in result.stderr


def test_inspect_shows_bytes_peers_and_times() -> None:
    data = pcap(conversation({3: status(0x1234)}))
    shown = command("inspect", "-", input=data)
    assert shown.status == 0, shown.stderr
    assert SECRET not in shown.stdout
    assert SECRET.hex().encode() not in shown.stdout.replace(b" ", b"")
    found = command("inspect", "-o", "json", "--kind", "StandbyStatusUpdate,StartReplication", "-", input=data)
    start, update = [orjson.loads(line) for line in found.lines]
    assert (start["kind"], start["client"], start["server"]) == (
        "StartReplication",
        "127.0.0.1:45678",
        "127.0.0.1:5432",
    )
    assert update["packet_ts"].startswith("2023-11-14T22:13:20")
    flushed = next(field for field in update["fields"] if field["field"] == "flushed")
    assert bytes.fromhex(flushed["hex"]) == (0x1234).to_bytes(8)


def stats_of(packets: list[Packet]) -> Any:
    """What `pgtail stats` reports about the one client."""
    (client,) = orjson.loads(decode("-o", "json", input=pcap(packets), name="stats").lines[0])["clients"]
    return client


def test_stats_reports_the_lag_of_the_confirmed_position() -> None:
    lagging = {place: status(0x100) for place in range(3, 20)}
    client = stats_of(conversation(lagging, 300))
    assert (client["slot"], client["status_updates"], client["confirmed_lsn"]) == ("s", 17, "0/100")
    assert client["behind_bytes"] == client["most_behind_bytes"] > 0
    lags = [point["behind_bytes"] for point in client["lag"]]
    assert (len(lags), lags[-1], max(lags)) == (17, client["behind_bytes"], client["most_behind_bytes"])
    times = [point["ts"] for point in client["lag"]]
    assert times == sorted(times)
    assert client["stuck_seconds"] > 0
    caught_up = stats_of(conversation({9: status(1 << 60)}))
    assert (caught_up["behind_bytes"], caught_up["stuck_seconds"]) == (0, None)
    nothing = dict.fromkeys(range(3, 12), status(0))
    client = stats_of(conversation({**nothing, 12: status(1 << 60)}, 300))
    assert (client["behind_bytes"], client["most_behind_bytes"]) == (0, 0), "0/0 is no position to measure from"
    client = stats_of(conversation(nothing, 300))
    assert (client["confirmed_lsn"], client["behind_bytes"], client["most_behind_bytes"]) == (None, None, None)
    assert client["stuck_seconds"] > 0
    shown = command("stats", "-o", "table", "-", input=pcap(conversation(lagging, 300))).stdout.decode()
    assert "127.0.0.1:45678  slot 's'  17 status updates  confirmed 0/100" in shown
    assert "not advanced for" in shown
    page = command("stats", "-o", "html", "-", input=pcap(conversation(lagging, 300))).stdout.decode()
    assert "How far 127.0.0.1:45678 was behind the last commit that was sent</figcaption>" in page


def test_the_lag_of_a_client_with_many_updates_keeps_its_maxima() -> None:
    clients = Clients()
    for time in range(10_000):
        update = StandbyStatusUpdate(1, 1, 1, time, 0)
        clients.add(FromClient(update, "c:1", "s:1", time), 1 + (1_000_000 if time == 4321 else time % 100))
    [client] = clients
    assert 50 < len(client.lag) <= 120
    assert max(behind for _, behind in client.lag) == client.most_behind == 1_000_000
    [highest] = [time for time, behind in client.lag if behind == 1_000_000]
    assert 4321 - client.lag_width < highest <= 4321
    steps = [later - time for (time, _), (later, _) in itertools.pairwise(client.lag)]
    assert max(steps) < 3 * min(steps)


@pytest.mark.parametrize(
    ("text", "slot", "lsn", "options"),
    [
        ("START_REPLICATION SLOT s LOGICAL 1/2F", "s", "1/2F", {}),
        ('start_replication slot "a ""b""" logical 0/0 ("x" \'4\')', 'a "b"', "0/0", {"x": "4"}),
        ("START_REPLICATION SLOT s LOGICAL 0/0 (x, y 'a,''b''')", "s", "0/0", {"x": "", "y": "a,'b'"}),
        ("START_REPLICATION 0/0 TIMELINE 1", None, None, {}),
    ],
)
def test_commands_are_read(text: str, slot: str | None, lsn: str | None, options: dict[str, str]) -> None:
    command_ = StartReplication(text)
    assert (command_.slot, command_.lsn, command_.options) == (slot, lsn, options)


def confirmed(database: Database) -> str:
    found: str = database.query("SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = 's'")[0][0]
    return found


def _confirmed_other_than(database: Database, before: str) -> bool:
    return confirmed(database) != before


def test_a_real_consumer(shop: Database) -> None:
    """The status updates of pgtail itself: the server confirms the position in the last one."""
    shop.execute("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    with recording(shop) as recorder:
        with tailing(through(recorder, shop), "-S", "s", "--ack", "commit", "-v") as running:
            running.wait_for_words("starting at")
            for number in range(3):
                before = confirmed(shop)
                shop.execute(f"INSERT INTO t VALUES ({number}, 'x')")
                running.wait_for_lines(number + 1)
                wait_for("the status update", partial(_confirmed_other_than, shop, before))
            running.stop()
        packets = [*recorder.packets]
    found = objects(pcap(packets))
    ops = [one["op"] for one in found]
    assert ops[0] == "start_replication"
    assert found[0]["slot"] == "s"
    assert "publication_names" in found[0]["options"]
    assert ops.count("insert") == 3
    flushed = [one["flush_lsn"] for one in found if one["op"] == "standby_status"]
    assert [lsn for lsn in flushed if lsn != "0/0"][-1] == confirmed(shop)
    inserts = [number for number, op in enumerate(ops) if op == "insert"]
    assert any(ops[number] == "standby_status" for number in range(inserts[0], inserts[-1] + 1))


def test_offsets_select_what_the_server_sent(tmp_path: Path) -> None:
    """Of a message before a client's one too, which is never selected: it has no offset."""
    path = tmp_path / "session.pcap"
    path.write_bytes(pcap(conversation({place: status(place) for place in range(2, 30, 3)}, 200)))
    found = [orjson.loads(line) for line in here("inspect", "-o", "json", path).stdout.splitlines()]
    assert sum("client" in one for one in found) > 5
    ends = {place for place, one in enumerate(found[1:]) if "client" in one and "offset" in found[place]}
    assert len(ends) > 3
    for one in [found[place] for place in ends]:
        last = one["offset"] + one["size"] - 1
        for at in (one["offset"], last):
            (line,) = here("inspect", "-o", "json", "--offset", str(at), path).stdout.splitlines()
            assert orjson.loads(line) == one
    assert not here("inspect", "-o", "json", "--offset", "0", path).stdout
