"""OUT/state/* and OUT/history/* brought up to what OUT/tables/* has, in one batch."""

from __future__ import annotations

import copy
import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from pgtail.arrow.fold import why_unknown
from pgtail.arrow.segments.ranges import Place, joined
from pgtail.arrow.typed.alterations import Alterations, alterations_of, note_of
from pgtail.arrow.typed.casts import TableColumn
from pgtail.arrow.typed.columns import ROW, VALIDITY, columns_of, schema_of
from pgtail.arrow.typed.versions import Version
from pgtail.errors import COMMAND, OptionError
from pgtail.pgoutput.scalars import lsn_text
from pgtail.spark.jobs import translate_spark_errors
from pgtail.spark.lake.batches import Notes, TableNotes
from pgtail.spark.lake.catalog import Entry, changed, entries, folders_to_take, former_owners
from pgtail.spark.lake.decoding import Names, folder_name
from pgtail.spark.lake.delta import Commit, LakeFile, LakeTable, holds
from pgtail.spark.lake.parquet import DataFile, TableFolder
from pgtail.spark.lake.tables import Rewriting, columns_in, rewritten
from pgtail.spark.lake.update import Lake
from pgtail.spark.state.increment import (
    Increment,
    MissingSegment,
    Snapshot,
    TableStart,
    apart,
    by_table,
    next_increment,
    starts,
)
from pgtail.spark.state.outcomes import Outcomes, cut, last_before, outcomes
from pgtail.spark.state.passes import Changes, TableBatch, VersionRun, fold_all, runs_of
from pgtail.spark.state.settings import Settings
from pgtail.spark.state.tasks import (
    BLOCK_BITS,
    ChangesFile,
    RowsFile,
    SnapshotStarts,
    TableLayout,
    WantedChanges,
    buckets_for,
)
from pgtail.terminal.escape import escape, shell_word


class Applied(Struct):
    """The result of an update. `end` is the place before which everything is applied."""

    end: Place
    changes: int = 0
    rewritten: int = 0
    """Bytes of files that were written in the place of others."""
    waiting: MissingSegment | None = None
    gaps: list[dict[str, Any]] = field(default_factory=list)
    begun_pruned: list[str] = field(default_factory=list)
    """Tables that begin without a snapshot, in captures that were pruned before they were applied."""
    passed: list[str] = field(default_factory=list)
    """Messages about names that passed to other tables, and about schema changes that were left out."""
    stopped: list[str] = field(default_factory=list)
    """Messages about tables to which nothing more is applied."""


def update_state(lake: Lake, settings: Settings) -> Applied:
    """Apply the changes that OUT has and the state (or history) does not have.

    Raises MissingSegment and other InputErrors, OptionError, OutputError.
    """
    lake.show_task(f"bringing {settings.kind} up to date")
    plan = copy.deepcopy(lake.plan)
    notes = plan.notes.setdefault(settings.kind, Notes(ddl=settings.ddl))
    if notes.ddl != settings.ddl:
        scope, cure = ("with", "give it again") if notes.ddl else ("without", "leave it out")
        raise OptionError(f"the {settings.kind} in {lake.out} was made {scope} --ddl: {cure}, or use another directory")
    increment = next_increment(plan.runs, notes, plan.following, allow_gap=settings.allow_gap)
    snapshots = by_table(lake.snapshots())
    alone = None if increment.missing is not None else apart(snapshots, plan.captures, notes, increment)
    if alone is not None:
        successor = f"the snapshot at {lsn_text(alone.position + 1)} in {alone.capture}"
        if settings.allow_gap:
            increment.gaps.append({"missing": "", "before": successor, "place": alone.position})
        else:
            increment.missing = MissingSegment("", successor)
    if increment.missing is not None and not settings.wait:
        raise increment.missing
    result = Applied(notes.reach, waiting=increment.missing, gaps=increment.gaps)
    changes = lake.batches.table("changes")
    until = settings.until
    if isinstance(until, datetime.datetime):
        copied = [(one.position, one.time) for some in snapshots.values() for one in some]
        ranges = joined([*notes.applied, *increment.ranges])  # the state may go beyond that time already
        until = last_before(until, changes, lake.batches.table("transactions"), ranges, copied)
    prepared = outcomes(changes, increment, notes, until)
    if until is not None:
        cut(increment, until, notes)
    begun = starts(snapshots, notes, increment, until, history=settings.history)
    begun = {relid: start for relid, start in begun.items() if start.taken > notes.stopped.get(relid, ("", -1))[1]}
    result.stopped = [text for text, _ in notes.stopped.values()]
    batch = _Batch(lake, settings, notes, increment, prepared, begun)
    if not increment.ranges and not begun and not batch.folders_to_take(batch.names()):
        return result
    with translate_spark_errors():
        commits, result.changes = batch.run()
    if any(capture.pruned for capture in plan.captures.values()):
        result.begun_pruned = sorted(batch.without_snapshot)
    result.passed, result.stopped = batch.passed, [text for text, _ in notes.stopped.values()]
    notes.applied = joined([*notes.applied, *increment.ranges])
    notes.pending = prepared.pending
    notes.gaps += increment.gaps
    result.end = notes.reach
    result.rewritten = sum(file.size for commit in commits for file in commit.adds)
    lake.commit(plan, commits)
    return result


def _why_stopped(kind: str, version: Version, position: int) -> str:
    """Why nothing more is applied to a table, and the cure; names are escaped."""
    name, (why, to_alter) = f"{version.schema}.{version.table}", why_unknown(version)
    return (
        f"{kind} of {escape(name)} stops before {lsn_text(position)}: which row was changed there is not known, as"
        f" {why}. To have the old row sent:{COMMAND}ALTER TABLE {to_alter} REPLICA IDENTITY FULL;\nTo go on after that,"
        f" end the recorder, and start it with:{COMMAND}--snapshot-table {shell_word(name)}"
    )


class _Batch:
    """One batch: from the files of `tables/*` to commits."""

    def __init__(
        self,
        lake: Lake,
        settings: Settings,
        notes: Notes,
        increment: Increment,
        prepared: Outcomes,
        starts: Mapping[int, TableStart],
    ) -> None:
        self._lake = lake
        self._settings = settings
        self._notes = notes
        # A table that was stopped continues with the rows of its last snapshot.
        self._starts = {
            relid: replace(start, snapshots=start.snapshots[-1:], again=not settings.history, since=start.taken)
            if relid in notes.stopped
            else start
            for relid, start in starts.items()
        }
        self._wanted = WantedChanges([part.transactions for part in increment.ranges], prepared.committed)
        self._of_started = {
            relid: replace(
                self._all_since(increment, prepared, start) if start.again or relid in notes.stopped else self._wanted,
                since=start.since,
                snapshots=frozenset(snapshot.position for snapshot in start.snapshots),
            )
            for relid, start in self._starts.items()
        }
        self.without_snapshot: list[str] = []
        """The tables that begin in this batch, but not with a snapshot."""
        self.passed: list[str] = []
        """As in Applied."""
        self._ddl = lake.ddl() if settings.ddl else []
        self._notes_of_ddl: list[str] = []
        self._moved: set[int] = set()
        """The tables that get another folder."""
        self._by_names = lake.versions()
        self._versions = {version.relation: version for versions in self._by_names.values() for version in versions}

    def _all_since(self, increment: Increment, prepared: Outcomes, start: TableStart) -> WantedChanges:
        """All changes that were ever applied, for a table that is made again."""
        ranges = joined([*self._notes.applied, *increment.ranges])
        committed = prepared.committed
        if start.since < self._notes.end.position:
            everything = Increment(ranges, late=increment.late)
            committed = outcomes(self._lake.batches.table("changes"), everything, Notes(), None).committed
        return WantedChanges([one.transactions for one in ranges], committed)

    def run(self) -> tuple[list[Commit], int]:
        """Write the files, and note their content. Returns the commits, and the number of changes.

        The rows of a table are in its new folder before another table takes the old one; then the catalog is changed,
        and unused folders are emptied last.
        """
        tables, counts, before, notes = list[TableBatch](), dict[int, int](), self.names(), self._notes
        for relid, changes in sorted(self._changes().items()):
            start = self._starts.get(relid)
            if start is None and relid in notes.stopped:
                continue
            snapshots = () if start is None else start.snapshots
            own = None if start is not None and start.again else notes.tables.get(relid)
            known = alterations_of(self._ddl, relid)
            alterations = Alterations(known) if own is None else Alterations(known, own.altered)
            wanted = self._of_started.get(relid, self._wanted)
            runs, counts[relid] = runs_of(changes, wanted, snapshots, self._versions, exact=alterations.unread)
            if runs:
                runs = self._altered(runs, own, alterations)
                tables.append(self._table(relid, changes, runs, start))
                notes.tables[relid].altered = alterations.done
        passed = former_owners(notes.tables, self.names(), before)
        left = self._move(tables, self.folders_to_take(before), passed)
        fold_all(self._lake.spark, tables)
        for table in list(tables):
            if table.stopped is not None and self._stop(table, *table.stopped):
                tables.remove(table)
            elif table.stopped is None and table.runs:
                notes.stopped.pop(table.relid, None)
        now = self.names()
        commits = sorted((one for table in tables for one in self._commits(table)), key=lambda one: one.overwrite)
        kind = self._settings.kind
        new = [Entry(kind, *now[relid], relid, table.folder, table.since) for relid, table in notes.tables.items()]
        self.passed = [
            f"another table has the name {'.'.join(now[relid])} now: OID {relid}, in {notes.tables[relid].folder};"
            f" the one before, OID {former}, was dropped or renamed, and is in {notes.tables[former].folder}"
            for relid, former in passed.items()
            if relid in now and former in now
        ] + self._notes_of_ddl
        count = sum(counts[table.relid] for table in tables if table.stopped is None and table.runs)
        return commits + changed(self._lake.out, new, self._lake.codec, notes.vacated) + left, count

    def _altered(
        self, runs: Sequence[VersionRun], before: TableNotes | None, alterations: Alterations
    ) -> list[VersionRun]:
        """The runs of a table, divided at its alterations; `before` are its notes, if it has rows."""
        last = None if before is None else self._versions[before.versions[-1]]
        divided = []
        for run in runs:
            divided += [VersionRun(run.version, *step) for step in alterations.steps(last, run.version, run.places)]
            last = run.version
        if alterations.dropped:
            version = runs[-1].version
            self._notes_of_ddl.append(note_of(alterations.dropped, f"{version.schema}.{version.table}"))
        return divided

    def names(self) -> dict[int, Names]:
        """The names of the tables, as far as they were applied."""
        last = {relid: self._versions[one.versions[-1]] for relid, one in self._notes.tables.items()}
        return {relid: (version.schema, version.table) for relid, version in last.items()}

    def folders_to_take(self, before: Mapping[int, Names]) -> dict[int, str]:
        """As in catalog.py; in a history a table has its folder for ever."""
        tables = {} if self._settings.history else self._notes.tables
        return folders_to_take(self._settings.kind, tables, self.names(), before)

    def _move(self, tables: list[TableBatch], folders: Mapping[int, str], passed: dict[int, int]) -> list[Commit]:
        """Copy the rows of tables to their new folders; note it, in `passed` too. Returns the commits that empty unused
        folders."""
        notes = self._notes
        users = {table.folder: relid for relid, table in notes.tables.items()}
        passed |= {relid: users[folder] for relid, folder in folders.items() if folder in users}
        there = {table.relid: table for table in tables}
        for relid, folder in folders.items():
            if relid not in there:
                there[relid] = self._table(relid, (), (), None)
                tables.append(there[relid])
            table = there[relid]
            table.move(self._lake.spark, self._lake.out / folder)
            notes.tables[relid].folder = folder
        self._moved = {*folders}
        used = {table.folder for table in notes.tables.values()}
        left = {name: LakeTable(self._lake.out / name) for name in users if name not in used}
        left = {name: table for name, table in left.items() if table.schema is not None}
        notes.vacated = sorted({*notes.vacated, *left} - used)
        retain = self._settings.retain
        return [Commit(name, table.schema, overwrite=True, retain=retain) for name, table in left.items()]

    def _stop(self, table: TableBatch, position: int, version: Version) -> bool:
        """Note that a table stays as it was before the batch, and why. Returns whether it does not exist then."""
        relid, kind = table.relid, self._settings.kind
        start, before = self._starts.get(relid), self._lake.plan.notes.get(kind, Notes()).tables.get(relid)
        self._notes.stopped[relid] = _why_stopped(kind, version, position), -1 if start is None else start.taken
        if before is None and relid not in self._moved:
            del self._notes.tables[relid]
            return True
        if before is not None:
            self._notes.tables[relid] = replace(before, folder=self._notes.tables[relid].folder)
            table.stored = self._stored(before)
        return False

    def _changes(self) -> dict[int, list[tuple[LakeFile, ChangesFile]]]:
        """The files of OUT/tables that may have rows for the batch, by the table's OID."""
        changes: dict[int, list[tuple[LakeFile, ChangesFile]]] = {relid: [] for relid in self._starts}
        least = min(wanted.least for wanted in (self._wanted, *self._of_started.values()))
        for entry in entries(self._lake.out):
            if entry.kind == "tables":
                table = self._lake.batches.table(entry.folder)
                columns = columns_of(self._by_names[entry.schema, entry.table])
                for file in table.files_from("_position", least):
                    relid = file.bounds("_relid").least
                    if self._of_started.get(relid, self._wanted).may_have(file):
                        pair = file, ChangesFile(table.place / file.path, columns, file.of_snapshots)
                        changes.setdefault(relid, []).append(pair)
        return changes

    def _stored(self, notes: TableNotes) -> list[TableColumn]:
        """The columns of a state's table, or of a history's, which has all that there ever were."""
        versions = [self._versions[relation] for relation in notes.versions]
        return columns_of(versions if self._settings.history else versions[-1:])

    def _table(self, relid: int, changes: Changes, runs: Sequence[VersionRun], start: TableStart | None) -> TableBatch:
        """The batch of one table; notes how the table will be."""
        if relid not in self._notes.tables and start is None:
            self.without_snapshot.append(f"{runs[0].version.schema}.{runs[0].version.table}")
        notes = self._notes.tables.get(relid) or self._new(relid, runs[0])
        last = self._versions[notes.versions[-1]]
        layout = TableLayout(last, self._stored(notes), notes.buckets, notes.block_bits)
        table = self._lake.batches.table(notes.folder)
        before = there = [RowsFile(DataFile(file.path, file.size, ""), layout) for file in table.files()]
        snapshots: Sequence[Snapshot] = ()
        if start is not None:
            snapshots = start.snapshots if self._settings.history else ()
            notes.snapshot, notes.snapshots = start.taken, start.count
            if start.again:
                there, last, first = [], runs[0].version, runs[0].places.first
                notes.versions, notes.since, notes.whole = [last.relation], first.position, False
        self._note_versions(notes, runs)
        if runs:
            rows = sum(one.file.size for one in there if one.bucket is not None)
            self._note_buckets(notes, max(rows, sum(file.size for file, _ in changes)), last, runs)
        return TableBatch(
            relid=relid,
            folder=TableFolder(table.place, self._lake.codec),
            history=self._settings.history,
            changes=changes,
            runs=runs,
            wanted=self._of_started.get(relid, self._wanted),
            stored=self._stored(notes),
            buckets=notes.buckets,
            block_bits=notes.block_bits,
            before=before,
            now=there,
            rest=before,
            starts=[SnapshotStarts(one.position, one.time) for one in snapshots],
        )

    def _note_versions(self, notes: TableNotes, runs: Sequence[VersionRun]) -> None:
        """Note the versions of these runs, the last one last, and since when the table has its name."""
        for version, places, _ in runs:
            last = self._versions[notes.versions[-1]]
            if (last.schema, last.table) != (version.schema, version.table):
                notes.since = places.first.position
            notes.versions = [*(one for one in notes.versions if one != version.relation), version.relation]

    def _note_buckets(self, notes: TableNotes, size: int, before: Version, runs: Sequence[VersionRun]) -> None:
        """Note the number of buckets for `size` bytes of a table, whose rows are of the version `before`."""
        notes.buckets = buckets_for(size, self._settings.bucket_size, notes.buckets)
        altered = any(run.version != before or run.origins is not None for run in runs)
        partly_known = notes.whole or altered
        if partly_known and any(run.version.full for run in runs):
            notes.buckets = 1
        notes.whole = partly_known and runs[-1].version.full
        notes.block_bits = BLOCK_BITS

    def _new(self, relid: int, run: VersionRun) -> TableNotes:
        """Notes of a table that begins with this run."""
        folder = f"{self._settings.kind}/{folder_name(run.version.schema, run.version.table)}"
        if folder in {one.folder for one in self._notes.tables.values()}:
            folder = f"{folder}~~{relid}"
        notes = self._notes.tables[relid] = TableNotes(folder, [run.version.relation], run.places.first.position)
        return notes

    def _commits(self, done: TableBatch) -> list[Commit]:
        """The commits of a table: new files in the place of others, or all of them where types change."""
        schema = schema_of(done.stored, VALIDITY if self._settings.history else ROW)
        table, name = LakeTable(done.folder.place), self._notes.tables[done.relid].folder
        before, now = {one.file.path for one in done.before}, {one.file.path for one in done.now}
        adds = [one.file for one in done.now if one.file.path not in before]
        removes = [(one.file.path, one.file.size) for one in done.before if one.file.path not in now]
        if table.schema is not None and (done.relid in self._moved or not holds(schema, table.schema)):
            columns = columns_in(table.schema)
            again = [
                Rewriting(done.folder, file.path, file.size, self._versions[relation], columns, done.stored)
                for file in table.files()
                if file.path in before & now
                for relation in [file.bounds("_relation").least]
            ]
            adds += rewritten(self._lake.spark, again)
            return [Commit(name, schema, adds, overwrite=True, retain=self._settings.retain)]
        if table.schema is not None and not adds and not removes:
            return []
        return [Commit(name, schema, adds, removes, retain=self._settings.retain)]
