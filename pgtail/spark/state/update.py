"""OUT/state/* and OUT/history/* brought up to what OUT/tables/* has, in one batch."""

from __future__ import annotations

import copy
import dataclasses
import datetime
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pgtail.spark.errors import translate_spark_errors
from pgtail.spark.lake.catalog import Entry, changed, entries
from pgtail.spark.lake.delta import Commit, File, Table, holds
from pgtail.spark.lake.names import folder_name
from pgtail.spark.lake.tables import Rewriting, columns_in, rewritten
from pgtail.spark.lake.update import Lake
from pgtail.spark.segments.ranges import Place, joined
from pgtail.spark.state.increment import Increment, MissingSegment, next_increment
from pgtail.spark.state.notes import Notes, TableNotes
from pgtail.spark.state.outcomes import Outcomes, cut, files_within, last_before, outcomes
from pgtail.spark.state.passes import Pass, Run, fold_all, runs_of
from pgtail.spark.state.settings import Settings
from pgtail.spark.state.tasks import Wanted
from pgtail.spark.typed.casts import TableColumn
from pgtail.spark.typed.columns import ROW, VALIDITY, columns_of, schema_of
from pgtail.spark.typed.versions import Version
from pgtail.storage import Location

_MOST_BUCKETS: Final = 1024


@dataclass(slots=True)
class Applied:
    """What was applied. `end` is the place up to which the state now goes."""

    end: Place
    changes: int = 0
    rewritten: int = 0
    """Bytes of files that were written in the place of others."""
    waiting: MissingSegment | None = None
    gaps: list[dict[str, Any]] = field(default_factory=list)


def update_state(lake: Lake, settings: Settings) -> Applied:
    """Apply what OUT has and the state (or history) has not. What is in it already changes nothing.

    Raises MissingSegment and other InputErrors, OptionError, OutputError.
    """
    lake.tell(f"bringing {settings.kind} up to date")
    plan = copy.deepcopy(lake.plan)
    notes = plan.notes.setdefault(settings.kind, Notes())
    now = next_increment(plan.runs, notes, allow_gap=settings.allow_gap)
    if now.missing is not None and not settings.wait:
        raise now.missing
    result = Applied(notes.end, waiting=now.missing, gaps=now.gaps)
    changes = lake.batches.table("changes")
    until = settings.until
    if isinstance(until, datetime.datetime):
        until = last_before(until, changes, lake.batches.table("transactions"), now)
    found = outcomes(changes, now, notes, until)
    if until is not None:
        cut(now, until, notes)
    if not now.ranges:
        return result
    with translate_spark_errors():
        commits, result.changes = _Batch(lake, settings, notes, now, found).run()
    notes.applied = joined([*notes.applied, *now.ranges])
    notes.pending = found.pending
    notes.gaps += now.gaps
    result.end = notes.end
    result.rewritten = sum(file.size for commit in commits for file in commit.adds)
    lake.commit(plan, commits)
    return result


class _Batch:
    """One batch: from the files of `tables/*` to commits."""

    def __init__(self, lake: Lake, settings: Settings, notes: Notes, now: Increment, found: Outcomes) -> None:
        self._lake = lake
        self._settings = settings
        self._notes = notes
        self._wanted = Wanted([one.transactions for one in now.ranges], found.committed)
        self._all_versions = lake.versions()
        self._by_relation = {one.relation: one for versions in self._all_versions.values() for one in versions}

    def run(self) -> tuple[list[Commit], int]:
        """Write the files, and note what is in them. Returns what is to be committed, and the number of changes."""
        by_table: dict[int, list[tuple[Location, File, Sequence[TableColumn]]]] = {}
        for entry in entries(self._lake.out):
            if entry.kind == "tables":
                for relid, some in self._files(entry).items():
                    by_table.setdefault(relid, []).extend(some)
        folders = {one.folder for one in self._notes.tables.values()}
        tables = []
        for relid, files in sorted(by_table.items()):
            runs = runs_of(files, self._wanted)
            if runs:
                tables.append(self._table(relid, files, runs, folders))
        count = fold_all(self._lake.spark, tables)
        commits = [commit for table in tables for commit in self._commits(table)]
        names = [
            Entry(self._settings.kind, version.schema, version.table, relid, one.folder, one.since)
            for relid, one in self._notes.tables.items()
            for version in [self._by_relation[one.versions[-1]]]
        ]
        return changed(self._lake.out, names, self._lake.codec) + commits, count

    def _files(self, entry: Entry) -> dict[int, list[tuple[Location, File, Sequence[TableColumn]]]]:
        """The files of a table of OUT/tables that may have rows for the batch, by OID."""
        table = self._lake.batches.table(entry.folder)
        columns = columns_of(self._all_versions[entry.schema, entry.table])
        found: dict[int, list[tuple[Location, File, Sequence[TableColumn]]]] = {}
        for file in files_within(table.files(), self._wanted.ranges, "_position", self._wanted.committed):
            relid = file.bounds("_relid").least
            found.setdefault(relid, []).append((table.place / file.path, file, columns))
        return found

    def _version(self, relid: int, relation: str) -> Version:
        return dataclasses.replace(self._by_relation[relation], relid=relid)

    def _table(
        self,
        relid: int,
        files: Sequence[tuple[Location, File, Sequence[TableColumn]]],
        runs: Sequence[Run],
        folders: set[str],
    ) -> Pass:
        """What is to be done with one table."""
        history = self._settings.history
        before = copy.deepcopy(self._notes.tables.get(relid))
        notes = self._noted(relid, runs, folders)
        versions = [self._version(relid, relation) for relation in notes.versions]
        stored = columns_of(versions if history else versions[-1:])
        table = self._lake.batches.table(notes.folder)
        there = table.files()
        old_stored = stored
        if before is not None:
            known = [self._version(relid, relation) for relation in before.versions]
            old_stored = columns_of(known if history else known[-1:])
        size = max(sum(file.size for file in there), sum(file.size for _, file, _ in files))
        while not notes.whole and notes.buckets < _MOST_BUCKETS and size > notes.buckets * self._settings.bucket_size:
            notes.buckets *= 2
        chain = [self._version(relid, run.relation) for run in runs]
        start = chain[0] if before is None else self._version(relid, before.versions[-1])
        if chain[-1].full and (notes.whole or any(one != start for one in chain)):
            notes.whole = True
        if notes.whole:
            notes.whole, notes.buckets = chain[-1].full, 1
        return Pass(
            relid=relid,
            place=table.place,
            codec=self._lake.codec,
            history=history,
            files=files,
            runs=runs,
            chain=chain,
            start=start,
            wanted=self._wanted,
            stored=stored,
            old_stored=old_stored,
            buckets=notes.buckets,
            old_buckets=notes.buckets if before is None else before.buckets,
            there=there,
        )

    def _noted(self, relid: int, runs: Sequence[Run], folders: set[str]) -> TableNotes:
        """The table's notes with the versions that come; a folder never changes once it is made."""
        notes = self._notes.tables.get(relid)
        for run in runs:
            version = self._by_relation[run.relation]
            if notes is None:
                folder = f"{self._settings.kind}/{folder_name(version.schema, version.table)}"
                if folder in folders:
                    folder = f"{folder}~~{relid}"
                folders.add(folder)
                notes = self._notes.tables[relid] = TableNotes(folder, [], run.places.first.position)
            elif notes.versions:
                last = self._by_relation[notes.versions[-1]]
                if (last.schema, last.table) != (version.schema, version.table):
                    notes.since = run.places.first.position
            notes.versions = [*(one for one in notes.versions if one != run.relation), run.relation]
        assert notes is not None
        return notes

    def _commits(self, done: Pass) -> list[Commit]:
        """What is to be committed of a table: new files of the buckets that were touched, or everything."""
        schema = schema_of(done.stored, VALIDITY if self._settings.history else ROW)
        table = Table(done.place)
        name = self._notes.tables[done.relid].folder
        retain = self._settings.retain
        adds = [one.file for one in done.written]
        if table.schema is None or holds(schema, table.schema):
            removes = [(file.path, file.size) for file in done.replaced()]
            if table.schema is not None and not adds and not removes:
                return []
            return [Commit(name, schema, adds, removes, retain=retain)]
        kept = {file.path for file in done.there} - {file.path for file in done.replaced()}
        again = [
            Rewriting(
                done.place,
                file.path,
                self._version(done.relid, file.bounds("_relation").least),
                columns_in(table.schema),
                done.stored,
                self._lake.codec,
            )
            for file in done.there
            if file.path in kept
        ]
        adds += rewritten(self._lake.spark, again)
        return [Commit(name, schema, adds, overwrite=True, retain=retain)]
