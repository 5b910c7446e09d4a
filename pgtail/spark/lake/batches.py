"""The table of batches: what was applied, and the plan of the last batch, which is committed before its tables.

    OUT/_batches     one row: the number of the last batch, and its plan as JSON

A batch's files are written first. Then its plan, which names them, is committed: of two writers only one succeeds.
Then each table is committed, with the number of the batch as its application transaction. If that was interrupted, the
next writer finishes it from the plan; a table that has the number already stays as it is.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from msgspec import Struct, ValidationError, convert, field, to_builtins

from pgtail.arrow.schemas import SNAPSHOTS
from pgtail.arrow.segments.ranges import Place, Range
from pgtail.capture.prune import Bound, Prunable
from pgtail.errors import InputError, OptionError
from pgtail.spark.lake.delta import Commit, LakeTable, schema_from_json, schema_to_json
from pgtail.spark.lake.parquet import rows_in
from pgtail.spark.segments.applied import Capture, SegmentRun
from pgtail.spark.segments.snapshots import (
    ListedSnapshot,
    SnapshotKey,
    SnapshotSegment,
    UnfinishedSnapshot,
    listed_in,
    new_snapshots,
)
from pgtail.storage import Location, StorageOptions, locate_target

_NAME: Final = "_batches"
_SCHEMA: Final = pa.schema([("batch", pa.int64()), ("plan", pa.string())])
_FORMAT: Final = 5
_FORMATS: Final = (3, 4, _FORMAT)
"""The formats to read: in format 3 no snapshot was applied; before 5 neighbouring keys were in buckets of their own."""
_KEPT: Final = 86_400.0


class TableNotes(Struct):
    """One table, by its OID."""

    folder: str
    versions: list[str]
    """Fingerprints, in the order of their last appearance; the last one is in force."""
    since: int
    """The position from which on the table has its name."""
    buckets: int = 1
    block_bits: int = 0
    """As in TableLayout."""
    whole: bool = False
    """Whether a hash of what identifies its rows no longer finds them: they stay in one bucket."""
    snapshot: int = -1
    """The position of the last snapshot in it, or -1."""
    snapshots: int = 0
    """How many snapshots up to that one are in it, or were superseded."""
    altered: tuple[Place, Place] = (Place(-1, 0), Place(-1, 0))
    """As `done` of Alterations."""


class Notes(Struct):
    """`applied` are ranges of the stream, in order; transactions only prepared in them are in `pending`."""

    applied: list[Range] = field(default_factory=list)
    gaps: list[dict[str, Any]] = field(default_factory=list)
    pending: list[tuple[str, int, int]] = field(default_factory=list)
    """Prepared transactions without an outcome: gid, xid and position."""
    ddl: bool = False
    """As in Settings."""
    tables: dict[int, TableNotes] = field(default_factory=dict)
    vacated: list[str] = field(default_factory=list)
    """Folders that tables left for others, and that no table has now."""
    stopped: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Tables to which nothing more is applied: why, and the position of the last snapshot that did not change that."""

    @property
    def end(self) -> Place:
        """The place up to which everything is in it."""
        return self.applied[-1].end if self.applied else Place(-1, 0)

    @property
    def reach(self) -> Place:
        """`end`, or the place after the last snapshot that is in it, if that is later."""
        return max([self.end, *(Place(one.snapshot + 1, 0) for one in self.tables.values())])


class BatchPlan(Struct):
    """The content of OUT after the last batch."""

    batch: int = 0
    """Its number; 0 if nothing was ever written."""
    tables: list[str] = field(default_factory=list)
    """Globs of the tables that are in it; none for all."""
    server: str = ""
    typed: bool = False
    """Whether there are `tables/*`."""
    snapshot_changes: bool = True
    """Whether `changes` has the rows of snapshots."""
    context: str | None = None
    """The prefix of the logical messages that give the column `context` of `changes`; None: it has none."""
    captures: dict[str, Capture] = field(default_factory=dict)
    """The segments that were applied, by directory."""
    unfinished: list[UnfinishedSnapshot] = field(default_factory=list)
    """Snapshots of which a part was applied; the table `snapshots` has those that are complete."""
    notes: dict[str, Notes] = field(default_factory=dict)
    """The notes of `state` and of `history`."""

    @property
    def runs(self) -> list[SegmentRun]:
        return [run for capture in self.captures.values() for run in capture.runs]

    @property
    def following(self) -> list[SegmentRun]:
        """The applied runs that continue others of their capture."""
        return [run for capture in self.captures.values() for run in capture.following()]


class Batches:
    """The folder OUT for one writer. Raises InputError if it is damaged."""

    def __init__(self, out: Location) -> None:
        self.out = out
        self._table = LakeTable(out / _NAME)
        self.plan, self._commits = BatchPlan(), list[Commit]()
        files = self._table.files()
        if files:
            self.plan, self._commits = self._read(files[0].path)

    def _read(self, path: str) -> tuple[BatchPlan, list[Commit]]:
        place = self._table.place / path
        try:
            document = json.loads(rows_in(place)["plan"][0].as_py())
            if document["format"] not in _FORMATS:
                raise InputError(f"is of format {document['format']}; this pgtail knows {_FORMAT}", source=str(place))
            plan = convert(document["plan"], BatchPlan, str_keys=True)
            return plan, convert(document["commits"], list[Commit], dec_hook=schema_from_json)
        except (ValueError, LookupError, TypeError, ValidationError, pa.ArrowException) as error:
            raise InputError(f"is damaged: {error}", source=str(place)) from None

    def finish(self) -> None:
        """Commit the tables of the last batch that are not committed yet. Raises OutputError."""
        for commit in self._commits:
            self.table(commit.table).commit(commit, self.plan.batch)

    def settled(self, tables: Mapping[str, LakeTable]) -> bool:
        """Whether these tables, by their names, are as the last batch left them: with what it commits, and no more."""
        done = all(tables[one.table].batch >= self.plan.batch for one in self._commits if one.table in tables)
        return done and all(table.batch <= self.plan.batch for table in tables.values())

    def table(self, name: str) -> LakeTable:
        return LakeTable(self.out / name)

    def commit(self, plan: BatchPlan, commits: Sequence[Commit]) -> None:
        """Commit a plan, which has the next number, then its tables. Raises OutputError if another one was faster."""
        self.plan, self._commits = plan, list(commits)
        document = {
            "format": _FORMAT,
            "plan": to_builtins(plan),
            "commits": to_builtins(commits, enc_hook=schema_to_json),
        }
        row = pa.table({"batch": [plan.batch], "plan": [json.dumps(document)]}, _SCHEMA)
        self._table.commit(self._table.replacing(_NAME, row, "zstd", _KEPT), plan.batch)
        self._table = LakeTable(self._table.place)
        self.finish()


def wanted_snapshots(batches: Batches, listed: Sequence[ListedSnapshot]) -> list[SnapshotSegment]:
    """The segments to read of these snapshots: of those not applied, if any table is to have their rows."""
    plan = batches.plan
    if not listed or not (plan.typed or plan.snapshot_changes):
        return []
    rows = snapshots_in(batches.table("snapshots"))
    pairs = zip(rows["relid"].to_pylist(), rows["position"].to_pylist(), strict=True)
    applied = {SnapshotKey(relid, position + 1) for relid, position in pairs}
    return new_snapshots(listed, applied, plan.unfinished, plan.tables)


def snapshots_in(table: LakeTable) -> pa.Table:
    """The rows of the table `snapshots`."""
    rows = [rows_in(table.place / file.path).cast(SNAPSHOTS) for file in table.files()]
    return pa.concat_tables([SNAPSHOTS.empty_table(), *rows])


def applied_to(out: str, capture: Prunable, storage: StorageOptions) -> Bound:
    """How many segments from a capture's start are in OUT, with the snapshots between them.

    Raises OptionError if OUT has none of this capture, InputError.
    """
    batches = Batches(locate_target(out, storage))
    place, known = str(capture.capture.absolute()), batches.plan.captures
    if place not in known:
        others = f"; it was made of {', '.join(sorted(known))}" if known else ""
        raise OptionError(f"{out} has nothing of {place}{others}")
    has = known[place].has
    count = sum(1 for _ in itertools.takewhile(lambda one: has(str(one.name)), capture.stream))
    bound = Bound(count, f"{out} has not applied what follows" if count < len(capture.stream) else "")
    for one in wanted_snapshots(batches, listed_in(place, capture.state)):
        before = capture.before(one.snapshot.table)
        bound = min(bound, Bound(before, f"{out} has not applied {one.snapshot.table}"), key=lambda one: one.count)
    return bound
