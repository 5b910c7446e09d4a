"""Packet captures of real connections: a proxy records them as packets, which decode to what was seen live.

Unlike tcpdump, a proxy needs no privileges. The bytes, their senders and their order are real.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import psycopg
import pytest

from tests.support.pcaps import ACK, FIN, SYN, Packet, pcap, pcapng
from tests.support.run import decode
from tests.support.servers import Database
from tests.support.tail import tailing

SEGMENT = 1448
"""Bytes of a segment on Ethernet."""


class Recorder:
    """A TCP proxy for a server that records the traffic as packets."""

    def __init__(self, port: int) -> None:
        self._server = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self.packets: list[Packet] = []
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, address = self._listener.accept()
                server = socket.create_connection(self._server)
                self._sockets += [client, server]
                there, back = (address[0], address[1]), self._server
                for one, other, source, target in ((client, server, there, back), (server, client, back, there)):
                    self._keep(source, target, address[1], b"", SYN if source == there else SYN | ACK)
                    threading.Thread(target=self._pump, args=(one, other, source, target), daemon=True).start()

    def _pump(self, one: socket.socket, other: socket.socket, source: tuple[str, int], target: tuple[str, int]) -> None:
        number = max(source[1], target[1]) + 1
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                for start in range(0, len(data), SEGMENT):
                    self._keep(source, target, number + start, data[start : start + SEGMENT], ACK)
                number += len(data)
                other.sendall(data)
        with contextlib.suppress(OSError):
            other.shutdown(socket.SHUT_WR)
        self._keep(source, target, number, b"", FIN | ACK)

    def _keep(self, source: tuple[str, int], target: tuple[str, int], number: int, data: bytes, flags: int) -> None:
        with self._lock:
            self.packets.append(Packet(source, target, number, data, flags))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for one in (self._listener, *self._sockets):
            one.close()


@contextlib.contextmanager
def recording(database: Database) -> Iterator[Recorder]:
    recorder = Recorder(database.server.port)
    try:
        yield recorder
    finally:
        recorder.close()


def through(recorder: Recorder, database: Database, **more: str) -> str:
    return database.conninfo(tcp=True, port=recorder.port, **more)


@pytest.fixture
def shop(newest_database: Database) -> Database:
    newest_database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, note text)",
        "CREATE PUBLICATION p FOR TABLE t",
        f"ALTER DATABASE {newest_database.name} SET logical_decoding_work_mem = '64kB'",
    )
    return newest_database


def test_capture_decodes_to_the_lines_seen_live(shop: Database) -> None:
    with recording(shop) as recorder:
        with tailing(through(recorder, shop), "-v") as running:
            running.wait_for_words("starting at")
            with psycopg.connect(through(recorder, shop), autocommit=True) as session:
                session.execute("INSERT INTO t SELECT i, repeat('x', i) FROM generate_series(1, 300) i")
                session.execute("UPDATE t SET note = E'a\\nb' WHERE id < 4")
                with tailing(through(recorder, shop), "-v") as second:
                    second.wait_for_words("starting at")
                    # Large enough to be streamed.
                    session.execute("INSERT INTO t SELECT i, 'streamed' FROM generate_series(1001, 4000) i")
                    session.execute("DELETE FROM t WHERE id = 2")
                    second.wait_for_lines(3001)
                    second.stop()
            running.wait_for_lines(3304)
            running.stop()
        packets = [*recorder.packets]
    wanted = [line.rstrip(b"\n") for line in [*running.out, *second.out]]
    for data in (pcapng(packets), pcap(packets, "cooked2")):
        result = decode(input=data)
        assert (result.status, result.stderr) == (0, "")
        assert result.lines == wanted
