"""`pgtail stats --slot`: its changes, durations of transactions, and that it consumes nothing."""

from __future__ import annotations

import time
from itertools import count
from typing import Any

import pytest

from tests.support.clocks import clocked_server
from tests.support.limits import within
from tests.support.run import here
from tests.support.servers import Database, fresh_database, installations
from tests.support.tail import Tailing, tailing, wait_for, wait_until_processed


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
    page = here("stats", shop.conninfo(), "-S", "s", "-o", "html").stdout.decode()
    assert "<dt>Source</dt><dd>slot s</dd>" in page
    assert "column place added" in page
    assert "<p>5\xa0transactions changed 8\xa0rows of 2\xa0tables" in page
    assert shop.value("SELECT confirmed_flush_lsn FROM pg_replication_slots") == before


def test_the_duration_of_a_transaction_is_within_the_bounds(shop: Database) -> None:
    shop.execute("INSERT INTO orders VALUES (20, 'before')")
    with shop.connect() as session:
        session.execute("BEGIN")
        begun = time.monotonic()
        session.execute("INSERT INTO orders VALUES (10, 'slow')")
        inside = time.monotonic()
        for number in range(21, 31):
            shop.execute(f"INSERT INTO orders VALUES ({number}, 'meanwhile')")
            time.sleep(0.05)
        inside = time.monotonic() - inside
        session.execute("COMMIT")
        took = time.monotonic() - begun
    with tailing(shop, "-S", "s", "-o", "json", command="stats") as running:
        report = report_of(running)
    [longest, *_] = report["transactions"]["longest"]
    least, most = float(longest["seconds_at_least"]), float(longest["seconds_at_most"])
    assert least <= took + 0.05
    assert inside - 0.05 <= most
    assert least > 0.3


def test_a_temporary_slot_is_watched_for_a_while(shop: Database) -> None:
    numbers = count(10)
    with tailing(shop, "--for", "2s", "-t", "orders", "-v", "-o", "json", command="stats") as running:
        running.wait_for_words("starting at")
        while running.process.poll() is None:
            shop.execute(f"INSERT INTO orders VALUES ({next(numbers)}, 'new')", "UPDATE stock SET left_over = 7")
        report = report_of(running)
    [table] = report["tables"]
    assert (table["table"], table["updates"], table["identity"]) == ("orders", "0", "default")
    assert 0 < int(table["inserts"]) <= next(numbers) - 10
    wait_for("end of the slot", lambda: shop.value("SELECT count(*) FROM pg_replication_slots") == 1)


def test_ctrl_c_prints_the_report(shop: Database) -> None:
    with tailing(shop, "--for", "1h", "-v", "-o", "json", command="stats") as running:
        running.wait_for_words("starting at")
        shop.execute("INSERT INTO orders VALUES (10, 'new')")
        wait_until_processed(shop)
        running.stop()
        [report] = running.changes
    assert report["transactions"]["count"] == "1"


def test_commit_times_of_an_origin_are_in_no_duration(database: Database) -> None:
    database.execute(*_TABLE)
    origin = f"from {database.name}"
    with database.connect() as local:
        local.execute("BEGIN; INSERT INTO t VALUES (0)")
        with database.connect() as applied:
            applied.execute(f"SELECT pg_replication_origin_create('{origin}')")
            applied.execute(f"SELECT pg_replication_origin_session_setup('{origin}')")
            for number in range(1, 4):
                applied.execute("BEGIN")
                at = f"now() - interval '3 h' + interval '{number} min'"
                applied.execute(f"SELECT pg_replication_origin_xact_setup('0/{number}', {at})")
                applied.execute(f"INSERT INTO t VALUES ({number}); COMMIT")
            applied.execute("SELECT pg_replication_origin_session_reset()")
        database.execute("INSERT INTO t VALUES (4)")
        local.execute("COMMIT")
    report, text = _reports(database)
    database.execute(f"SELECT pg_replication_origin_drop('{origin}')")
    found, rate = report["transactions"], report["rate"]
    assert (found["origins"], found["clock_set_back"]) == ({origin: "3"}, [])
    assert f"3 from {origin}: commit times of other servers" in text
    assert text.count(f"from {origin}") == 4
    assert sum(map(int, rate["rows"])) == 2
    assert float(rate["step_seconds"]) < 10
    assert [one["rows"] for one in found["longest"]] == ["1"]
    assert all(0 < seconds < within(60) for seconds in _durations(found))


def test_a_clock_that_was_set_back_is_named_and_in_no_duration() -> None:
    installation = [*installations().values()][-1]
    with clocked_server(installation) as (server, clock), fresh_database(server) as database:
        database.execute(*_TABLE, "INSERT INTO t VALUES (1)")
        with database.connect() as session:
            session.execute("BEGIN; INSERT INTO t VALUES (2)")
            database.execute("INSERT INTO t VALUES (3)")
            clock.set(7300)
            session.execute("COMMIT; BEGIN; INSERT INTO t VALUES (4)")
            database.execute("INSERT INTO t VALUES (5)")
            clock.set(0)
            session.execute("COMMIT; BEGIN; INSERT INTO t VALUES (6)")
            database.execute("INSERT INTO t VALUES (7)")
            session.execute("COMMIT")
        report, text = _reports(database)
    found = report["transactions"]
    [back] = found["clock_set_back"]
    assert back["lsn"] == found["most_bytes"][4]["lsn"]
    assert f"commit times go back by 2 h at {back['lsn']}: the clock was set, or" in " ".join(text.split())
    assert len(found["longest"]) == 1, "the last one, of one clock"
    assert all(0 < seconds < within(60) for seconds in _durations(found))


_TABLE = (
    "CREATE TABLE t (id int PRIMARY KEY)",
    "CREATE PUBLICATION p FOR TABLE t",
    "SELECT pg_create_logical_replication_slot('s', 'pgoutput')",
)


def _reports(database: Database) -> tuple[Any, str]:
    """The report as JSON, which is the same with and without compiled code, and as text."""
    reports = []
    for pure in ("", "1"):
        with tailing(database, "-S", "s", "-o", "json", command="stats", env={"PGTAIL_PURE": pure}) as running:
            reports.append(report_of(running))
    assert reports[0] == reports[1]
    with tailing(database, "-S", "s", command="stats") as running:
        running.end()
    return reports[0], b"".join(running.out).decode()


def _durations(transactions: Any) -> list[float]:
    """The bounds of all durations in seconds."""
    sizes = [one for name in ("most_rows", "most_bytes", "longest") for one in transactions[name]]
    bounds = [one[f"seconds_at_{end}"] for one in sizes for end in ("least", "most")]
    found = [float(bound) for bound in bounds if bound is not None]
    assert found
    return found
