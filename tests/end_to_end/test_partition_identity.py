"""Partitions with another replica identity than their root: what every output shows of old rows, on real servers.

A trigger writes the whole old row of every update and delete to a table that is not published: that is the truth.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from tests.support.run import here
from tests.support.servers import Database, since

_IDENTITIES: Final = ("default", "index", "full")
_SETUP: Final = """
CREATE TABLE old_rows (number serial, tab text, op text, row jsonb);
CREATE FUNCTION keep_old() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
    INSERT INTO old_rows (tab, op, row) VALUES (TG_ARGV[0], lower(TG_OP), to_jsonb(OLD)); RETURN NULL;
END$$;
"""
_TABLE: Final = """
CREATE TABLE {0} (id int, d int, code text NOT NULL, v text, n int, PRIMARY KEY (id, d), UNIQUE (code, d))
    PARTITION BY LIST (d);
CREATE TABLE {0}_1 PARTITION OF {0} FOR VALUES IN (1);
CREATE TABLE {0}_2 (n int, v text, code text NOT NULL, d int NOT NULL, id int NOT NULL);
ALTER TABLE {0} ATTACH PARTITION {0}_2 FOR VALUES IN (2);
CREATE UNIQUE INDEX {0}_1_code ON {0}_1 (code);
CREATE UNIQUE INDEX {0}_2_code ON {0}_2 (code);
CREATE TRIGGER old AFTER UPDATE OR DELETE ON {0} FOR EACH ROW EXECUTE FUNCTION keep_old('{0}');
"""
_CHANGES: Final = (
    "INSERT INTO {0} VALUES (1, 1, 'c1', 'a', 1), (2, 1, 'c2', NULL, 2)",
    "INSERT INTO {0} VALUES (3, 2, 'c3', 'x', NULL), (4, 2, 'c4', NULL, 4)",
    "UPDATE {0} SET v = 'b' WHERE id = 1",
    "UPDATE {0} SET v = NULL, n = 5 WHERE id = 3",
    "UPDATE {0} SET code = 'c5' WHERE id = 2",
    "UPDATE {0} SET id = 14 WHERE id = 4",
    "DELETE FROM {0} WHERE id = 1",
    "DELETE FROM {0} WHERE id = 3",
    "DELETE FROM {0} WHERE id IN (2, 14)",
)


def identity(table: str, word: str, index: str) -> str:
    """The statement that gives a table this replica identity."""
    return f"ALTER TABLE {table} REPLICA IDENTITY {f'USING INDEX {index}' if word == 'index' else word}"


def combinations() -> dict[str, tuple[str, str, str]]:
    """The identities of root, first and second partition, by the root's name."""
    all_ = itertools.product((*_IDENTITIES, "nothing"), _IDENTITIES, _IDENTITIES)
    return {"_".join(["t", *[word[0] for word in one]]): one for one in all_}


def create(database: Database, tables: dict[str, tuple[str, str, str]]) -> None:
    """Create the tables, a publication via their roots, and a slot."""
    database.execute(_SETUP)
    for name, words in tables.items():
        statements = [identity(name, words[0], f"{name}_code_d_key")]
        statements += [identity(f"{name}_{n}", words[n], f"{name}_{n}_code") for n in (1, 2)]
        database.execute(_TABLE.format(name) + ";".join(statements))
    published = f"FOR TABLE {', '.join(tables)} WITH (publish_via_partition_root = true)"
    database.execute(f"CREATE PUBLICATION p {published}", slot(database))


def slot(database: Database) -> str:
    return f"SELECT pg_create_logical_replication_slot('{database.name}', 'pgoutput')"


def stream(database: Database, *arguments: str | Path, status: int = 0) -> bytes:
    """What `pgtail stream` writes; the slot stays where it is."""
    result = here("stream", database.conninfo(), "--slot", database.name, "-P", "p", "--until", "now", *arguments)
    assert result.status == status, result.stderr
    return result.stdout


def changes(written: bytes) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in written.splitlines()]


@pytest.mark.parametrize("form", [(), ("--binary",)], ids=["text", "binary"])
@since(13)
def test_no_old_value_is_shown_that_was_not_sent(database: Database, form: tuple[str, ...]) -> None:
    tables = combinations()
    create(database, tables)
    for name in tables:
        database.execute(*[statement.format(name) for statement in _CHANGES])
    if form and database.version < 14:
        pytest.skip("servers before 14 send no binary values")
    found = changes(stream(database, "-o", "json", *form))
    truth = database.query("SELECT tab, op, row FROM old_rows ORDER BY number")
    for name, words in tables.items():
        rows = [one for one in found if one["table"] == name and one["op"] in ("update", "delete")]
        old_rows = [(op, row) for tab, op, row in truth if tab == name]
        assert [one["op"] for one in rows] == [op for op, _ in old_rows]
        for change, (_, row) in zip(rows, old_rows, strict=True):
            old = change.get("old", {})
            assert old.items() <= row.items(), (words, change)
            if change["op"] == "delete":
                assert set(change.get("key", [])) <= set(old), (words, change)
            elif "old" not in change:
                new = change["new"]
                assert all(new[column] == row[column] for column in change.get("key", [])), (words, change)
            if set(words) == {"full"}:
                assert old == row, (words, change)
