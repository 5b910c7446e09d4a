"""The rows of tables brought from version to version: in each pass a table's changes of one version are applied."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from pgtail.spark.jobs import RESULT, cores, frame, groups, results
from pgtail.spark.lake.delta import File
from pgtail.spark.lake.parquet import rows_in
from pgtail.spark.segments.ranges import Place, Range
from pgtail.spark.state.tasks import (
    CLOSED,
    PART,
    ChangesFile,
    Folding,
    RowsFile,
    TablePass,
    Wanted,
    Written,
    split,
)
from pgtail.spark.typed.casts import TableColumn
from pgtail.spark.typed.columns import columns_of
from pgtail.spark.typed.versions import Version
from pgtail.storage import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TURNS: Final = 4
"""Tasks for each core: a task has one of its buckets in memory at a time."""


Sized = tuple[ChangesFile | RowsFile, int]
"""What is to be split, and its bytes."""


class Run(NamedTuple):
    """Changes of one version of a table without one of another version between them; their positions and seqs."""

    relation: str
    places: Range


@dataclass(slots=True)
class Pass:
    """One table in a batch, and how far it is."""

    relid: int
    place: Location
    codec: str
    history: bool
    files: Sequence[tuple[Location, File, Sequence[TableColumn]]]
    """Paths, files and columns of `tables/*`."""
    runs: Sequence[Run]
    chain: Sequence[Version]
    """The version of each run."""
    start: Version
    """What the rows are of before the batch."""
    wanted: Wanted
    stored: Sequence[TableColumn]
    """The columns of the state's table, after the batch and before it."""
    old_stored: Sequence[TableColumn]
    buckets: int
    old_buckets: int
    there: Sequence[File]
    written: list[Written] = field(default_factory=list)
    touched: set[int] | None = field(default_factory=set)
    """The buckets whose files are replaced; None for all."""

    def replaced(self) -> list[File]:
        """The files that those written replace."""
        return [
            file
            for file in self.there
            if not file.path.startswith(CLOSED) and (self.touched is None or bucket_of(file.path) in self.touched)
        ]

    def items(self, number: int) -> tuple[TablePass, list[Sized]]:
        """What is to be split in a pass, and how the table is kept in it."""
        version, last = self.chain[number], number == len(self.chain) - 1
        before = self.chain[number - 1] if number else self.start
        # Between two passes rows are as their version has them.
        stored = self.stored if last or self.history else columns_of([version])
        again = before != version or (
            not number and (self.buckets != self.old_buckets or self.stored != self.old_stored)
        )
        rows: list[tuple[str, int, Sequence[TableColumn]]] = []
        files: dict[int, list[str]] = {}
        if number:
            was = self.stored if self.history else columns_of([before])
            rows = [(one.file.path, one.file.size, was) for one in self.written if one.bucket is not None]
        else:
            rows = [(file.path, file.size, self.old_stored) for file in self.there if not file.path.startswith(CLOSED)]
        if not again:
            for path, _, _ in rows:
                files.setdefault(bucket_of(path), []).append(path)
        table = TablePass(self.relid, self.place, version, stored, self.buckets, self.history, self.codec, files)
        found: list[Sized] = []
        if again:
            self.touched = None
            found += [(RowsFile(table, self.place / path, columns, before), size) for path, size, columns in rows]
        run = None if len(self.runs) == 1 else self.runs[number].places
        wanted = Wanted(self.wanted.ranges, self.wanted.committed, run)
        for place, file, columns in self.files:
            if file.bounds("_relation").least == version.relation:
                found.append((ChangesFile(table, place, columns, wanted), file.size))
        return table, found

    def take(self, written: Sequence[Written], buckets: Iterable[int]) -> None:
        """What a pass wrote, and which buckets it rewrote."""
        done = set(buckets)
        if self.touched is not None:
            self.touched |= done
        kept = []
        for one in self.written:
            if one.bucket is None or (self.touched is not None and one.bucket not in done):
                kept.append(one)
            else:
                (self.place / one.file.path).delete()
        self.written = [*kept, *written]


def bucket_of(path: str) -> int:
    """The bucket of a file of a state's table."""
    return int(path[1 : path.index("-")])


def runs_of(files: Sequence[tuple[Location, File, Sequence[TableColumn]]], wanted: Wanted) -> list[Run]:
    """The runs of a table's versions among the wanted rows of its files, in order."""
    relations = {file.bounds("_relation").least for _, file, _ in files}
    if len(relations) == 1 and all(_wholly(file, wanted) for _, file, _ in files):
        first = min(file.bounds("_position").least for _, file, _ in files)
        return [Run(relations.pop(), Range(Place(first, 0), Place(1 << 63, 0)))]
    places: list[tuple[int, int, str]] = []
    for path, file, _ in files:
        rows = rows_in(path, ["_position", "_seq", "_state", "_commit_ts"])
        own = wanted.of(rows).select(["_position", "_seq"]).to_pydict().values()
        places += [(*place, file.bounds("_relation").least) for place in zip(*own, strict=True)]
    found = []
    for relation, some in itertools.groupby(sorted(places), key=lambda place: place[2]):
        own = list(some)
        found.append(Run(relation, Range(Place(*own[0][:2]), Place(*own[-1][:2]).next)))
    return found


def _wholly(file: File, wanted: Wanted) -> bool:
    """Whether all rows of a file are wanted, as far as its statistics show."""
    position = file.bounds("_position")
    inside = any(one.start <= position.least and position.most < one.stop for one in wanted.ranges)
    return inside and file.bounds("_gid").nulls == file.rows


def fold_all(spark: SparkSession, tables: Sequence[Pass]) -> int:
    """Bring tables up to date, in as many passes as one of them has versions; returns the number of changes."""
    count = 0
    for number in range(max((len(table.chain) for table in tables), default=0)):
        now = {table.relid: table for table in tables if number < len(table.chain)}
        passes, items = {}, []
        for relid, table in now.items():
            passes[relid], own = table.items(number)
            items += own
        done, written, buckets = _pass(spark, passes, items)
        count += done
        for relid, table in now.items():
            table.take([one for one in written if one.relid == relid], buckets.get(relid, ()))
    return count


def _pass(
    spark: SparkSession, tables: Mapping[int, TablePass], items: Sequence[Sized]
) -> tuple[int, list[Written], dict[int, list[int]]]:
    """One pass: the number of changes, the files that were written, and the buckets that were folded, by table."""
    from pyspark.sql import functions as F  # noqa: N812 -- as everybody calls it

    parts = frame(spark, split, groups(spark, items), PART).persist()
    try:
        found = parts.select("relid", "bucket", "link", F.when(F.col("kind") == "count", F.col("data")).alias("data"))
        rows = (
            found.where("link IS NOT NULL OR data IS NOT NULL")
            .unionByName(found.where("link IS NULL AND data IS NULL").distinct())
            .collect()
        )
        count = sum(pickle.loads(row.data) for row in rows if row.data is not None)
        linked = _linked((row.relid, row.bucket, row.link) for row in rows if row.data is None)
        members: dict[int, list[int]] = {}
        for (_, bucket), group in sorted(linked.items()):
            members.setdefault(group, []).append(bucket)
        buckets: dict[int, list[int]] = {}
        for relid, bucket in sorted(linked):
            buckets.setdefault(relid, []).append(bucket)
        if not linked:
            return count, [], {}
        named = spark.createDataFrame(
            [(*key, group) for key, group in linked.items()], "relid long, bucket int, group int"
        )
        spread = parts.where("kind IN ('rows', 'changes')").join(F.broadcast(named), ["relid", "bucket"])
        spread = spread.repartition(min(len(members), _TURNS * cores(spark)), "group").sortWithinPartitions("group")
        folding = Folding(tables, members)
        return count, results(spread.select("group", "relid", "kind", "data").mapInArrow(folding, RESULT)), buckets
    finally:
        parts.unpersist()


def _linked(found: Iterable[tuple[int, int, int | None]]) -> dict[tuple[int, int], int]:
    """A number for each bucket of each table: the same for buckets that have to be folded together."""
    parents: dict[tuple[int, int], tuple[int, int]] = {}

    def root(one: tuple[int, int]) -> tuple[int, int]:
        while (above := parents.setdefault(one, one)) != one:
            one = above
        return one

    for relid, bucket, link in found:
        own = root((relid, bucket))
        if link is not None:
            parents[root((relid, link))] = own
    roots = sorted({root(one) for one in list(parents)})
    return {one: roots.index(root(one)) for one in list(parents)}
