"""decode --jobs N of captures does what --jobs 1 does, whoever recorded them, and damaged or not."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import orjson
import pytest

from pgtail.capture.recorder import Recorder, Rotation
from pgtail.capture.verify import segments_to_read
from pgtail.changes.ddl import PREFIX
from pgtail.commands import parallel
from pgtail.commands.options.common import DecodeOptions
from pgtail.commands.output.file_sink import FileSink
from pgtail.commands.parallel import processes
from pgtail.commands.parallel.parts import CaptureParts
from pgtail.commands.parallel.processes import ParallelReading
from pgtail.storage import locate
from tests.capture.test_contents import Random, options_of
from tests.capture.test_snapshots import new
from tests.changes.test_partitions import COLUMNS, FULL_LEAF, LEAF, ROOT
from tests.support.captures import segments, take
from tests.support.encode import INT4, TEXT, begin, commit, delete, frame, insert, message, relation, update
from tests.support.limits import within
from tests.support.object_store import ObjectStore
from tests.support.run import Result, command, here
from tests.support.signals import reset_ignored_signals
from tests.support.snapshots import HEAD

SECONDS = 3
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
_KEPT = (
    "1023525662-13",  # with -n, segments that begin inside of transactions
    "612261633-439",  # --since leaves out the first segment of a snapshot
)
"""Captures that were read wrongly by several processes, by what they are made from."""
_CONTEXTS = ((), ("--context", "outbox"), ("--context", "outbox", "--where", "context is not null"))
"""Half of the messages of the random streams have this prefix."""


class Here(Executor):
    """Decodes parts at once, in this process; `decoded` counts them, `given_up` those that are left to the caller."""

    def __init__(self) -> None:
        self.decoded = self.given_up = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args, **named))
        self.decoded += done.result() is not None
        self.given_up += done.result() is None
        return done


class Divided:
    """Makes `decode --jobs` divide captures into parts of `size` bytes, which `executor` decodes."""

    def __init__(self) -> None:
        self.size = 1
        self.executor = Here()
        self._real = parallel.parallel_reading

    def reading(self, files: tuple[str, ...], options: DecodeOptions, sink: FileSink) -> ParallelReading | None:
        """In place of parallel_reading()."""
        if self._real(files, options, sink) is None:
            return None
        found = segments_to_read(locate(files[0], options.dump.storage), options.filter.since)
        parts = CaptureParts(found, options.dump.encoding, self.size)
        return ParallelReading(parts, options.jobs or 1, lambda _: contextlib.nullcontext(self.executor))


@pytest.fixture
def divided(monkeypatch: pytest.MonkeyPatch) -> Divided:
    made = Divided()
    monkeypatch.setattr(parallel, "parallel_reading", made.reading)
    return made


def recorded(folder: Path, made: Random, choose: random.Random, *, compress: bool) -> None:
    """Record a stream by one recorder after another, with or without snapshots of tables."""
    folder.mkdir()
    if choose.random() < 0.3:
        new(folder, choose.randrange(0x1000, 0xC000), count=2)
    rotation = Rotation(size=choose.choice((800, 3000)), sync_size=700)
    for start, stop in zip([0, *made.sessions], [*made.sessions, len(made.frames)], strict=True):
        recorder = Recorder(folder, HEAD, rotation=rotation, compress=compress)
        take(recorder, made.frames[start:stop])
        recorder.close()


def with_jobs(jobs: int, words: Sequence[str], capture: Path) -> Result:
    return here(*words, "--jobs", str(jobs), capture)


@pytest.mark.timeout(SECONDS + 180)
def test_random_captures(divided: Divided, tmp_path: Path, seed: random.Random) -> None:
    start, end, several = seed.randrange(1 << 30), time.monotonic() + SECONDS, 0
    for number in itertools.count(1):
        if time.monotonic() > end and several >= 10 and divided.executor.given_up:
            break
        name = _KEPT[number - 1] if number <= len(_KEPT) else f"{start}-{number}"
        choose, folder = random.Random(name), tmp_path / str(number)
        made = Random(
            choose.randrange(1 << 30),
            two_phase=choose.random() < 0.5,
            count=choose.choice((20, 60)),
            sessions=choose.random() < 0.5,
        )
        recorded(folder, made, choose, compress=choose.random() < 0.9)
        harm(folder, choose)
        divided.size = choose.choice((1, 600))
        for turn in range(2):
            options = [*options_of(choose, made.xids), *choose.choice(((), ("-v",), ("--resync",), ("--strict",)))]
            if choose.random() < 0.3:
                options += ["--redact", choose.choice(("c1", "a.c0"))]
            options += random.Random(f"{name} {turn}").choice(_CONTEXTS)
            words, before = ["decode", *options], divided.executor.decoded
            one, more = [with_jobs(jobs, words, folder) for jobs in (1, choose.choice((2, 3)))]
            several += divided.executor.decoded > before + 1
            assert one == more, f"{name}: {' '.join(words)} {folder}"


def test_a_table_that_was_described_in_a_segment_that_is_left_out(divided: Divided, tmp_path: Path) -> None:
    """Its last description is known also in the process that left that segment out.

    No description is repeated where a part begins with a snapshot.
    """
    new(tmp_path / "c", 0x5800, count=1)
    recorder = Recorder(tmp_path / "c", HEAD, rotation=Rotation(size=1 << 30))
    described = {
        1: [relation(columns=[("id", INT4)])],
        4: [relation(columns=[("id", INT4), ("v", TEXT)])],
        6: [relation(200, "shown"), insert("6", "y", oid=200)],
    }
    for xid in range(1, 9):
        lsn, row = 0x1000 * xid, insert("1") if xid < 4 else insert("1", "x")
        messages = [begin(xid, lsn), *described.get(xid, []), row, commit(lsn, lsn + 8)]
        take(recorder, [frame(message, lsn) for message in messages])
        recorder.follow({"pgtail.options": f"of segment {xid}"})
    recorder.close()
    for jobs in (1, 2, 3, 2, 2):
        found = with_jobs(jobs, ["decode", "-o", "json", "-t", "shown"], tmp_path / "c")
        assert (found.status, found.stderr) == (0, "")
        assert [one["new"] for one in found.objects] == [{"id": 6, "v": "y"}]


def test_partitions_of_the_parts_before(divided: Divided, tmp_path: Path) -> None:
    """Tables whose Relations follow each other, but not a row of the first, are none."""
    (tmp_path / "c").mkdir()
    recorder = Recorder(tmp_path / "c", HEAD, rotation=Rotation(size=1 << 30))
    deleted, other = delete("1", "1", None, kind="O"), relation(200, "other", COLUMNS, identity="f", key=(0, 1, 2))
    described = {
        1: [other, delete("1", "1", None, kind="O", oid=200), ROOT, FULL_LEAF],
        4: [ROOT, LEAF],
        6: [ROOT, FULL_LEAF],
    }
    for xid in range(1, 9):
        lsn, again = 0x1000 * xid, delete("2", "1", None, kind="O", oid=200)
        messages = [begin(xid, lsn), *described.get(xid, []), deleted, again, commit(lsn, lsn + 8)]
        take(recorder, [frame(message, lsn) for message in messages])
        recorder.follow({"pgtail.options": f"of segment {xid}"})
    recorder.close()
    one, *others = [with_jobs(jobs, ["decode", "-o", "json"], tmp_path / "c") for jobs in (1, 2, 3)]
    assert others == [one, one]
    old = [("v" in change["old"], change["table"]) for change in one.objects]
    assert [table for has, table in old if not has] == ["ev"] * 2
    assert divided.executor.decoded >= 3


def test_schema_changes_are_compared_with_those_of_earlier_segments(divided: Divided, tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    recorder = Recorder(tmp_path / "c", HEAD, rotation=Rotation(size=1 << 30))
    for xid in range(1, 9):
        lsn, column = 0x1000 * xid, {"attnum": 1, "name": f"c{xid}", "type": "text"}
        form = {"version": 1, "tag": "ALTER TABLE", "oid": 200, "schema": "a", "name": "other", "identity": "full"}
        ddl = [message(orjson.dumps(form | {"columns": [column]}), PREFIX)] if xid > 3 else []
        rows = [relation(), insert("1", "x")]
        take(recorder, [frame(one, lsn) for one in [begin(xid, lsn), *rows, *ddl, commit(lsn, lsn + 8)]])
        recorder.follow({"pgtail.options": f"of segment {xid}"})
    recorder.close()
    for words in (["-o", "json"], ["-o", "json", "-t", "other"]):
        one, *others = [with_jobs(jobs, ["decode", *words], tmp_path / "c") for jobs in (1, 2, 3)]
        assert others == [one, one]
        changes = [change["differences"] for change in one.objects if "differences" in change]
        assert changes == [[f"c{xid - 1} renamed to c{xid}"] for xid in range(5, 9)]
    assert divided.executor.decoded >= 3


def test_contexts(divided: Divided, tmp_path: Path) -> None:
    """Each part has those of its transactions, and a prefix that came in another part is not noted as missing."""
    (tmp_path / "c").mkdir()
    recorder = Recorder(tmp_path / "c", HEAD, rotation=Rotation(size=1 << 30))
    for xid in range(1, 9):
        lsn, texts = 0x1000 * xid, [b"%d of %d" % (number, xid) for number in (1, 2)]
        inside = [part for text in texts for part in (message(text, "who"), insert(str(xid), "x"))]
        rare = [message(b"x", "rare")] if xid == 4 else []
        messages = [begin(xid, lsn), relation(), insert("0", "x"), *inside, *rare, commit(lsn, lsn + 8)]
        take(recorder, [frame(one, lsn) for one in messages])
        recorder.follow({"pgtail.options": f"of segment {xid}"})
    recorder.close()
    whole = [one for xid in range(1, 9) for one in (None, f"1 of {xid}", f"2 of {xid}")]
    seconds = [one for one in whole if one is not None and one[0] == "2"]
    for words, expected in (
        (["-o", "json", "-t", "t"], whole),
        (["-o", "json", "--where", "context like '2%' and op = insert"], seconds),
        (["--format-string", "%{context}", "-t", "t"], None),
        (["-o", "table"], None),
    ):
        for prefix in ("who", "rare", "none") if expected is whole else ("who",):
            one, *others = [
                with_jobs(jobs, ["decode", "--context", prefix, *words], tmp_path / "c") for jobs in (1, 2, 3)
            ]
            assert others == [one, one]
            assert ("no transaction sent" in one.stderr) is (prefix == "none")
            if expected is not None and prefix == "who":
                assert [change.get("context") for change in one.objects] == expected
    assert divided.executor.decoded >= 3


def test_a_snapshot_that_lacks_a_segment(divided: Divided, tmp_path: Path) -> None:
    """It is told at its place."""
    new(tmp_path / "c", 0x1800, count=3)
    recorder = Recorder(tmp_path / "c", HEAD, rotation=Rotation(size=1 << 30))
    for xid in range(1, 5):
        lsn = 0x1000 * xid
        take(recorder, [frame(message, lsn) for message in (begin(xid, lsn), commit(lsn, lsn + 8))])
        recorder.follow({"pgtail.options": f"of segment {xid}"})
    recorder.close()
    of_snapshots = sorted((tmp_path / "c").glob("*.snapshot.pgcap"))
    of_snapshots[len(of_snapshots) // 2].unlink()
    one, *others = [with_jobs(jobs, ["decode", "-o", "json", "-v"], tmp_path / "c") for jobs in (1, 2, 3)]
    before, told, _ = one.stderr.partition(f"damage: {of_snapshots[len(of_snapshots) // 2]}: missing, a part of ")
    assert (one.status, told != "", f"{of_snapshots[0]}: pgcap" in before) == (1, True, True)
    assert others == [one, one]


@pytest.mark.parametrize(("output", "words"), [("csv", "-t t"), ("sql", ""), ("line", ""), ("json-tx", "-t t")])
def test_what_comes_once(output: str, words: str, divided: Divided, tmp_path: Path) -> None:
    """Such as the header of CSV, a note about --changed, and what is counted up to the end."""
    (tmp_path / "c").mkdir()
    recorder = Recorder(tmp_path / "c", HEAD, rotation=Rotation(size=1 << 30))
    for xid in range(1, 9):
        lsn, row = 0x1000 * xid, insert(str(xid), "old")
        described = [relation(), relation(200, "other")] if xid == 1 else []
        rows = [row, message(b"text"), update([str(xid), "new"])] if xid > 4 else [row]
        take(recorder, [frame(one, lsn) for one in (begin(xid, lsn), *described, *rows, commit(lsn, lsn + 8))])
        recorder.follow({"pgtail.options": f"of segment {xid}"})
    recorder.close()
    one, three = [with_jobs(jobs, ["decode", "-o", output, *words.split()], tmp_path / "c") for jobs in (1, 3)]
    assert one == three
    assert divided.executor.decoded >= 3


@pytest.mark.parametrize(
    "words",
    ["-o table", "-o sql --undo", "-o csv --columns id", "-o json --old-values seen", "-o csv -f tables/", "-n 5"],
)
def test_what_one_process_decodes(words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(processes, "ParallelReading", lambda *_: pytest.fail("several processes decode"))
    Path("tables").mkdir()
    recorded(Path("c"), Random(1, two_phase=False, count=5), random.Random(1), compress=True)
    here("decode", *words.split(), "--jobs", "2", "c")


def test_dumps_are_refused(tmp_path: Path) -> None:
    recorded(tmp_path / "c", Random(1, two_phase=False, count=5), random.Random(1), compress=True)
    (tmp_path / "dump").write_bytes(insert("1"))
    for names in ([tmp_path / "dump"], segments(tmp_path / "c"), [tmp_path / "c", tmp_path / "c"], ["-"]):
        done = here("decode", "--jobs", "2", *names)
        assert (done.status, done.stdout) == (2, b"")
        assert (
            "--jobs is for one capture: name its directory; pgtail record --from FILE -D DIR makes one" in done.stderr
        )


def test_in_an_object_store(s3: ObjectStore, tmp_path: Path) -> None:
    made = Random(1, two_phase=False)
    recorded(tmp_path / "capture", made, random.Random(1), compress=True)
    s3.upload(tmp_path / "capture", "jobs")
    words = ["decode", "-o", "json", "-v", *s3.arguments, s3.uri("jobs")]
    one, two = [command(*words, "--jobs", jobs) for jobs in ("1", "2")]
    assert one == two
    assert len(one.lines) > 500


# -- with real processes -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight segments, each larger than the smallest part."""
    folder, chosen = tmp_path_factory.mktemp("jobs") / "c", random.Random(1)
    folder.mkdir()
    recorder = Recorder(folder, HEAD, rotation=Rotation(size=1 << 30))
    take(recorder, [frame(one, 0x10) for one in (begin(1, 0x10), relation(columns=[("v", TEXT)]), commit(0x10, 0x18))])
    for xid in range(2, 1602):
        row = insert(chosen.randbytes(4000).hex())
        take(recorder, [frame(one, xid << 8) for one in (begin(xid, xid << 8), row, commit(xid << 8, (xid << 8) + 8))])
        if xid % 200 == 1:
            recorder.follow({"pgtail.options": f"of segment {xid}"})
    recorder.close()
    assert min(file.stat().st_size for file in segments(folder)[:-1]) > 1 << 19
    return folder


def _decode(capture: Path, *options: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "pgtail", "decode", "--jobs", "2", "-o", "json", *options, str(capture)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=reset_ignored_signals,  # noqa: PLW1509 -- nothing here has threads
    )


@pytest.fixture
def blocked(capture: Path) -> Iterator[subprocess.Popen[bytes]]:
    """decode in two processes, whose output is not read once they have begun."""
    with _decode(capture) as process:
        assert process.stdout is not None
        while len(_children(process)) < 2:
            assert process.stdout.read(1 << 12)
        yield process
        process.kill()


def _children(process: subprocess.Popen[bytes]) -> list[int]:
    found = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(pid) for pid in found if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def _ended(pids: Sequence[int]) -> bool:
    """Whether none of these runs any more, after a while."""
    for _ in range(1000):
        if not any(Path(f"/proc/{pid}/stat").exists() and _state(pid) != "Z" for pid in pids):
            return True
        time.sleep(0.01)
    return False


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def test_what_is_written_is_the_same(capture: Path, tmp_path: Path) -> None:
    options = ("-v", "--redact", "v")
    one, two = [command("decode", "--jobs", jobs, "-o", "json", *options, capture) for jobs in ("1", "2")]
    assert one == two
    assert len(one.lines) == 1600
    written = [command("decode", "--jobs", jobs, "-f", tmp_path / jobs, capture) for jobs in ("1", "2")]
    assert written[0] == written[1]
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()


@linux
def test_processes_end_with_the_parent(blocked: subprocess.Popen[bytes]) -> None:
    children = _children(blocked)
    blocked.kill()
    assert _ended(children)


@linux
def test_what_killed_processes_had_to_decode_is_decoded(blocked: subprocess.Popen[bytes]) -> None:
    for child in _children(blocked):
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    out, errors = blocked.communicate(timeout=within(60))
    assert (blocked.returncode, errors) == (0, b"")
    assert out.endswith(b"}\n")
    assert out.count(b'"xid":1601,') == 1


@linux
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_request_to_stop(number: int, status: int, blocked: subprocess.Popen[bytes]) -> None:
    children = _children(blocked)
    os.killpg(blocked.pid, number)
    time.sleep(0.2)
    out, errors = blocked.communicate(timeout=within(20))
    assert blocked.returncode == status
    assert b"interrupted" in errors
    assert b"Traceback" not in errors
    assert out.endswith(b"}\n")
    assert _ended(children)


@linux
def test_a_closed_pipe(blocked: subprocess.Popen[bytes]) -> None:
    children = _children(blocked)
    assert blocked.stdout is not None
    blocked.stdout.close()
    blocked.stdout = None
    assert blocked.wait(within(20)) == 0
    assert blocked.stderr is not None
    assert blocked.stderr.read() == b""
    assert _ended(children)


def test_a_full_disk(capture: Path) -> None:
    done = [command("decode", "--jobs", jobs, "-o", "json", capture, "-f", "/dev/full") for jobs in ("1", "2")]
    assert done[0].status == 4
    assert (done[1].status, done[1].stderr) == (4, done[0].stderr)


def harm(folder: Path, choose: random.Random) -> None:
    """Damage or remove a segment, now and then."""
    files = segments(folder)
    if choose.random() < 0.2:
        one = choose.choice(files)
        kind = choose.random()
        if kind < 0.3 and len(files) > 1:
            one.unlink()
            files.remove(one)
        else:
            data = bytearray(one.read_bytes())
            place = choose.randrange(len(data))
            if kind < 0.5:
                del data[place:]
            else:
                data[place] ^= 1 << choose.randrange(8)
            one.write_bytes(data)
