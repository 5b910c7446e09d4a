"""`pgtail spark catalog`: the statements make every table of OUT known by its name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable

from pgtail.arrow.schemas import CHANGES, DDL, RELATIONS, SNAPSHOTS, TRANSACTIONS
from pgtail.spark.lake.catalog import Entry, changed, entries
from pgtail.spark.lake.delta import Commit, LakeTable
from pgtail.spark.lake.registration import statements
from pgtail.storage import locate
from tests.spark.test_lake import delta_scan
from tests.support.run_process import pgtail

__all__ = ["delta_scan"]  # a fixture


def test_duckdb_reads_every_table_of_a_file_of_views(delta_scan: Any, whole: Path, tmp_path: Path) -> None:
    out, _ = pgtail("spark", "catalog", str(whole), "--for", "duckdb")
    views = tmp_path / "shop.duckdb"
    delta_scan.execute(f"ATTACH '{views}' AS shop; USE shop")
    for _ in range(2):
        delta_scan.execute(out)
    names = delta_scan.execute("SELECT schema_name, view_name, sql FROM duckdb_views() WHERE NOT internal").fetchall()
    folders = {
        match[1]: (schema, name) for schema, name, sql in names if (match := re.search(r"delta_scan\('(.*?)'", sql))
    }
    known = [*(entry.folder for entry in entries(locate(str(whole)))), "changes", "transactions", "relations"]
    assert {f"{whole}/{folder}" for folder in known} <= folders.keys()
    for folder, (schema, name) in [*folders.items()][::7]:
        [(count,)] = delta_scan.execute(f'SELECT count(*) FROM "{schema}"."{name}"').fetchall()
        assert count == DeltaTable(folder).to_pyarrow_dataset().count_rows()
    delta_scan.execute("USE memory; DETACH shop")
    with duckdb.connect(str(views)) as kept:
        assert ("state_public", "orders") in kept.execute(
            "SELECT schema_name, view_name FROM duckdb_views()"
        ).fetchall()


@pytest.mark.parametrize("engine", ["spark", "unity"])
def test_spark_parses_the_statements(spark: Any, whole: Path, engine: str) -> None:
    texts = [*statements(locate(str(whole)), engine)]
    plans = [spark._jsparkSession.sessionState().sqlParser().parsePlan(text.rstrip(";")).toString() for text in texts]
    assert sum("CreateTable" in plan for plan in plans) > len(entries(locate(str(whole))))


def test_every_table_of_all_changes_is_registered(tmp_path: Path) -> None:
    out = locate(str(tmp_path))
    whole = {
        "changes": CHANGES,
        "transactions": TRANSACTIONS,
        "relations": RELATIONS,
        "snapshots": SNAPSHOTS,
        "ddl": DDL,
    }
    for name, schema in whole.items():
        LakeTable(out / name).commit(Commit(name, schema, []), 1)
    views = [line for line in statements(out, "duckdb") if "VIEW" in line]
    assert [line.split('"')[1:4:2] for line in views] == [["pgtail", name] for name in sorted(whole)]


def test_a_name_is_that_of_the_table_that_took_it_last(tmp_path: Path) -> None:
    out = locate(str(tmp_path))
    tables = [
        Entry("state", "public", "orders", 1, "state/public.orders~~1", 10),
        Entry("state", "public", "orders", 2, "state/public.orders", 20),
        Entry("state", "public", "Orders", 3, "state/public.~4frders", 5),
        Entry("history", "Sales", "it's new", 4, "history/~53ales.it~27s~20new", 0),
    ]
    [commit] = changed(out, tables, "snappy")
    LakeTable(out / commit.table).commit(commit, 1)
    call = "CALL system.register_table(schema_name => '{}', table_name => '{}', table_location => 'file://{}/{}');"
    assert [*statements(out, "trino")] == [
        'CREATE SCHEMA IF NOT EXISTS "history_sales";',
        'CREATE SCHEMA IF NOT EXISTS "state_public";',
        call.format("history_sales", "it_s_new", tmp_path, "history/~53ales.it~27s~20new"),
        call.format("state_public", "orders", tmp_path, "state/public.orders"),
        call.format("state_public", "orders_1", tmp_path, "state/public.orders~~1"),
        call.format("state_public", "orders_3", tmp_path, "state/public.~4frders"),
    ]


def test_a_folder_without_tables_is_an_error(tmp_path: Path) -> None:
    _, said = pgtail("spark", "catalog", str(tmp_path / "nosuch"), status=1)
    assert "nosuch: there are no tables" in said
