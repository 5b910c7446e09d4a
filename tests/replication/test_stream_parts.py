"""The parts of `pgtail stream` that need no server: options by version, statuses, the queue, names of standbys."""

from __future__ import annotations

import random
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgtail.errors import OptionError, OutputError
from pgtail.pgoutput.frames import LENGTH, each
from pgtail.pgoutput.walsender import StandbyStatusUpdate
from pgtail.postgres.connection import parameters
from pgtail.postgres.errors import connection_error, server_error
from pgtail.postgres.pgoutput_options import Wanted, check_two_phase, identifier, literal, resolve
from pgtail.replication.feedback import Feedback
from pgtail.replication.loop import received_text, sent_text
from pgtail.replication.plan import counts_as_standby
from pgtail.replication.queue import FrameQueue
from tests.support.render import WAYS, rows_by

# -- options ---------------------------------------------------------------------------------------------------


def next_of(queue: FrameQueue, most: int) -> bytes:
    frames = queue.take_frames(most)
    assert frames is not None
    return frames


@pytest.mark.parametrize(
    ("major", "words"),
    [
        (10, "proto_version 1"),
        (13, "proto_version 1"),
        (14, "proto_version 2, messages on, streaming on"),
        (15, "proto_version 3, messages on, streaming on"),
        (16, "proto_version 4, messages on, streaming on, origin any"),
        (18, "proto_version 4, messages on, streaming on, origin any"),
        (20, "proto_version 4, messages on, streaming on, origin any"),
    ],
)
def test_the_best_options_of_each_version(major: int, words: str) -> None:
    assert resolve(Wanted(), major, ["p"]).words() == words


@pytest.mark.parametrize(
    ("major", "wanted", "words"),
    [
        (13, Wanted(proto_version=2), "--proto-version 2: it needs PostgreSQL 14; this is 13, which goes up to 1"),
        (13, Wanted(binary=True), "--binary needs PostgreSQL 14 or later; this is 13"),
        (13, Wanted(messages=True), "--messages needs PostgreSQL 14"),
        (13, Wanted(streaming="on"), "--streaming on needs PostgreSQL 14"),
        (14, Wanted(proto_version=3), "it needs PostgreSQL 15"),
        (15, Wanted(streaming="parallel"), "--streaming parallel needs PostgreSQL 16"),
        (15, Wanted(origin="none"), "--origin none needs PostgreSQL 16"),
        (18, Wanted(proto_version=1, streaming="on"), "--streaming on needs --proto-version 2 or higher, not 1"),
        (18, Wanted(proto_version=3, streaming="parallel"), "--streaming parallel needs --proto-version 4"),
        (18, Wanted(proto_version=5), "--proto-version 5: no server supports it yet"),
        (18, Wanted(proto_version=0), "--proto-version 0"),
    ],
)
def test_options_that_a_server_does_not_support_are_refused(major: int, wanted: Wanted, words: str) -> None:
    with pytest.raises(OptionError, match=words.replace("(", "\\(")):
        resolve(wanted, major, ["p"])


def test_disabled_options_are_not_sent_to_old_servers() -> None:
    wanted = Wanted(messages=False, streaming="off")
    assert resolve(wanted, 12, ["p"]).words() == "proto_version 1"
    assert resolve(wanted, 16, ["p"]).words() == "proto_version 4, messages off, streaming off, origin any"
    assert resolve(Wanted(proto_version=1), 16, ["p"]).words() == "proto_version 1, messages on, origin any"


def test_two_phase_by_version() -> None:
    check_two_phase(Wanted(), 15)
    with pytest.raises(OptionError, match="needs PostgreSQL 15"):
        check_two_phase(Wanted(), 14)
    with pytest.raises(OptionError, match="needs --proto-version 3"):
        check_two_phase(Wanted(proto_version=2), 18)


def test_names_are_quoted_twice() -> None:
    options = resolve(Wanted(), 10, ['My, "own"', "it's"])
    assert options.start_replication("s", 0x1_0000_00AB) == (
        'START_REPLICATION SLOT "s" LOGICAL 1/AB (proto_version \'1\', publication_names \'"My, ""own""","it\'\'s"\')'
    )
    assert identifier('a"b') == '"a""b"'
    assert literal("a'b\\c") == "'a''b\\c'"


# -- standbys --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "counts"),
    [
        ("", False),
        ("*", True),
        ('"*"', True),
        ("pgtail", True),
        ("PGTail , other", True),
        ("FIRST 1 (a, b)", False),
        ("first 1 (a, pgtail)", True),
        ('ANY 2 (a, "pgtail")', True),
        ("2 (a, b, pgtail)", True),
        ('"a,pgtail"', False),
        ('"pg""tail"', False),
        ("pgtail2, 1", False),
    ],
)
def test_names_that_count_as_a_synchronous_standby(names: str, counts: bool) -> None:
    assert counts_as_standby(names, "pgtail") is counts


# -- statuses --------------------------------------------------------------------------------------------------


def data(lsn: int) -> bytes:
    return b"w" + struct.pack(">QQq", lsn, lsn, 0) + b"message"


def keepalive(lsn: int, *, reply: bool = False, clock: int = 0) -> bytes:
    return b"k" + struct.pack(">Qq?", lsn, clock, reply)


def with_lengths(*frames: bytes) -> bytes:
    return b"".join([LENGTH.pack(len(frame)) + frame for frame in frames])


@pytest.fixture(params=WAYS)
def implementation(request: pytest.FixtureRequest) -> Iterator[None]:
    with rows_by(request.param):
        yield


@pytest.mark.usefixtures("implementation")
def test_positions_never_go_back() -> None:
    feedback = Feedback(acknowledge=False, flushed=0, sender_timeout=60, now=0)
    feedback.take_frames(with_lengths(data(100), data(0), data(90), keepalive(95), b"", b"w", b"k123", b"s" * 40), 1)
    assert feedback.received == 100
    assert feedback.status().write_lsn == 100


@pytest.mark.usefixtures("implementation")
def test_the_first_keepalive_after_a_time() -> None:
    feedback = Feedback(acknowledge=False, flushed=0, sender_timeout=60, now=0)
    later = [keepalive(lsn, clock=clock) for lsn, clock in ((5, -9), (6, 7), (8, 8), (9, 9))]
    frames = with_lengths(data(100), keepalive(7, clock=8)[:-1], *later)
    assert [feedback.take_frames(frames, 1, since) for since in (None, -10, 6, 7, 8, 9)] == [None, 5, 6, 8, 9, None]


@pytest.mark.usefixtures("implementation")
def test_a_keepalive_is_answered_at_once() -> None:
    feedback = Feedback(acknowledge=False, flushed=0, sender_timeout=60, now=0)
    feedback.sent(feedback.status(), 1)
    assert feedback.next() == 11
    feedback.take_frames(with_lengths(keepalive(5)), 1.5)
    assert feedback.next() == 2
    feedback.take_frames(with_lengths(keepalive(5, reply=True), keepalive(6), data(7)), 1.6)
    assert (feedback.last_data, feedback.last_frame) == (1.6, 1.6)
    assert feedback.next() <= 1.6
    feedback.take_frames(with_lengths(keepalive(8)), 1.65)
    assert (feedback.last_data, feedback.last_frame) == (1.6, 1.65)
    assert feedback.next() <= 1.6
    feedback.sent(feedback.status(), 1.7)
    assert feedback.next() == 11.7


@pytest.mark.parametrize(("timeout", "interval"), [(0, 10), (60, 10), (4, 2), (0.5, 0.25)])
def test_the_server_never_waits_half_its_timeout(timeout: float, interval: float) -> None:
    feedback = Feedback(acknowledge=False, flushed=0, sender_timeout=timeout, now=0)
    assert feedback.next() <= 0
    feedback.sent(feedback.status(), 3)
    assert feedback.next() == 3 + interval


def test_a_flush_position_is_sent_once_and_never_goes_back() -> None:
    feedback = Feedback(acknowledge=True, flushed=50, sender_timeout=60, now=0)
    feedback.take_frames(with_lengths(data(100)), 0)
    feedback.delivered = 40
    assert feedback.status().flush_lsn == 0
    feedback.delivered = 80
    status = feedback.status()
    assert (status.write_lsn, status.flush_lsn, status.apply_lsn) == (100, 80, 0)
    feedback.sent(status, 1)
    assert feedback.status().flush_lsn == 0
    assert feedback.status(last=True).flush_lsn == 0
    feedback.delivered = 100
    assert feedback.next() == pytest.approx(1.1)


def test_acknowledging_only_at_the_end() -> None:
    feedback = Feedback(acknowledge=False, flushed=50, sender_timeout=60, now=0)
    feedback.take_frames(with_lengths(data(100)), 0)
    feedback.delivered = 90
    assert feedback.status().flush_lsn == 0
    assert feedback.status(last=True).flush_lsn == 90


def test_descriptions_of_frames() -> None:
    assert received_text(data(0x1_0000_00AB)) == (
        "w  start 1/AB  end 1/AB  clock 2000-01-01T00:00:00.000000Z  ?, 7 bytes"
    )
    assert received_text(keepalive(7, reply=True)).endswith("reply 1")
    for frame in (b"", b"w12", b"k", b"s123", b"\xff"):
        assert "bytes" in received_text(frame)
    assert sent_text(StandbyStatusUpdate(1, 2, 0, 0, 0)).startswith("r  write 0/1  flush 0/2  apply 0/0  clock 2000")


# -- the queue -------------------------------------------------------------------------------------------------


def frames_of(data: bytes) -> list[bytes]:
    return [*each(data)]


def test_a_queue_keeps_the_order_in_memory_and_files() -> None:
    rng = random.Random(1)
    queue = FrameQueue(1 << 30, memory=10_000, segment=5_000)
    frames = [rng.randbytes(rng.choice([0, 1, 10, 100, 6_000])) for _ in range(3_000)]
    taken: list[bytes] = []

    def take() -> None:
        while found := next_of(queue, 4_000):
            taken.extend(frames_of(found))
            if rng.random() < 0.05:
                time.sleep(0.002)

    reader = threading.Thread(target=take)
    reader.start()
    for start in range(0, len(frames), 7):
        assert queue.put(with_lengths(*frames[start : start + 7]))
    while not queue.idle:
        time.sleep(0.001)
    assert queue.waiting == 0
    queue.close()
    reader.join()
    assert taken == frames


def test_the_limit_is_for_the_current_bytes_on_disk() -> None:
    queue = FrameQueue(3_004, memory=1_000, segment=500)
    for _ in range(20):
        assert queue.put(with_lengths(b"x" * 900))
        assert queue.put(with_lengths(b"y" * 900))
        assert frames_of(next_of(queue, 1 << 20) + next_of(queue, 1 << 20)) == [b"x" * 900, b"y" * 900]
    assert queue.put(with_lengths(b"a" * 900))
    assert queue.put(with_lengths(b"b" * 3_000))
    assert not queue.put(with_lengths(b"c"))
    assert queue.waiting == 3_901 + 3 * 4
    waiting = [frame for _ in range(3) for frame in frames_of(next_of(queue, 1 << 20))]
    assert waiting == [b"a" * 900, b"b" * 3_000, b"c"]
    assert not queue.idle
    assert queue.put(with_lengths(b"d"))


def test_a_queue_without_files() -> None:
    queue = FrameQueue(0, memory=100)
    assert queue.put(with_lengths(b"x" * 90))
    assert not queue.put(with_lengths(b"y" * 90))
    queue.close()


def test_failed_write_of_the_queue_gives_a_cure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    queue = FrameQueue(1_000, memory=10)
    assert queue.put(with_lengths(b"x" * 11))
    with pytest.raises(OutputError, match="set TMPDIR to a directory with free space"):
        queue.put(with_lengths(b"y"))
    assert frames_of(next_of(queue, 100)) == [b"x" * 11]


# -- connection strings and errors -----------------------------------------------------------------------------


def test_flags_win_over_the_dsn() -> None:
    assert parameters("shop") == {"dbname": "shop"}
    assert parameters("host=a port=1 dbname=x", port="2", user="u", dbname="y") == {
        "host": "a",
        "port": "2",
        "dbname": "y",
        "user": "u",
    }
    assert parameters("postgresql://u:p%40ss@h/db")["password"] == "p@ss"
    assert parameters(None, dbname="host=h dbname=x") == {"host": "h", "dbname": "x"}
    assert parameters() == {}


def test_every_cure_matches_a_server_message() -> None:
    messages = {
        ("42501", "must be superuser or replication role to start walsender"): "ALTER ROLE bob REPLICATION;",
        ("42501", "permission denied to start WAL sender"): "ALTER ROLE bob REPLICATION;",
        ("55006", 'replication slot "x" is active for PID 12'): "Only one client",
        ("53400", "all replication slots are in use"): "max_replication_slots",
        ("42704", 'publication "p" does not exist'): "Create a new slot",
        ("22P05", "whatever it says, in whatever language"): "--encoding NAME",
        ("58P01", "requested WAL segment 000 has already been removed"): "Drop the slot",
        ("53300", "number of requested standby connections exceeds max_wal_senders (currently 1)"): "max_wal_senders",
        ("53300", 'number of requested standby connections exceeds "max_wal_senders" (currently 0)'): (
            "ALTER SYSTEM SET max_wal_senders = 10;"
        ),
        ("XX000", "something that nobody foresaw"): "",
    }
    for (sqlstate, text), cure in messages.items():
        error = server_error(sqlstate, text, role="bob")
        assert text in str(error)
        assert cure in (error.cure or "")
        passes = sqlstate == "55006" or text.endswith("(currently 1)")
        assert error.exit_status == (75 if passes else 3)


def test_transient_errors_are_recognised() -> None:
    import psycopg

    from pgtail.postgres.errors import Unreachable

    for text in ("Connection refused", "FATAL:  the database system is starting up", "server closed the connection"):
        assert isinstance(connection_error(psycopg.OperationalError(text), {}), Unreachable)
    for text in ('password authentication failed for user "x"', 'database "x" does not exist'):
        assert not isinstance(connection_error(psycopg.OperationalError(text), {}), Unreachable)
    assert isinstance(server_error("57P01", "beendet"), Unreachable)
    assert not isinstance(server_error("42704", "nope"), Unreachable)
