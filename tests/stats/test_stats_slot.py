"""`pgtail stats --slot`: its changes, durations of transactions, and that it consumes nothing."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.support.limits import within
from tests.support.servers import Database
from tests.support.tail import Tailing, tailing


@pytest.fixture
def shop(newest_database: Database) -> Database:
    newest_database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, status text, body text)",
        "ALTER TABLE orders ALTER body SET STORAGE EXTERNAL",
        "CREATE TABLE stock (id int PRIMARY KEY, left_over int)",
        "ALTER TABLE stock REPLICA IDENTITY FULL",
        "CREATE PUBLICATION p FOR TABLE orders, stock",
        "INSERT INTO orders SELECT i, 'new', repeat('x', 5000) FROM generate_series(1, 3) i",
        "INSERT INTO stock SELECT i, 1 FROM generate_series(1, 4) i",
        "SELECT pg_create_logical_replication_slot('s', 'pgoutput')",
    )
    return newest_database


def report_of(running: Tailing) -> Any:
    running.end()
    [report] = running.changes
    return report


def test_changes_of_a_slot_are_reported_and_not_consumed(shop: Database) -> None:
    before = shop.value("SELECT confirmed_flush_lsn FROM pg_replication_slots")
    shop.execute(
        "UPDATE orders SET status = 'paid' WHERE id = 2",
        "UPDATE stock SET left_over = 1",  # as it was
        "UPDATE stock SET left_over = 0 WHERE id = 3",
        "ALTER TABLE stock ADD place text",
        "UPDATE stock SET place = 'cellar' WHERE id = 3; DELETE FROM orders WHERE id = 2",
        "TRUNCATE stock",
    )
    for _ in range(2):
        with tailing(shop, "-S", "s", "-o", "json", command="stats") as running:
            report = report_of(running)
        tables = {table["table"]: table for table in report["tables"]}
        orders, stock = tables["orders"], tables["stock"]
        assert (orders["updates"], orders["deletes"], orders["unsent_toast"]) == ("1", "1", {"body": "1"})
        assert (stock["updates_compared"], stock["updates_without_change"], stock["truncates"]) == ("6", "4", "1")
        assert report["transactions"]["count"] == "5"
        [change] = report["schema_changes"]
        assert (change["table"], change["differences"]) == ("stock", ["column place added"])
        [key] = report["hot_keys"]["keys"]
        assert (key["table"], key["key"], key["changes"]) == ("orders", {"id": "2"}, "2")
    assert shop.value("SELECT confirmed_flush_lsn FROM pg_replication_slots") == before


def test_the_duration_of_a_transaction_is_within_the_bounds(shop: Database) -> None:
    shop.execute("INSERT INTO orders VALUES (20, 'before')")
    with shop.connect() as session:
        session.execute("BEGIN")
        session.execute("INSERT INTO orders VALUES (10, 'slow')")
        started = time.monotonic()
        for number in range(21, 31):
            shop.execute(f"INSERT INTO orders VALUES ({number}, 'meanwhile')")
            time.sleep(0.05)
        took = time.monotonic() - started
        session.execute("COMMIT")
    with tailing(shop, "-S", "s", "-o", "json", command="stats") as running:
        report = report_of(running)
    [longest, *_] = report["transactions"]["longest"]
    least, most = float(longest["seconds_at_least"]), float(longest["seconds_at_most"])
    assert least <= took + 0.05
    assert took - 0.05 <= most
    assert least > 0.3


@pytest.mark.in_one_run_of(6)
def test_a_temporary_slot_is_watched_for_a_while(shop: Database) -> None:
    with tailing(shop, "--for", f"{within(1):.1f}s", "-t", "orders", "-v", "-o", "json", command="stats") as running:
        running.wait_for_words("starting at")
        time.sleep(0.2)
        shop.execute("INSERT INTO orders VALUES (10, 'new')", "UPDATE stock SET left_over = 7")
        report = report_of(running)
    [table] = report["tables"]
    assert (table["table"], table["inserts"], table["identity"]) == ("orders", "1", "default")
    assert shop.value("SELECT count(*) FROM pg_replication_slots") == 1


@pytest.mark.in_one_run_of(6)
def test_ctrl_c_prints_the_report(shop: Database) -> None:
    shop.execute("INSERT INTO orders VALUES (10, 'new')")
    with tailing(shop, "-S", "s", "--for", "1h", "-v", "-o", "json", command="stats") as running:
        running.wait_for_words("starting at")
        time.sleep(within(0.5))
        running.stop()
        [report] = running.changes
    assert report["transactions"]["count"] == "1"
