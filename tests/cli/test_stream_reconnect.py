"""`pgtail stream` when a connection breaks: it connects again, and reports what was missed."""

from __future__ import annotations

import contextlib
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.conftest import StartServer
from tests.support.limits import within
from tests.support.refused import SECRET, role, without_password
from tests.support.servers import Database, fresh_database
from tests.support.tail import COMMAND, Tailing, ids, tailing, terminate, wait_for, wait_for_reader
from tests.support.terminals import on_terminal


@contextlib.contextmanager
def connecting_again_after(running: Tailing, database: Database) -> Iterator[None]:
    """Restart the server; pgtail can connect again only after the body."""
    database.server.stop()
    running.wait_for_words("connecting again")
    running.process.send_signal(signal.SIGSTOP)
    database.server.start()
    yield
    running.process.send_signal(signal.SIGCONT)


def test_broken_connection_is_reopened(shop: Database) -> None:
    with tailing(shop, "-S", "s", "--ack", "commit") as running:
        running.wait_for_lines(10)
        for number in (10, 11):
            running.err.clear()
            terminate(shop)
            running.wait_for_words("connected again, continuing at")
            shop.execute(f"INSERT INTO t VALUES ({number})")
            running.wait_for_lines(number + 1)
        running.stop()
    assert ids(running.changes) == list(range(12))


def test_ctrl_c_at_a_password_prompt_while_connecting_again(shop: Database, tmp_path: Path) -> None:
    """The password file is gone after the first connection. The run ends as by every other Ctrl-C."""
    passfile = tmp_path / "pgpass"
    with role(shop, "asked", "REPLICATION"):

        def lose() -> None:
            passfile.unlink()
            terminate(shop)

        passfile.write_text(f"127.0.0.1:*:*:asked:{SECRET}\n")
        passfile.chmod(0o600)
        conninfo = without_password(shop.conninfo(tcp=True, user="asked"))
        command = [*COMMAND, conninfo, "-S", "s", "-f", str(tmp_path / "out")]
        environment = {"PGPASSFILE": str(passfile)}
        status, shown = on_terminal(
            [*command, "-v"],
            before=[("acknowledging", lambda: wait_for("rows", lambda: (tmp_path / "out").stat().st_size)), ("", lose)],
            until="Password for user asked:",
            answer="\x03",
            env=environment,
        )
    assert "resume at" in shown.partition("Password for user asked:")[2]
    assert status == 0, shown


def test_no_reconnect(shop: Database) -> None:
    with tailing(shop, "-S", "s", "--no-reconnect") as running:
        running.wait_for_lines(10)
        terminate(shop)
        words = running.end(status=3)
    assert "terminating connection due to administrator command" in words
    assert "Everything up to" in words
    assert "resume at" in words


def test_lost_temporary_slot_is_reported_with_the_missed_changes(shop: Database) -> None:
    with tailing(shop) as running:
        wait_for_reader(shop, temporary=True)
        shop.execute("INSERT INTO t VALUES (10)")
        running.wait_for_lines(1)
        terminate(shop)
        words = running.end(status=3)
    assert "The temporary slot ended with its session: changes committed after" in words
    assert "A permanent slot (pgtail slot create NAME, then --slot NAME) avoids this" in words
    assert re.search(r"1 transaction shown, up to [0-9A-F]+/[0-9A-F]+; the temporary slot is gone\n", words)


def test_the_end_of_a_temporary_slot_names_no_position_to_resume_at(shop: Database) -> None:
    with tailing(shop) as running:
        wait_for_reader(shop, temporary=True)
        shop.execute("INSERT INTO t VALUES (10)")
        running.wait_for_lines(1)
        words = running.stop()
    gone = r"the temporary slot is gone \(--slot NAME --create-slot makes one that stays\)"
    assert re.search(rf"1 transaction shown, up to [0-9A-F]+/[0-9A-F]+; {gone}$", words.strip())
    assert "resume" not in words


def test_a_lost_temporary_slot_and_a_visible_gap(shop: Database) -> None:
    with tailing(shop, "--reconnect") as running:
        for number in (10, 11):
            running.err.clear()
            wait_for_reader(shop, temporary=True)
            shop.execute(f"INSERT INTO t VALUES ({number})")
            running.wait_for_lines(number - 9)
            terminate(shop)
            running.wait_for_words("GAP: changes committed between")
        running.stop()


def ended_after(shop: Database, change: Callable[[], object]) -> str:
    """What is told by a stream of slot s that ends because of a change, made while it connects again."""
    with tailing(shop, "-S", "s") as running:
        running.wait_for_lines(10)
        with connecting_again_after(running, shop):
            change()
        return running.end(status=3)


def test_slot_advanced_by_another_client_is_a_gap(shop: Database) -> None:
    advance = "SELECT pg_replication_slot_advance('s', pg_current_wal_lsn())"
    words = ended_after(shop, lambda: shop.execute("INSERT INTO t VALUES (10)", advance))
    assert "gap from" in words
    assert "another client has consumed slot s" in words


def test_slot_dropped_while_reconnecting_is_an_error(shop: Database) -> None:
    words = ended_after(shop, lambda: shop.query("SELECT pg_drop_replication_slot('s')"))
    assert "slot s is gone" in words
    assert "create it again (pgtail slot create s), or use pgtail record --allow-gap" in words


def test_slot_created_again_while_reconnecting_is_a_gap(shop: Database) -> None:
    def recreate() -> None:
        shop.query("SELECT pg_drop_replication_slot('s')")
        shop.execute("INSERT INTO t VALUES (10)", "SELECT pg_create_logical_replication_slot('s', 'pgoutput')")

    assert "or it was dropped and created again" in ended_after(shop, recreate)


def test_ctrl_c_while_connecting_again(start_server: StartServer) -> None:
    server = start_server()
    with fresh_database(server) as database:
        database.execute("CREATE TABLE t (id int)", "CREATE PUBLICATION p FOR TABLE t")
        database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
        with tailing(database, "-S", "s") as running:
            running.wait_for_slot(database, "s")
            server.stop()
            running.wait_for_words("trying again")
            begun = time.monotonic()
            running.stop()
            assert time.monotonic() - begun < within(15)
        server.start()
