"""Fixtures for the real servers: `server` runs a test on several versions, `database` is a fresh one on it."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import pytest
from hypothesis import settings

from pgtail.cli.settings import unset
from pgtail.demo.installation import Installation
from pgtail.demo.server import EmbeddedServer, Setting
from pgtail.files import deflate
from tests.support.object_store import ObjectStore, azure_store, google_store, s3_store
from tests.support.servers import Database, Servers, embedded_server, fresh_database, installations, some_versions
from tests.support.signals import reset_ignored_signals


def pytest_configure(config: pytest.Config) -> None:
    """The user's settings, and the signals that a shell ignores, do not affect the tests."""
    settings.register_profile("any load", deadline=None, derandomize="PGTAIL_TEST_SEED" not in os.environ)
    settings.load_profile("any load")
    worker, nohup = hasattr(config, "workerinput"), signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    reset_ignored_signals(hangup=worker or not config.getoption("numprocesses", None))
    if worker and nohup:  # detach from the terminal: closing it would end the programs under test
        os.setsid()
    kept = unset(os.environ)
    os.environ.clear()
    os.environ.update(kept)
    os.environ["TZ"] = "UTC"  # the tests about local time set others
    time.tzset()


def pytest_report_header() -> list[str]:
    """Say which servers the tests run against."""
    return [f"{name}: PostgreSQL {found.version} in {found.bindir}" for name, found in installations().items()]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadgroup` one process has all tests of Spark, which share a session.

    pytest-xdist 3.8 reads the marks for that in a hook that pytest 9.2 does not call.
    """
    from xdist.scheduler import LoadGroupScheduling  # type: ignore[import-untyped]

    class Scheduling(LoadGroupScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            together = "tests/spark/"
            return together if nodeid.startswith(together) else str(super()._split_scope(nodeid))

    return Scheduling(config, log) if config.getoption("dist") == "loadgroup" else None


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """The running servers by name; each is started when first used, one set per test process."""
    running = Servers()
    yield running
    running.close()


@pytest.fixture(scope="session", params=some_versions())
def server(request: pytest.FixtureRequest, servers: Servers) -> EmbeddedServer:
    """A running server: the test runs on some_versions().

    `@every_version` and `@since(16)` of tests.support.servers pick others.
    """
    return servers.get(request.param)


@pytest.fixture(scope="session")
def newest_server(servers: Servers) -> EmbeddedServer:
    """The newest server found, for tests to which the version makes no difference."""
    return servers.get(list(installations())[-1])


@pytest.fixture
def database(server: EmbeddedServer) -> Iterator[Database]:
    """An empty UTF8 database on `server`, dropped afterwards with its slots and prepared transactions."""
    with fresh_database(server) as created:
        yield created


@pytest.fixture
def newest_database(newest_server: EmbeddedServer) -> Iterator[Database]:
    """An empty UTF8 database on the newest server."""
    with fresh_database(newest_server) as created:
        yield created


def _running(store: Callable[[], AbstractContextManager[ObjectStore]]) -> Any:
    """A server of a cloud's protocol, one per test process; each test uses a prefix of its own."""

    @pytest.fixture(scope="session")
    def running() -> Iterator[ObjectStore]:
        with store() as found:
            yield found

    return running


s3, gs, az = map(_running, (s3_store, google_store, azure_store))


@pytest.fixture(params=["s3", "gs", "az"])
def store(request: pytest.FixtureRequest) -> ObjectStore:
    """The server of each cloud."""
    found: ObjectStore = request.getfixturevalue(request.param)
    return found


StartServer = Callable[..., EmbeddedServer]


@pytest.fixture
def start_server() -> Iterator[StartServer]:
    """Start further servers with their own settings; they stop when the test ends.

    start_server(wal_level="replica") takes the newest version, start_server(server.installation, ...) another.
    """
    with ExitStack() as stack:

        def start(installation: Installation | None = None, **settings: Setting) -> EmbeddedServer:
            chosen = installation or list(installations().values())[-1]
            return stack.enter_context(embedded_server(chosen, **settings))

        yield start


@pytest.fixture(params=["isal", "zlib"])
def gzip_library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a test with both libraries that read and write gzip."""
    if request.param == "zlib":
        monkeypatch.setattr("pgtail.files.deflate.igzip_lib", None)
    elif deflate.igzip_lib is None:
        pytest.skip("isal is not installed")


@pytest.fixture
def seed() -> random.Random:
    """Random numbers: the same in every run, or others with PGTAIL_TEST_SEED; a failed test shows their seed."""
    given = os.environ.get("PGTAIL_TEST_SEED", "1")
    number = random.SystemRandom().randrange(1 << 30) if given == "random" else int(given)
    print(f"PGTAIL_TEST_SEED={number}")
    return random.Random(number)
