"""Rows of altered tables, as the messages of `pgtail ddl` say what was altered, beside SELECT on real servers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from pgtail.arrow.segments.ranges import Place, Range
from pgtail.arrow.table_at import TableAt, read_table
from pgtail.arrow.typed.alterations import Alteration, Alterations, Origins
from pgtail.arrow.typed.versions import Version
from pgtail.changes.ddl import Ddl, DdlColumn
from pgtail.postgres.ddl_trigger import SINCE, install_sql
from pgtail.storage import locate
from tests.arrow.test_table_at import Known, known
from tests.arrow.test_versions import version
from tests.support.servers import Database, since
from tests.support.spark import model
from tests.support.spark.altered import CREATE, Altered

TRIGGERS = install_sql(with_statement=False)


def table(capture: Path, *, ddl: bool = True) -> TableAt:
    return read_table(locate(str(capture)), "altered", ddl=ddl)


def selected(database: Database) -> Counter[Known]:
    """What SELECT shows, as known() has it."""
    names, rows = model.texts(database, "altered")
    return Counter({frozenset(zip(names, row, strict=True)): count for row, count in rows.items()})


@since(SINCE)
def test_random_histories(database: Database, tmp_path: Path) -> None:
    """Every value is known, and as SELECT shows it; without --ddl not all are."""
    capture, altered, guessed = tmp_path / "capture", Altered(Random(database.version)), 0
    database.execute(CREATE)
    model.begin(database)
    database.execute(TRIGGERS)
    for _ in range(2):
        model.run(database, altered.transactions(50))
        model.record(database, capture, "--segment-size", "64KB")
        assert known(table(capture)) == selected(database)
        guessed += known(table(capture, ddl=False)) != selected(database)
    assert guessed


def test_added_columns_join_the_key(newest_database: Database, tmp_path: Path) -> None:
    """Rows are found by the value that no row message had; a rewrite and USING leave values unknown."""
    newest_database.execute(CREATE)
    model.begin(newest_database)
    newest_database.execute(
        TRIGGERS,
        "INSERT INTO altered VALUES (1, 1, 1, 'x'), (2, 2, 2, 'y'), (3, 3, 3, 'z')",
        "ALTER TABLE altered ADD k int NOT NULL DEFAULT 5, ALTER c TYPE char(5)",
        "ALTER TABLE altered ADD l int NOT NULL DEFAULT 6",
        "ALTER TABLE altered DROP CONSTRAINT altered_pkey, ADD PRIMARY KEY (id, l)",
        "UPDATE altered SET id = 10 WHERE id = 1",
        "DELETE FROM altered WHERE id = 2",
    )
    model.record(newest_database, tmp_path)
    updated = {"id": "10", "a": "1", "b": "1", "c": "x    ", "k": "5", "l": "6"}
    other = {"id": "3", "a": "3", "b": "3", "l": "6"}
    assert known(table(tmp_path)) == Counter([frozenset(updated.items()), frozenset(other.items())])


# -- messages and versions ---------------------------------------------------------------------------------------------

ID = DdlColumn(1, "id", "integer", not_null=True, key=True)
A, B = DdlColumn(2, "a", "integer"), DdlColumn(3, "b", "integer")
A_AGAIN = DdlColumn(3, "a", "integer", missing="7")
CREATED, ALTERED = version("id int, a int"), version("id int, a int, b int")


def message(position: int, ordinal: int, seq: int, *columns: DdlColumn, **more: Any) -> Alteration:
    """The message with this ordinal in a transaction, after its row with this seq."""
    form = Ddl(1, "ALTER TABLE", 1, "public", "t", identity="default", columns=(ID, *columns))
    return Alteration(Place(position, ordinal), Place(position, seq + 1), replace(form, **more))


BASE, BASE_AGAIN = message(10, 1, 0, A), message(15, 2, 0, A)


def origins(now: Version, *messages: Alteration, rows: int = 3) -> list[str]:
    """What is known of rows of CREATED, transaction 10, in each step of rows of transaction 20, which are of `now`."""
    alterations = Alterations((BASE, *messages))
    [first] = alterations.steps(None, CREATED, Range(Place(10, 1), Place(10, 2)))
    assert first.origins is None
    again = Alterations((BASE, *messages), alterations.done)
    places = Range(Place(20, 1), Place(20, rows + 1))
    steps = [*alterations.steps(CREATED, now, places)]
    assert [*again.steps(CREATED, now, places)] == steps
    assert [step.places.first for step in steps[1:]] == [step.places.end for step in steps[:-1]]
    return [text(step.origins) for step in steps] + [f"{alterations.dropped} dropped"] * bool(alterations.dropped)


def text(known_: Origins | None) -> str:
    if known_ is None:
        return "-"
    kept = [f"{old}={new}" for old, new in known_.kept.items()]
    return " ".join([*kept, *[f"+{name}={value}" for name, value in known_.added.items()]])


@pytest.mark.parametrize(
    ("now", "messages", "expected"),
    [
        # ADD b, without a message, with one before the first row, and with one that comes after it.
        (ALTERED, [], ["-"]),
        (ALTERED, [message(20, 1, 0, A, B)], ["id=id a=a +b=None"]),
        (ALTERED, [message(20, 2, 1, A, B)], ["id=id a=a +b=None"]),
        (ALTERED, [message(20, 3, 2, A, B)], ["-"]),
        # What rows have that are older than the column.
        (ALTERED, [message(20, 1, 0, A, replace(B, missing="5", not_null=True))], ["id=id a=a +b=5"]),
        (ALTERED, [message(20, 1, 0, A, replace(B, has_default=True))], ["id=id a=a"]),
        (ALTERED, [message(20, 1, 0, A, replace(B, not_null=True))], ["id=id a=a"]),
        (ALTERED, [message(15, 1, 0, A, replace(B, has_default=True)), message(20, 1, 0, A, B)], ["id=id a=a"]),
        # RENAME a TO b, ADD a; DROP a, ADD b, RENAME b TO a.
        (ALTERED, [message(20, 1, 0, replace(A, name="b"), replace(B, name="a"))], ["-", "1 dropped"]),
        (ALTERED, [message(20, 1, 0, replace(A_AGAIN, attnum=2), replace(B, name="b"))], ["id=id a=a +b=None"]),
        (version("id int, b int"), [message(20, 1, 0, replace(A, name="b"))], ["id=id a=b"]),
        (version("id int, b int"), [message(20, 1, 0, B)], ["id=id +b=None"]),
        (version("id int, b big"), [message(20, 1, 0, replace(A, name="b", type="bigint"))], ["id=id a=b"]),
        (version("id int, b text"), [message(20, 1, 0, replace(B, name="b"))], ["-", "1 dropped"]),
        # DROP a, ADD a: between rows, in one command, which may be before the row or after it, and in two commands.
        (CREATED, [message(15, 1, 0, A_AGAIN)], ["id=id +a=7"]),
        (CREATED, [message(20, 2, 1, A_AGAIN)], ["-", "id=id"]),
        (CREATED, [message(20, 2, 1), message(20, 3, 1, A_AGAIN)], ["-", "id=id +a=7"]),
        # Nothing that concerns rows; and one that was rolled back, or forged.
        (CREATED, [message(20, 1, 0, A)], ["-"]),
        (CREATED, [message(20, 2, 1, A, B)], ["-", "1 dropped"]),
        (CREATED, [message(20, 2, 1, dropped=True)], ["-", "1 dropped"]),
        # Another key or identity.
        (ALTERED, [message(20, 1, 0, A, replace(B, key=True))], ["-", "1 dropped"]),
        (ALTERED, [message(20, 1, 0, A, B, identity="full")], ["-", "1 dropped"]),
        # After one of which nothing is known.
        (ALTERED, [message(20, 1, 0)._replace(ddl=None), message(20, 2, 0, A, B)], ["-"]),
        (ALTERED, [message(15, 1, 0)._replace(ddl=None), BASE_AGAIN, message(20, 1, 0, A, B)], ["id=id a=a +b=None"]),
    ],
)
def test_what_counts(now: Version, messages: Sequence[Alteration], expected: list[str]) -> None:
    assert origins(now, *messages) == expected
