"""The scanner writes what the decoder writes, wherever a value cannot be decoded or has no LSN."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.support.encode import Cell, begin, commit, insert, lengths, relation, update
from tests.support.render import WAYS, rows_by
from tests.support.run import decode
from tests.support.same import same

OUTPUTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("json", {"transactions": True}),
    ("json-tx", {}),
    ("sql", {}),
    ("sql", {"undo": True}),
    ("debezium", {}),
    ("debezium", {"transactions": True}),
)


@pytest.mark.parametrize("share", [0, 0.001, 0.5])
@pytest.mark.parametrize(("output", "options"), OUTPUTS)
def test_values_that_cannot_be_decoded_among_many(output: str, options: dict[str, Any], share: float) -> None:
    choose = random.Random(share)
    messages = [relation(columns=[("n", 23), ("b", 16), ("s", 25)])]
    while len(messages) < 1500:
        messages.append(begin())
        for _ in range(choose.choice((0, 1, 3, 700))):
            number = "no number" if choose.random() < share else choose.choice(("1e999", "NaN", "-0", "7", "12"))
            row: list[Cell] = [number, choose.choice(("t", "f", None)), choose.choice(("a", "'", "\u202e", "x" * 50))]
            messages.append(choose.choice((insert(*row), update(row, row, "O"))))
        messages.append(commit())
    same(*messages, output=output, **options)


def test_rows_with_and_without_lsn() -> None:
    rows = [lengths(insert("1", "x"), lsn=lsn) for lsn in (0, 7, 1 << 32, 0, 0, 9, (1 << 64) - 1)]
    data = lengths(relation(), begin()) + b"".join(rows) + lengths(commit())
    written = []
    for way in WAYS:
        with rows_by(way):
            written.append(decode(input=data).stdout)
    assert written[0].count(b'"lsn":"') == 4
    assert written[0] == written[1]
