"""The examples in pgtail(3) print what the page says, on a dump of a real server."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from tests.support.servers import Database, every_version

PAGE = Path(__file__).parents[2] / "man" / "parts" / "pgtail.3.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
EXAMPLES = [block for block in BLOCK.findall(PAGE.read_text(encoding="utf-8")) if block.startswith(">>> ")]


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


@every_version(10)
def test_examples(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dump(database, tmp_path / "changes.bin")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    runner = doctest.DocTestRunner()
    assert len(EXAMPLES) >= 5
    for number, block in enumerate(EXAMPLES, 1):
        test = doctest.DocTestParser().get_doctest(block, names, f"example {number}", str(PAGE), None)
        test.globs = names  # those of the examples before it
        failures: list[str] = []
        runner.run(test, out=failures.append, clear_globs=False)
        assert failures == []
