"""The fold of every recording against what the server had in its published tables at the end."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.end_to_end.test_corpus_tables import NOT_REPLAYED, published
from tests.support.corpus import Capture, captures
from tests.support.spark import model
from tests.support.spark.captures import record

ALTERED = "A_ddl"
RENAMED_LABEL = "public.e"
"""ALTER TYPE ... RENAME VALUE changes rows of which nothing is sent."""


def recordings() -> list[Capture]:
    """Those with everything in text; without what came from elsewhere, rows are missing."""
    return [c for c in captures() if not c.binary and c.options.get("origin") != "none"]


@pytest.mark.parametrize("capture", recordings()[::3], ids=str)
def test_the_rows_are_the_servers(capture: Capture, tmp_path: Path) -> None:
    record(capture, tmp_path / "capture")
    rows = model.committed(model.changes(tmp_path / "capture"))
    folds = model.folds(rows, model.relations(tmp_path / "capture"), schema=True)
    excepted = NOT_REPLAYED.get(capture.scenario.name, {})
    for name, table in published(capture).items():
        if name in excepted or (capture.scenario.name, name) == (ALTERED, RENAMED_LABEL):
            continue
        expected = Counter(tuple(map(stored, row)) for row in table["rows"])
        found = list(folds[name].rows()) if name in folds else []
        if capture.scenario.name != ALTERED:
            assert all(set(table["columns"]) <= row.values.keys() for row in found), name
        left = Counter(expected)
        for row in sorted(found, key=lambda row: -len(row.values)):
            fitting = [
                one
                for one in left
                if all(row.values.get(c, v) == v for c, v in zip(table["columns"], one, strict=True))
            ]
            assert fitting, (name, row)
            left -= Counter(fitting[:1])
        assert not left or capture.scenario.name == ALTERED, (name, left)


def stored(text: str | None) -> str | None:
    """What stands for a stored value that is not UTF-8."""
    if text is None:
        return None
    encoded = text.encode(errors="surrogateescape")
    return text if encoded == text.encode(errors="replace") else f"\\x{encoded.hex()}"
