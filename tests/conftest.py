"""Fixtures for the real servers: `server` runs a test on every version found, `database` is a fresh one on it."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any, ClassVar

import pytest
from hypothesis import settings

from pgtail.cli.settings import unset
from pgtail.demo.installation import Installation
from pgtail.demo.server import EmbeddedServer, Setting
from pgtail.files import deflate
from tests.support.corpus import Capture
from tests.support.every import NAMED, SEED, is_due
from tests.support.limits import limit_test
from tests.support.object_store import ObjectStore, azure_store, google_store, s3_store
from tests.support.servers import Database, Servers, chosen, embedded_server, fresh_database, installations
from tests.support.signals import reset_ignored_signals


def pytest_configure(config: pytest.Config) -> None:
    """The user's settings, the signals that a shell ignores and the load of the machine do not affect the tests."""
    settings.register_profile("any load", deadline=None)
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
    os.environ.setdefault(SEED, str(random.randrange(1 << 30)))  # one for all processes
    if not worker and config.args_source is not config.ArgsSource.TESTPATHS:
        os.environ[NAMED] = "1"


class Seeded(random.Random):
    """Random numbers whose seeds a failing test shows, so that it can be repeated."""

    seeds: ClassVar[list[Any]] = []
    """Those of the test that runs."""

    def __init__(self, seed: Any = None) -> None:
        super().__init__(seed)
        if seed is not None:
            self.seeds.append(seed)


random.Random = Seeded  # type: ignore[assignment, misc]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the servers that are not for this test (tests.support.servers.chosen), and what is for other runs."""
    servers: dict[str, list[str]] = {}
    for item in items:
        for name in _servers_of(item):
            servers.setdefault(item.nodeid.replace(name, "*"), []).append(name)
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        tests = {name: item.nodeid.replace(name, "*") for name in _servers_of(item)}
        due = is_due(item.nodeid, _runs(item))
        due = due and all(name in chosen(test, servers[test]) for name, test in tests.items())
        (kept if due else left_out).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


def _runs(item: pytest.Item) -> int:
    """A test is in one of so many runs: as its mark says, and a test of many captures with a sixth of them."""
    mark = item.get_closest_marker("in_one_run_of")
    if mark is not None:
        return int(mark.args[0])
    return 6 if any(isinstance(value, Capture) for value in _params(item).values()) else 1


def _servers_of(item: pytest.Item) -> list[str]:
    """The names of servers among the parameters of this test."""
    return [value for value in _params(item).values() if isinstance(value, str) and value in installations()]


def _params(item: pytest.Item) -> dict[str, Any]:
    return item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Scale the limit of the test, before pytest-timeout looks at it."""
    limit_test(item)
    Seeded.seeds.clear()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to a failed test the seeds of its random numbers."""
    report = yield
    if report.failed and Seeded.seeds:
        report.sections.append(("Random seeds", ", ".join(map(repr, Seeded.seeds[:50]))))
    return report


def pytest_report_header() -> list[str]:
    """Say which servers the tests run against, and the seed of random inputs."""
    servers = [f"{name}: PostgreSQL {found.version} in {found.bindir}" for name, found in installations().items()]
    return [*servers, f"random inputs: {SEED}={os.environ[SEED]}"]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadgroup` one process has all tests of Spark, which share a session, or all of the sanitized build.

    pytest-xdist 3.8 reads the marks for that in a hook that pytest 9.2 does not call.
    """
    from xdist.scheduler import LoadGroupScheduling  # type: ignore[import-untyped]

    class Scheduling(LoadGroupScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            for together in ("tests/spark/", "tests/native/test_scanner_sanitized.py"):
                if nodeid.startswith(together):
                    return together
            return str(super()._split_scope(nodeid))

    return Scheduling(config, log) if config.getoption("dist") == "loadgroup" else None


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """The running servers by name; each is started when first used, one set per test process."""
    running = Servers()
    yield running
    running.close()


@pytest.fixture(scope="session", params=list(installations()))
def server(request: pytest.FixtureRequest, servers: Servers) -> EmbeddedServer:
    """A running server: the test runs once on each version. `@since(16)` of tests.support.servers picks versions."""
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
    """Random numbers; a failed test shows what they were made from."""
    number = random.SystemRandom().randrange(1 << 32)
    print(f"seed {number}")
    return random.Random(number)
