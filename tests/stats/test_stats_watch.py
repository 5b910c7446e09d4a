"""`pgtail stats --watch`: lines of JSON and the screen, on a real server, and that nothing is consumed."""

from __future__ import annotations

import os
import sys

import psycopg
import pytest

from pgtail.commands.decode.command import Decode
from pgtail.commands.options.common import DecodeOptions
from pgtail.outputs import OutputOptions
from pgtail.stats.collect import Statistics
from pgtail.stats.rate import Counts
from pgtail.stats.top import Position, Top
from pgtail.stats.top_table import top_table
from pgtail.terminal.layout import width_of
from pgtail.terminal.style import PLAIN
from tests.support.corpus import capture
from tests.support.run import here
from tests.support.servers import Database
from tests.support.tail import Tailing, tailing, wait_for, wait_for_reader
from tests.support.terminals import on_terminal

WATCH = ("--watch", "-o", "json")


@pytest.fixture
def shop(newest_database: Database) -> Database:
    newest_database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, note text)",
        "CREATE TABLE stock (id int PRIMARY KEY)",
        "CREATE PUBLICATION p FOR TABLE orders, stock",
        "SELECT pg_create_logical_replication_slot('s', 'pgoutput')",
    )
    return newest_database


def summed(running: Tailing, table: str, count: str) -> int:
    lines = [one for line in running.changes for one in line["tables"] if one["table"] == table]
    return sum([int(one[count]) for one in lines])


@pytest.mark.parametrize("which", ["--slot", "--fork"])
def test_lines_of_json_count_what_comes(shop: Database, which: str) -> None:
    before = shop.value("SELECT confirmed_flush_lsn FROM pg_replication_slots")
    shop.execute("INSERT INTO orders SELECT g, 'x' FROM generate_series(1, 5) g")
    with tailing(shop, *WATCH, which, "s", command="stats") as running:
        wait_for("what the slot holds", lambda: summed(running, "orders", "inserts") == 5)
        shop.execute("UPDATE orders SET note = 'y' WHERE id = 1", "UPDATE orders SET note = 'z' WHERE id = 1")
        shop.execute("INSERT INTO stock VALUES (1)", "DELETE FROM stock")
        wait_for("what comes now", lambda: summed(running, "stock", "deletes") == 1)
        wait_for("the server's position", lambda: running.changes[-1]["lag_bytes"] == "0")
        assert running.stop().count("Traceback") == 0
        lines = running.changes
        assert (summed(running, "orders", "inserts"), summed(running, "orders", "updates")) == (5, 2)
    assert sum([int(line["transactions"]) for line in lines]) == 5
    assert sum([int(line["rows"]) for line in lines]) == 9
    tables = [table for line in lines for table in line["tables"]]
    assert sum([int(line["bytes"]) for line in lines]) == sum([int(table["bytes"]) for table in tables])
    assert [(key["key"], key["changes"]) for key in lines[-1]["hot_keys"]] == [({"id": "1"}, "2")]
    assert all(float(line["seconds"]) >= 0.09 for line in lines[:-1]), "the last one is short"
    assert shop.value("SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = 's'") == before


def test_an_open_transaction_is_shown_with_its_changes(shop: Database) -> None:
    small = {"PGOPTIONS": "-c logical_decoding_work_mem=64kB"}

    def largest(running: Tailing) -> int:
        return max([int(line["open"]["changes"]) for line in running.changes if line["open"]], default=0)

    with tailing(shop, *WATCH, "-S", "s", command="stats", env=small) as running:
        running.wait_for_lines(1)
        with psycopg.connect(shop.conninfo()) as connection:
            connection.execute("INSERT INTO orders SELECT g, repeat('x', 50) FROM generate_series(1, 20000) g")
            xid = connection.execute("SELECT pg_current_xact_id()::text").fetchone()
            wait_for("the open transaction", lambda: largest(running) > 10_000)
            assert largest(running) <= 20_000
            assert [line["open"]["xid"] for line in running.changes if line["open"]][-1:] == list(xid or ())
            assert summed(running, "orders", "inserts") == 0
        wait_for("its commit", lambda: summed(running, "orders", "inserts") == 20_000)
        running.stop()
        assert running.changes[-1]["open"] is None


def test_the_screen(shop: Database) -> None:
    shop.execute("INSERT INTO orders SELECT g, 'x' FROM generate_series(1, 5) g", "UPDATE orders SET note = 'y'")
    shop.execute("UPDATE orders SET note = 'z' WHERE id = 3")
    command = [sys.executable, "-m", "pgtail", "stats", shop.conninfo(), "--fork", "s", *WATCH]
    command += ["-o", "table"]
    status, shown = on_terminal(
        command, until="id=3", answer="\x03", env={"COLUMNS": "80", "LINES": "24", "NO_COLOR": "1"}
    )
    assert status == 0, shown
    screen, _, after = shown.partition("\x1b[?1049h")[2].partition("\x1b[?1049l")
    assert "transactions/s" in screen
    assert "public.orders" in screen
    assert "rows updated or deleted most often since the start" in screen
    assert "\x1b[" not in after.removeprefix("\x1b[?25h")
    assert "transactions/s" in after, "the last picture stays"


@pytest.mark.parametrize(
    ("arguments", "words"), [(["-S", "s"], "connected again"), (["--reconnect"], "GAP: changes committed between")]
)
def test_it_connects_again_as_stream_does(shop: Database, arguments: list[str], words: str) -> None:
    with tailing(shop, *WATCH, *arguments, command="stats") as running:
        for count in (1, 2):
            running.err.clear()
            wait_for_reader(shop)
            shop.execute(f"INSERT INTO stock VALUES ({count})")
            wait_for("the row", lambda count=count: summed(running, "stock", "inserts") == count)  # type: ignore[misc]
            shop.query("SELECT pg_terminate_backend(pid) FROM pg_stat_replication WHERE application_name = 'pgtail'")
            running.wait_for_words(words)
        running.stop()


def test_two_databases_cannot_be_watched() -> None:
    ran = here("stats", "--watch", "one", "two")
    assert (ran.status, "a slot is read from one database" in ran.stderr) == (2, True)


# -- samples -----------------------------------------------------------------------------------------------------------


def counted() -> Statistics:
    stats = Statistics()
    options = DecodeOptions(format=OutputOptions(file=os.devnull, output="table"))
    Decode(options, stats).run((str(capture("A_ddl", "p1").forms["walsender.bin"]),))
    return stats


def test_samples_add_up_and_a_later_one_has_only_what_came_since() -> None:
    stats, nothing = counted(), Position()
    top = Top(stats, 10.0)
    first = top.sample(12.0, nothing)
    assert (first.seconds, first.transactions) == (2.0, stats.transactions.count)
    assert (first.bytes, first.rows) == (stats.bytes, sum([table.rows for table in stats.tables.values()]))
    table = next(iter(stats.tables.values()))
    table.inserts, table.bytes = table.inserts + 3, table.bytes + 70
    second = top.sample(15.0, nothing)
    assert (second.seconds, second.transactions, second.rows, second.bytes) == (3.0, 0, 3, 70)
    assert second.tables[0] == (table, Counts(3, 0, 0, 70))
    assert second.rates == (first.rows / 2.0, 1.0)
    for number in range(300):
        second = top.sample(16.0 + number, nothing)
    for width in (40, 80, 160):
        table.inserts += 7
        second = top.sample(320.0 + width, nothing)
        lines = top_table(stats, second, PLAIN, width=width, height=24, now=0).splitlines()
        [line] = [line for line in lines if "at most" in line]
        cells, _, words = line.strip().partition("  ")
        assert len(line) <= width
        assert (cells[0], max(cells), words[:16]) == ("▁", "█", "rows/s, at most ")


@pytest.mark.parametrize("width", [40, 80, 160])
@pytest.mark.parametrize("height", [8, 24])
def test_the_screen_fits(width: int, height: int) -> None:
    stats = counted()
    sample = Top(stats, 0.0).sample(1.0, Position(16, 4096, (77, 1_234_567)))
    lines = top_table(stats, sample, PLAIN, width=width, height=height, now=0).splitlines()
    assert max(map(width_of, lines)) <= width
    words = " ".join(" ".join(lines).split())
    assert "lag 4.0 kB" in words
    assert "xid 77, 1 234 567 changes so far" in words
    if width >= 80:
        assert len(lines) <= max(height, 16)
        assert any("more" in line for line in lines) == (height == 8)
