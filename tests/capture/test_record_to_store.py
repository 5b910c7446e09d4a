"""`pgtail record -D URI` on real servers: what is acknowledged was uploaded, through kills, outages and rivals."""

from __future__ import annotations

import itertools
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from pgtail.capture.state import read_state
from pgtail.pgoutput.scalars import parse_lsn
from tests.support.faulty_store import HoldingStore
from tests.support.object_store import SECRET, ObjectStore, Proxy
from tests.support.run import Result, command, here
from tests.support.run_process import PROGRAM, started
from tests.support.servers import Database
from tests.support.tail import wait_for, wait_for_reader

SCHEMA = "CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE PUBLICATION p FOR ALL TABLES"
QUICK = "--segment-age", "0.5", "--sync-interval", "0.05"


class Recording:
    """A database, and a prefix to record it into."""

    def __init__(self, database: Database, store: ObjectStore, spool: Path) -> None:
        self.database = database
        self.store = store
        self.prefix = uuid.uuid4().hex
        self.spool = spool
        database.execute(*SCHEMA)

    def arguments(self, *options: str, slot: str = "cap") -> list[str]:
        place = ["-D", self.store.uri(self.prefix), "--spool", str(self.spool)]
        return ["record", self.database.conninfo(), "-S", slot, *place, *self.store.arguments, *QUICK, *options]

    def until_now(self, *options: str, slot: str = "cap") -> Result:
        return command(*self.arguments("--until", "now", *options, slot=slot))

    def running(self, *options: str) -> AbstractContextManager[subprocess.Popen[str]]:
        return started([*PROGRAM, *self.arguments(*options)], stderr=subprocess.PIPE, text=True)

    def confirmed(self) -> int:
        query = "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = 'cap'"
        return parse_lsn(self.database.value(query))

    def uploaded(self) -> int:
        return read_state(self.store.locate(self.prefix)).position

    def ids(self) -> list[int]:
        found = here("decode", "-o", "json", *self.store.arguments, self.store.uri(self.prefix))
        assert (found.status, found.stderr) == (0, "")
        return [int(change["new"]["id"]) for change in found.objects]

    def insert(self, *ids: int) -> None:
        self.database.execute(*[f"INSERT INTO t VALUES ({one}, 'row')" for one in ids])

    def wait_until_free(self) -> None:
        busy = "SELECT 1 FROM pg_replication_slots WHERE active"
        wait_for("free slot", lambda: not self.database.query(busy))


@pytest.fixture
def recording(newest_database: Database, s3: ObjectStore, tmp_path: Path) -> Recording:
    return Recording(newest_database, s3, tmp_path / "spool")


@pytest.fixture
def recording_anywhere(newest_database: Database, store: ObjectStore, tmp_path: Path) -> Recording:
    """The same with a server of each cloud."""
    return Recording(newest_database, store, tmp_path / "spool")


def test_it_continues_with_its_spool_and_with_an_empty_one(recording_anywhere: Recording) -> None:
    recording = recording_anywhere
    first = recording.until_now()
    assert (first.status, "0 transactions" in first.stderr) == (0, True), first.stderr
    for number in range(4):
        recording.database.execute("CREATE TABLE IF NOT EXISTS unpublished ()", "SELECT pg_switch_wal()")
        recording.insert(number)
        if number % 2:
            shutil.rmtree(recording.spool)
        assert recording.until_now().status == 0
        assert recording.confirmed() == recording.uploaded()
        assert [path.name for path in recording.spool.iterdir()] == ["capture.json"]
    assert recording.ids() == [0, 1, 2, 3]


def test_what_is_acknowledged_was_uploaded(recording: Recording) -> None:
    assert recording.until_now().status == 0
    with recording.running("--segment-age", "3") as running:
        wait_for_reader(recording.database)
        recording.insert(1)
        committed = parse_lsn(recording.database.value("SELECT pg_current_wal_flush_lsn()"))
        wait_for("segment", lambda: list(recording.spool.glob("*.part")))
        assert recording.confirmed() < committed
        while recording.confirmed() < committed:
            acknowledged = recording.confirmed()
            assert acknowledged <= recording.uploaded()
            assert running.poll() is None
        assert recording.ids() == [1]
        running.kill()


def test_idle_positions_are_acknowledged_and_known_to_a_new_machine(recording: Recording) -> None:
    assert recording.until_now().status == 0
    recording.insert(1)
    assert recording.until_now().status == 0
    before = recording.confirmed()
    recording.database.execute("CREATE TABLE unpublished ()", "SELECT pg_switch_wal()", "CHECKPOINT")
    assert recording.until_now().status == 0
    assert before < recording.confirmed() == recording.uploaded()
    shutil.rmtree(recording.spool)
    recording.insert(2)
    assert recording.until_now().status == 0
    assert recording.ids() == [1, 2]


@contextmanager
def cut_off(recording: Recording) -> Iterator[tuple[Proxy, subprocess.Popen[str], int, str]]:
    """A recorder that has acknowledged row 1 and cannot upload row 2: its store, itself, its position, what it says."""
    proxy = Proxy(recording.store.url)
    recording.store = ObjectStore(proxy.url)
    assert recording.until_now().status == 0
    with recording.running() as running:
        assert running.stderr is not None
        recording.insert(1)
        wait_for("upload", lambda: recording.confirmed() == recording.uploaded() and recording.ids() == [1])
        before = recording.confirmed()
        proxy.cut()
        recording.insert(2)
        yield proxy, running, before, running.stderr.readline()


def test_the_store_is_gone_for_a_while(recording: Recording) -> None:
    with cut_off(recording) as (proxy, running, before, said):
        recording.insert(3, 4)
        time.sleep(1.5)
        assert (running.poll(), recording.confirmed()) == (None, before)
        proxy.restore()
        wait_for("upload", lambda: recording.confirmed() > before and recording.ids() == [1, 2, 3, 4])
        running.terminate()
        last = running.communicate()[1]
    assert running.returncode == 0
    assert "Connection refused; trying again. 1 segment in" in said
    assert "not uploaded" not in last


def test_the_connection_is_lost_while_the_store_is_gone(recording: Recording) -> None:
    """The stream continues after what is in the spool, not after what was acknowledged: nothing comes twice."""
    with cut_off(recording) as (proxy, running, before, said):
        assert "trying again" in said
        recording.database.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_replication")
        recording.insert(3)
        time.sleep(1)
        assert recording.confirmed() == before
        proxy.restore()
        wait_for("upload", lambda: recording.ids() == [1, 2, 3])
        running.terminate()
        last = running.communicate()[1]
    assert (running.returncode, "connected again" in last) == (0, True), last
    assert recording.ids() == [1, 2, 3]


def test_it_ends_while_the_store_is_gone(recording: Recording) -> None:
    with cut_off(recording) as (proxy, running, before, said):
        running.terminate()
        said += running.communicate()[1]
    for words in ("trying again", "1 segment in", "not uploaded, and not acknowledged: the next run does that"):
        assert words in said
    assert SECRET not in said
    recording.wait_until_free()
    assert recording.confirmed() == before
    proxy.restore()
    recording.insert(3)
    assert recording.until_now().status == 0
    assert recording.ids() == [1, 2, 3]


def test_two_recorders_at_one_prefix(recording: Recording, tmp_path: Path) -> None:
    assert recording.until_now().status == 0
    with recording.running() as running:
        recording.insert(1)
        wait_for("upload", lambda: recording.ids() == [1])
        recording.spool = tmp_path / "other"
        same = recording.until_now()
        assert (same.status, "slot cap is in use" in same.stderr) == (75, True), same.stderr
        other = recording.until_now(slot="another")
        assert (other.status, "is of slot cap, not another" in other.stderr) == (2, True), other.stderr
        assert not recording.database.query("SELECT 1 FROM pg_replication_slots WHERE slot_name = 'another'")
        recording.insert(2)
        wait_for("both rows", lambda: recording.ids() == [1, 2])
        running.kill()


def test_a_recorder_that_lost_its_place_stops(recording_anywhere: Recording, tmp_path: Path) -> None:
    recording = recording_anywhere
    assert recording.until_now().status == 0
    with recording.running() as first:
        recording.insert(1)
        wait_for("upload", lambda: recording.uploaded() and recording.ids() == [1])
        recording.spool = tmp_path / "other"
        second = recording.until_now("--allow-gap", slot="another")
        assert second.status == 0, second.stderr
        recording.insert(2)
        said = first.communicate()[1]
    assert (first.returncode, "another process records into" in said) == (4, True), said


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        (lambda arguments: [one for one in arguments if one != "--spool" and "spool" not in one], 2, "--spool DIR is"),
        (lambda arguments: [one.replace("s3://captures", "s3://nothing") for one in arguments], 4, "NoSuchBucket"),
        (lambda arguments: [one.replace("s3://", "s5://") for one in arguments], 2, "s5:// is no storage"),
        (
            lambda arguments: [one.replace("s3://captures", str(Path("/tmp/c"))) for one in arguments],
            2,
            "--spool is for",
        ),
    ],
)
def test_what_is_refused(
    recording: Recording, change: Callable[[list[str]], list[str]], status: int, words: str
) -> None:
    result = command(*change(recording.arguments("--until", "now")))
    assert (result.status, words in result.stderr, SECRET in result.stderr) == (status, True, False), result.stderr
    assert not recording.database.query("SELECT 1 FROM pg_replication_slots")


_CUT = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active"


@contextmanager
def frozen(recording: Recording, holds: Callable[[str, str], bool], *options: str) -> Iterator[HoldingStore]:
    """A recorder that is stopped right before this request to the store, and has lost its connection to the server."""
    store, direct = HoldingStore(recording.store.url, holds), recording.store
    recording.store = ObjectStore(store.url)
    try:
        with recording.running(*options) as recorder:
            recording.store = direct
            if not recording.database.query("SELECT 1 FROM t"):
                wait_for_reader(recording.database)
                recording.database.execute("INSERT INTO t SELECT g, repeat('row', 9) FROM generate_series(1, 99) g")
            wait_for("request", store.held.is_set)
            recorder.send_signal(signal.SIGSTOP)
            recording.database.query(_CUT)
            recording.wait_until_free()
            try:
                yield store
            finally:
                recorder.kill()
    finally:
        store.close()


def ends_with(method: str, ending: str, number: int = 1) -> Callable[[str, str], bool]:
    """Whether a request is the one with this number of its kind, from 1."""
    count = itertools.count(1)
    return lambda now, path: (now, path.endswith(ending)) == (method, True) and next(count) == number


def check_all(recording: Recording, last: int) -> None:
    """The capture has the rows from 1 to `last`, each once."""
    place = recording.store.uri(recording.prefix)
    whole = command("capture", "verify", *recording.store.arguments, place)
    assert whole.status == 0, whole.stderr
    assert recording.ids() == list(range(1, last + 1))


def test_a_segment_that_is_created_after_another_recorder_took_over_does_not_count(
    recording: Recording, tmp_path: Path
) -> None:
    """Two segments of one transaction: the request for the second arrives when the other recorder has gone on."""
    with frozen(recording, ends_with("PUT", ".pgcap", 2), "--segment-size", "3000") as store:
        recording.spool = tmp_path / "other"
        assert recording.until_now().status == 0
        recording.insert(100)
        assert recording.until_now().status == 0
        before = len(recording.store.locate(recording.prefix).list())
        store.release()
        assert len(recording.store.locate(recording.prefix).list()) == before + 1
    check_all(recording, 100)
    recording.insert(101)
    assert recording.until_now().status == 0
    check_all(recording, 101)


def test_a_segment_that_is_deleted_after_another_recorder_took_over_did_not_count(
    recording: Recording, tmp_path: Path
) -> None:
    """A recorder was killed when it had uploaded a segment; the next one is stopped before it deletes what is left."""
    with frozen(recording, lambda *_: bool(segments_in(recording))) as store:
        store.drop()
    recording.spool = tmp_path / "second"
    with frozen(recording, ends_with("POST", "?delete"), "--wait") as store:
        recording.spool = tmp_path / "other"
        assert recording.until_now().status == 0
        recording.insert(100)
        assert recording.until_now().status == 0
        before = segments_in(recording)
        store.release()
        assert segments_in(recording) == before
    check_all(recording, 100)


def segments_in(recording: Recording) -> list[str]:
    """The names of the objects that are segments."""
    return [one.name for one in recording.store.locate(recording.prefix).list() if one.name.endswith(".pgcap")]
