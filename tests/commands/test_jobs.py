"""decode --jobs N does what --jobs 1 does: output, standard error and exit status, in parts of any size."""

from __future__ import annotations

import contextlib
import gzip
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from pgtail.commands.jobs import Jobs, Link
from pgtail.commands.reading import interrupted
from pgtail.commands.turn import Counts, Task
from pgtail.errors import Interrupted
from pgtail.files import stopping
from pgtail.files.stopping import handle_requests
from pgtail.native import compiled
from pgtail.pipeline import parts
from tests.support import encode
from tests.support.limits import within
from tests.support.render import need_compiled
from tests.support.run import Result, command, here
from tests.support.signals import reset_ignored_signals
from tests.torture.streams import case_of

SECONDS = 6
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
_NOW = 1_763_900_000_123_456_789


_DIVIDED = {"json", "json-tx", "line", "csv", "sql", "wal2json", "wal2json-v1"}
"""The formats that several processes write."""


@pytest.fixture(autouse=True)
def _compiled() -> None:
    if compiled() is None:
        need_compiled()


@pytest.fixture
def divided(divided: list[parts.Part], monkeypatch: pytest.MonkeyPatch) -> list[parts.Part]:
    """The same at one moment, which outputs show."""
    monkeypatch.setattr(time, "time_ns", lambda: _NOW)
    return divided


def _with_jobs(jobs: int, command: Sequence[str], file: Path) -> Result:
    done = here(*command, "--jobs", str(jobs), file)  # several processes look for settings in the first part alone
    lines = done.stderr.splitlines(keepends=True)
    return replace(done, stderr="".join([line for line in lines if "the session that made this dump" not in line]))


def test_random_streams(
    divided: list[parts.Part], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: random.Random
) -> None:
    start, end, several, inside, number = seed.randrange(1 << 30), time.monotonic() + SECONDS, 0, 0, 0
    given = tmp_path / "input"
    while time.monotonic() < end or several < 10 or inside < 10:
        number += 1
        name = f"{start}-{number}"
        case, choose = case_of(name), random.Random(name)
        if not _DIVIDED.intersection(case.command):
            continue
        size = choose.choice((1, 30, 100, 1000))
        monkeypatch.setattr(parts, "FIRST_SIZE", size)
        monkeypatch.setattr(parts, "SIZE", size)
        given.write_bytes(case.data)
        divided.clear()
        command = [*case.command, *choose.choice(((), (), ("-n", str(choose.randrange(1, 20)))))]
        found = [_with_jobs(jobs, command, given) for jobs in (1, choose.choice((2, 3)))]
        several += len(divided) > 0
        inside += sum(part.begins_in is not None for part in divided)
        assert found[0] == found[1], f"{name}, parts of {size} bytes: {' '.join(command)}"


def test_a_large_file_is_divided_by_default(
    divided: list[parts.Part], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    transactions = [(encode.begin(xid), encode.insert(str(xid)), encode.commit()) for xid in (1, 2, 3)]
    given = tmp_path / "input"
    given.write_bytes(encode.recvlogical(encode.relation(100, "t", [("id", 23)]), *sum(transactions, ())))
    monkeypatch.setattr(parts, "FIRST_SIZE", 1)
    monkeypatch.setattr("pgtail.commands.division.LARGE", given.stat().st_size)
    monkeypatch.setattr("pgtail.commands.division._cores", lambda: 2)
    assert len(here("decode", "-o", "json", given).objects) == 3
    assert len(divided) > 1
    divided.clear()
    assert len(here("decode", "-o", "json", "--xid", "2", given).objects) == 1
    assert len(here("stats", "-o", "json", given).objects) == 1
    assert not divided
    monkeypatch.setattr("pgtail.commands.division.LARGE", given.stat().st_size + 1)
    assert len(here("decode", "-o", "json", given).objects) == 3
    assert not divided


_SMALL: Final = encode.relation(100, "t", [("id", 23)]), encode.begin(5), encode.insert("1"), encode.commit()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("decode -o table", "-o table: "),
        ("decode -o sql --undo", "--undo writes at the end"),
        ("decode -o csv --columns id", "--columns needs all tables"),
        ("decode -o json --old-values seen", "--old-values seen needs all that came before"),
        ("decode -o csv -f shown.csv.gz", "it is compressed"),
        ("decode -o csv -f tables/", "the output is a file for each table"),
        ("stats dump", "several files are one stream"),
    ],
)
def test_why_one_process_decodes(
    words: str, why: str, divided: list[parts.Part], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("dump").write_bytes(encode.recvlogical(*_SMALL))
    Path("tables").mkdir()
    done = here(*words.split(), "-v", "--jobs", "2", "dump")
    assert f"decoded in one process (--jobs): {why}" in done.stderr
    assert not divided


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (gzip.compress(encode.recvlogical(*_SMALL)), "it is compressed"),
        (b"".join([b"%s\n" % one.hex().encode() for one in _SMALL]), "the form hex is not divided"),
        (encode.recvlogical(*_SMALL, encode.begin(0), encode.commit()), "which has the snapshot of a table"),
        (encode.recvlogical(*_SMALL, b"?", *_SMALL[1:]), "which has damage"),
    ],
    ids=["gzip", "hex", "snapshot", "damage"],
)
def test_why_one_process_decodes_the_rest(
    content: bytes, why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = tmp_path / "input"
    given.write_bytes(content)
    monkeypatch.setattr(parts, "FIRST_SIZE", 1)
    for words in ("decode -o json", "stats"):
        done = here(*words.split(), "-v", "--resync", "--jobs", "2", given)
        [told] = [line for line in done.stderr.splitlines() if "(--jobs)" in line]
        assert why in told


@pytest.mark.parametrize("where", ["", "id = 1"])
def test_a_number_of_transactions(
    where: str, divided: list[parts.Part], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A process shows as many as it may in any case, and at least one, before it waits for those before it."""
    rows = [[encode.insert(str(xid % 2)), *[encode.insert("2")] * 3] for xid in range(1, 7)]
    messages = [one for xid, some in enumerate(rows, 1) for one in (encode.begin(xid), *some, encode.commit())]
    given, rooms = tmp_path / "input", list[int]()
    given.write_bytes(encode.recvlogical(encode.relation(100, "t", [("id", 23)]), *messages))
    monkeypatch.setattr(parts, "FIRST_SIZE", 1)
    monkeypatch.setattr(parts, "SIZE", 1)

    def task(part: parts.Part, *others: Any) -> Task:
        rooms.extend(others[-1:])
        return Task(part, *others)

    monkeypatch.setattr("pgtail.commands.decode_parts.Task", task)
    for number in (1, 3, 6, 7):
        rooms.clear()
        command = ["decode", "-o", "json", "-n", str(number), *(["--where", where] if where else [])]
        one, two = [_with_jobs(jobs, command, given) for jobs in (1, 2)]
        assert one == two
        assert len({found["xid"] for found in one.objects}) == min(number, 3 if where else 6)
        assert where or [*dict.fromkeys(rooms)][:6] == [*range(number, 0, -1)][:6]
    assert any(part.begins_in is not None for part in divided) == (not where)


@pytest.mark.parametrize("output", ["json", "json --transactions", "json-tx", "csv", "line", "sql"])
@pytest.mark.parametrize("where", ["", "id >= 7 and id <= 28"])
def test_one_transaction(
    output: str, where: str, divided: list[parts.Part], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its rows are decoded in several processes, unless what is written of it depends on more than its tables."""
    rows = [encode.insert(str(number)) for number in range(40)]
    messages = [encode.relation(100, "t", [("id", 23)]), encode.begin(5, 0x50), encode.origin("far"), *rows[:12]]
    messages += [encode.relation(100, "t", [("id", 23), ("new", 25)]), encode.truncate(100)]
    messages += [encode.insert(str(number), "x") for number in range(12, 40)]
    messages += [encode.commit(0x50, 0x58), encode.begin(6, 0x60), encode.insert("20", "y"), encode.commit(0x60, 0x68)]
    given = tmp_path / "input"
    given.write_bytes(encode.recvlogical(*messages))
    monkeypatch.setattr(parts, "FIRST_SIZE", 50)
    monkeypatch.setattr(parts, "SIZE", 50)
    command = ["decode", "-o", *output.split(), *(["--where", where] if where else []), "-v"]
    one, three = [_with_jobs(jobs, command, given) for jobs in (1, 3)]
    assert one == three
    assert any(part.begins_in is not None for part in divided) == (output in ("json", "csv", "line"))


@pytest.mark.parametrize("options", [[], ["--resync"]])
def test_damage_inside_the_frame_of_a_row(
    options: list[str], divided: list[parts.Part], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is near the end of a part: what comes after it there would not tell where to go on."""
    rows = [encode.insert(str(number)) for number in range(40)]
    rows[20] = rows[20].replace(b"N", b"?", 1)
    given = tmp_path / "input"
    table = encode.relation(100, "t", [("id", 23)])
    given.write_bytes(encode.lengths(table, encode.begin(), *rows, encode.commit()))
    monkeypatch.setattr(parts, "FIRST_SIZE", 100)
    monkeypatch.setattr(parts, "SIZE", 100)
    one, three = [_with_jobs(jobs, ["decode", "-o", "json", *options], given) for jobs in (1, 3)]
    assert one == three
    assert one.status == 1
    assert len(divided) > 1


@pytest.mark.parametrize("output", ["sql", "wal2json", "json"])
def test_an_outcome_that_the_filter_leaves_out(
    output: str, divided: list[parts.Part], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """-o sql rolls the transaction back before a snapshot of its table, -o wal2json tells at the end that it waits."""
    second = 1_000_000
    messages = [
        *(
            encode.begin(5, 0x50),
            encode.relation(100, "t", [("id", 23)]),
            encode.insert("5"),
            encode.commit(0x50, 0x58),
        ),
        *(encode.begin(6, 0x60), encode.insert("6"), encode.commit(0x60, 0x68)),
        *(encode.begin_prepare(7, "g", 0x100, 0x108, 0), encode.insert("1"), encode.prepare(7, "g", 0x100, 0x108, 0)),
        encode.commit_prepared(7, "g", 0x200, 0x208, 5 * second),
        *(encode.begin(8, 0x300), encode.insert("2"), encode.commit(0x300, 0x308)),
        *(encode.begin(0, 0x400), encode.insert("3"), encode.commit(0x400, 0x401)),
        *(encode.begin(9, 0x500), encode.insert("4"), encode.commit(0x500, 0x508)),
    ]
    given = tmp_path / "input"
    given.write_bytes(encode.recvlogical(*messages))
    monkeypatch.setattr(parts, "FIRST_SIZE", 1)
    monkeypatch.setattr(parts, "SIZE", 1)
    command = ["decode", "-o", output, "--until", "2000-01-01T00:00:01Z"]
    one, three = [_with_jobs(jobs, command, given) for jobs in (1, 3)]
    assert len(divided) > 1
    assert one == three
    assert (b"ROLLBACK PREPARED" in one.stdout) == (output == "sql")
    assert ("neither committed nor rolled back" in one.stderr) == (output == "wal2json")


@pytest.mark.parametrize("before", [1, 3])
def test_a_snapshot_in_the_rest(
    before: int, divided: list[parts.Part], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A row that does not fit its table is seen by the walk, or by the process only; then comes a snapshot."""
    messages = [
        *(encode.relation(100, "t", [("id", 23)]), encode.relation(101, "u", [("id", 23)])),
        *(encode.begin(5, 0x50), encode.insert("1"), encode.commit(0x50, 0x58)),
        *(encode.begin(6, 0x60), encode.insert("1", oid=101), encode.commit(0x60, 0x68)),
        *(encode.begin(7, 0x70), *[encode.insert("2")] * before, encode.insert("3", "4"), encode.commit(0x70, 0x78)),
        *(encode.begin(0, 0x80), encode.insert("1", oid=101), encode.commit(0x80, 0x81)),
    ]
    given = tmp_path / "input"
    given.write_bytes(encode.lengths(*messages))
    monkeypatch.setattr(parts, "FIRST_SIZE", 1)
    monkeypatch.setattr(parts, "SIZE", 1)
    one, three = [_with_jobs(jobs, ["decode", "-o", "sql"], given) for jobs in (1, 3)]
    assert one == three
    assert b"'DELETE FROM '" in one.stdout
    assert len(divided) > 1


def _parts(count: int) -> Iterator[parts.Part]:
    return (parts.Part(number, number + 1, 0, 0) for number in range(count))


@pytest.mark.timeout(20)
def test_what_a_process_says_last_comes_with_its_result(capsys: pytest.CaptureFixture[str]) -> None:
    def work(link: Link) -> None:
        while True:
            part = link.task().part.start
            link.write(f"{part} ")
            link.wait_for_turn()
            link.write("said ")
            link.done(Counts())

    def advanced(part: parts.Part, counts: Counts) -> None:
        time.sleep(0.05)  # the process that has the turn next sends both of its messages

    def task_of(part: parts.Part, last: parts.Part | None) -> Task:
        return Task(part)

    with Jobs(2, _parts(6), work, task_of=task_of, advanced=advanced) as jobs:
        jobs.run()
    assert capsys.readouterr().err == "".join(f"{part} said " for part in range(6))


@pytest.fixture
def again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request to stop is another one than that of the test before."""
    monkeypatch.setattr(stopping, "_SAME", 0.0)


@pytest.mark.timeout(20)
@pytest.mark.usefixtures("again")
def test_a_request_to_stop_while_a_process_sends_much() -> None:
    sizes = []

    def work(link: Link) -> None:
        link.task()
        link.wait_for_turn()
        for size in (1, 4 << 20):
            link.counted(bytes(size))

    def counted(found: bytes) -> None:
        sizes.append(len(found))
        if len(found) == 1:
            time.sleep(0.1)  # the process waits inside of its second message
            os.kill(os.getpid(), signal.SIGINT)

    assert _stopped(1, _parts(1), work, counted=counted)
    assert sizes == [1, 4 << 20]


@pytest.mark.timeout(20)
@pytest.mark.usefixtures("again")
def test_a_request_to_stop_comes_with_the_turn(capsys: pytest.CaptureFixture[str]) -> None:
    """A process that waits for its turn, and has not read that it has it, completes its output with the turn."""
    ours, theirs = os.pipe()
    turns: list[parts.Part] = []

    def work(link: Link) -> None:
        if link.task().part.start == 0:
            time.sleep(0.2)
            link.wait_for_turn()
            link.done(Counts())
            link.task()
        threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGSTOP)).start()
        os.write(theirs, b"%d" % os.getpid())
        try:
            link.wait_for_turn()
        finally:
            link.wait_for_turn()
            link.write("completed")

    def found() -> Iterator[parts.Part | None]:
        yield from _parts(2)
        while not turns:
            yield None
        threading.Timer(0.1, os.kill, (int(os.read(ours, 20)), signal.SIGCONT)).start()
        os.kill(os.getpid(), signal.SIGINT)
        yield None

    assert _stopped(2, found(), work, advanced=lambda part, counts: turns.append(part))
    assert capsys.readouterr().err == "completed"


def _stopped(count: int, found: Iterator[parts.Part | None], work: Callable[[Link], None], **others: Any) -> bool:
    """Whether a request to stop ended Jobs."""
    given: dict[str, Any] = {"task_of": lambda part, last: Task(part), "advanced": print, **others}

    def until_stopped(link: Link) -> None:
        try:
            work(link)
        except KeyboardInterrupt as stopped:
            raise interrupted(stopped) from None

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        handle_requests()
        with Jobs(count, found, until_stopped, **given) as jobs:
            jobs.run()
    except Interrupted:
        return True
    finally:
        signal.signal(signal.SIGINT, before)
    return False


# -- with the real program, whose output nobody reads ------------------------------------------------------------------


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Several parts of the real sizes."""
    text = "x" * 1000
    table = encode.relation(100, "t", [("id", 23), ("text", 25)])
    transactions = [
        encode.recvlogical(encode.begin(xid, xid), encode.insert(str(xid), text), encode.commit(xid, xid + 1))
        for xid in range(1, 6000)
    ]
    path = tmp_path_factory.mktemp("jobs") / "dump.bin"
    path.write_bytes(encode.recvlogical(table) + b"".join(transactions))
    return path


@pytest.fixture
def blocked(dump: Path) -> Iterator[subprocess.Popen[bytes]]:
    """decode in three processes, whose output is not read after that of the first part, which the parent decodes."""
    command = [sys.executable, "-m", "pgtail", "decode", "--jobs", "3", "-o", "json-tx", str(dump)]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,
        preexec_fn=_reset,  # noqa: PLW1509 -- nothing here has threads
    ) as process:
        assert process.stdout is not None
        assert process.stdout.read(10) == b'{"xid":1,"'
        while len(_children(process)) < 3:
            assert process.stdout.read(4096)
        yield process
        process.kill()


def _reset() -> None:
    reset_ignored_signals()


def _children(process: subprocess.Popen[bytes]) -> list[int]:
    found = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return list(map(int, found))


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


@linux
def test_processes_end_with_the_parent(blocked: subprocess.Popen[bytes]) -> None:
    children = _children(blocked)
    assert len(children) == 3
    blocked.kill()
    assert _ended(children)


@linux
def test_a_process_that_is_killed_is_an_error(blocked: subprocess.Popen[bytes]) -> None:
    children = _children(blocked)
    for child in (children[-1], children[0], children[1]):
        with contextlib.suppress(ProcessLookupError):  # the others have ended it
            os.kill(child, signal.SIGKILL)
    _, errors = blocked.communicate(timeout=within(20))
    assert blocked.returncode == 1
    assert b"a process that decodes (--jobs) was ended by SIGKILL: its part of the input is not shown" in errors
    assert _ended(children)


@linux
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_request_to_stop(blocked: subprocess.Popen[bytes], number: int, status: int) -> None:
    children = _children(blocked)
    os.killpg(blocked.pid, number)
    time.sleep(0.2)
    _, errors = blocked.communicate(timeout=within(20))
    assert blocked.returncode == status
    assert b"interrupted" in errors  # after how much is not known while no process has a part
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


def test_a_full_disk(dump: Path) -> None:
    done = [command("decode", "--jobs", str(jobs), "-o", "json", dump, "-f", "/dev/full") for jobs in (1, 3)]
    assert done[0].status == 4
    assert (done[1].status, done[1].stderr) == (4, done[0].stderr)


def test_what_is_read_is_the_same(dump: Path) -> None:
    options = ("--where", "id = 4000", "--redact", "text", "-v")
    one, three = [command("decode", "--jobs", jobs, "-o", "json", *options, dump) for jobs in ("1", "3")]
    assert one == three
    assert len(one.objects) == 1
