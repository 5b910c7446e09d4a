"""Samples of the loads that `make torture` tries: bounded memory, and what is written is what the table has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.servers import Database
from tests.torture.loads import BOUND, many_writers, open_streams, wide_rows


def test_many_open_streams(tmp_path: Path) -> None:
    peak, wrong = open_streams(tmp_path, 300)
    assert wrong == ""
    assert peak < BOUND


@pytest.mark.in_one_run_of(6)
def test_rows_of_1600_columns(newest_database: Database, tmp_path: Path) -> None:
    peak, wrong = wide_rows(newest_database, tmp_path, 20)
    assert wrong == ""
    assert peak < BOUND


def test_many_concurrent_writers(newest_database: Database, tmp_path: Path) -> None:
    peak, wrong = many_writers(newest_database, tmp_path, 10)
    assert wrong == ""
    assert peak < BOUND
