"""Partitions with another replica identity than their root: what every output shows of old rows, on real servers.

A trigger writes the whole old row of every update and delete to a table that is not published: that is the truth.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from tests.support.captures import segments
from tests.support.encode import lengths
from tests.support.render import WAYS, rows_by
from tests.support.run import here
from tests.support.servers import Database, since
from tests.support.tail import wait_for_free_slots
from tests.support.workload import pgoutput

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
    database.execute("CREATE TABLE filler (v text)")
    published = f"FOR TABLE filler, {', '.join(tables)} WITH (publish_via_partition_root = true)"
    database.execute(f"CREATE PUBLICATION p {published}", slot(database))


def slot(database: Database) -> str:
    return f"SELECT pg_create_logical_replication_slot('{database.name}', 'pgoutput')"


def stream(database: Database, *arguments: str) -> bytes:
    """What `pgtail stream` writes; the slot stays where it is."""
    wait_for_free_slots(database)
    result = here("stream", database.conninfo(), "--slot", database.name, "-P", "p", "--until", "now", *arguments)
    assert result.status == 0, result.stderr
    return result.stdout


def dump(database: Database, path: Path, **options: str) -> Path:
    """A file of the messages in the slot."""
    given = {"publication_names": "p", **options}
    path.write_bytes(lengths(*[data for _, data in pgoutput(database, database.name, **given)]))
    return path


def decoded(source: Path, *arguments: str) -> bytes:
    """What `pgtail decode` writes of a dump or a capture."""
    result = here("decode", *arguments, source)
    assert result.status == int("--undo" in arguments), result.stderr
    return result.stdout


def changes(written: bytes) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in written.splitlines()]


def check(database: Database, tables: dict[str, tuple[str, str, str]], found: list[dict[str, Any]]) -> None:
    """What is shown of the old rows of these tables is what the server had; the key of a delete is known."""
    truth = database.query("SELECT tab, op, row FROM old_rows ORDER BY number")
    for name, words in tables.items():
        rows = [one for one in found if one["table"] == name and one["op"] in ("update", "delete")]
        old_rows = [(op, row) for tab, op, row in truth if tab == name]
        assert [one["op"] for one in rows] == [op for op, _ in old_rows]
        for change, (_, row) in zip(rows, old_rows, strict=True):
            old, key = change.get("old", {}), change.get("key", [])
            assert old.items() <= row.items(), (words, change)
            if change["op"] == "delete":
                assert set(key) <= set(old), (words, change)
            elif "old" not in change:
                assert all(change["new"][column] == row[column] for column in key), (words, change)
            if set(words) == {"full"}:
                assert old == row, (words, change)


@pytest.mark.parametrize("form", [(), ("--binary",)], ids=["text", "binary"])
@since(13)
def test_no_old_value_is_shown_that_was_not_sent(database: Database, form: tuple[str, ...]) -> None:
    if form and database.version < 14:
        pytest.skip("servers before 14 send no binary values")
    check(database, busy(database), changes(stream(database, "-o", "json", *form)))


def busy(database: Database, root: str = "") -> dict[str, tuple[str, str, str]]:
    """All combinations, or those with this identity of the root, with changes; returns them."""
    tables = {name: words for name, words in combinations().items() if root in words[0]}
    create(database, tables)
    for name in tables:
        database.execute(*[statement.format(name) for statement in _CHANGES])
    return tables


@since(13)
def test_every_output_leaves_out_what_was_not_sent(database: Database, tmp_path: Path) -> None:
    create(database, {"t": ("full", "default", "default")})
    database.execute("INSERT INTO t VALUES (2, 1, 'c', 'b')", "UPDATE t SET v = 'x'", "DELETE FROM t")
    source = dump(database, tmp_path / "dump")

    def lines(*options: str) -> list[str]:
        return decoded(source, *options).decode().splitlines()

    assert lines("-o", "line")[-1].endswith("DELETE  public.t         [id=2,d=1]")
    assert lines("-o", "csv")[-1].endswith(',"{code,v,n}",,2,1,,,')
    assert '"before":{"id":2,"d":1},"after":null' in lines("-o", "debezium")[-1]
    key = '[{"name":"id","type":"integer","value":2},{"name":"d","type":"integer","value":1}]'
    assert lines("-o", "wal2json")[-2].endswith(f'"identity":{key}}}')
    statement = """'DELETE FROM', '"public"."t"', NULL, $$"id" = '2' AND "d" = '1'$$"""
    assert statement in "".join(lines("-o", "sql"))
    undone = here("decode", "-o", "sql", "--undo", source)
    assert (undone.status, b"cannot be undone: delete on public.t" in undone.stdout) == (1, True)
    assert "the replica identity of its partitions (public.t_1) lacks code, v, n" in undone.stderr
    assert not lines("-o", "json", "--op", "delete", "--where", "old.v is null")
    assert orjson.loads(lines("-o", "json", "--op", "update", "--changed")[0])["maybe_changed"] == ["code", "v", "n"]
    seen = changes(decoded(source, "-o", "json", "--old-values", "seen"))
    assert ("old" in seen[1], seen[2]["old"]) == (False, {"id": 2, "d": 1})
    assert b"not part of the identity" in here("inspect", source).stdout


@since(13)
def test_rows_are_not_remembered_by_the_key_of_a_partition(database: Database, tmp_path: Path) -> None:
    """Two partitions may have rows with the same key: which of them an update is of is not known."""
    database.execute(
        "CREATE TABLE t (id int, d int, v text) PARTITION BY LIST (d)",
        *[f"CREATE TABLE t_{d} PARTITION OF t (PRIMARY KEY (id)) FOR VALUES IN ({d})" for d in (1, 2)],
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "CREATE PUBLICATION p FOR TABLE t WITH (publish_via_partition_root = true)",
        slot(database),
        "INSERT INTO t VALUES (1, 1, 'a'), (1, 2, 'b')",
        "UPDATE t SET v = 'c' WHERE d = 1",
        "DELETE FROM t WHERE d = 1",
    )
    source = dump(database, tmp_path / "dump")
    for one in changes(decoded(source, "-o", "json", "--old-values", "seen"))[2:]:
        assert set(one.get("old", {})) <= {"id"}, one
    assert "--old-values seen" not in here("decode", "-o", "sql", "--undo", source).stderr


@since(13)
def test_a_segment_decodes_alone(database: Database, tmp_path: Path) -> None:
    busy(database, "full")
    whole = stream(database, "-o", "json")
    size = "--segment-size", "4kB"
    here("record", database.conninfo(), "-S", database.name, "-P", "p", "-D", tmp_path, "--until", "now", *size)
    files = segments(tmp_path)
    assert len(files) > 20
    for way in WAYS:
        with rows_by(way):
            assert decoded(tmp_path, "-o", "json") == whole
            assert b"".join([decoded(file, "-o", "json") for file in files]) == whole
            selected = [line for line in whole.splitlines(keepends=True) if b'"table":"t_f_d_d"' in line]
            assert decoded(tmp_path, "-o", "json", "-t", "t_f_d_d") == b"".join(selected)
    assert decoded(tmp_path, "-o", "json", "--jobs", "2") == whole
    here("record", "--from", *files, "-D", tmp_path / "again")
    assert decoded(tmp_path / "again", "-o", "json") == whole


@since(15)
def test_partitions_that_are_altered_attached_and_detached(database: Database, tmp_path: Path) -> None:
    """In one session; all tables are published, a detached partition under its own name: before 15 under the root's."""
    create(database, {"t": ("full", "full", "full")})
    database.execute("CREATE PUBLICATION everything FOR ALL TABLES WITH (publish_via_partition_root = true)")
    database.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots", slot(database))
    for statement in (
        identity("t_1", "default", ""),
        identity("t_1", "full", ""),
        identity("t_2", "index", "t_2_code"),
        identity("t", "default", ""),
        identity("t", "full", ""),
        "ALTER TABLE t DETACH PARTITION t_1",
        "INSERT INTO t_1 VALUES (1, 1, 'c1', NULL); UPDATE t_1 SET v = 'x'; DELETE FROM t_1",
        "ALTER TABLE t ATTACH PARTITION t_1 FOR VALUES IN (1)",
        "ALTER TABLE t DETACH PARTITION t_2; ALTER TABLE t_2 ADD more int",
        "INSERT INTO t_2 (id, d, code) VALUES (1, 2, 'c1'); DELETE FROM t_2",
        "CREATE TABLE t_3 (LIKE t INCLUDING INDEXES); ALTER TABLE t ATTACH PARTITION t_3 FOR VALUES IN (2)",
        identity("t_3", "full", ""),
    ):
        attached = database.value("SELECT count(*) FROM pg_inherits WHERE inhparent = 't'::regclass") == 2
        database.execute(*[one.format("t") for one in _CHANGES] if attached else (), statement)
    database.execute(*[one.format("t") for one in _CHANGES])
    source = dump(database, tmp_path / "dump", publication_names="everything")
    found = changes(decoded(source, "-o", "json"))
    check(database, {"t": ("full", "any", "any")}, found)
    assert [one["old"].keys() for one in found if one["table"] == "t" and one["op"] == "delete"][-1] == {
        *("id", "d", "code", "v", "n")
    }
