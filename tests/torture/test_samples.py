"""Samples of some of the trials, small enough for every run of the tests."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pgtail.demo.server import EmbeddedServer
from pgtail.native import compiled
from tests.support.render import need_compiled
from tests.support.servers import Database
from tests.torture import faults, fuzz, kills, last_faults, loads, outbox_kills, soak, stop_signals, streams
from tests.torture.fault_round import KINDS
from tests.torture.signal_targets import TARGETS


def test_random_streams_outputs_and_options(seed: random.Random) -> None:
    if compiled() is None:
        need_compiled()
    assert streams.run(seed.randrange(1 << 30), 5) > 1


@pytest.mark.parametrize("name", fuzz.TARGETS)
def test_damaged_bytes(seed: random.Random, name: str) -> None:
    assert fuzz.fuzz(name, seed, 1) > 10


def test_kills_of_record(newest_server: EmbeddedServer, seed: random.Random) -> None:
    kills.kill(newest_server, seed, 4, None)


def test_kills_of_an_outbox(newest_server: EmbeddedServer, seed: random.Random) -> None:
    outbox_kills.kill(newest_server, seed, 3)


@pytest.mark.parametrize("name", ["stream -o sql --undo", "record", "expect"])
def test_signals(newest_database: Database, name: str) -> None:
    stop_signals.send_signals(newest_database, TARGETS[name], 3, random.Random(8))


@pytest.mark.parametrize("kind", KINDS)
def test_faults(newest_server: EmbeddedServer, kind: str) -> None:
    faults.disturb(newest_server, kind, random.Random(31), 2)


@pytest.mark.parametrize("fault", ["slot held", "slot invalidated"])
def test_faults_after_which_a_slot_cannot_be_read_on(newest_server: EmbeddedServer, fault: str) -> None:
    if newest_server.installation.major < last_faults.LEAST.get(fault, 0):
        pytest.skip(f"PostgreSQL {newest_server.installation.major} does not have it")
    assert last_faults.run(newest_server, fault, "record", random.Random(31)).wrong == []


def test_a_steady_load(newest_server: EmbeddedServer, seed: random.Random) -> None:
    soak.load(newest_server, seed, 5)


def test_many_open_streams(tmp_path: Path) -> None:
    check_load(*loads.open_streams(tmp_path, 300))


def test_rows_of_1600_columns(newest_database: Database, tmp_path: Path) -> None:
    check_load(*loads.wide_rows(newest_database, tmp_path, 8))


def test_many_concurrent_writers(newest_database: Database, tmp_path: Path) -> None:
    check_load(*loads.many_writers(newest_database, tmp_path, 10))


def check_load(peak: int, wrong: str) -> None:
    assert wrong == ""
    assert peak < loads.BOUND
