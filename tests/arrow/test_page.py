"""The examples in pgtail-arrow(3) print what the page says, on a capture of real servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.examples import run_sessions
from tests.support.run_process import pgtail
from tests.support.servers import Database, since

pytest.importorskip("duckdb")
pytest.importorskip("polars")

PAGE = Path(__file__).parents[2] / "man" / "parts" / "pgtail-arrow.3.md"


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
    assert run_sessions(PAGE) == 3
