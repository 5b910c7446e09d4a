"""The demo's database: its tables and slot, and a workload with every kind of change that a stream can have."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Final

from pgtail.postgres.connection import Connection, Connector, parameters

DATABASE: Final = "demo"
SLOT: Final = "demo"

_SETUP: Final = """
CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL, email text);
CREATE TABLE orders (
    id int PRIMARY KEY, customer int NOT NULL REFERENCES customers, total numeric(10,2), status text, tags text[],
    note text
);
ALTER TABLE orders REPLICA IDENTITY FULL;
CREATE TABLE articles (id int PRIMARY KEY, name text, price numeric(10,2), manual text);
ALTER TABLE articles ALTER manual SET STORAGE EXTERNAL;
CREATE TABLE sessions (id int PRIMARY KEY, started timestamptz);
CREATE TABLE accounts (owner text PRIMARY KEY, balance numeric(12,2));
INSERT INTO customers VALUES (1, 'Grace Hopper', 'grace@example.org'), (2, 'Ada Lovelace', NULL);
INSERT INTO articles VALUES (1, 'analytical engine', 1842.00, repeat('Turn the handle. ', 500));
INSERT INTO accounts VALUES ('shop', 1200.00), ('bank', 0.00);
CREATE PUBLICATION shop;
ALTER PUBLICATION shop ADD TABLE customers, orders, articles, sessions, accounts;
"""

_TRANSACTIONS: Final = (
    # Inserts, and updates of a table with REPLICA IDENTITY FULL: old -> new.
    (
        "INSERT INTO orders VALUES (1041, 1, 80.00, 'new', '{gift}', ''), (1042, 1, 129.50, 'new', NULL, NULL)",
        "UPDATE orders SET status = 'paid', total = 76.00 WHERE id = 1041",
    ),
    # A TOASTed value that does not change is not sent.
    ("UPDATE articles SET price = 1799.00 WHERE id = 1",),
    # A key that changes, and a name with an escape sequence for terminals.
    (
        "UPDATE customers SET id = 3 WHERE id = 2",
        "INSERT INTO customers VALUES (4, E'日本 太郎 \\x1b[31m', 'taro@example.org')",
    ),
    # Changes rolled back to a savepoint are never sent.
    (
        "INSERT INTO orders VALUES (1043, 4, 12.00, 'new', '{\"two words\",fragile}', 'ring twice')",
        "SAVEPOINT doubt",
        "DELETE FROM orders",
        "ROLLBACK TO SAVEPOINT doubt",
        "UPDATE orders SET status = 'shipped' WHERE id = 1041",
    ),
    ("DELETE FROM orders WHERE id = 1042", "DELETE FROM customers WHERE id = 3"),
    ("INSERT INTO sessions SELECT n, now() FROM generate_series(1, 40) AS n",),
    ("SELECT pg_logical_emit_message(true, 'audit', 'sessions are cleared by night')", "TRUNCATE sessions"),
)

_TWO_PHASE: Final = (
    "BEGIN",
    "UPDATE accounts SET balance = balance - 500 WHERE owner = 'shop'",
    "UPDATE accounts SET balance = balance + 500 WHERE owner = 'bank'",
    "PREPARE TRANSACTION 'transfer-91'",
    "COMMIT PREPARED 'transfer-91'",
)


def create_database(conninfo: Callable[[str], str]) -> None:
    """Create the database, its tables, a publication and a slot; `conninfo` gives the DSN of a database.

    Raises ServerError.
    """
    with _connection(conninfo("postgres")) as connection:
        connection.execute(f"CREATE DATABASE {DATABASE}")
    with _connection(conninfo(DATABASE)) as connection:
        connection.execute(_SETUP)
        connection.execute(
            "SELECT pg_create_logical_replication_slot(%s, 'pgoutput', temporary => false, twophase => true)", [SLOT]
        )


def workload(conninfo: str) -> Iterator[None]:
    """A few transactions, one for each step. Raises ServerError."""
    with _connection(conninfo) as connection:
        for statements in _TRANSACTIONS:
            with connection.transaction():
                for statement in statements:
                    connection.execute(statement.encode())
            yield
        for statement in _TWO_PHASE:
            connection.execute(statement.encode())
        yield


def endless_workload(conninfo: str) -> Iterator[None]:
    """A small transaction for each step, without end. Raises ServerError."""
    with _connection(conninfo) as connection:
        for number in itertools.count(2000):
            with connection.transaction():
                connection.execute("INSERT INTO orders VALUES (%s, 1, %s, 'new')", [number, number % 97 + 0.5])
                connection.execute("UPDATE orders SET status = 'paid' WHERE id = %s", [number - 1])
                connection.execute("DELETE FROM orders WHERE id = %s", [number - 20])
            yield


@contextlib.contextmanager
def _connection(conninfo: str) -> Iterator[Connection]:
    with Connector(parameters(conninfo)).ordinary() as connection:
        connection.execute("SET search_path TO public")
        yield connection
