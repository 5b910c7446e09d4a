"""Damaged bytes, a sample of what `make torture` tries: only documented errors, whatever reads them."""

from __future__ import annotations

import pytest

from tests.support.every import ALL, new_seed
from tests.torture.fuzz import TARGETS, run

SECONDS = 20 if ALL else 2


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_bytes(name: str) -> None:
    tried, wrong = run(name, new_seed(), SECONDS)
    assert wrong == ""
    assert tried > 10
