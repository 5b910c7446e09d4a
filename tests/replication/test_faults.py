"""Faults of networks, servers, disks and processes: nothing is lost, torn or there twice; each message is an error."""

from __future__ import annotations

import random

import pytest

from tests.support.every import ALL
from tests.support.servers import Database, installations
from tests.torture import last_faults, soak
from tests.torture.fault_round import KINDS
from tests.torture.faults import torture

SOAK = 20 if ALL else 5
"""Seconds."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_faults(kind: str) -> None:
    """A sample of what `make torture` tries: six faults of each way to read a slot."""
    assert torture(range(1), 31, list(installations())[-1:], print, kinds=(kind,), faults=6) == []


@pytest.mark.in_one_run_of(6)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", last_faults.FAULTS if ALL else ["slot held", "slot invalidated", "slot idle"])
def test_faults_after_which_a_slot_cannot_be_read_on(newest_database: Database, fault: str) -> None:
    if not last_faults.possible(fault, newest_database.version):
        pytest.skip(f"PostgreSQL {newest_database.version} does not have it")
    for kind in last_faults.KINDS if ALL else ("record",):
        assert last_faults.run(newest_database.server, fault, kind, random.Random(31)).wrong == []


def test_a_steady_load() -> None:
    assert soak.torture(SOAK, 31, print) == []
