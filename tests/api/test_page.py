"""The examples in pgtail(3) and the README do what these say, on a dump of a real server."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.support.examples import python_blocks, run_sessions
from tests.support.servers import Database, every_version

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "man" / "parts" / "pgtail.3.md"
PROGRAMS = [block for path in (PAGE, ROOT / "README.md") for block in python_blocks(path, "import pgtail")]


def dump(database: Database, path: Path) -> None:
    """The changes of the examples, as the server sends them."""
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, customer text, total numeric(10,2))",
        "CREATE PUBLICATION shop FOR TABLE orders",
        "SELECT pg_create_logical_replication_slot('audit', 'pgoutput')",
        "INSERT INTO orders VALUES (1, 'Ada', 129.50), (2, 'Bob', 8.00)",
        "UPDATE orders SET total = 119.50 WHERE id = 1",
        "DELETE FROM orders WHERE id = 2",
    )
    messages = database.query(
        "SELECT data FROM pg_logical_slot_get_binary_changes('audit', NULL, NULL, 'proto_version', '1',"
        " 'publication_names', 'shop')"
    )
    path.write_bytes(b"".join([bytes(data) for (data,) in messages]))
    path.with_suffix(".bin.gz").write_bytes(gzip.compress(path.read_bytes()))


@every_version(10)
def test_examples(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dump(database, tmp_path / "changes.bin")
    monkeypatch.chdir(tmp_path)
    assert run_sessions(PAGE) >= 5
    assert len(PROGRAMS) == 2
    for program in PROGRAMS:
        exec(compile(program, str(PAGE), "exec"), {})
    assert capsys.readouterr().out.splitlines()[-1].startswith("update {'id': 1} None {'id': 1, 'customer': 'Ada'")
