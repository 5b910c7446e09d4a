"""The examples of pgtail-follow(3), each run as it is written on a real server."""

from __future__ import annotations

import asyncio
import os
import runpy
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import pgtail
from tests.support.limits import within
from tests.support.live_examples import EXAMPLES, OUTBOX, service_file
from tests.support.servers import Database, fresh_database
from tests.support.tail import terminate, wait_for, wait_for_free_slots, wait_for_reader


@pytest.fixture
def shop(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """The service shop, with its tables and slots; the service reports is another database of that server."""
    database.execute(
        "CREATE TABLE customers (id int PRIMARY KEY, name text)",
        "CREATE TABLE orders (id int PRIMARY KEY, status text, total int)",
        "CREATE TABLE outbox (id int PRIMARY KEY, event text)",
        "CREATE PUBLICATION p FOR ALL TABLES",
        "INSERT INTO orders VALUES (1, 'new', 200)",
    )
    for slot in ("outbox", "nightly"):
        database.query(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")
    with fresh_database(database.server) as reports:
        reports.execute(
            "CREATE TABLE inbox (id int PRIMARY KEY, event text)",
            "CREATE TABLE progress (done pg_lsn)",
            "INSERT INTO progress VALUES ('0/0')",
        )
        services = service_file(tmp_path / "services", shop=database, reports=reports)
        monkeypatch.setenv("PGSERVICEFILE", services)
        yield database


def example(title: str, directory: Path) -> dict[str, Any]:
    """The names that an example defines."""
    file = directory / "example.py"
    file.write_text(EXAMPLES[title])
    return runpy.run_path(str(file))


def test_every_example_is_run_here() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert len(EXAMPLES) == 7
    for title, lines in EXAMPLES.items():
        assert lines == OUTBOX or f'"{title}"' in text


def test_the_outbox(shop: Database, tmp_path: Path) -> None:
    program = tmp_path / "outbox.py"
    program.write_text(OUTBOX)
    with psycopg.connect("service=reports", autocommit=True) as reports:

        def inbox() -> list[Any]:
            return reports.execute("SELECT id, event FROM inbox ORDER BY id").fetchall()

        for id_ in (1, 2):
            shop.execute(f"INSERT INTO outbox VALUES ({id_}, 'paid')", "UPDATE orders SET total = total + 1")
            with subprocess.Popen([sys.executable, str(program)], env={**os.environ}) as running:
                wait_for("row", lambda: len(inbox()) == id_)  # noqa: B023
                running.kill()
            wait_for_free_slots(shop)
        assert inbox() == [(1, "paid"), (2, "paid")]


def test_the_cache(shop: Database, tmp_path: Path) -> None:
    cache = {("orders", 1): "old", ("orders", 2): "same", ("customers", 1): "other"}
    with in_thread(shop, example("A cache that forgets what changes", tmp_path)["keep_fresh"], cache):
        wait_for("cleared cache", lambda: not cache)
        cache |= {("orders", 1): "old", ("orders", 2): "same", ("customers", 1): "other"}
        shop.execute("UPDATE orders SET total = 3 WHERE id = 1")
        wait_for("invalidation", lambda: ("orders", 1) not in cache)
        assert len(cache) == 2


def test_the_fixture(shop: Database, tmp_path: Path) -> None:
    (tmp_path / "test_shop.py").write_text(
        f"""
import psycopg

{EXAMPLES["A fixture of pytest"]}

def pay(order):
    with psycopg.connect("service=shop") as session:
        session.execute("UPDATE orders SET status = 'paid' WHERE id = %s", [order])


def test_no_change(expect):
    with expect(tables="customers", timeout=2):
        pay(1)
"""
    )
    options = ["-p", "no:cacheprovider", "--tb=short", "-c", os.devnull, "--rootdir", str(tmp_path)]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tmp_path / "test_shop.py")],
        capture_output=True,
        text=True,
        check=False,
        timeout=within(60),
    )
    assert "1 failed, 1 passed" in ran.stdout, ran.stdout
    assert "instead came 1 update public.orders; the last ones:" in ran.stdout


def test_the_columns(shop: Database, tmp_path: Path) -> None:
    alerts: list[str] = []
    with in_thread(shop, example("Columns that change", tmp_path)["watch_columns"], alerts.append):
        shop.execute("UPDATE orders SET total = 1", "ALTER TABLE orders ADD note text, DROP total")
        shop.execute("UPDATE orders SET note = 'x'", "ALTER TABLE orders ALTER note TYPE varchar(9)")
        shop.execute("UPDATE orders SET note = 'y'")
        expected = [
            "public.orders: note text is new",
            "public.orders: total integer is gone",
            "public.orders: note character varying(9) is new",
            "public.orders: note text is gone",
        ]
        wait_for("alerts", lambda: alerts == expected)


def test_the_rest_the_next_time(shop: Database, tmp_path: Path) -> None:
    EXAMPLES["3 transactions"] = EXAMPLES["A thousand transactions, and the rest the next time"].replace("1000", "3")
    run, stored = example("3 transactions", tmp_path)["run"], list[list[str]]()
    del EXAMPLES["3 transactions"]
    shop.execute(*[f"INSERT INTO customers VALUES ({id_}, '')" for id_ in range(5)])
    counts = []
    for _ in range(3):
        counts.append(run(stored.append))
        wait_for_free_slots(shop)
    assert counts == [3, 2, 0]
    assert len(stored) == 5


def test_the_browsers(shop: Database, tmp_path: Path) -> None:
    names = example("Changes to browsers", tmp_path)

    class Websocket:
        def __init__(self) -> None:
            self.sent: list[str] = []

        async def send(self, text: str) -> None:
            self.sent.append(text)

    async def main() -> None:
        sockets = [Websocket(), Websocket()]
        tasks = [asyncio.create_task(names["broadcast"]())]
        tasks += [asyncio.create_task(names["handler"](socket)) for socket in sockets]
        await asyncio.to_thread(wait_for_reader, shop, temporary=True)
        await asyncio.to_thread(shop.execute, "UPDATE orders SET total = 9")
        async with asyncio.timeout(within(20)):
            while not all(socket.sent for socket in sockets):
                await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert sockets[0].sent == sockets[1].sent
        assert '"total":9' in sockets[0].sent[0]

    asyncio.run(main())


def test_the_minutes(shop: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shop.version < 12:
        pytest.skip("PostgreSQL 12 and later copy slots")
    shop.execute("INSERT INTO customers SELECT i, '' FROM generate_series(1, 41) i")
    example("Changes per minute", tmp_path)
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert sum(int(changes) for _, changes, _ in printed) == 41
    assert max(len(bar) for *_, bar in printed) == 60


class in_thread:  # noqa: N801 -- a context, used as a function
    """A context in which a function follows a temporary slot in a thread; the end of its session ends it."""

    def __init__(self, shop: Database, function: Any, *arguments: Any) -> None:
        self._shop = shop
        self._error: BaseException | None = None

        def run() -> None:
            try:
                function(*arguments)
            except pgtail.ServerError as error:
                self._error = error

        self._thread = threading.Thread(target=run)

    def __enter__(self) -> None:
        self._thread.start()
        wait_for_reader(self._shop, temporary=True)

    def __exit__(self, *_: object) -> None:
        terminate(self._shop)
        self._thread.join(within(20))
        assert "temporary slot ended" in str(self._error)
