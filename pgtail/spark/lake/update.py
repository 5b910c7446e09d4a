"""Brings the tables of a folder up to date: new segments of the captures become a batch, exactly once."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from msgspec import Struct, field
from msgspec.structs import replace

from pgtail.arrow.schemas import CHANGES, DDL, RELATIONS, SNAPSHOTS, TRANSACTIONS, WITH_CONTEXT
from pgtail.arrow.segments.ranges import EVERYWHERE, Parts
from pgtail.arrow.segments.survey import Survey, first_seen, folder_of
from pgtail.arrow.typed.versions import Version
from pgtail.capture.format import CLOSED, is_gap
from pgtail.capture.state import Pruned
from pgtail.errors import InputError, OptionError
from pgtail.humanize import counted
from pgtail.service.progress import LakeProgress
from pgtail.spark.decoding.transactions import added_up
from pgtail.spark.jobs import collected, groups
from pgtail.spark.lake.batches import Batches, BatchPlan, snapshots_in, wanted_snapshots
from pgtail.spark.lake.catalog import changed, entries
from pgtail.spark.lake.decoding import Decoded, Decoding, Names, TableFile, Versions, folder_name, joined
from pgtail.spark.lake.delta import Commit
from pgtail.spark.lake.parquet import DataFile, TableFolder, codec_of, rows_in, write_file
from pgtail.spark.lake.tables import table_commits
from pgtail.spark.segments.applied import Capture, SegmentRun, new_ones
from pgtail.spark.segments.listing import (
    Listing,
    collapse_whole_segments,
    covered_by,
    directories,
    listing,
    parts_of,
    server_of,
    surveys,
)
from pgtail.spark.segments.snapshots import SnapshotSegment, after_batch
from pgtail.storage import NO_OPTIONS, StorageOptions, locate, locate_target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CODEC: Final = "spark.sql.parquet.compression.codec"


class Update(Struct):
    """The result of an update."""

    segments: int = 0
    snapshots: int = 0
    """Snapshots of tables that are complete."""
    batches: int = 0
    notes: list[str] = field(default_factory=list)


class Lake:
    """The folder OUT, written by this process alone. `tables` are globs as --table takes them; `snapshot_changes` says
    whether `changes` has the rows of snapshots, `context` is as in BatchPlan; `storage` has options of OUT and of the
    captures; `show_task` shows the current task, `progress` how far it is; a batch, which is repeated after a crash,
    has at most `batch_segments`. Raises OptionError where OUT is of another kind, InputError where it is damaged.
    """

    def __init__(
        self,
        spark: SparkSession,
        out: str,
        *,
        tables: Sequence[str] = (),
        snapshot_changes: bool = True,
        context: str | None = None,
        storage: StorageOptions = NO_OPTIONS,
        show_task: Callable[[str], None] = lambda text: None,
        progress: LakeProgress | None = None,
        batch_segments: int = 1000,
    ) -> None:
        self.spark = spark
        self.batch_segments = batch_segments
        self.out = locate_target(out, storage)
        self.storage = storage
        self.codec = codec_of(str(spark.conf.get(_CODEC)))
        self.show_task = show_task
        self.progress = progress or LakeProgress()
        self.batches = Batches(self.out)
        self.plan = self.batches.plan
        if not self.plan.batch:
            for kind in ("changes", "transactions", "relations", "snapshots", "ddl"):
                if self.batches.table(kind).schema is not None:
                    raise OptionError(f"{self.out} has a table {kind} that pgtail did not write")
            self.plan.tables = list(tables)
            self.plan.snapshot_changes = snapshot_changes
            self.plan.context = context
        elif self.plan.tables != list(tables):
            scope = f"--table {', '.join(self.plan.tables)}" if self.plan.tables else "all tables"
            raise OptionError(f"{self.out} was made with {scope}: use another directory for other tables")
        elif self.plan.snapshot_changes != snapshot_changes:
            scope, cure = ("with", "give it again") if snapshot_changes else ("without", "leave it out")
            raise OptionError(f"{self.out} was made {scope} --no-snapshot-changes: {cure}, or use another directory")
        elif self.plan.context != context:
            scope = "without --context" if self.plan.context is None else f"with --context {self.plan.context}"
            raise OptionError(f"{self.out} was made {scope}, which holds for its life: use another directory")
        self.batches.finish()
        self.progress.batch = self.plan.batch

    def update(self, captures: Sequence[str], *, typed: bool = False) -> Update:
        """Apply the segments and snapshots of these captures that were not applied; with `typed` there are `tables/*`
        from now on.

        Segments come before snapshots: OUT has all commits before a snapshot that it has. Raises InputError,
        OptionError, OutputError.
        """
        done = Update()
        while True:
            listed = self._listing(captures)
            try:
                self._apply(listed, done, typed=typed)
                break
            except InputError:
                if self._listing(captures).pruned == listed.pruned:
                    raise
                # Segments were pruned between their listing and their reading.
        if not (listed.segments or listed.snapshots) and not any(
            str(locate(place, self.storage).absolute()) in self.plan.captures for place in captures
        ):
            done.notes.append(f"no closed segment (*{CLOSED}) in {', '.join(captures)}")
        return done

    def _listing(self, captures: Sequence[str]) -> Listing:
        """List the captures, without the segments applied from the start of each."""
        known = {place: capture.complete_to for place, capture in self.plan.captures.items()}
        return listing(captures, self.storage, known)

    def _apply(self, listed: Listing, done: Update, *, typed: bool) -> None:
        """Apply listed segments and snapshots that were not applied, in batches."""
        new = new_ones(listed.segments, self.plan.captures)
        if typed and not self.plan.typed:
            self._type_all(done)
        work: list[str | SnapshotSegment] = [*new, *wanted_snapshots(self.batches, listed.snapshots)]
        self.progress.pending = len(work)
        for start in range(0, len(work), self.batch_segments):
            self._apply_batch(work[start : start + self.batch_segments], listed, done)

    def commit(self, plan: BatchPlan, commits: Sequence[Commit]) -> None:
        plan.batch += 1
        self.batches.commit(plan, commits)
        self.plan = plan
        self.progress.batch = plan.batch

    # -- one batch -----------------------------------------------------------------------------------------------

    def _apply_batch(self, some: Sequence[str | SnapshotSegment], listed: Listing, done: Update) -> None:
        """Apply some of the segments that are listed: of the stream, by their paths, and of snapshots."""
        paths = {path: listed.segments[path] for path in some if isinstance(path, str)}
        copied = [segment for segment in some if isinstance(segment, SnapshotSegment)]
        sizes = paths | {segment.path: segment.bytes for segment in copied}
        whole: dict[str, Parts] = {segment.path: EVERYWHERE for segment in copied}
        plan = copy.deepcopy(self.plan)
        known = self.versions() if plan.typed else None
        decoded: Decoded | None = None
        if self._wants_all(paths):
            decoded = self._decode(dict.fromkeys(sizes, EVERYWHERE), sizes, known)
            surveyed = [survey for survey in decoded.surveys if survey.path not in whole]
        else:
            self.show_task(f"looking through {counted(len(paths), 'segment')}")
            surveyed = surveys(self.spark, paths, self.storage)
        plan.server = server_of(surveyed, plan.server, plan.captures)
        surveyed = _begun(surveyed, plan.captures, listed.pruned)
        done.notes += _missing(plan.captures, surveyed, listed.pruned)
        parts = parts_of(surveyed, plan.runs)
        split = split_at(parts, plan.runs)
        wanted = collapse_whole_segments(parts, surveyed)
        if decoded is None or any(wanted.get(one.path, ()) is not EVERYWHERE for one in surveyed if covered_by(one)):
            decoded = self._decode(wanted | whole, sizes, known)
        read = {survey.path: survey for survey in decoded.surveys if survey.path in whole}
        plan.server = server_of(read.values(), plan.server, plan.captures)
        plan.unfinished, complete = after_batch(copied, read, plan.unfinished)
        for segment in surveyed:
            plan.captures.setdefault(folder_of(segment.path), Capture()).add_segment(segment)
        for relid in sorted(set(decoded.undescribed)):
            done.notes.append(f"relation {relid} was never described: tables, state and history have none of its rows")
        commits = self._commits(decoded, [*surveyed, *read.values()], known, split, done)
        self.commit(plan, self._snapshots(complete) + commits)
        self.progress.pending -= len(some)
        self.progress.segments += len(paths)
        self.progress.snapshots += len(complete)
        done.segments += len(paths)
        done.snapshots += len(complete)
        done.batches += 1

    def _wants_all(self, paths: Iterable[str]) -> bool:
        """Whether all of these segments will be wanted, if nothing is unusual: those of one capture do not overlap."""
        read = [f"{place}/" for place in self.plan.captures]
        return not self.plan.tables and len(directories([*paths, *read])) == 1

    def _decode(self, parts: Mapping[str, Parts], sizes: Mapping[str, int], known: Versions | None) -> Decoded:
        self.show_task(f"decoding {counted(len(parts), 'segment')}")
        plan = self.plan
        how = Decoding(
            self.out, self.codec, tuple(plan.tables), known, self.storage, plan.snapshot_changes, plan.context
        )
        files = [((path, some), sizes[path]) for path, some in parts.items()]
        return joined(collected(self.spark, how.decode, groups(self.spark, files), sum(size for _, size in files)))

    def _commits(
        self, decoded: Decoded, surveyed: Sequence[Survey], known: Versions | None, split: Sequence[int], done: Update
    ) -> list[Commit]:
        """Relations and transactions first: a reader that opens `changes` before them finds all that it needs there."""
        self.show_task("collecting tables")
        relations, commits = self._relations(surveyed)
        commits += self._ddl(surveyed)
        commits += self._transactions(decoded.transactions, decoded.shared, split)
        if known is not None:
            commits += self._typed(decoded.tables, known, versions_of(relations), done)
        if decoded.changes:
            schema = CHANGES if self.plan.context is None else WITH_CONTEXT
            commits.append(Commit("changes", schema, decoded.changes))
        return commits

    # -- relations and transactions ------------------------------------------------------------------------------

    def _relations(self, surveyed: Sequence[Survey]) -> tuple[list[dict[str, Any]], list[Commit]]:
        """All versions of tables, each at the first place where it was seen; written again where there are more."""
        table = self.batches.table("relations")
        before = table.rows()
        now = first_seen([*before, *(row for survey in surveyed for row in survey.relations)])
        rows = sorted(now, key=lambda row: (row["schema"], row["table"], row["position"], row["ordinal"]))
        if rows == before:
            return rows, []
        return rows, [table.replacing("relations", pa.Table.from_pylist(rows, RELATIONS), self.codec)]

    def ddl(self) -> list[dict[str, Any]]:
        """The schema changes that are in OUT: rows of DDL, in order."""
        return self.batches.table("ddl").rows()

    def _ddl(self, surveyed: Sequence[Survey]) -> list[Commit]:
        """The commit of all schema changes, each once, if there are more."""
        new = [row for survey in surveyed for row in survey.ddl]
        before = self.ddl() if new else []
        rows = {(row["position"], row["ordinal"]): row for row in (*before, *new)}
        if len(rows) == len(before):
            return []
        in_order = pa.Table.from_pylist([rows[place] for place in sorted(rows)], DDL)
        return [self.batches.table("ddl").replacing("ddl", in_order, self.codec)]

    def newest(self) -> datetime | None:
        """When the newest transaction that is in OUT was committed; None if there is none."""
        times = [file.bounds("commit_ts").most for file in self.batches.table("transactions").files()]
        return max((time for time in times if time is not None), default=None)

    def snapshots(self) -> pa.Table:
        """The snapshots that are in OUT: rows of SNAPSHOTS."""
        return snapshots_in(self.batches.table("snapshots"))

    def _snapshots(self, complete: Sequence[dict[str, Any]]) -> list[Commit]:
        """The commit of rows for snapshots that are complete now."""
        if not complete:
            return []
        rows = pa.concat_tables([self.snapshots(), pa.Table.from_pylist(complete, SNAPSHOTS)])
        rows = rows.sort_by([("position", "ascending"), ("relid", "ascending")])
        return [self.batches.table("snapshots").replacing("snapshots", rows, self.codec)]

    def versions(self) -> dict[Names, list[Version]]:
        """The versions of every table, in the order of their appearance."""
        return versions_of(self.batches.table("relations").rows())

    def _transactions(self, files: list[DataFile], parts: Sequence[pa.Table], split: Sequence[int]) -> list[Commit]:
        """A transaction of which an earlier batch has a part becomes one row again."""
        table = self.batches.table("transactions")
        places = [range(one, one) for one in split]
        files_since = table.files_from("position", split[0]) if split else []
        others = [file for file in files_since if file.may_have("position", places)]
        known = [rows_in(table.place / file.path).cast(TRANSACTIONS) for file in others]
        rows = pa.concat_tables([TRANSACTIONS.empty_table(), *parts, *known])
        if rows.num_rows:
            files.append(write_file(TableFolder(table.place, self.codec), added_up(rows)))
        if not files:
            return []
        return [Commit("transactions", TRANSACTIONS, files, [(file.path, file.size) for file in others])]

    # -- tables/* ------------------------------------------------------------------------------------------------

    def _typed(self, files: Sequence[TableFile], known: Versions, versions: Versions, done: Update) -> list[Commit]:
        relids: dict[Names, set[int]] = {}
        for file in files:
            relids.setdefault((file.version.schema, file.version.table), set()).add(file.relid)
        for entry in entries(self.out):
            if entry.kind == "tables" and entry.relid is not None and (entry.schema, entry.table) in relids:
                relids[entry.schema, entry.table].add(entry.relid)
        for (schema, table), several in sorted(relids.items()):
            if len(several) > 1:
                done.notes.append(
                    f"tables/{folder_name(schema, table)} has the changes of several tables that had this name (_relid"
                    f" {', '.join(map(str, sorted(several)))}): dropped and created again, or renamed"
                )
        commits, new = table_commits(self.spark, self.out, self.codec, files, known, versions)
        return changed(self.out, new, self.codec) + commits

    def _type_all(self, done: Update) -> None:
        """Make `tables/*` from all of `changes`."""
        plan = copy.deepcopy(self.plan)
        plan.typed = True
        table, known = self.batches.table("changes"), self.versions()
        how = Decoding(self.out, self.codec, (), known)
        files = [(table.place / file.path, file.size) for file in table.files()]
        if files:
            self.show_task("typing the changes that are there")
        size = sum(size for _, size in files)
        made = joined(collected(self.spark, how.write_typed, groups(self.spark, files), size))
        self.commit(plan, self._typed(made.tables, known, known, done))


def versions_of(relations: Iterable[dict[str, Any]]) -> dict[Names, list[Version]]:
    """The versions of every table from rows of `relations`, in the order of their appearance."""
    versions: dict[Names, list[Version]] = {}
    for row in first_seen(relations):
        versions.setdefault((row["schema"], row["table"]), []).append(Version.of(row))
    return versions


def split_at(parts: Mapping[str, Parts], before: Iterable[SegmentRun]) -> list[int]:
    """The positions of transactions that are partly new, and partly in runs before."""
    new = {place.position for some in parts.values() for part in some or () for place in part}
    old = {place.position for run in before for one in covered_by(run) for place in one.places}
    return sorted(new & old)


def _begun(surveyed: Sequence[Survey], captures: dict[str, Capture], pruned: Mapping[str, Pruned]) -> list[Survey]:
    """The surveys; the first segment of a capture begins it if it was pruned before any of it was applied."""
    begun = []
    for segment in surveyed:
        folder = folder_of(segment.path)
        begin = pruned.get(folder)
        earlier = folder in captures and any(run.start < segment.name for run in captures[folder].runs)
        if begin is not None and segment.predecessor == begin.segment and not earlier:
            captures.setdefault(folder, Capture()).pruned = begin.position
            segment = replace(segment, predecessor="")
        begun.append(segment)
    return begun


def _missing(
    captures: Mapping[str, Capture], surveyed: Sequence[Survey], pruned: Mapping[str, Pruned]
) -> Iterator[str]:
    """A note for each missing segment before one of these, and for each gap."""
    there = {segment.name for segment in surveyed}
    for segment in surveyed:
        before, begin = segment.predecessor, pruned.get(folder_of(segment.path))
        if not before or before in there or any(capture.has(before) for capture in captures.values()):
            continue
        if is_gap(before):
            yield f"{segment.path}: there is a gap before it: what was committed {before} is not in the capture"
        elif begin is not None and before <= begin.segment:
            yield f"{segment.path}: the segment before it, {before}, was pruned before it was applied"
        else:
            yield f"{segment.path}: the segment before it, {before}, is missing"
