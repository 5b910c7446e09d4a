"""What a segment says that it contains, and that nothing changes when segments are skipped because of it."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from msgspec import structs

from pgtail.capture import verify
from pgtail.capture.contents import (
    ContentsCounter,
    PreparedTransaction,
    SegmentContents,
    TableContents,
    read_contents,
)
from pgtail.capture.recorder import Recorder, Rotation
from pgtail.changes.ddl import PREFIX
from pgtail.pgoutput.frames import LENGTHS, walk
from pgtail.storage import Location
from pgtail.storage.local import LocalLocation
from pgtail.values.oids import OIDS
from tests.support import encode
from tests.support.captures import data_frames, lengths, read, segments, whole_streams
from tests.support.corpus import Capture
from tests.support.run import Result, here

TINY = Rotation(size=3000, sync_size=700)
"""So small that many transactions span segments."""
NAMES = ("a", "b", "c", "d", "rare", "e.f")
OUTPUTS = ("json", "json", "json-tx", "sql", "line", "table", "wal2json", "wal2json-v1")
_HOUR = 3_600_000_000
INT4 = OIDS["int4"]


def record(
    folder: Path, frames: Sequence[bytes], *, runs: bool = True, compress: bool = True, rotation: Rotation = TINY
) -> list[SegmentContents]:
    """Record frames, by the scanner where it can; returns what each segment says that it contains."""
    folder.mkdir(exist_ok=True)
    recorder, data, pos = Recorder(folder, {}, rotation=rotation, compress=compress), lengths(frames), 0
    while pos < len(data):
        if runs:
            pos, _ = recorder.take_run(data, pos, len(data), LENGTHS)
        if pos < len(data):
            start, pos = next(walk(data, pos))
            recorder.take_frame(data[start:pos])
    recorder.close()
    return contents_of(folder)


def contents_of(folder: Path) -> list[SegmentContents]:
    found = [read_contents(LocalLocation(path)) for path in segments(folder)]
    return [one for one in found if one is not None]


class Random:
    """A stream of plain and prepared transactions, whose tables change slowly, so that segments have few of them."""

    def __init__(self, seed: int, *, two_phase: bool, count: int = 150, sessions: bool = False) -> None:
        self._choose = random.Random(seed)
        self._two_phase = two_phase
        self._sessions = sessions
        self.frames: list[bytes] = []
        self.xids: list[int] = []
        self.sessions: list[int] = []
        """The frames with which another session begins, which describes the tables again; for who wants several."""
        self._lsn, self._xid, self._time = 0x1000, 700, 0
        self._names = {100 + number: name for number, name in enumerate(NAMES)}
        self._columns = dict.fromkeys(self._names, 1)
        self._described: dict[int, tuple[str, int]] = {}
        self._prepared: list[tuple[int, str]] = []
        current = [100, 101]
        for _ in range(count):
            if self._choose.random() < 0.1:
                current = self._choose.choices([*self._names], weights=[9, 9, 9, 9, 2, 1], k=2)
            if self._sessions and self._choose.random() < 0.03:
                self.sessions.append(len(self.frames))
                self._described.clear()
            self._transaction(current)
        if self._choose.random() < 0.5:
            self.frames += self.frames[-1:] and [encode.frame(encode.begin(self._xid + 1, self._lsn + 9, self._time))]

    def _send(self, message: bytes) -> None:
        self._lsn += self._choose.choice((1, 40))
        self.frames.append(encode.frame(message, self._lsn))

    def _transaction(self, current: list[int]) -> None:
        choose = self._choose
        self._xid, self._time = self._xid + choose.choice((1, 1, 5)), self._time + choose.choice((0, 1, _HOUR))
        self.xids.append(self._xid)
        kind, commit_lsn = choose.random(), self._lsn + 1000
        if self._prepared and kind < 0.2:
            xid, gid = self._prepared.pop(choose.randrange(len(self._prepared)))
            made = encode.commit_prepared if choose.random() < 0.7 else encode.rollback_prepared
            self._send(made(xid, gid, self._lsn, self._lsn + 8, self._time))
            return
        if kind > 0.97:
            self._send(encode.message(b"between", transactional=False, lsn=self._lsn))
            return
        if kind > 0.95:
            oid = choose.choice([*self._names])
            self._columns[oid] += 1
            if choose.random() < 0.5:
                self._names[oid] = choose.choice((*NAMES, f"new{self._xid}"))
        prepared = self._two_phase and choose.random() < 0.2
        gid = f"gid {self._xid}"
        if prepared:
            self._send(encode.begin_prepare(self._xid, gid, commit_lsn, commit_lsn + 8, self._time))
        else:
            self._send(encode.begin(self._xid, commit_lsn, self._time))
        for _ in range(choose.choice((0, 1, 1, 3, 40))):
            self._change(choose.choice(current))
        self._lsn = max(self._lsn, commit_lsn)
        if prepared:
            self._send(encode.prepare(self._xid, gid, commit_lsn, commit_lsn + 8, self._time))
            self._prepared.append((self._xid, gid))
        else:
            self._send(encode.commit(commit_lsn, commit_lsn + 8, self._time))

    def _change(self, oid: int) -> None:
        choose, columns = self._choose, self._columns[oid]
        if choose.random() < 0.02:
            form = {"version": 1, "tag": "DROP TABLE", "oid": oid, "dropped": True, "schema": "public"}
            content = orjson.dumps(form | {"name": self._names[oid]})
            prefix = choose.choice((PREFIX, "outbox"))
            self._send(encode.message(content, prefix, transactional=True, lsn=self._lsn))
            return
        if self._described.get(oid) != (self._names[oid], columns) or choose.random() < 0.01:
            named = [(f"c{number}", INT4) for number in range(columns)]
            self._send(encode.relation(oid, self._names[oid], named))
            self._described[oid] = self._names[oid], columns
        cells = [str(choose.randrange(10)) for _ in range(columns)]
        made = choose.choice(
            (
                encode.insert(*cells, oid=oid),
                encode.update(cells, oid=oid),
                encode.delete(*cells, oid=oid),
                encode.truncate(oid) if choose.random() < 0.05 else encode.insert(*cells, oid=oid),
            )
        )
        self._send(made)


def options_of(choose: random.Random, xids: Sequence[int]) -> list[str]:
    """Random options: what is selected, and the output."""
    times = [f"2000-01-01T{hour:02}:00Z" for hour in range(24)] + ["2000-01-02", "2000-01-03", "2000-01-06"]
    found = []
    chance = choose.random()
    if chance < 0.5:
        found += [f"--table={name}" for name in choose.sample(["rare", "a", "e.f", "public.*", "new*", "nosuch"], 2)]
    elif chance < 0.65:
        found += [f"--exclude={name}" for name in choose.sample(NAMES, 4)]
    if choose.random() < 0.35:
        found += [f"--xid={xid}" for xid in choose.sample(xids, 2)]
    if choose.random() < 0.3:
        found.append(f"--since={choose.choice(times)}")
    if choose.random() < 0.3:
        found.append(f"--until={choose.choice(times)}")
    if choose.random() < 0.2:
        found += choose.choice((["--op=insert"], ["--op=commit_prepared", "--op=insert"], ["--where=c0 = '3'"]))
    if choose.random() < 0.2:
        found.append(f"--limit={choose.choice((1, 3))}")
    return [*found, "-o", choose.choice(OUTPUTS), *choose.choice(((), ("--schema-changes",)))]


@contextmanager
def counted(*, skipping: bool) -> Iterator[Counter[bool]]:
    """Counts segments that were skipped (True) and read; without `skipping` all are read."""
    found = Counter[bool]()

    def contents(segment: Location, encoding: str) -> SegmentContents | None:
        return read_contents(segment, encoding) if skipping else None

    with pytest.MonkeyPatch.context() as patch:
        whether = verify.CaptureVerifier.skips

        def skip(*arguments: object) -> bool:
            skipped = whether(*arguments)  # type: ignore[arg-type]
            found[skipped] += 1
            return skipped

        patch.setattr(verify.CaptureVerifier, "skips", skip)
        patch.setattr(verify, "read_contents", contents)
        yield found


def same(folder: Path, command: str, options: Sequence[str]) -> int:
    """Compare a command's result with that of reading every segment; returns how many it skipped."""
    results, skipped = list[Result](), 0
    for skipping in (False, True):
        with counted(skipping=skipping) as found:
            result = here(command, *options, folder)
            # Which says how much was read.
            results.append(replace(result, stderr=re.sub(r"pgtail: note: 0 of .* matched.*\n", "", result.stderr)))
        skipped = found[True]
    assert results[0] == results[1], (command, options)
    return skipped


@pytest.mark.parametrize("seed", range(0, 24, 7))
def test_skipping_changes_nothing(seed: int, tmp_path: Path) -> None:
    made, choose, skipped = Random(seed, two_phase=bool(seed % 2)), random.Random(seed), 0
    assert len(record(tmp_path, made.frames)) > 5
    for _ in range(10):
        options = options_of(choose, made.xids)
        skipped += same(tmp_path, "decode", options)
    skipped += same(tmp_path, "stats", ["-o", "json", "-t", "rare"])
    assert skipped > 5


@pytest.mark.parametrize("found", whole_streams()[::6], ids=str)
def test_recorded_streams(found: Capture, tmp_path: Path) -> None:
    record(tmp_path, [*data_frames(found)], rotation=Rotation(size=20_000, sync_size=5000))
    everything = read(tmp_path, options=("--encoding", found.encoding, "--numbers", "string"))
    tables = {f"{one['schema']}.{one['table']}" for one in everything.objects if "table" in one}
    for name in random.Random(str(found)).sample(sorted(tables), min(len(tables), 4)):
        same(tmp_path, "decode", ["-o", "json", "--encoding", found.encoding, f"--table={name}"])


@pytest.mark.parametrize("seed", range(6))
def test_the_scanner_counts_what_the_recorder_does(seed: int, tmp_path: Path) -> None:
    made = Random(seed, two_phase=bool(seed % 2))
    assert record(tmp_path / "runs", made.frames) == record(tmp_path / "single", made.frames, runs=False)


def test_what_a_segment_says(tmp_path: Path) -> None:
    messages = [
        encode.relation(100, "a"),
        encode.begin(9, 0x100, 5),
        *[encode.insert("1", "x"), encode.update(["1", "y"]), encode.delete("1", None), encode.truncate(100)],
        encode.message(b"x"),
        encode.message(b"{}", PREFIX),
        encode.commit(0x100, 0x108, 5),
        encode.begin_prepare(7, "kept", 0x200, 0x208, 3),
        encode.prepare(7, "kept", 0x200, 0x208, 3),
        encode.commit_prepared(3, "before", 0x300, 0x308, 8),
        encode.begin_prepare(8, "ended", 0x400, 0x408, 6),
        encode.prepare(8, "ended", 0x400, 0x408, 6),
        encode.rollback_prepared(8, "ended"),
    ]
    (found,) = record(tmp_path, [encode.frame(one, 0x10) for one in messages])
    assert found.tables == (TableContents("public", "a", 1, 1, 1, 1, 1),)
    assert (found.transactions, found.messages, found.ddl, found.xids) == (3, 2, 1, (3, 9))
    assert found.prepared == (PreparedTransaction(7, "kept"),)
    assert found.outcomes == (PreparedTransaction(3, "before"),)


@pytest.mark.parametrize(
    ("prefix", "older", "skipped"), [("outbox", False, 9), (PREFIX, False, 0), ("outbox", True, 0)]
)
def test_of_segments_with_messages_those_with_schema_changes_are_read(
    prefix: str, older: bool, skipped: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of an older pgtail, which did not count schema changes, are read, and so is the first one of a capture."""
    if older:
        text = ContentsCounter.text
        monkeypatch.setattr(ContentsCounter, "text", lambda self: (text(self) or "").replace('"ddl":0,', ""))
    recorder = Recorder(tmp_path, {}, rotation=Rotation())
    for xid in range(1, 11):
        lsn = 0x100 * xid
        own = [encode.relation(100, "a"), encode.begin(xid, lsn), encode.insert("1", "x"), encode.message(b"", prefix)]
        for message in [*own, encode.commit(lsn, lsn + 8)]:
            recorder.take_frame(encode.frame(message, lsn))
        recorder.follow({"pgtail.options": f"of segment {xid}"})
    recorder.close()
    assert same(tmp_path, "decode", ["-o", "json", "-t", "b"]) == skipped


def test_names_are_bytes_of_any_encoding(tmp_path: Path) -> None:
    messages = [encode.relation(100, b"t\xe9\x1b[31m"), encode.begin(), encode.insert("1", "x"), encode.commit()]
    record(tmp_path, [encode.frame(one, 0x10) for one in messages])
    (path,) = segments(tmp_path)
    found = {encoding: read_contents(LocalLocation(path), encoding) for encoding in ("latin-1", "utf-8")}
    names = {encoding: one and one.tables and one.tables[0].table for encoding, one in found.items()}
    assert names == {"latin-1": "t\xe9\x1b[31m", "utf-8": "t\\xe9\x1b[31m"}


@pytest.mark.parametrize(("tables", "known"), [(100, True), (3000, False)])
def test_too_many_tables_are_not_listed(tables: int, known: bool, tmp_path: Path) -> None:
    described = [encode.relation(oid, f"table with a long name {oid}", ()) for oid in range(tables)]
    recorder = Recorder(tmp_path, {}, rotation=Rotation())
    for message in [*described, encode.begin(), encode.commit()]:
        recorder.take_frame(encode.frame(message, 0x10))
    recorder.close()
    (found,) = contents_of(tmp_path)
    assert (found.tables is not None) == known
    assert found.transactions == 1


def test_what_is_not_compressed_is_read(tmp_path: Path) -> None:
    assert record(tmp_path, Random(1, two_phase=False).frames, compress=False) == []
    assert same(tmp_path, "decode", ["-o", "json", "-t", "rare"]) == 0


def test_a_damaged_end_is_read_and_reported(tmp_path: Path) -> None:
    record(tmp_path, Random(1, two_phase=False).frames)
    path = segments(tmp_path)[3]
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)
    result = read(tmp_path, options=("-t", "nosuch"))
    assert result.status == 1
    assert str(path) in result.stderr


def test_a_missing_segment_is_reported(tmp_path: Path) -> None:
    record(tmp_path, Random(1, two_phase=False).frames)
    segments(tmp_path)[3].unlink()
    result = read(tmp_path, options=("-t", "nosuch"))
    assert result.status == 1
    assert "is missing before this one" in result.stderr


@pytest.mark.parametrize("seed", range(4))
def test_recovery_says_what_is_left(seed: int, tmp_path: Path) -> None:
    """A recorder that stops inside a transaction closes its segment without it."""
    frames = Random(seed, two_phase=bool(seed % 2)).frames
    cut = next(place for place in range(len(frames) // 2, len(frames)) if frames[place][25] in b"IUD")
    whole = max(place for place in range(cut) if frames[place][25] in b"CPKr")
    record(tmp_path / "cut", frames[: cut + 1])
    record(tmp_path / "whole", frames[: whole + 1])
    cut_, whole_ = contents_of(tmp_path / "cut"), contents_of(tmp_path / "whole")
    assert len(cut_) == len(segments(tmp_path / "cut"))
    assert [structs.replace(one, position=0) for one in cut_] == [structs.replace(one, position=0) for one in whole_]
