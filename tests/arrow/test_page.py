"""The examples in pgtail-arrow(3) print what the page says, on a capture of real servers."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from tests.support.run_process import pgtail
from tests.support.servers import Database, since

pytest.importorskip("duckdb")
pytest.importorskip("polars")

PAGE = Path(__file__).parents[2] / "man" / "parts" / "pgtail-arrow.3.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
EXAMPLES = [block for block in BLOCK.findall(PAGE.read_text(encoding="utf-8")) if block.startswith(">>> ")]


@since(12)
def test_examples(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, customer text, total numeric(10,2))",
        "CREATE PUBLICATION shop FOR TABLE orders",
    )
    record = ["record", database.conninfo(), "-S", "audit", "-D", str(tmp_path / "captures" / "shop"), "--until", "now"]
    pgtail(*record, "-P", "shop", "--snapshot")
    database.execute(
        "INSERT INTO orders VALUES (1, 'Ada', 129.50), (2, 'Bob', 8.00)",
        "UPDATE orders SET total = 119.50 WHERE id = 1",
        "DELETE FROM orders WHERE id = 2",
    )
    pgtail(*record)
    monkeypatch.chdir(tmp_path)
    assert len(EXAMPLES) == 3
    names: dict[str, object] = {}
    runner = doctest.DocTestRunner()
    for number, block in enumerate(EXAMPLES, 1):
        test = doctest.DocTestParser().get_doctest(block, names, f"example {number}", str(PAGE), None)
        test.globs = names  # those of the examples before it
        failures: list[str] = []
        runner.run(test, out=failures.append, clear_globs=False)
        assert failures == []
