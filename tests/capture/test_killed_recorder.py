"""A recorder that is killed between a Prepare and its outcome: the capture continues as if nothing had happened.

Each history has another moment.
"""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from tests.support.killed_recorder import HISTORIES, Moment, make
from tests.support.run import command
from tests.support.servers import Database

MOMENTS = get_args(Moment)
CASES = [(name, MOMENTS[number % 3]) for number, name in enumerate(HISTORIES)]


@pytest.mark.parametrize(("name", "moment"), CASES)
def test_each_transaction_is_there_once_with_its_outcome(
    newest_database: Database, tmp_path: Path, name: str, moment: Moment
) -> None:
    captures = make(newest_database, tmp_path, HISTORIES[name], moment)
    found, expected = (command("decode", "-o", "json", capture) for capture in captures)
    assert (found.status, found.stderr) == (expected.status, expected.stderr) == (0, "")
    assert found.lines == expected.lines
    prepared = [one["new"]["v"] for one in found.objects if one["op"] == "insert" and one.get("gid")]
    outcomes = [one["op"] for one in found.objects if one["op"].endswith("_prepared")]
    assert prepared == sorted(set(prepared)) != []
    assert outcomes == ["rollback_prepared" if name == "rollback" else "commit_prepared"]
