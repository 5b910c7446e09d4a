"""Columns that --where and --redact name: checked on the server before anything is shown, consumed or created."""

from __future__ import annotations

import pytest

from pgtail.changes.redaction import MASK
from tests.support.servers import Database
from tests.support.tail import stream, tailing

SLOT = "SELECT pg_create_logical_replication_slot('s', 'pgoutput')"
STATE = "SELECT slot_name, confirmed_flush_lsn FROM pg_replication_slots"
UNTIL = ("-S", "s", "--until", "now")


@pytest.fixture
def orders(newest_database: Database) -> Database:
    """Two published tables, and a slot with one change of each."""
    newest_database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, customer text, total numeric, doc jsonb)",
        'CREATE TABLE people (id uuid PRIMARY KEY, "E mail" text)',
        "CREATE TABLE unpublished (id int PRIMARY KEY, secret text)",
        "CREATE PUBLICATION p FOR TABLE orders, people",
        SLOT,
        "INSERT INTO orders VALUES (1, 'Edsger', 5, '{}')",
        "INSERT INTO people VALUES (gen_random_uuid(), 'a@b')",
    )
    return newest_database


WRONG = (
    (("--redact", "custmer"), "--redact: no column custmer is published; did you mean customer?"),
    (("--redact", "customer,orders.costumer"), "no column orders.costumer is published; did you mean customer?"),
    (("--redact", "public.people.email"), 'did you mean "E mail"?'),
    (("--redact", "people.customer"), "--redact: no column people.customer is published\n"),
    (("--redact", "order.customer"), "no column order.customer is published; did you mean orders.customer?"),
    (("--redact", "secret", "-q"), "--redact: no column secret is published\n"),
    (("--where", "Customer = Edsger"), "--where: no column Customer is published; did you mean customer?"),
    (("--where", 'Op = insert or "E Mail" = x', "-t", "people"), "table has a column Op; did you mean op?"),
    (("--where", "total > abc", "-t", "orders"), "'total > abc': public.orders.total is a number, 'abc' is none\n"),
    (("--where", "id = 1"), "is a uuid, '1' is none\n"),
    (("--where", "customer->>'a' = 'b'"), "public.orders.customer is text; -> and ->> need json or jsonb"),
    (("--where", "total = new.customer"), "public.orders.total is a number, public.orders.customer is text"),
    (("--where", "xid = x"), "xid is a number, 'x' is none"),
    (("--where", "total = 'secret'", "--redact", "total"), "public.orders.total is a number, the value is none"),
)


def test_a_wrong_name_or_value_is_refused_before_the_start(orders: Database) -> None:
    before = orders.query(STATE)
    for options, words in WRONG:
        lines, said = stream(orders, *UNTIL, "--ack", "commit", *options, status=2)
        assert (lines, orders.query(STATE)) == ([], before)
        assert said.startswith("pgtail: error: ")
        assert words in said
        assert "'secret'" not in said


def test_other_commands_check_the_same_and_create_no_slot(orders: Database) -> None:
    before = orders.query(STATE)
    wrong = ("--redact", "custmer", "--where", "Customer = x or Customer = y")
    for command, options in (
        ("stream", ("-S", "new", "--create-slot")),
        ("stream", ("--fork", "s")),
        ("expect", ("--timeout", "5")),
        ("stats", ("--watch",)),
        ("stats", ("--for", "5s")),
    ):
        with tailing(orders, *options, *wrong, command=command) as running:
            said = running.end(status=2)
        assert said == (
            "pgtail: error: --redact: no column custmer is published; did you mean customer?\n"
            "        --where: no column Customer is published; did you mean customer?\n"
        )
        assert running.out == []
        assert orders.query(STATE) == before


def test_what_is_right_or_a_pattern_passes(orders: Database) -> None:
    masks = ("--redact", 'CUSTOMER,public.people."E mail",cus*mer,nosuc?,*.nosuch')
    lines, said = stream(orders, *UNTIL, *masks, "--op", "INSERT")
    assert [[*line["new"].values()][1] for line in lines] == [MASK, MASK]
    assert said.count("note: no table had a column ") == 2
    assert "warning" not in said
    # A test of the table first keeps the others from tables whose types they do not fit.
    lines, said = stream(orders, *UNTIL, "--where", "table = orders and (id = 1 or doc->>'a' = 'b')")
    assert [line["new"]["customer"] for line in lines] == ["Edsger"]
    # A column that is published is right, although no change of its table came.
    orders.execute("SELECT pg_drop_replication_slot('s')", SLOT, "INSERT INTO people VALUES (gen_random_uuid(), 'c')")
    for options in (("--redact", "orders.custome?,customer"), ("--where", "customer is null and total > 5")):
        lines, said = stream(orders, *UNTIL, *options)
        assert len(lines) == (options[0] == "--redact")
        *notes, last = said.splitlines()
        assert "resume at" in last
        assert ["matched" in note for note in notes] == ([] if lines else [True]), "no column is unknown"
    for op in ("message", "truncate", "commit_prepared"):
        assert stream(orders, *UNTIL, "--op", op, "--where", "customer = x")[0] == []
    # A table that does not exist yet has no columns to check.
    assert stream(orders, "--until", "now", "-t", "later", "--where", "nosuch = 1")[0] == []


def test_a_name_to_mask_from_before_an_alteration_needs_a_pattern(orders: Database) -> None:
    """The slot may have only changes with the new name, which the old one does not mask."""
    orders.execute("ALTER TABLE orders RENAME customer TO client", "INSERT INTO orders VALUES (2, 'Ada')")
    for name, pattern in (("customer", "custome[r]"), ("orders.customer", "orders.custome[r]")):
        lines, said = stream(orders, *UNTIL, "-t", "orders", "--redact", name, status=2)
        assert lines == []
        assert said == (
            f"pgtail: error: --redact: no column {name} is published\n"
            f"        If a table had it at the slot's position, use a pattern: '{pattern}'\n"
        )
        lines, said = stream(orders, *UNTIL, "-t", "orders", "--redact", pattern)
        assert [[*line["new"].values()][1] for line in lines] == [MASK, MASK]
        assert "warning" not in said
    lines, said = stream(orders, *UNTIL, "-t", "orders", "--redact", "cliemt", status=2)
    assert (lines, "did you mean client?\n" in said) == ([], True)


def test_a_condition_from_before_an_alteration_is_left_to_the_stream(orders: Database) -> None:
    orders.execute("ALTER TABLE orders RENAME customer TO client")
    lines, said = stream(orders, *UNTIL, "--where", "table = 'orders' and customer = 'Edsger'", "-q")
    assert [line["new"]["id"] for line in lines] == ["1"]
    assert "warning: --where: no column customer is published\n" in said
    assert "warning: going on, as public.orders was altered since the slot's position\n" in said


def test_a_table_that_is_not_published_any_more_may_have_the_column(orders: Database) -> None:
    """The slot still has its changes."""
    orders.execute("ALTER PUBLICATION p DROP TABLE people")
    said = stream(orders, *UNTIL, "--redact", "email", status=2)[1]
    assert "If a table had it at the slot's position, use a pattern: 'emai[l]'\n" in said
    lines, said = stream(orders, *UNTIL, "--where", "email = 'a@b'")
    assert lines == []
    assert "warning: --where: no column email is published\n" in said
    assert "warning: going on, as other tables may have been published since the slot's position\n" in said


def test_an_alteration_of_another_table_is_no_excuse(orders: Database) -> None:
    orders.execute(
        "ALTER TABLE people ADD phone text", "CREATE TABLE new (id int)", "ALTER PUBLICATION p ADD TABLE new"
    )
    for options in (("--redact", "custmer", "-t", "orders"), ("--redact", "orders.custmer")):
        lines, said = stream(orders, *UNTIL, *options, status=2)
        assert lines == []
        assert "did you mean" in said


def test_a_value_that_no_longer_fits_is_no_failed_expectation(orders: Database) -> None:
    with tailing(orders, "-t", "orders", "--where", "customer = x", "--timeout", "20", command="expect") as running:
        running.wait_for_words("ready")
        orders.execute("UPDATE orders SET customer = '7'", "ALTER TABLE orders ALTER customer TYPE int USING 7")
        orders.execute("UPDATE orders SET total = 7")
        said = running.end(status=2)
    assert "error: --where 'customer = x': public.orders.customer is a number, 'x' is none" in said
    assert "expected" not in said
    assert "instead" not in said
