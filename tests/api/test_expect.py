"""`pgtail.expect` in a test: the change that came, or what came instead."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import pgtail
from tests.support.servers import Database
from tests.support.tail import wait_until_received


@pytest.fixture
def shop(newest_database: Database) -> Database:
    """A database with published tables."""
    newest_database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, status text, card text)",
        "CREATE TABLE audit (id int PRIMARY KEY)",
        "CREATE PUBLICATION p FOR TABLE orders, audit",
        "INSERT INTO orders VALUES (1, 'new', '4711'), (2, 'new', '4712')",
    )
    return newest_database


def test_leaving_the_block_waits_for_the_change(shop: Database) -> None:
    with pgtail.expect(shop.conninfo(), tables="orders", op="update", where="status = 'paid'") as expected:
        threading.Timer(0.3, shop.execute, ["UPDATE orders SET status = 'paid' WHERE id = 2"]).start()
    assert expected.change.new == {"id": 2, "status": "paid", "card": "4712"}
    assert len(expected.changes) == 1


def test_wait_returns_the_change_inside_of_the_block(shop: Database) -> None:
    with pgtail.expect(shop.conninfo(), tables="orders", count=2) as expected:
        shop.execute("UPDATE orders SET status = 'a' WHERE id = 1", "UPDATE orders SET status = 'b' WHERE id = 2")
        assert expected.wait().key == {"id": 2}
        assert [change.key["id"] for change in expected.changes] == [1, 2]


def test_what_came_instead_is_in_the_message(shop: Database) -> None:
    def wait() -> None:
        with pgtail.expect(shop.conninfo(), tables="orders", where="status = 'paid'", redact="card", timeout=0.5):
            shop.execute("UPDATE orders SET status = 'lost' WHERE id = 1", "INSERT INTO audit VALUES (1)")
            wait_until_received(shop)

    with pytest.raises(pgtail.NotAsExpected) as raised:
        wait()
    text = str(raised.value)
    assert isinstance(raised.value, AssertionError)
    assert "0 of 1 change came (tables='orders', where=[" in text
    assert "instead came 1 update public.orders, 1 insert public.audit; the last ones:\n" in text
    assert '"status":"lost"' in text
    assert "4711" not in text


def test_nothing_came(shop: Database) -> None:
    with pytest.raises(AssertionError, match=r"0 of 1 change came \(any change\); nothing else came either"):
        pgtail_expect_nothing(shop)


def pgtail_expect_nothing(shop: Database, **arguments: Any) -> None:
    with pgtail.expect(shop.conninfo(), timeout=0.2, **arguments):
        pass


def test_a_table_that_is_not_published_is_named(shop: Database) -> None:
    warned = r"tables order matches no published table \(of 2\); did you mean orders\?; nothing else came either"
    with pytest.raises(pgtail.NotAsExpected, match=warned):
        pgtail_expect_nothing(shop, tables="order")


def test_a_failure_of_the_block_is_not_replaced(shop: Database) -> None:
    def fail() -> None:
        with pgtail.expect(shop.conninfo(), timeout=60):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()


def test_at_least_one_change_is_expected() -> None:
    with pytest.raises(pgtail.OptionError, match=r"^count: 0 is not a positive number$"):
        pgtail.expect(count=0)


def test_an_unknown_argument_names_the_nearest(shop: Database) -> None:
    with pytest.raises(TypeError, match=r"expect\(\) has no argument 'table'.*tables"):
        pgtail.expect(shop.conninfo(), table="orders")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"follow\(\) has no argument 'slots'.*slot"):
        pgtail.follow(shop.conninfo(), slots="s")  # type: ignore[call-arg]
