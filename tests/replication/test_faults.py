"""Faults of networks, servers, disks and processes: nothing is lost, torn or there twice; each message is an error."""

from __future__ import annotations

import pytest

from tests.replication.faults import KINDS, torture
from tests.support.servers import installations


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_faults(kind: str) -> None:
    """A sample of what `make torture` tries: eight faults of each way to read a slot."""
    assert torture(range(1), 31, (kind,), list(installations())[-1:], print) == []
