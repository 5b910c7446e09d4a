"""Two captures of one history with prepared transactions, and every order in which their segments may be applied.

The segments are those of a real server, cut after every change; what is applied is decided by the code that the
commands use, without Spark and without files.
"""

from __future__ import annotations

import functools
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from pgtail.capture.recorder import Recorder, Rotation
from pgtail.capture.segment import SegmentFrames
from pgtail.errors import InputError
from pgtail.spark.decoding.decode import SegmentChanges, survey
from pgtail.spark.lake.batches import Notes
from pgtail.spark.segments.applied import Capture, new_ones
from pgtail.spark.segments.listing import collapse_whole_segments, parts_of, server_of
from pgtail.spark.segments.ranges import Parts, Range, joined, within
from pgtail.spark.segments.survey import Survey, folder_of
from pgtail.spark.state.increment import next_increment
from pgtail.spark.state.outcomes import resolve
from tests.support.servers import Database
from tests.support.spark import model
from tests.support.spark.captures import segments
from tests.support.two_phase import ADVANCE, CREATE_SLOT, SETUP, SWITCH_ON


@dataclass(frozen=True)
class History:
    """Statements, each of a session. The first slot has those `before` and `shared`, the second `shared` and `after`.

    `switched`: the second slot gets two_phase after those `before`, and sends what was prepared until then late.
    """

    before: Sequence[tuple[str, str]]
    shared: Sequence[tuple[str, str]]
    after: Sequence[tuple[str, str]]
    switched: bool


@dataclass(frozen=True)
class Recorded:
    """The segments of both captures, in order, and the values in the table at the end."""

    one: list[str]
    other: list[str]
    values: Counter[str]


def record(database: Database, folder: Path, history: History) -> Recorded:
    """Run a history on a server and record it."""
    database.execute(*SETUP, CREATE_SLOT.format("a", "true"), CREATE_SLOT.format("b", str(not history.switched)))
    sessions = {name: database.connect() for name in "xyz"}
    try:
        _run(sessions, history.before)
        database.execute(ADVANCE.format("b"))
        if history.switched:
            database.execute(SWITCH_ON.format("b"))
        _run(sessions, history.shared)
        model.record(database, folder / "whole" / "a", slot="a")
        _run(sessions, history.after)
        model.record(database, folder / "whole" / "b", slot="b")
    finally:
        for session in sessions.values():
            session.close()
    values = Counter(str(value) for (value,) in database.query("SELECT v FROM t"))
    one, other = (_cut(folder / "whole" / name, folder / name) for name in "ab")
    return Recorded(one, other, values)


def _run(sessions: Mapping[str, Any], statements: Iterable[tuple[str, str]]) -> None:
    for name, statement in statements:
        sessions[name].execute(statement)


def _cut(source: Path, target: Path) -> list[str]:
    """The same capture in segments of one change each."""
    target.mkdir()
    recorder: Recorder | None = None
    for path in segments(source):
        with path.open("rb") as file:
            frames = SegmentFrames(file, str(path))
            head = frames.read_head().parameters
            if recorder is None:
                recorder = Recorder(target, head, rotation=Rotation(size=1))
            for start, stop in frames:
                if frames.head.own:
                    recorder.take(bytes(frames.buf[start:stop]))
    assert recorder is not None
    recorder.close()
    return [str(path) for path in segments(target)]


@dataclass(frozen=True)
class Step:
    """What was applied so far: of captures, of `changes`, and of the state."""

    captures: Mapping[str, Capture] = field(default_factory=dict)
    changes: tuple[tuple[Any, ...], ...] = ()
    notes: Notes = field(default_factory=Notes)
    values: tuple[str, ...] = ()
    """The values that the state has."""

    @property
    def signature(self) -> tuple[Any, ...]:
        """What later steps depend on, and what they may get wrong."""
        return self.changes, repr(self.notes), self.values, repr(sorted(self.captures.items()))


@functools.cache
def _survey(path: str) -> Survey:
    return survey(io.BytesIO(Path(path).read_bytes()), path)


@functools.cache
def _decoded(path: str, parts: Parts) -> list[dict[str, Any]]:
    batches = SegmentChanges(io.BytesIO(Path(path).read_bytes()), path, parts=parts)
    return [row for batch in batches for row in batch.to_pylist(maps_as_pydicts="strict")]


_ROWS: Final[dict[tuple[Any, ...], dict[str, Any]]] = {}
"""Rows of `changes` by what identifies them."""


def apply(step: Step, paths: Sequence[str]) -> Step:
    """One batch: what these segments add to `changes`, then to the state. Raises InputError."""
    captures = {directory: Capture(list(one.runs)) for directory, one in step.captures.items()}
    found = [_survey(path) for path in new_ones(paths, captures)]
    server_of(found)
    applied = [run for capture in captures.values() for run in capture.runs]
    parts = collapse_whole_segments(parts_of(found, applied), found)
    changes = list(step.changes)
    for path, some in parts.items():
        for row in _decoded(path, some):
            key = (row["position"], row["ordinal"], row["op"], row["gid"] or "")
            _ROWS[key] = row
            changes.append(key)
    for segment in found:
        captures.setdefault(folder_of(segment.path), Capture()).add(segment)
    return _applied(replace(step, captures=captures, changes=tuple(sorted(changes))))


def _applied(step: Step) -> Step:
    """The same with the state brought up to date."""
    rows = [_ROWS[key] for key in step.changes]
    now = next_increment([run for capture in step.captures.values() for run in capture.runs], step.notes)
    gids = [row for row in rows if row["gid"] is not None]
    found = resolve(_inside(gids, now.ranges), step.notes.pending, None, lambda: _inside(gids, now.late))
    transactions = [one.transactions for one in now.ranges]
    values = list(step.values)
    for row in rows:
        prepared = row["state"] == "prepared"
        if row["op"] == "insert" and (
            row["position"] in found.committed if prepared else any(row["position"] in one for one in transactions)
        ):
            values.append(row["new"]["v"])
    notes = Notes(joined([*step.notes.applied, *now.ranges]), pending=found.pending)
    return replace(step, notes=notes, values=tuple(sorted(values)))


def _inside(rows: Iterable[Mapping[str, Any]], ranges: Sequence[Range]) -> list[Mapping[str, Any]]:
    return [row for row in rows if within(tuple(ranges), row["position"], row["ordinal"])]


def ends(one: Sequence[str], other: Sequence[str]) -> Iterator[Step]:
    """The results of every order of two captures' segments, in batches of one segment or of one of each capture.

    Orders whose results are equal so far are continued once. An order ends early at a segment that has changes from
    before the end of the state.
    """
    steps: dict[tuple[int, int], dict[Any, Step]] = {(0, 0): {None: Step()}}
    for i in range(len(one) + 1):
        for j in range(len(other) + 1):
            for step in steps.pop((i, j), {}).values():
                if (i, j) == (len(one), len(other)):
                    yield step
                for n, m in ((1, 0), (0, 1), (1, 1)):
                    paths = [*one[i : i + n], *other[j : j + m]]
                    if len(paths) < n + m:
                        continue
                    try:
                        after = apply(step, paths)
                    except InputError:
                        _check_too_late(step, paths)
                        continue
                    steps.setdefault((i + n, j + m), {})[after.signature] = after


def _check_too_late(step: Step, paths: Sequence[str]) -> None:
    """There is a change that the state lacks although it is at a later place."""
    own = [place for path in paths for place in (_survey(path).places,) if place is not None]
    assert any(part.first < step.notes.end and not any(one.covers(part) for one in step.notes.applied) for part in own)


def inserted(changes: Iterable[tuple[Any, ...]]) -> Counter[str]:
    """The values of the rows of `changes` that were committed."""
    rows = model.committed([dict(_ROWS[key]) for key in changes])
    return Counter(row["new"]["v"] for row in rows if row["op"] == "insert")
