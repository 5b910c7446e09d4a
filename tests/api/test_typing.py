"""What type checkers see of the library, and that its names are the same at run time."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import pgtail

ROOT = Path(__file__).parents[2]
PROGRAM = """
from collections.abc import Iterator
from datetime import datetime
from typing import Any, assert_type

import pgtail

def prices(path: str) -> Iterator[int]:
    for transaction in pgtail.read(path, tables=["orders"], where="total > 100", since=datetime.now(), limit=3):
        assert_type(transaction, pgtail.Transaction)
        assert_type(transaction.commit_lsn, pgtail.Lsn | None)
        assert_type(transaction.commit_ts, datetime | None)
        for change in transaction:
            assert_type(change, pgtail.Change)
            assert_type(change.new, dict[str, Any] | None)
            print(change.op, change.schema, change.table, change.key, change.old, change.unchanged, change.lsn)
            if isinstance(change, pgtail.Message):
                assert_type(change.content, bytes)
            elif change.op == "insert" and change.new is not None:
                if change.new["total"] is not pgtail.UNCHANGED and change.new["total"] is not pgtail.NOT_SENT:
                    yield change.new["total"]
            for column in change.relation.columns:
                assert_type(column.type_name, str)

with pgtail.read(b"", values="text") as stream:
    assert_type(stream, pgtail.Transactions)
try:
    next(stream)
except (pgtail.Malformed, pgtail.UndecodedError) as error:
    print(error.source, error.offset)
"""


def checked(tmp_path: Path, program: str) -> str:
    """What mypy says of a program of users."""
    path = tmp_path / "program.py"
    path.write_text(program)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--config-file", "", str(path)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    return ran.stdout + ran.stderr


def test_a_program_of_users_is_typed(tmp_path: Path) -> None:
    assert checked(tmp_path, PROGRAM) == ""


def test_wrong_arguments_are_found_by_type_checkers(tmp_path: Path) -> None:
    program = ["import pgtail", 'pgtail.read("a", table="x")', 'pgtail.read("a", limit="1")', "pgtail.nothing", ""]
    found = [line for line in checked(tmp_path, "\n".join(program)).splitlines() if "error: " in line]
    assert [line.rpartition("[")[2] for line in found] == ["call-arg]", "arg-type]", "attr-defined]"]


def test_the_names_are_those_that_type_checkers_see() -> None:
    tree = ast.parse(Path(pgtail.__file__).read_text(encoding="utf-8"))
    seen = {name.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for name in node.names}
    assert {*pgtail.__all__} == (seen - {"annotations", "import_module", "TYPE_CHECKING", "Any"}) | {"__version__"}
    assert {*pgtail.__all__} <= {*dir(pgtail)}
    for name in pgtail.__all__:
        value = getattr(pgtail, name)
        assert value is not None
        assert not isinstance(value, type) or value.__module__ == "pgtail"
    with pytest.raises(AttributeError, match="module pgtail has no attribute nothing"):
        _ = pgtail.nothing  # type: ignore[attr-defined]


def test_positions_are_numbers_with_the_text_of_postgresql() -> None:
    position = pgtail.Lsn("16/B374D848")
    assert (position, str(position), f"{position:>12}") == (0x16B374D848, "16/B374D848", " 16/B374D848")
    assert repr(pgtail.Lsn(8)) == "Lsn('0/8')"
    assert max(position, pgtail.Lsn("2/0")) is position
    with pytest.raises(ValueError, match="is not a log position"):
        pgtail.Lsn("B374D848")
    assert pgtail.Lsn("FFFFFFFF/FFFFFFFF") == 2**64 - 1
    for number in (-1, 2**64):
        with pytest.raises(ValueError, match=f"^{number} is not a log position: these have 64 bits$"):
            pgtail.Lsn(number)
