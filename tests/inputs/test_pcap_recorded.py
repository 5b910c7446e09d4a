"""Packet captures of real connections: a proxy records them as packets, which decode to what was seen live.

Unlike tcpdump, a proxy needs no privileges. The bytes, their senders and their order are real.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from pgtail.demo.installation import Installation
from tests.conftest import StartServer
from tests.support.pcaps import ACK, FIN, SYN, Packet, pcap, pcapng
from tests.support.run import decode
from tests.support.servers import Database, installations
from tests.support.tail import tailing, wait_for

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


def test_physical_replication_is_reported(shop: Database, tmp_path: Path) -> None:
    program = [str(shop.server.installation.program("pg_receivewal")), "--no-loop", f"--directory={tmp_path}"]
    with recording(shop) as recorder:
        receiving = subprocess.Popen([*program, f"--dbname={through(recorder, shop)}"], stderr=subprocess.DEVNULL)
        try:
            wait_for("walsender", lambda: shop.query("SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'"))
            before = len(recorder.packets)
            shop.execute("INSERT INTO t VALUES (1, 'one')")
            wait_for("WAL", lambda: len(recorder.packets) > before + 2)
        finally:
            receiving.terminate()
            receiving.wait()
        packets = [*recorder.packets]
    result = decode(input=pcap(packets))
    assert (result.status, result.lines) == (1, [])
    assert f"127.0.0.1:{shop.server.port}: replication that is not pgoutput's" in result.stderr


def speaks_tls(installation: Installation) -> bool:
    program = installation.bindir / "pg_config"  # not among what `make servers` fetches
    return (
        program.exists() and b"ssl" in subprocess.run([program, "--configure"], check=True, capture_output=True).stdout
    )


def test_tls_is_reported(start_server: StartServer) -> None:
    with_tls = [one for one in installations().values() if speaks_tls(one)]
    if not with_tls:
        pytest.skip("none of the servers here was built with TLS")
    server = start_server(with_tls[-1])
    key, certificate = server.data / "server.key", server.data / "server.crt"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    made += ["-subj", "/CN=localhost", "-days", "2", "-keyout", str(key), "-out", str(certificate)]
    try:
        subprocess.run(made, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed, which makes a certificate")
    owner = server.data.stat()
    for file in (key, certificate):
        shutil.chown(file, owner.st_uid, owner.st_gid)
        file.chmod(0o600)
    server.restart(ssl=True)
    database = Database(server, "postgres")
    database.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
    with recording(database) as recorder:
        with tailing(through(recorder, database, sslmode="require"), "-v") as running:
            running.wait_for_words("starting at")
            database.execute("INSERT INTO t VALUES (1)")
            running.wait_for_lines(1)
            running.stop()
        time.sleep(0.1)
        packets = [*recorder.packets]
    from_the_start = decode(input=pcap(packets))
    from_the_middle = decode(input=pcap([packet for packet in packets if not packet.flags & SYN][40:]))
    for result in (from_the_start, from_the_middle):
        assert (result.status, result.lines) == (1, [])
        # From the middle, the other end may look like a server too.
        assert re.search(rf"127\.0\.0\.1:{server.port}\b[^;]*: encrypted \(TLS\), which cannot be read", result.stderr)
