"""A dump that was made in a session with unusual settings: one note names them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.corpus import CAPTURES
from tests.support.run_process import pgtail
from tests.support.servers import Database, since

GUCS = CAPTURES / "pg16" / "I_gucs"
NOTE = "note: the session that made this dump had another DateStyle than ISO, or bytea_output escape, and values"


@pytest.mark.parametrize("pure", ["", "1"])
@pytest.mark.parametrize("arguments", [("decode", "-o", "json"), ("decode", "-o", "line"), ("stats",)])
def test_settings_of_a_dump_are_named_once(arguments: tuple[str, ...], pure: str) -> None:
    [file] = GUCS.glob("p1.recv.bin*")
    _, words = pgtail(*arguments, str(file), str(file), env={"PGTAIL_PURE": pure})
    assert words.count("note: the session") == words.count(NOTE) == 1
    [binary] = GUCS.glob("p1_bin.recv.bin*")
    assert "session" not in pgtail(*arguments, str(binary), env={"PGTAIL_PURE": pure})[1]


@pytest.mark.parametrize("style", ["ISO", "German", "SQL, DMY", "Postgres, MDY"])
def test_every_style_is_recognized(database: Database, tmp_path: Path, style: str) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, d date, s timestamptz, b bytea)", "CREATE PUBLICATION p FOR TABLE t"
    )
    database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    moments = ("'2026-03-04', 'infinity', ''", "'0044-03-15 BC', NULL, NULL", "NULL, now(), '\\x5c'")
    for number, values in enumerate(moments):
        database.execute(f"INSERT INTO t VALUES ({number}, {values})")
        with database.connect() as session:
            session.execute(f"SET DateStyle = '{style}'".encode())
            rows = session.execute(
                "SELECT lsn, xid, '\\x' || encode(data, 'hex') FROM pg_logical_slot_get_binary_changes("
                "'s', NULL, NULL, 'proto_version', '1', 'publication_names', 'p')"
            ).fetchall()
        dump = tmp_path / f"{number}.txt"
        dump.write_text("".join([f"{lsn}|{xid}|{data}\n" for lsn, xid, data in rows]))
        out, words = pgtail("decode", "-o", "json", str(dump))
        assert f'"id":{number},' in out
        assert (NOTE in words) == ("session" in words) == (style != "ISO")


@since(13)
def test_partitions_with_another_order_of_columns_show_no_settings(database: Database, tmp_path: Path) -> None:
    database.execute(
        "CREATE TABLE r (t text, b bytea, id int PRIMARY KEY) PARTITION BY LIST (id)",
        "CREATE TABLE l (b bytea, id int PRIMARY KEY, t text)",
        "ALTER TABLE r ATTACH PARTITION l FOR VALUES IN (1)",
        "CREATE PUBLICATION p FOR TABLE r WITH (publish_via_partition_root)",
    )
    database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    database.execute("INSERT INTO r VALUES ('text', '\\x5c', 1)")
    for output, noted in (("hex", False), ("escape", True)):
        with database.connect() as session:
            session.execute(f"SET bytea_output = {output}".encode())
            rows = session.execute(
                "SELECT lsn, xid, '\\x' || encode(data, 'hex') FROM pg_logical_slot_peek_binary_changes("
                "'s', NULL, NULL, 'proto_version', '1', 'publication_names', 'p')"
            ).fetchall()
        dump = tmp_path / f"{output}.txt"
        dump.write_text("".join([f"{lsn}|{xid}|{data}\n" for lsn, xid, data in rows]))
        assert (NOTE in pgtail("decode", "-o", "json", str(dump))[1]) == noted
