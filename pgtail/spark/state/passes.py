"""Brings the rows of tables from version to version: each pass applies a table's changes of one version."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from pgtail.arrow.fold import UnknownRow
from pgtail.arrow.segments.ranges import Place, Range
from pgtail.arrow.typed.alterations import Origins
from pgtail.arrow.typed.casts import TableColumn
from pgtail.arrow.typed.columns import columns_of
from pgtail.arrow.typed.versions import Version
from pgtail.spark.jobs import collected, collected_by, frame, groups, is_small, spark_schema, turns
from pgtail.spark.lake.delta import Bounds, LakeFile
from pgtail.spark.lake.parquet import DataFile, TableFolder, row_groups, rows_in, write_groups
from pgtail.spark.state.increment import Snapshot
from pgtail.spark.state.tasks import PART, ChangesFile, Item, Pass, RowsFile, SnapshotStarts, TableLayout, WantedChanges
from pgtail.storage import Location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_END: Final = (1 << 63) - 2
"""Beyond every position and seq."""
_TASK_BYTES: Final = 32 << 20
"""Bytes of a table's files that one task folds, where its tasks are more than that."""
_BUCKET: Final = ("relid", "bucket", "links")
"""The columns of a part that say where it belongs."""

Changes = Sequence[tuple[LakeFile, ChangesFile]]
Together = Mapping[tuple[int, int], list[int]]
"""By table and bucket the buckets that are folded together with it, itself among them."""


class VersionRun(NamedTuple):
    """Changes of one version of a table without one of another version between them; their positions and seqs.

    `origins` is as in Pass.
    """

    version: Version
    places: Range
    origins: Origins | None = None


class TableBatch(Struct):
    """One table in a batch, and how far it is."""

    relid: int
    folder: TableFolder
    """That of the state's table."""
    history: bool
    changes: Changes
    runs: Sequence[VersionRun]
    wanted: WantedChanges
    stored: Sequence[TableColumn]
    """The columns of the state's table after the batch."""
    buckets: int
    block_bits: int
    before: Sequence[RowsFile]
    """The files before the batch."""
    now: Sequence[RowsFile]
    """The files after the passes that were done."""
    starts: Sequence[SnapshotStarts] = ()
    """Where snapshots start, each at the first place of a run; for a history."""
    rest: Sequence[RowsFile] = ()
    """The files of the table if it is stopped."""
    stopped: tuple[int, Version] | None = None
    """The position of a change whose row is not known, and the version then: nothing of the batch is applied."""

    def pass_of(self, number: int) -> tuple[Pass, list[tuple[Item, int]]]:
        """The pass for a run, and the files, with their bytes, that are split for it."""
        version, places, origins = self.runs[number]
        # Between two passes the rows of a state are as their version has them.
        layout = TableLayout(
            version, self.stored if self.history else columns_of([version]), self.buckets, self.block_bits
        )
        files: dict[int, list[DataFile]] = {}
        items: list[tuple[Item, int]] = [(start, 0) for start in self.starts if start.position == places.first.position]
        by_value = bool(items) and not version.identified
        as_it_is = not by_value and origins is None
        for old in self.now:
            if old.bucket is not None and old.layout == layout and as_it_is:
                files.setdefault(old.bucket, []).append(old.file)
            elif old.bucket is not None:
                items.append((old, old.file.size))
        for file, source in self.changes:
            if file.bounds("_relation").least == version.relation:
                items.append((source, file.size))
        wanted = replace(self.wanted, run=places if len(self.runs) > 1 else None)
        done = Pass(self.relid, self.folder, self.history, layout, wanted, files, by_value, origins)
        return done, items

    def move(self, spark: SparkSession, place: Location) -> None:
        """Copy the rows to another folder, whose files they replace as a whole."""
        work = partial(_copied, self.folder.place, self.folder._replace(place=place))
        paths, size = [one.file.path for one in self.now], sum(one.file.size for one in self.now)
        files = collected(spark, work, paths, size)
        self.now = [one._replace(file=file) for one, file in zip(self.now, files, strict=True)]
        self.before, self.folder = (), self.folder._replace(place=place)
        self.rest = self.now

    def discard(self, written: Iterable[DataFile]) -> None:
        """Remove the files that the batch wrote, and keep those of a stopped table."""
        rest = {one.file.path for one in self.rest}
        for file in (*written, *(one.file for one in self.now)):
            if file.path not in rest:
                (self.folder.place / file.path).delete()
        self.now = self.rest

    def replace_files(self, done: Pass, buckets: Container[int], written: Iterable[DataFile]) -> None:
        """Replace the files of these buckets, and all that were split, with those that a pass wrote."""
        as_it_is = not done.by_value and done.origins is None
        left = [
            old
            for old in self.now
            if old.bucket is None or (old.layout == done.layout and as_it_is and old.bucket not in buckets)
        ]
        needed = {old.file.path for old in (*left, *self.before)}
        for old in self.now:
            if old.file.path not in needed:
                (self.folder.place / old.file.path).delete()
        self.now = [*left, *(RowsFile(file, done.layout) for file in written)]


def _copied(source: Location, folder: TableFolder, path: str) -> DataFile:
    return write_groups(folder.named_like(path), row_groups(source / path))


def runs_of(
    changes: Changes,
    wanted: WantedChanges,
    snapshots: Sequence[Snapshot],
    versions: Mapping[str, Version],
    *,
    exact: bool = False,
) -> tuple[list[VersionRun], int]:
    """The runs of a table's versions among the wanted rows of its files, in order, and how many rows are wanted. Each
    snapshot is at the beginning of a run. `exact`: runs begin and end with a row, also where there is one version.
    """
    stream = [(file, source) for file, source in changes if not source.snapshot]
    copied = sum(one.rows for one in snapshots)
    relations = {file.bounds("_relation").least for file, _ in stream} | {one.relation for one in snapshots}
    if len(relations) == 1 and not exact and all(wanted.has_all(file) for file, _ in stream):
        runs = _runs_of_version(versions[relations.pop()], [file.bounds("_position") for file, _ in stream], snapshots)
        return runs, sum(file.rows for file, _ in stream) + copied
    places = _places_in(stream, wanted)
    return _runs_of_places(places, snapshots, versions), len(places) + copied


def _runs_of_version(version: Version, bounds: Sequence[Bounds], snapshots: Sequence[Snapshot]) -> list[VersionRun]:
    """The runs where there is only this version: one before the first snapshot, and one from each on."""
    positions = [one.position for one in snapshots]
    first = min((one.least for one in bounds), default=_END)
    edges = [*([first] if first < min(positions, default=_END) else []), *positions]
    end = max([*edges, *(one.most for one in bounds)]) + 1
    places = itertools.pairwise(Place(position, 0) for position in (*edges, end))
    return [VersionRun(version, Range(*pair)) for pair in places]


def _places_in(stream: Changes, wanted: WantedChanges) -> list[tuple[int, int, str]]:
    """Position, seq and version of each wanted row in these files."""
    places = []
    for file, source in stream:
        rows = rows_in(source.place, ["_position", "_seq", "_state", "_commit_ts"])
        columns = wanted.of(rows).select(["_position", "_seq"]).to_pydict().values()
        places += [(*place, file.bounds("_relation").least) for place in zip(*columns, strict=True)]
    return places


def _runs_of_places(
    places: Sequence[tuple[int, int, str]], snapshots: Sequence[Snapshot], versions: Mapping[str, Version]
) -> list[VersionRun]:
    positions = [one.position for one in snapshots]
    # The rows of a snapshot are between these two places.
    edges = [(one.position, seq, one.relation) for one in snapshots for seq in (0, _END)]
    in_order = sorted([*edges, *places])
    runs = []
    for (_, relation), some in itertools.groupby(in_order, key=lambda row: (bisect.bisect(positions, row[0]), row[2])):
        own = [Place(position, seq) for position, seq, _ in some]
        runs.append(VersionRun(versions[relation], Range(own[0], own[-1].next)))
    return runs


def fold_all(spark: SparkSession, tables: Sequence[TableBatch]) -> None:
    """Bring tables up to date, in as many passes as one of them has runs; some may be stopped then."""
    for number in range(max((len(table.runs) for table in tables), default=0)):
        now = {table.relid: table for table in tables if number < len(table.runs) and table.stopped is None}
        passes, items = {}, []
        for relid, table in now.items():
            passes[relid], own = table.pass_of(number)
            items += [((relid, item), size) for item, size in own]
        folded = _fold(spark, passes, items)
        for relid, table in now.items():
            own_parts = [part for part in folded if part.relid == relid]
            if stops := [part.stopped for part in own_parts if part.stopped is not None]:
                table.stopped = min(stops), table.runs[number].version
                table.discard(file for part in own_parts for file in part.files)
                continue
            done = {bucket for part in own_parts for bucket in part.buckets}
            table.replace_files(passes[relid], done, [file for part in own_parts for file in part.files])


class _Folded(NamedTuple):
    """Buckets of a table that were folded together, and the files that were written of them."""

    relid: int
    buckets: set[int]
    files: list[DataFile]
    stopped: int | None = None
    """As in UnknownRow."""


def _fold(
    spark: SparkSession, passes: Mapping[int, Pass], items: Sequence[tuple[tuple[int, Item], int]]
) -> list[_Folded]:
    """One pass: every bucket that has changes, or files to be split, is folded."""
    from pyspark.sql import functions as F  # noqa: N812 -- as everybody calls it

    if not items:
        return []

    def split(some: Iterable[tuple[int, Item]]) -> Iterator[pa.RecordBatch]:
        for relid, item in some:
            yield from passes[relid].split(item)

    def fold(parts: pa.Table) -> _Folded:
        relid, buckets = parts["relid"][0].as_py(), set(itertools.chain(*parts["together"].to_pylist()))
        try:
            return _Folded(relid, buckets, list(passes[relid].fold(parts)))
        except UnknownRow as error:
            return _Folded(relid, buckets, [], error.position)

    def folded(parts: DataFrame, tasks: int) -> list[_Folded]:
        return collected_by(spark, parts, ("relid", "task"), tasks, fold)

    if is_small(spark, sum(size for _, size in items)):
        return _folded_few(spark, passes, pa.Table.from_batches(split(item for item, _ in items), PART), fold)
    parts = frame(spark, split, groups(spark, items), spark_schema(PART))
    if all(one.layout.buckets == 1 for one in passes.values()):
        # No bucket is folded with another one: the parts need not be known before.
        return folded(parts.withColumns({"together": F.array(F.lit(0)), "task": F.lit(0)}), len(passes))
    parts = parts.persist()
    try:
        together = _together(tuple(row) for row in parts.select(*_BUCKET).distinct().collect())
        tasks = _tasks(passes, together, turns(spark))
        if not tasks:
            return []
        named = spark.createDataFrame(
            [(*key, *task) for key, task in tasks.items()], "relid long, bucket int, together array<int>, task int"
        )
        count = len({(relid, task.number) for (relid, _), task in tasks.items()})
        return folded(parts.join(F.broadcast(named), ["relid", "bucket"]), count)
    finally:
        parts.unpersist()


class _Task(NamedTuple):
    """The buckets that a bucket is folded together with, itself among them, and the number of the task that folds them,
    among those of its table."""

    together: list[int]
    number: int


def _tasks(passes: Mapping[int, Pass], together: Together, least: int) -> dict[tuple[int, int], _Task]:
    """The task of each bucket of each table: few for a table, for each writes a file of closed rows."""
    most = {}
    for relid, one in passes.items():
        size = sum(file.size for files in one.files.values() for file in files)
        most[relid] = max(size // _TASK_BYTES + 1, least)
    return {(relid, bucket): _Task(some, some[0] % most[relid]) for (relid, bucket), some in together.items()}


def _folded_few(
    spark: SparkSession, passes: Mapping[int, Pass], parts: pa.Table, fold: Callable[[pa.Table], _Folded]
) -> list[_Folded]:
    """Fold parts of few changes; in the driver, each table at once, where the files of their buckets are small, too."""
    keys = list(zip(*parts.select(_BUCKET[:2]).to_pydict().values(), strict=True))
    together = _together(zip(*parts.select(_BUCKET).to_pydict().values(), strict=True))
    files = itertools.chain.from_iterable(passes[relid].files.get(bucket, ()) for relid, bucket in together)
    size = sum(file.size for file in files)
    if is_small(spark, size):
        tasks = {key: _Task(some, 0) for key, some in together.items()}
    else:
        tasks = _tasks(passes, together, turns(spark))
    parts = parts.append_column("together", pa.array([tasks[key].together for key in keys], pa.list_(pa.int32())))
    places: dict[tuple[int, int], list[int]] = {}
    for place, key in enumerate(keys):
        places.setdefault((key[0], tasks[key].number), []).append(place)
    return collected(spark, fold, [parts.take(own) for own in places.values()], size)


def _together(linked: Iterable[tuple[int, int, Sequence[int]]]) -> Together:
    """For each bucket of each table those that have to be folded together with it, and itself."""
    groups_: dict[tuple[int, int], set[int]] = {}
    for relid, bucket, links in linked:
        for other in (bucket, *links):
            one, two = (groups_.setdefault((relid, number), {number}) for number in (bucket, other))
            if one is not two:
                one |= two
                groups_ |= {(relid, number): one for number in two}
    return {key: sorted(buckets) for key, buckets in groups_.items()}
