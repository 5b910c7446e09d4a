"""Snapshots of tables in a capture: they count whole or not at all, and stand where the stream is divided."""

from __future__ import annotations

import json
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pgtail.capture import state as state_module
from pgtail.capture import writer as writer_module
from pgtail.capture.format import CLOSED, SNAPSHOT, SegmentName
from pgtail.capture.reader import first_segment, segments
from pgtail.capture.recorder import Recorder, Rotation
from pgtail.capture.recovery import recover
from pgtail.capture.segment import SegmentFrames
from pgtail.capture.snapshots import open_state
from pgtail.capture.state import FILE, CaptureState, StateFile, parse_state, read_state, state_json
from pgtail.errors import InputError
from pgtail.pgoutput.frames import LENGTHS
from pgtail.pgoutput.scalars import Point
from pgtail.storage import Location
from pgtail.storage.local import LocalLocation
from tests.capture.test_recovery import crash
from tests.support import encode
from tests.support.captures import head, read, take
from tests.support.messages import messages_said
from tests.support.run import here
from tests.support.snapshots import HEAD, TINY, Table, contents, expected, ordinals, transaction, write_all

PLACE = 0x1000
ROW = ("1", "x" * 100)
LARGE = Rotation()


def tables(seed: int, count: int = 4) -> list[Table]:
    rng = random.Random(seed)
    return [Table.random(rng, number) for number in range(count)]


def new(directory: Path, lsn: int = PLACE, count: int = 4) -> list[Table]:
    """A new capture whose snapshots are at an LSN that it has not reached."""
    directory.mkdir(exist_ok=True)
    found = tables(lsn, count)
    state = open_state(directory, 0)
    for one in write_all(directory, found, lsn):
        state.list_snapshot(one, HEAD)
    return found


def recorder(directory: Path, start: int = 0, rotation: Rotation = LARGE) -> Recorder:
    return Recorder(directory, HEAD, rotation=rotation, start=start)


def stream(directory: Path, *places: int) -> None:
    """Record a transaction with one row at each of these LSNs."""
    found = recorder(directory)
    for place in places:
        take(found, transaction(place, ROW))
    found.close()


def spans(directory: Path) -> list[tuple[int, int]]:
    """The lowest and highest commit LSN in each segment of the stream."""
    found = []
    for path in sorted(directory.glob(f"*{CLOSED}")):
        if SegmentName.parse(path.name.removesuffix(CLOSED)) is not None:
            with LocalLocation(path).open() as file:
                frames = SegmentFrames(file, str(path))
                commits = [
                    struct.unpack_from(">Q", frames.buf, start + 27)[0]
                    for start, _ in frames
                    if frames.buf[start + 25] in b"CK"
                ]
            found += [(min(commits), max(commits))] if commits else []
    return found


def test_a_segment(tmp_path: Path) -> None:
    table = Table(16390, "orders", [[], [("1", "a"), ("2", "b")], []])
    [found] = write_all(tmp_path, [table], PLACE)
    assert [str(one.name) for one in found.segments] == ["0000000000000FFF-0000000004", "0000000000000FFF-0000000009"]
    first, last = sorted(tmp_path.iterdir())
    assert first.name == "0000000000000FFF-0000000004.snapshot.pgcap"
    assert head(first) == {
        **HEAD,
        "pgtail.format": "3",
        "pgtail.segment": "0000000000000FFF-0000000004",
        "pgtail.predecessor": "",
        "pgtail.snapshot": "0/1000 16390 1",
        "pgtail.transaction": "3 0 3",
    }
    assert next(iter(head(first))) == "pgtail.format"
    assert head(last)[SNAPSHOT] == "0/1000 16390 2"


@pytest.mark.parametrize("name", ["format1", "format2"])
def test_an_older_capture_that_lists_one_says_so(tmp_path: Path, name: str) -> None:
    """No version of pgtail that does not know the format of its segments reads it, also if no recorder follows."""
    shutil.copytree(Path(__file__).parents[1] / "captures/older" / name, tmp_path, dirs_exist_ok=True)
    before = here("decode", tmp_path)
    position = recover(tmp_path, compress=True).position
    state, place = open_state(tmp_path, position), position + 0x100
    state.list_snapshot(Table(1, "t", [[ROW]]).write(tmp_path, place, 1)[0], HEAD)
    assert json.loads((tmp_path / FILE).read_bytes())["format"] == 3
    assert here("decode", tmp_path).stdout == before.stdout, "it does not count yet"
    recorder(tmp_path, start=position).reached(place)
    assert len(here("decode", tmp_path).lines) == len(before.lines) + 1


def test_they_count_from_their_place_on(tmp_path: Path) -> None:
    copied = new(tmp_path)
    place = LocalLocation(tmp_path)
    assert contents(place) == []
    found = recorder(tmp_path)
    take(found, transaction(0x100, ROW))
    found.sync()
    assert len(contents(place)) == 1
    before = [(0x100, encode.insert(*ROW))]
    take(found, transaction(PLACE, ROW))
    found.close()
    assert contents(place) == before + expected(copied, PLACE) + [(PLACE, encode.insert(*ROW))]
    state = read_state(place)
    assert state.position > PLACE


def test_a_keepalive_reaches_the_place(tmp_path: Path) -> None:
    copied = new(tmp_path)
    found = recorder(tmp_path)
    take(found, transaction(0x100, ROW))
    take(found, transaction(0x200, ROW)[:-1])
    found.reached(PLACE)
    found.sync()
    assert len(contents(LocalLocation(tmp_path))) == 2
    take(found, transaction(0x200, ROW)[-1:])
    found.reached(PLACE - 1)
    assert found.name
    found.reached(PLACE + 0x500)
    assert (found.name, found.safe) == ("", PLACE)
    assert contents(LocalLocation(tmp_path))[2:] == expected(copied, PLACE)
    take(found, transaction(PLACE + 0x600, ROW))
    found.close()
    assert spans(tmp_path) == [(0x100, 0x200), (PLACE + 0x600, PLACE + 0x600)]


@pytest.mark.parametrize("seed", range(6))
def test_no_segment_spans_a_place(tmp_path: Path, seed: int) -> None:
    """Of random streams, by single frames, by whole batches and with keepalives, killed at random moments."""
    rng = random.Random(seed)
    rotation = rng.choice([TINY, LARGE])
    ends = sorted(rng.sample(range(0x100, 0x8000, 0x10), 60))
    places = sorted(rng.sample([*ends, *(end + 8 for end in ends), *range(0x200, 0x8000, 0x80)], 5))
    copies = {place: tables(place, 2) for place in places}
    state = open_state(tmp_path, 0)
    for place, some in copies.items():
        for one in write_all(tmp_path, some, place):
            state.list_snapshot(one, HEAD)
    rows = {end: [(str(end), "x" * rng.randrange(80)) for _ in range(rng.randrange(1, 4))] for end in ends}
    found, position = recorder(tmp_path, rotation=rotation), 0
    while position < len(ends):
        end = ends[position]
        batch = ends[position : position + rng.randrange(1, 8)]
        frames = [one for end in batch for one in transaction(end, *rows[end], described=end == ends[0])]
        choice = rng.random()
        if choice < 0.3:
            take(found, transaction(end, *rows[end]))
        elif choice < 0.8:
            data, pos = b"".join(struct.pack(">I", len(one)) + one for one in frames), 0
            while (pos := found.take_run(data, pos, len(data), LENGTHS)[0]) < len(data):
                size = struct.unpack_from(">I", data, pos)[0]
                found.take_frame(data[pos + 4 : pos + 4 + size])
                pos += 4 + size
        elif choice < 0.9:
            found.reached(end)  # it is the LSN of the next commit
        else:
            take(found, transaction(end, *rows[end])[: rng.randrange(4)])
            crash(found, tmp_path, rng)
            found = recorder(tmp_path, rotation=rotation)
        position = sum(one < found.whole for one in ends)
    found.close()
    for place in places:
        assert all(last < place or first >= place for first, last in spans(tmp_path))
    wanted = [(end, encode.insert(*row)) for end in ends for row in rows[end]]
    for place, some in copies.items():
        if place <= found.whole:
            wanted += expected(some, place)
    assert contents(LocalLocation(tmp_path)) == sorted(wanted, key=lambda one: one[0])


def test_a_late_prepared_transaction_across_the_place(tmp_path: Path) -> None:
    """Its changes come before an outcome whose LSN nobody knows then: the copy cannot have its place."""
    new(tmp_path, count=1)
    found = Recorder(tmp_path, HEAD, rotation=TINY, start=0x200, state=StateFile(tmp_path))
    take(found, transaction(0x300, ROW))
    changes = [
        encode.begin_prepare(9, "g", 0x100),
        encode.relation(),
        encode.insert("2", "x"),
        encode.prepare(9, "g", 0x100),
    ]
    take(found, [encode.frame(one, 0x100) for one in changes])
    with messages_said() as said:
        found.take_frame(encode.frame(encode.commit_prepared(9, "g", PLACE + 8, PLACE + 16), PLACE))
        found.close()
    [text] = [one for one in said if not one.endswith(" closed")]
    assert text.endswith("is removed: a prepared transaction before 0/1000 was sent after it")
    assert {one.snapshot for one in segments(LocalLocation(tmp_path))} == {None}


# -- what is dropped ---------------------------------------------------------------------------------------------


def dropped(directory: Path, why: str) -> None:
    """Check that the next recorder drops the snapshots for this reason, and removes their segments."""
    position = recover(directory, compress=True).position
    with messages_said() as said:
        Recorder(directory, HEAD, rotation=TINY, state=open_state(directory, position))
    assert len(said) > 0
    assert all(text.endswith(f"does not count, and is removed: {why}") for text in said)
    assert not open_state(directory, position).now.snapshots
    assert not list(directory.glob("*.snapshot.*"))
    assert not json.loads((directory / FILE).read_bytes()).get("snapshots")


def test_the_capture_went_past_the_place(tmp_path: Path) -> None:
    """With the state of an earlier moment, as from a backup, or written by somebody who knows no snapshots."""
    new(tmp_path)
    listed = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).unlink()
    kept = {path: path.read_bytes() for path in tmp_path.glob("*.snapshot.pgcap")}
    stream(tmp_path, 0x100, PLACE)
    for path, data in kept.items():
        path.write_bytes(data)
    (tmp_path / FILE).write_bytes(listed)
    dropped(tmp_path, "the capture went past its place without a new segment")


def test_a_recorder_was_killed_before_it_wrote_that_the_place_is_reached(tmp_path: Path) -> None:
    copied = new(tmp_path)
    found = recorder(tmp_path)
    take(found, transaction(0x100, ROW))
    listed = (tmp_path / FILE).read_bytes()
    take(found, transaction(PLACE, ROW))
    found.close()
    (tmp_path / FILE).write_bytes(listed)
    recorder(tmp_path).close()
    assert expected(copied, PLACE) == contents(LocalLocation(tmp_path))[1:-1]


def test_the_stream_goes_on_after_the_place(tmp_path: Path) -> None:
    """As that of another slot than the one that gave the place: changes between the two are lost."""
    new(tmp_path)
    with messages_said() as said:
        Recorder(tmp_path, HEAD, rotation=LARGE, state=StateFile(tmp_path), start=PLACE + 1)
    assert [text.partition("removed: ")[2] for text in said] == ["the stream goes on at 0/1001, after its place"] * 4
    assert open_state(tmp_path, 0).now.snapshots == ()


def test_a_later_timeline_keeps_what_counts(tmp_path: Path) -> None:
    copied = new(tmp_path)
    found = recorder(tmp_path, start=PLACE)
    found.follow({"pgtail.timeline": "2"})
    take(found, transaction(PLACE, ROW))
    found.close()
    assert contents(LocalLocation(tmp_path))[:-1] == expected(copied, PLACE)


@pytest.mark.parametrize("damage", ["gone", "short"])
def test_a_segment_is_missing(tmp_path: Path, damage: str) -> None:
    new(tmp_path, count=1)
    recorder(tmp_path, start=PLACE).close()
    path = max(tmp_path.glob("*.snapshot.pgcap"))
    path.unlink() if damage == "gone" else path.write_bytes(path.read_bytes()[:-1])
    dropped(tmp_path, "segments of it are missing")


def test_what_is_not_listed_is_removed(tmp_path: Path) -> None:
    copied = new(tmp_path)
    write_all(tmp_path, tables(5), PLACE + 1)
    first = min(tmp_path.glob("*.snapshot.pgcap"))
    shutil.copy(first, f"{first}.part")
    recorder(tmp_path, start=PLACE).close()
    assert not list(tmp_path.glob("*.part"))
    assert contents(LocalLocation(tmp_path)) == expected(copied, PLACE)


# -- killed ------------------------------------------------------------------------------------------------------


class Killed(Exception):
    """The process ends here."""


class Kill:
    """Ends the process before, after or in the middle of the operation on a file with this number."""

    def __init__(self, number: int, rng: random.Random) -> None:
        self.left = number
        self._rng = rng

    def wrap(self, operation: Callable[..., None], *, atomic: bool) -> Callable[..., None]:
        def run(*arguments: Any) -> None:
            self.left -= 1
            if self.left:
                operation(*arguments)
                return
            when = self._rng.choice(["before", "after", "middle"])
            if when == "middle" and not atomic:
                operation(arguments[0], arguments[1][: len(arguments[1]) // 2])
            elif when == "after":
                operation(*arguments)
            raise Killed

        return run


@pytest.fixture
def killing(monkeypatch: pytest.MonkeyPatch) -> Callable[[Kill], None]:
    usual = [
        (module, name, getattr(module, name))
        for module, names in (
            (writer_module, ("write_synced", "write_all", "rename_synced")),
            (state_module, ("replace_file",)),
        )
        for name in names
    ]

    def install(kill: Kill) -> None:
        for module, name, operation in usual:
            monkeypatch.setattr(module, name, kill.wrap(operation, atomic=not name.startswith("write")))

    return install


@pytest.mark.parametrize("seed", range(6))
def test_killed_at_any_operation(tmp_path: Path, killing: Callable[[Kill], None], seed: int) -> None:
    """Each run copies the tables that are not listed yet at a later place, and goes on with the stream."""
    rng = random.Random(seed)
    wanted = {table.relid: table for table in tables(seed, 5)}
    ends = list(range(0x100, 0x10000, 0x100))
    place, runs, kills = 0, 0, 0
    while True:
        runs += 1
        killing(Kill(rng.randrange(1, 60) if kills < 20 else 1 << 30, rng))
        try:
            recovered = recover(tmp_path, compress=True)
            state = open_state(tmp_path, recovered.position)
            left = [table for relid, table in wanted.items() if relid not in {one.relid for one in state.now.snapshots}]
            place = max(place, recovered.position) + 0x180
            first = 1
            for table in left:
                snapshot, first = table.write(tmp_path, place, first)
                state.list_snapshot(snapshot, HEAD)
            found = Recorder(tmp_path, HEAD, rotation=TINY, state=state)
            for end in ends:
                if found.whole <= end <= place + 0x100:
                    take(found, transaction(end, ROW))
            found.close()
        except Killed:
            kills += 1
            check_tables(LocalLocation(tmp_path), wanted)
            continue
        check_tables(LocalLocation(tmp_path), wanted)
        if found.whole > place:
            break
    shown = check_tables(LocalLocation(tmp_path), wanted)
    assert {*shown} == {relid for relid, table in wanted.items() if table.rows}
    rows = [lsn for lsn, message in contents(LocalLocation(tmp_path)) if message[1:5] == struct.pack(">I", 100)]
    assert rows == [end for end in ends if end < found.whole]
    assert runs > 1


def check_tables(capture: Location, wanted: dict[int, Table]) -> dict[int, int]:
    """Check that a reader sees each table whole, once, in its place, or not at all; returns where."""
    rows: dict[int, list[bytes]] = {}
    place: dict[int, int] = {}
    try:
        found = contents(capture)
    except InputError as error:
        assert "holds no capture" in str(error)
        return {}
    for lsn, message in found:
        (relid,) = struct.unpack_from(">I", message, 1)
        if relid != 100:
            assert place.setdefault(relid, lsn) == lsn
            rows.setdefault(relid, []).append(message)
    for relid, messages in rows.items():
        assert messages == [encode.insert(*row, oid=relid) for row in wanted[relid].rows]
    return place


# -- capture.json ------------------------------------------------------------------------------------------------


def known(directory: Path) -> CaptureState:
    return read_state(LocalLocation(directory))


def test_the_list_is_read_as_it_was_written(tmp_path: Path) -> None:
    new(tmp_path)
    recorder(tmp_path, start=PLACE).close()
    found = known(tmp_path)
    assert len(found.snapshots) == 4
    assert parse_state(state_json(found), "x") == found
    content = json.loads((tmp_path / FILE).read_bytes())
    assert {name: content[name] for name in ("format", "position")} == {"format": 3, "position": "0/1000"}
    assert content["parameters"]["pgtail.format"] == "3"
    entry = content["snapshots"][0]
    assert [*entry] == ["lsn", "timeline", "relid", "schema", "table", "rows", "segments"]
    assert [*entry["segments"][0]] == ["name", "bytes", "sha256"]


def test_without_snapshots_it_has_the_newest_format_too(tmp_path: Path) -> None:
    """A version that does not know it reads nothing of the capture, and records no more of it."""
    stream(tmp_path, 0x100)
    content = json.loads((tmp_path / FILE).read_bytes())
    assert (content["format"], content["snapshots"]) == (3, [])
    assert content["parameters"]["pgtail.format"] == "3"


DAMAGE: dict[str, list[object]] = {
    "format": [1, 4, "x", None, -1],
    "snapshots": [None, {}, 3, [3], [{}]],
    "lsn": ["", 5, "0/1001"],
    "timeline": [-1, "1", None, 1.5, 1 << 70],
    "relid": ["x", True],
    "rows": [-1, None],
    "table": [None, 3],
    "segments": [[], None, [3]],
    "name": ["x", None, "0000000000000FFE-0000000001"],
    "bytes": [-1, "1"],
    "sha256": ["", "x" * 64, None],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in DAMAGE.items() for value in values])
def test_a_damaged_list(tmp_path: Path, name: str, value: object) -> None:
    new(tmp_path, count=1)
    content = json.loads((tmp_path / FILE).read_bytes())
    entry = content["snapshots"][0]
    for place in (content, entry, entry["segments"][0]):
        if name in place:
            place[name] = value
    with pytest.raises(InputError, match="is damaged|does not know"):
        parse_state(json.dumps(content).encode(), "x")


def test_segments_of_two_tables_are_never_mixed(tmp_path: Path) -> None:
    new(tmp_path)
    found = known(tmp_path)
    first, second = [one for one in found.snapshots if len(one.segments) > 1][:2]
    mixed = first._replace(segments=(first.segments[0], second.segments[1], *first.segments[1:]))
    with pytest.raises(ValueError, match="not in the order of tables"):
        found.with_snapshots([mixed, second])


# -- reading -----------------------------------------------------------------------------------------------------


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    stream(tmp_path, 0x100)
    [path] = tmp_path.glob("*.pgcap")
    (tmp_path / FILE).write_bytes(b'{"format": 4, "anything": 1}')
    found = read(tmp_path)
    assert found.status == 1
    assert "has format '4', which this version of pgtail does not know: a newer one wrote it" in found.stderr
    assert read(path).status == 0


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """Two transactions, one on each side of the snapshots."""
    new(tmp_path)
    stream(tmp_path, 0x100, PLACE)
    return tmp_path


def test_a_listed_segment_that_is_missing_is_damage(capture: Path) -> None:
    path = min(capture.glob("*.snapshot.pgcap"))
    path.unlink()
    found = read(capture)
    assert found.status == 1
    assert f"damage: {path}: missing, a part of the snapshot of public.t0 at 0/1000" in found.stderr
    listed = here("capture", "list", capture)
    assert (listed.status, b"    1 segment of it missing\n" in listed.stdout) == (1, True)
    lines = here("capture", "list", "-o", "json", capture).objects
    assert [one["missing"] for one in lines if one["kind"] == "snapshot"] == [1, 0, 0, 0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda first: first["segments"][0].update(bytes=1), f"as {FILE} says"),
        (lambda first: first.update(rows=first["rows"] + 1), "rows, and its segments have another number"),
        (lambda first: first["segments"][0].update(sha256="0" * 64), f"its SHA-256 is not the one in {FILE}"),
    ],
    ids=["size", "rows", "checksum"],
)
def test_a_list_that_differs_from_the_segments(
    capture: Path, change: Callable[[dict[str, Any]], None], words: str
) -> None:
    assert read(capture, options=("--verify",)).status == 0
    content = json.loads((capture / FILE).read_bytes())
    change(content["snapshots"][0])
    (capture / FILE).write_text(json.dumps(content))
    verified = "SHA" in words
    found = read(capture, options=("--verify",) if verified else ())
    assert found.status == 1
    assert words in found.stderr
    assert found.stderr.count("damage:") == (not verified)


def test_the_segment_of_another_table(capture: Path) -> None:
    one, *_, other = sorted(capture.glob("*.snapshot.pgcap"))
    shutil.copy(other, one)
    found = read(capture)
    assert found.status == 1
    assert f"damage: {one}: not a part of the snapshot of public.t0 at 0/1000" in found.stderr


@pytest.mark.parametrize("pure", ["", "1"])
@pytest.mark.parametrize("seed", range(3))
def test_decoded_to_json(tmp_path: Path, seed: int, pure: str) -> None:
    rng = random.Random(seed)
    copied = {place: tables(seed + place, 4) for place in (PLACE, 2 * PLACE)}
    state = open_state(tmp_path, 0)
    for place, some in copied.items():
        for one in write_all(tmp_path, some, place, rng.choice([TINY, LARGE])):
            state.list_snapshot(one, HEAD)
    stream(tmp_path, 0x100, PLACE, 2 * PLACE)
    found = here("decode", "-o", "json", "--strict", tmp_path, PGTAIL_PURE=pure)
    assert (found.status, found.stderr) == (0, "")
    shown = [(line["commit_lsn"], line["op"], line["table"], *map(str, line["new"].values())) for line in found.objects]
    wanted: list[tuple[str, ...]] = [("0/100", "insert", "stream", *ROW)]
    for place, some in copied.items():
        wanted += [(f"0/{place - 1:X}", "snapshot", table.name, *row) for table in some for row in table.rows]
        wanted.append((f"0/{place:X}", "insert", "stream", *ROW))
    assert shown == wanted
    numbers = [line["seq"] for line in found.objects]
    assert numbers == [1, *[number for some in copied.values() for number in [*ordinals(some), 1]]]


@pytest.mark.parametrize("damage", ["byte", "end"])
def test_rows_after_a_damaged_segment_are_rows_of_the_snapshot(tmp_path: Path, damage: str) -> None:
    many = Table(16384, "t", [[(str(row), "x" * 50) for row in range(100)]])
    state = open_state(tmp_path, 0)
    for one in write_all(tmp_path, [many], PLACE):
        state.list_snapshot(one, HEAD)
    stream(tmp_path, 0x100, PLACE)
    path = sorted(tmp_path.glob("*.snapshot.pgcap"))[3]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data if damage == "byte" else data[: len(data) // 2])
    found = read(tmp_path, options=("--resync", "-o", "json"))
    assert found.status == 1
    assert "Continued outside" not in found.stderr
    copied = [line for line in found.objects if line["table"] == "t"]
    assert {(line["op"], line["commit_lsn"]) for line in copied} == {("snapshot", "0/FFF")}
    assert [line["seq"] for line in copied] == [line["new"]["id"] + 1 for line in copied]
    assert 90 < len(copied) < 100
    assert copied[-1]["new"]["id"] == 99


@pytest.mark.parametrize("pure", ["", "1"])
def test_the_stream_goes_on_after_a_snapshot_of_a_changed_table(tmp_path: Path, pure: str) -> None:
    """The segment after it repeats how the table was in the stream: that is no change of its columns."""
    table = Table(100, "stream", [[("1", "a")]])
    old = encode.relation(100, "stream", [("id", encode.INT4)])
    state = open_state(tmp_path, 0)
    for one in write_all(tmp_path, [table], PLACE):
        state.list_snapshot(one, HEAD)
    recorder = Recorder(tmp_path, HEAD, rotation=LARGE, state=state)
    begun, *rest = transaction(0x100)
    take(recorder, [begun, encode.frame(old, 0x100), encode.frame(encode.insert("1"), 0x100), *rest[1:]])
    take(recorder, transaction(PLACE, ROW))
    recorder.close()
    shown = here("decode", "-o", "sql", tmp_path, PGTAIL_PURE=pure).stdout
    assert shown.count(b"column v added") == 1
    assert b"dropped" not in shown


@pytest.mark.parametrize(
    ("since", "first"), [(0x50, 0x100), (0xFFF, 0x100), (PLACE, PLACE), (PLACE + 8, PLACE)], ids=hex
)
def test_where_reading_starts(capture: Path, since: int, first: int) -> None:
    found = segments(LocalLocation(capture))
    number = first_segment(found, Point(lsn=since))
    assert found[number].name.position == first


def test_stats_and_inspect(capture: Path) -> None:
    rows = len(expected(tables(PLACE), PLACE))
    [report] = here("stats", "-o", "json", capture).objects
    assert (report["snapshots"]["count"], report["snapshots"]["rows"]) == (4, rows)
    assert report["transactions"]["rows"]["total"] == 2
    shown = here("inspect", "-o", "json", "--kind", "Insert", capture)
    assert (shown.status, len(shown.lines)) == (0, rows + 2)


def test_one_segment_alone(capture: Path) -> None:
    for path in capture.glob("*.snapshot.pgcap"):
        found = read(path)
        assert found.status == 0
        assert "damage" not in found.stderr


def test_a_capture_of_its_segments_lacks_the_snapshots(capture: Path, tmp_path: Path) -> None:
    files = [str(segment.location) for segment in segments(LocalLocation(capture))]
    target = tmp_path / "again"
    found = here("record", "-D", target, *(f"--from={file}" for file in files))
    assert found.status == 1
    assert found.stderr.count("not in the capture: the snapshot of a table") >= 4
    assert [lsn for lsn, _ in contents(LocalLocation(target))] == [0x100, PLACE]


def test_the_first_segment_may_only_be_missing_where_no_table_was_copied_before(tmp_path: Path) -> None:
    new(tmp_path, 0x1800)
    for places in ((0x1000,), (0x2000,), (0x3000,), (0x4000,)):
        stream(tmp_path, *places)
    before, ahead, behind, last = sorted(path for path in tmp_path.glob(f"*{CLOSED}") if path.name.count(".") == 1)
    before.unlink()
    assert f"note: {ahead}: segment {before.stem} came before it and is not here" in read(tmp_path).stderr
    ahead.unlink()
    behind.unlink()
    found, listed = here("capture", "verify", tmp_path), here("capture", "list", tmp_path)
    assert (found.status, listed.status) == (1, 1)
    assert f"damage: {last}: segment {behind.stem} is missing before this one" in found.stderr
    assert f"    segment {behind.stem} is missing here\n" in listed.stdout.decode()
