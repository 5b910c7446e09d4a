"""`pgtail expect` in a test script: ready before the change, as expected or not, and other changes shown."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.support.run_process import pgtail
from tests.support.servers import Database
from tests.support.tail import Tailing, tailing, terminate, wait_for, wait_until_processed
from tests.support.two_phase import ADVANCE, CREATE_SLOT


@pytest.fixture
def shop(newest_database: Database) -> Database:
    newest_database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, status text)",
        "CREATE TABLE audit (id int PRIMARY KEY)",
        "CREATE PUBLICATION p FOR TABLE orders, audit",
        "INSERT INTO orders VALUES (1, 'new'), (2, 'new')",
    )
    return newest_database


def expect(database: Database, *arguments: str, **options: Any) -> AbstractContextManager[Tailing]:
    return tailing(database, *arguments, command="expect", **options)


def unmet(database: Database, arguments: Sequence[str], *statements: str, shown: int = 0) -> str:
    """Standard error of a run that is stopped after these statements; `shown` changes are as expected."""
    with expect(database, *arguments) as running:
        running.wait_for_words("ready")
        database.execute(*statements)
        wait_until_processed(database)
        words = running.stop(status=1)
        assert len(running.changes) == shown
    return words


PAID = ("-t", "orders", "--op", "update", "--where", "status=paid")


def test_expected_change_comes_after_ready(shop: Database) -> None:
    with expect(shop, *PAID) as running:
        running.wait_for_words("pgtail: ready: every commit from ")
        shop.execute("UPDATE orders SET status = 'packed'", "INSERT INTO audit VALUES (1)")
        assert running.process.poll() is None
        shop.execute("UPDATE orders SET status = 'paid' WHERE id = 2")
        words = running.end()
        assert [change["new"] for change in running.changes] == [{"id": "2", "status": "paid"}]
    assert "as expected, after " in words
    assert words.rstrip().endswith(": 1 change")
    assert "instead" not in words
    wait_for("end of the slot", lambda: not shop.query("SELECT 1 FROM pg_replication_slots"))


def test_rolled_back_changes_do_not_count(shop: Database) -> None:
    words = unmet(shop, PAID, "BEGIN; UPDATE orders SET status = 'paid'; ROLLBACK")
    assert "0 of 1 change came (-t orders --op update --where status=paid)" in words
    assert "nothing else came either" in words


def test_other_changes_are_shown(shop: Database) -> None:
    words = unmet(
        shop,
        PAID,
        "UPDATE orders SET status = 'packed'",
        "INSERT INTO audit SELECT generate_series(1, 3)",
        "SELECT pg_logical_emit_message(false, 'test', 'hello')",
        "TRUNCATE audit",
    )
    assert "instead came 3 insert public.audit, 2 update public.orders, 1 message, 1 truncate public.audit" in words
    lines = words.partition("the last ones:")[2].splitlines()
    assert ['"status":"packed"' in line for line in lines if line.strip()] == [True, True]
    assert "audit" not in "".join(lines)  # changes of the expected table are shown first


def test_other_changes_are_masked_even_in_a_renamed_column(shop: Database) -> None:
    """In a table that the filter excludes."""
    words = unmet(
        shop,
        ["-t", "audit", "--redact", "orders.status"],
        *("UPDATE orders SET status = 'one secret'", "ALTER TABLE orders RENAME status TO state"),
        "UPDATE orders SET state = 'another secret' WHERE id = 1",
    )
    assert "instead came 3 update public.orders" in words
    assert words.count("(redacted)") == 3
    assert "secret" not in words


def test_a_count_over_several_transactions(shop: Database) -> None:
    with expect(shop, "-t", "audit", "--count", "3") as running:
        running.wait_for_words("ready")
        shop.execute("INSERT INTO audit VALUES (1)", "INSERT INTO orders VALUES (3, 'new')")
        shop.execute("INSERT INTO audit VALUES (2), (3), (4)")
        words = running.end()
        assert [change["new"]["id"] for change in running.changes] == ["1", "2", "3", "4"]
    assert ": 4 changes" in words


def test_too_few_are_counted_and_shown(shop: Database) -> None:
    given = ["-t", "audit", "--count", "2"]
    assert "1 of 2 changes came" in unmet(shop, given, "INSERT INTO audit VALUES (1)", shown=1)


def test_a_slot_is_read_from_its_position_and_not_consumed(shop: Database) -> None:
    shop.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    before = shop.value("SELECT confirmed_flush_lsn FROM pg_replication_slots")
    shop.execute("UPDATE orders SET status = 'paid' WHERE id = 1")
    for _ in range(2):
        with expect(shop, "-S", "s", *PAID, "-o", "table") as running:
            assert "as expected" in running.end()
            assert b"'paid'" in b"".join(running.out)
    assert shop.value("SELECT confirmed_flush_lsn FROM pg_replication_slots") == before


def test_a_command_makes_the_change(shop: Database, tmp_path: Path) -> None:
    """It is started when ready, and stopped if the change does not come; its own failure is not silent."""

    def ran(script: str, *arguments: str, status: int) -> tuple[str, str]:
        given = ["expect", shop.conninfo(), *PAID, *arguments, "--", sys.executable, "-c", script]
        return pgtail(*given, status=status)

    update = f"import psycopg; print('said'); psycopg.connect({shop.conninfo()!r}, autocommit=True).execute('%s')"
    paid = update % "UPDATE orders SET status = $$paid$$ WHERE id = 1"
    out, words = ran(paid, status=0)
    assert '"status":"paid"' in out
    assert "said" not in out
    assert "said" in words
    assert "failed" not in words
    for failing, what in (("raise SystemExit(3)", "exit status 3"), ("import os; os.abort()", "Aborted")):
        out, words = ran(f"{paid}; {failing}", status=1)  # it fails after the change
        assert '"status":"paid"' in out
        assert f"pgtail: {sys.executable} failed: {what}" in words
        assert "as expected" in words
    other = update % "UPDATE orders SET status = $$sent$$ WHERE id = 1"
    out, words = ran(f"{other}; raise SystemExit(3)", "--timeout", "1h", status=1)  # nothing else is awaited
    assert "instead came 1 update public.orders" in words
    mark = tmp_path / "mark"
    late = f"import time; time.sleep(60); open({str(mark)!r}, 'w')"
    _, words = ran(late, "--timeout", "0.5s", status=1)
    assert f"{sys.executable} was stopped" in words
    assert not mark.exists()
    _, words = pgtail("expect", shop.conninfo(), "--", "no-such-program", status=2)
    assert "there is no command no-such-program" in words
    assert "a command comes after --" in pgtail("expect", shop.conninfo(), "psql", status=2)[1]


def test_a_command_that_is_stopped_has_not_succeeded(shop: Database) -> None:
    """Also if its change came before."""
    script = (
        f"import psycopg, time; psycopg.connect({shop.conninfo()!r}, autocommit=True).execute('%s'); time.sleep(60)"
    )
    paid = script % "UPDATE orders SET status = $$paid$$ WHERE id = 1"
    with expect(shop, *PAID, "--", sys.executable, "-c", paid) as running:
        running.wait_for_words("as expected")
        assert f"{sys.executable} was stopped" in running.stop(status=1)


def test_it_connects_again_as_stream_does(shop: Database) -> None:
    """With a slot without being told; with a temporary one only by --reconnect, and says what it did not see."""
    shop.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    for arguments, words in ((["-S", "s"], "connected again"), (["--reconnect"], "GAP: changes committed between")):
        shop.execute("UPDATE orders SET status = 'new'")
        with expect(shop, *arguments, "--where", "status=paid") as running:
            running.wait_for_words("ready")
            terminate(shop)
            running.wait_for_words(words)
            shop.execute("UPDATE orders SET status = 'paid' WHERE id = 1")
            assert "as expected" in running.end()
            assert [change["new"]["id"] for change in running.changes] == ["1"]
    for arguments, gap in ((["-S", "s"], False), (["--reconnect"], True)):
        with expect(shop, *arguments, "--where", "id=9") as running:
            running.wait_for_words("ready")
            terminate(shop)
            running.wait_for_words("GAP: changes" if gap else "connected again")
            words = running.stop(status=1)
            assert ("(--where id=9); changes may be among those that were not read\n" in words) == gap
            assert "not as expected" in words
    for arguments, words in ((["-S", "s", "--no-reconnect"], "Run it again"), ([], "pgtail slot create NAME, then")):
        with expect(shop, *arguments, "--where", "id=9") as running:
            running.wait_for_words("ready")
            terminate(shop)
            assert words in running.end(status=3)


def test_a_streamed_transaction_counts_at_its_commit(shop: Database) -> None:
    shop.execute(f"ALTER DATABASE {shop.name} SET logical_decoding_work_mem = '64kB'")
    with expect(shop, "-t", "audit", "--where", "id = 5000") as running:
        running.wait_for_words("ready")
        with shop.connect() as session:
            session.execute("BEGIN; INSERT INTO audit SELECT generate_series(1, 5000)")
            time.sleep(0.3)
            assert running.process.poll() is None
            session.execute("COMMIT")
        running.end()
        assert [change["new"]["id"] for change in running.changes] == ["5000"]


def test_open_and_rolled_back_changes_are_shown_and_do_not_count(shop: Database) -> None:
    shop.execute(f"ALTER DATABASE {shop.name} SET logical_decoding_work_mem = '64kB'")
    shown = ("--show-aborted", "--show-uncommitted")
    with expect(shop, "-t", "audit", *shown) as running:
        running.wait_for_words("ready")
        with shop.connect() as session:
            session.execute("BEGIN; INSERT INTO audit SELECT generate_series(1, 5000)")
            shop.execute("CHECKPOINT")  # writes the WAL now, which the WAL writer may do 5 s later
            running.wait_for_lines(1)
            session.execute("ROLLBACK")
            shop.execute("CHECKPOINT")
            running.wait_for_output('"aborted":true')
        words = running.stop(status=1)
        assert "open" in {line.get("state") for line in running.changes}
    assert "0 of 1 change came (-t audit)" in words
    assert "nothing else came either" in words


def test_the_outcome_of_a_shown_transaction_did_not_come_instead(shop: Database) -> None:
    shop.query(CREATE_SLOT.format("s", "true"))
    shop.execute("BEGIN; INSERT INTO audit VALUES (1); PREPARE TRANSACTION 'held'", "COMMIT PREPARED 'held'")
    for arguments, came, instead in (
        (["-t", "audit"], ["insert", "commit_prepared"], "nothing else came either"),
        (["-t", "orders"], [], "instead came 1 insert public.audit, 1 commit_prepared; the last ones:\n"),
        (["--exclude", "audit"], [], "instead came 1 insert public.audit, 1 commit_prepared; the last ones:\n"),
    ):
        with expect(shop, "-S", "s", *arguments, "--count", "2") as running:
            wait_until_processed(shop)
            words = running.stop(status=1)
            assert [change["op"] for change in running.changes] == came
        assert f"{1 if came else 0} of 2 changes came" in words
        assert instead in words
    with expect(shop, "-S", "s", "--op", "insert", "--op", "commit_prepared", "--count", "2") as running:
        assert ": 2 changes" in running.end()


def test_an_outcome_alone_has_no_last_changes(shop: Database) -> None:
    shop.query(CREATE_SLOT.format("s", "true"))
    shop.execute("BEGIN; INSERT INTO audit VALUES (1); PREPARE TRANSACTION 'held'")
    shop.query(ADVANCE.format("s"))
    shop.execute("COMMIT PREPARED 'held'")
    with expect(shop, "-S", "s", "-t", "orders") as running:
        wait_until_processed(shop)
        assert "instead came 1 commit_prepared\n" in running.stop(status=1)


def test_it_waits_so_long(shop: Database) -> None:
    begun = time.monotonic()
    with expect(shop, *PAID, "--timeout", "1s") as running:
        assert "nothing else came either" in running.end(status=1)
    assert time.monotonic() - begun > 1


def test_ctrl_c_before_the_change_exits_as_not_expected(shop: Database) -> None:
    with expect(shop, *PAID) as running:
        running.wait_for_words("ready")
        words = running.stop(status=1)
    assert "not as expected" in words


def test_invalid_options_are_refused(shop: Database) -> None:
    for arguments, status, words in (
        (["--timeout", "soon"], 2, "not a time such as 30s"),
        (["--count", "0"], 2, "--count"),
        (["-S", "nosuch"], 3, "there is no slot nosuch"),
    ):
        with expect(shop, *arguments) as running:
            assert words in running.end(status=status)
