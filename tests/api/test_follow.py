"""`pgtail.follow` on real servers: what is delivered, once, what is acknowledged, and how it ends."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from typing import Any

import psycopg
import pytest

from pgtail import Change, InputError, Lsn, Message, OptionError, PgtailError, ServerError, Stream, Transaction, follow
from pgtail.api.arguments import FIELDS, FollowArguments
from pgtail.commands.options.server import StreamOptions
from pgtail.options import options_of
from tests.api.test_arguments import LEFT_OUT
from tests.support.faulty_proxy import FaultyProxy
from tests.support.limits import within
from tests.support.servers import Database
from tests.support.tail import terminate, wait_for, wait_for_free_slots, wait_for_reader, wait_until_received
from tests.support.two_phase import CREATE_SLOT
from tests.tools.make_man import PARTS


@pytest.fixture
def shop(database: Database) -> Database:
    """A database with a table, a publication, and the slot s."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE PUBLICATION p FOR TABLE t")
    database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    return database


def insert(first: int, last: int | None = None, size: int = 1) -> str:
    rows = f"SELECT i, repeat('x', {size}) FROM generate_series({first}, {last or first}) i"
    return f"INSERT INTO t {rows}"


def id_of(change: Change) -> int:
    assert change.new is not None
    return int(change.new["id"])


def ids(transaction: Transaction | None) -> list[int]:
    assert transaction is not None
    return [id_of(change) for change in transaction]


def taken(stream: Stream, count: int) -> list[list[int]]:
    """The ids in the next transactions."""
    return [ids(stream.next(within(20))) for _ in range(count)]


def position(database: Database) -> str:
    return str(database.query("SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = 's'")[0][0])


LEFT_OUT_TOO = {"ack", "yes", "until_lsn", "seconds", "idle", "password", "no_password", "metrics", "max_lag",
                "log_format"}  # fmt: skip
"""Options for which the library has acknowledge() and time limits, of the console, and of services."""


def test_every_option_of_stream_is_an_argument_or_left_out_on_purpose() -> None:
    names = FollowArguments.__annotations__.keys() - {"values"}
    fields = {FIELDS.get(name, name) for name in names}
    options = {name for name, _ in options_of(StreamOptions)}
    assert fields | ((LEFT_OUT | LEFT_OUT_TOO) & options) == options
    assert not fields & (LEFT_OUT | LEFT_OUT_TOO)
    page = (PARTS / "pgtail-follow.3.md").read_text(encoding="utf-8")
    assert {name for name in names if f"`{name}`" not in page} == set()


def test_every_commit_after_entering_comes_through_a_temporary_slot(shop: Database) -> None:
    with follow(shop.conninfo()) as stream:
        shop.execute(insert(1, 3), insert(4))
        assert taken(stream, 2) == [[1, 2, 3], [4]]
        with pytest.raises(TimeoutError):
            stream.next(0.2)
        shop.execute(insert(5))
        assert taken(stream, 1) == [[5]]
    assert not shop.query("SELECT 1 FROM pg_replication_slots WHERE temporary")


def test_nothing_is_acknowledged_unless_asked(shop: Database) -> None:
    shop.execute(insert(1, 3), insert(4))
    before = position(shop)
    for _ in range(2):
        with follow(shop.conninfo(), slot="s", until="now") as stream:
            assert [ids(one) for one in stream] == [[1, 2, 3], [4]]
            assert stream.next() is None
        wait_for_free_slots(shop)
        assert position(shop) == before


def test_an_acknowledged_transaction_is_not_sent_again(shop: Database) -> None:
    shop.execute(*[insert(id_) for id_ in range(1, 6)])
    with follow(shop.conninfo(), slot="s") as stream:
        transactions = [stream.next(within(20)) for _ in range(5)]
        stream.acknowledge(transactions[2])
        stream.acknowledge(transactions[0])  # a later one covers it
    wait_for_free_slots(shop)
    with follow(shop.conninfo(), slot="s", until="now") as stream:
        assert [ids(one) for one in stream] == [[4], [5]]
        stream.acknowledge()  # all that were taken
    wait_for_free_slots(shop)
    with follow(shop.conninfo(), slot="s", until="now") as stream:
        assert not list(stream)


def test_what_a_filter_leaves_out_is_acknowledged_once_everything_before_it_is(shop: Database) -> None:
    with follow(shop.conninfo(), slot="s", where="id < 10") as stream:
        shop.execute(insert(1), insert(11))
        first = stream.next(within(20))
        with pytest.raises(TimeoutError):
            stream.next(0.5)
        before = position(shop)
        shop.execute(insert(12))
        with pytest.raises(TimeoutError):
            stream.next(0.5)
        assert position(shop) == before
        stream.acknowledge(first)
        end = str(shop.query("SELECT pg_current_wal_lsn()")[0][0])

        def moved() -> bool:
            with pytest.raises(TimeoutError):
                stream.next(0.1)
            return bool(shop.query(f"SELECT '{position(shop)}'::pg_lsn >= '{end}'::pg_lsn")[0][0])

        wait_for("acknowledgement", moved)


def test_acknowledging_inside_of_a_transaction_skips_the_rest_of_it(shop: Database) -> None:
    with follow(shop.conninfo(), slot="s") as stream:
        shop.execute(insert(1, 100), insert(101))
        transaction = stream.next(within(20))
        assert transaction is not None
        for change in transaction:
            assert id_of(change) == 1
            stream.acknowledge(transaction)
        assert taken(stream, 1) == [[101]]


def test_the_position_follows_during_the_stream(shop: Database) -> None:
    with follow(shop.conninfo(), slot="s") as stream:
        before = position(shop)
        shop.execute(insert(1))
        stream.acknowledge(stream.next(within(20)))
        wait_for("acknowledgement", lambda: position(shop) != before)


def test_breaking_off_inside_a_transaction_skips_the_rest_of_it(shop: Database) -> None:
    with follow(shop.conninfo()) as stream:
        shop.execute(insert(1, 5000), insert(5001))
        for transaction in stream:
            for change in transaction:
                assert id_of(change) == 1
                break
            break
        assert taken(stream, 1) == [[5001]]
        shop.execute(insert(6000, 6010))
        for transaction in stream:  # and leaving the stream inside one
            for _ in transaction:
                break
            break
    wait_for_free_slots(shop)


def test_a_lost_connection_repeats_nothing_without_acknowledging(shop: Database) -> None:
    with follow(shop.conninfo(), slot="s") as stream:
        shop.execute(insert(1, 2), insert(3))
        assert taken(stream, 2) == [[1, 2], [3]]
        terminate(shop)
        shop.execute(insert(4))
        assert taken(stream, 1) == [[4]]
        shop.execute(insert(5, 20_000))
        transaction = stream.next(within(20))
        assert transaction is not None
        changes = iter(transaction)
        first = [id_of(next(changes)) for _ in range(10)]
        terminate(shop)  # inside a transaction, of which frames may wait
        assert [*first, *[id_of(change) for change in changes]] == list(range(5, 20_001))
        terminate(shop)
        shop.execute(insert(30_000))
        assert taken(stream, 1) == [[30_000]]


def test_a_program_that_polls_is_connected_again(shop: Database) -> None:
    with follow(shop.conninfo(), slot="s") as stream:
        shop.execute(insert(1))
        assert taken(stream, 1) == [[1]]
        terminate(shop)
        wait_for_free_slots(shop)
        shop.execute(insert(2))

        def poll() -> list[int] | None:
            with contextlib.suppress(TimeoutError):
                return ids(stream.next(0.01))
            return None

        assert wait_for("transaction", poll) == [2]


def test_a_temporary_slot_ends_with_its_session(shop: Database) -> None:
    with follow(shop.conninfo()) as stream:
        shop.execute(insert(1))
        assert taken(stream, 1) == [[1]]
        terminate(shop)
        for _ in range(2):
            with pytest.raises(ServerError, match="The temporary slot ended with its session"):
                stream.next(within(20))


def test_a_gap_inside_a_transaction_is_an_error_after_which_the_stream_goes_on(shop: Database) -> None:
    proxy = FaultyProxy(shop.server.port)
    try:
        with follow(shop.conninfo(tcp=True, port=proxy.port), reconnect=True, streaming="off") as stream:
            proxy.cut_after(500_000)
            shop.execute(insert(1, 2000, 1000))
            transaction = stream.next(within(20))
            assert transaction is not None
            changes = iter(transaction)
            found: list[int] = []
            with pytest.raises(InputError, match="the rest of the transaction was not read"):
                found.extend(id_of(change) for change in changes)
            proxy.heal()
            wait_for_reader(shop, temporary=True)
            with pytest.raises(TimeoutError):
                stream.next(0.2)
            shop.execute(insert(3000))
            assert taken(stream, 1) == [[3000]]
    finally:
        proxy.close()


def test_a_transaction_is_acknowledged_not_a_position(shop: Database) -> None:
    with pytest.raises(TypeError, match=r"a transaction of this stream, or nothing, not Lsn\('0/8'\)"):
        follow(shop.conninfo()).acknowledge(Lsn(8))  # type: ignore[arg-type]


def test_it_names_its_slot(shop: Database) -> None:
    conninfo = shop.conninfo()
    streams = follow(conninfo, slot="s"), follow(conninfo, fork="s"), follow(conninfo)
    assert [*map(repr, streams)] == [
        "<stream of slot s>", "<stream of a copy of slot s>", "<stream of a temporary slot>",
    ]  # fmt: skip


def test_it_must_be_entered(shop: Database) -> None:
    with pytest.raises(RuntimeError, match="enter it"):
        next(follow(shop.conninfo()))


def test_a_slow_program_does_not_block_the_server(shop: Database) -> None:
    rows, size = 40_000, 1000
    with follow(shop.conninfo(), slot="s", streaming="off") as stream:
        shop.execute(insert(1))
        transaction = stream.next(within(20))
        shop.execute(insert(2, rows, size))
        wait_until_received(shop)
        if sys.platform == "linux":
            assert spilled() > rows * size // 4
        assert ids(transaction) == [1]
        assert taken(stream, 1) == [list(range(2, rows + 1))]
        if sys.platform == "linux":
            assert not spilled()


def test_beyond_the_spill_limit_it_connects_again_and_repeats_nothing(
    shop: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pgtail")
    with follow(shop.conninfo(), slot="s", streaming="off", spill_limit="1MB") as stream:
        shop.execute(insert(1))
        transaction = stream.next(within(20))
        shop.execute(insert(2, 20_000, 1000), insert(20_001, 40_000, 1000), insert(40_001))
        wait_for("full queue", lambda: "does not keep up" in caplog.text)
        assert ids(transaction) == [1]
        found = [id_ for ids_ in taken(stream, 3) for id_ in ids_]
        assert found == list(range(2, 40_002))


def spilled() -> int:
    """Bytes in files without a name that this process has open."""
    found = 0
    for number in os.listdir("/proc/self/fd"):
        try:
            file = os.stat(f"/proc/self/fd/{number}")
            name = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:
            continue
        found += file.st_size if not file.st_nlink and name.startswith("/") and "pytest" not in name else 0
    return found


def test_streamed_transactions_come_at_their_commit(shop: Database) -> None:
    if shop.version < 14:
        pytest.skip("PostgreSQL 14 and later stream")
    where = shop.conninfo(options="-c logical_decoding_work_mem=64kB")
    with follow(where, slot="s") as stream, shop.connect() as session, session.transaction():
        session.execute(insert(1, 5000, 100))
        shop.execute(insert(6000))
        assert taken(stream, 1) == [[6000]]
        session.execute("COMMIT")
        session.execute("BEGIN")
        assert taken(stream, 1) == [list(range(1, 5001))]


def test_nothing_after_an_open_prepared_transaction_is_acknowledged(shop: Database) -> None:
    if shop.version < 15:
        pytest.skip("PostgreSQL 15 and later send prepared transactions")
    shop.query("SELECT pg_drop_replication_slot('s')")
    shop.query(CREATE_SLOT.format("s", "true"))
    with follow(shop.conninfo(), slot="s") as stream:
        shop.execute("BEGIN", insert(1), "PREPARE TRANSACTION 'one'", insert(2))
        transaction = stream.next(within(20))
        assert ids(transaction) == [2]
        stream.acknowledge(transaction)
    wait_for_free_slots(shop)
    shop.execute("COMMIT PREPARED 'one'")
    with follow(shop.conninfo(), slot="s") as stream:
        assert ids(stream.next(within(20))) == [2]
        transaction = stream.next(within(20))
        assert transaction is not None
        assert (transaction.gid, ids(transaction)) == ("one", [1])
        stream.acknowledge(transaction)
    wait_for_free_slots(shop)
    with follow(shop.conninfo(), slot="s", until="now") as stream:
        assert not list(stream)


def test_a_message_outside_of_transactions_is_acknowledged(shop: Database) -> None:
    if shop.version < 14:
        pytest.skip("PostgreSQL 14 and later send messages")
    emit = "SELECT pg_logical_emit_message(false, 'to', 'all')"
    with follow(shop.conninfo(), slot="s") as stream:
        shop.query(emit)
        shop.execute(insert(1))
        transaction = stream.next(within(20))
        assert transaction is not None
        (message,) = transaction
        assert isinstance(message, Message)
        assert (message.prefix, message.content, transaction.xid) == ("to", b"all", None)
        stream.acknowledge(transaction)
    wait_for_free_slots(shop)
    with follow(shop.conninfo(), slot="s", until="now") as stream:
        assert [ids(one) for one in stream] == [[1]]


def test_a_snapshot_comes_before_the_stream(shop: Database) -> None:
    shop.execute(insert(1, 3))
    with follow(shop.conninfo(), snapshot=True) as stream:
        shop.execute(insert(4))
        transaction = stream.next(within(20))
        assert transaction is not None
        changes = list(transaction)
        assert [(change.op, id_of(change)) for change in changes] == [("snapshot", id_) for id_ in (1, 2, 3)]
        assert taken(stream, 1) == [[4]]
    with follow(shop.conninfo(), snapshot=True, until="now") as stream:
        assert [ids(one) for one in stream] == [[1, 2, 3, 4]]
    with follow(shop.conninfo(), snapshot=True, limit=1) as stream:
        shop.execute(insert(5), insert(6))
        assert [ids(one) for one in stream] == [[1, 2, 3, 4], [5]], "a limit does not count snapshots"


def test_a_limit_ends_the_iteration(shop: Database) -> None:
    shop.execute(*[insert(id_) for id_ in range(1, 6)])
    with follow(shop.conninfo(), slot="s", limit=2) as stream:
        assert [ids(one) for one in stream] == [[1], [2]]


def test_errors_of_the_server_are_raised_here(shop: Database) -> None:
    with pytest.raises(ServerError, match="no slot named missing|missing"), follow(shop.conninfo(), slot="missing"):
        pass
    with pytest.raises(ServerError), follow("host=127.0.0.1 port=1 connect_timeout=2"):
        pass
    with (
        follow(shop.conninfo(), slot="s"),
        pytest.raises(ServerError, match="in use|active"),
        follow(shop.conninfo(), slot="s"),
    ):
        pass
    with pytest.raises(OptionError, match="^snapshot"):
        follow(shop.conninfo(), slot="s", snapshot=True)


def test_an_exception_ends_the_session_and_is_not_replaced(shop: Database) -> None:
    def fail() -> None:
        with follow(shop.conninfo(), slot="s") as stream:
            shop.execute(insert(1))
            stream.acknowledge(stream.next(within(20)))
            terminate(shop)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    wait_for_free_slots(shop)


def test_two_streams_in_two_threads(shop: Database) -> None:
    shop.query("SELECT pg_create_logical_replication_slot('s2', 'pgoutput')")
    shop.execute(*[insert(id_) for id_ in range(1, 101)])
    found: dict[str, Any] = {}

    def read(slot: str) -> None:
        with follow(shop.conninfo(), slot=slot, until="now") as stream:
            found[slot] = [ids(one) for one in stream]

    threads = [threading.Thread(target=read, args=(slot,)) for slot in ("s", "s2")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(within(30))
    assert found == {slot: [[id_] for id_ in range(1, 101)] for slot in ("s", "s2")}


_WAITS = """
import signal, sys, threading
from pgtail import follow
before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
try:
    with follow(sys.argv[1], slot="s") as stream:
        assert before == [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
        print("ready", flush=True)
        for transaction in stream:
            print("taken", flush=True)
            stream.acknowledge(transaction)
except KeyboardInterrupt:
    print("stopped", threading.active_count())
"""


def test_ctrl_c_while_it_waits(shop: Database) -> None:
    command = [sys.executable, "-c", _WAITS, shop.conninfo()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        shop.execute(insert(1))
        assert process.stdout.readline() == "taken\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=within(20))
        assert (out, err, process.returncode) == ("stopped 1\n", "", 0)
    wait_for_free_slots(shop)
    with follow(shop.conninfo(), slot="s", until="now") as stream:
        assert not list(stream)


def test_notes_go_to_logging(
    shop: Database, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.INFO, "pgtail"), follow(shop.conninfo(), slot="s") as stream:
        shop.execute(insert(1))
        assert taken(stream, 1) == [[1]]
        terminate(shop)
        shop.execute(insert(2))
        assert taken(stream, 1) == [[2]]
    lost, again = [record for record in caplog.records if record.levelno > logging.INFO][-2:]
    assert (lost.levelname, lost.levelno > logging.WARNING, again.levelname) == ("TROUBLE", True, "OUTCOME")
    assert lost.getMessage().endswith("; connecting again")
    assert again.getMessage().startswith("connected again")
    assert capfd.readouterr() == ("", "")


def test_redacted_values_do_not_show(shop: Database) -> None:
    with follow(shop.conninfo(), redact="v") as stream:
        shop.execute(insert(1))
        transaction = stream.next(within(20))
        assert transaction is not None
        (change,) = transaction
        assert change.new is not None
        assert change.new["v"] != "x"


def test_an_error_of_a_condition_is_raised_again(shop: Database) -> None:
    shop.execute("CREATE TABLE u (id int PRIMARY KEY, v int)", "CREATE PUBLICATION q FOR TABLE u")
    with psycopg.connect(shop.conninfo()) as session:
        session.execute("INSERT INTO u VALUES (1, 1)")
    with pytest.raises(OptionError):
        follow(shop.conninfo(), where="v >")


@pytest.mark.filterwarnings(  # Python ignores an interrupt that comes inside a callback of a weak reference
    "ignore::pytest.PytestUnraisableExceptionWarning"
)
def test_an_interrupt_inside_of_the_iteration_loses_nothing_silently(newest_database: Database) -> None:
    newest_database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE PUBLICATION p FOR TABLE t")
    newest_database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    newest_database.execute(*[insert(first, first + 49) for first in range(1, 5000, 50)])
    seed, ended, armed = random.Random(3), Counter[str](), False

    def interrupt(*_: object) -> None:
        if armed:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(20):
            found: list[int] = []
            with follow(newest_database.conninfo(), slot="s", until="now") as stream:
                signal.setitimer(signal.ITIMER_REAL, seed.uniform(0.0005, 0.05))
                try:
                    armed = True
                    for transaction in stream:
                        found += ids(transaction)
                    armed = False
                except KeyboardInterrupt:
                    armed = False
                    ended[end_after_interrupt(stream)] += 1
            assert found == list(range(1, len(found) + 1))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert ended["interrupted"] > 3


def end_after_interrupt(stream: Stream) -> str:
    """Read on: it goes on after an interrupt between two events only."""
    try:
        rest = [ids(transaction) for transaction in stream]
    except PgtailError as error:
        assert "follow it again" in str(error)
        return "interrupted"
    assert all(len(one) == 50 for one in rest)
    return "between"
