"""The data source "pgtail": the changes of captures, for spark.read and spark.readStream.

spark.read.format("pgtail").option("table", "public.orders").load("captures/shop")
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import datasource
from pyspark.sql.datasource import Filter, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles
from pyspark.sql.types import StructType

from pgtail.arrow.decoding.contexts import contexts_of
from pgtail.arrow.decoding.decode import SegmentChanges, has_none
from pgtail.arrow.schemas import CHANGES, OUTCOMES, SNAPSHOT, WITH_CONTEXT
from pgtail.arrow.segments.limits import BEYOND, EVERYTHING, Bounds
from pgtail.arrow.segments.ranges import EVERYWHERE, Parts, Place, Range
from pgtail.arrow.segments.survey import TWO_PHASE, folder_of, name_of
from pgtail.capture.contents import PreparedTransaction, count_contents, read_contents
from pgtail.capture.format import GAP, SegmentName
from pgtail.capture.reader import SegmentFile, first_segment
from pgtail.capture.segment import read_head
from pgtail.changes.commit_range import point_of
from pgtail.errors import InputError, OptionError
from pgtail.pgoutput.scalars import UNIX_EPOCH_OFFSET, Point, lsn_text, parse_lsn
from pgtail.spark.jobs import spark_schema
from pgtail.spark.segments.listing import Listing, check_names, directories, plan, survey_each
from pgtail.spark.segments.snapshots import SnapshotSegment, new_snapshots
from pgtail.spark.selection import CDF, Selection
from pgtail.spark.typed_source import TypedTable
from pgtail.storage import locate
from pgtail.terminal.escape import escape

_PUSHDOWN_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"
"""The program in which Spark offers filters; a reader may accept them nowhere else."""
_SEGMENT, _SNAPSHOT, _START = "segment", "snapshot", "start"
"""The parts of an offset: the name of the last segment that was read; while those of a snapshot are read, that of the
last one of these; and the LSN at which a stream starts, until it has been reached."""
_END: Final = Place(1 << 63, 0)

Offset = dict[str, str]


class Source(NamedTuple):
    """What is read: `table` is None for changes of any tables, with the columns of `changes`."""

    selection: Selection
    table: TypedTable | None

    @property
    def schema(self) -> pa.Schema:
        """The columns to read, in the order in which they were named. Raises OptionError."""
        changes = CHANGES if self.selection.context is None else WITH_CONTEXT
        whole = changes if self.table is None else self.table.schema
        for name in self.selection.columns:
            if name not in whole.names:
                raise OptionError(f"option columns: {name} is none of {', '.join(whole.names)}")
        return pa.schema([whole.field(name) for name in self.selection.columns or whole.names])


class DataSource(datasource.DataSource):
    """Captures as rows of changes, or of one table's typed changes: man page pgtail-spark-source(7)."""

    @classmethod
    def name(cls) -> str:
        return "pgtail"

    @functools.cached_property
    def _source(self) -> Source:
        selection = Selection.of(self.options)
        return Source(selection, TypedTable.of(selection) if selection.table else None)

    def schema(self) -> StructType:
        return spark_schema(self._source.schema)

    def reader(self, schema: StructType) -> BatchReader:
        made = FilteringReader if _PUSHDOWN_WORKER in sys.modules else BatchReader
        return made(self._source)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 -- Spark's name
        return StreamReader(self._source, self.options.get("maxSegmentsPerTrigger"))


class SegmentReader:
    """The base of the readers. A partition is a segment's path, the parts of it to read, and a position that none in it
    exceeds."""

    def __init__(self, source: Source) -> None:
        self.selection, self._table = source
        self._names = source.schema.names
        self._named = self.selection.tables

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        (path, parts, end), selection = partition.value, self.selection
        place, ops = locate(path, selection.storage), pa.array(selection.limits.ops, pa.string())
        if (selection.tables or selection.limits != EVERYTHING) and has_none(
            place, read_contents(place), selection.tables, selection.limits, end, outcomes=self._has_outcomes
        ):
            return
        with place.open() as file:
            contexts = contexts_of(selection.context, path, selection.storage)
            changes = SegmentChanges(file, path, parts=parts, tables=selection.tables, contexts=contexts)
            try:
                for batch in changes:
                    rows = batch.filter(pc.is_in(batch["op"], ops)) if len(ops) else batch
                    for made in [rows] if self._table is None else self._table.rows(rows, changes.described):
                        yield made.select(self._names)
            except InputError as error:
                error.source = error.source or path
                raise

    @property
    def _has_outcomes(self) -> bool:
        """Whether outcomes of prepared transactions are among the rows."""
        return self._table is None and any(map(self.selection.limits.want_op, OUTCOMES))

    def _snapshots(self, listed: Listing) -> list[SnapshotSegment]:
        """The segments of snapshots of the tables, in the order of their names."""
        return sorted(new_snapshots(listed.snapshots, (), (), self.selection.tables), key=lambda one: one.name)


class BatchReader(SegmentReader, datasource.DataSourceReader):
    """All closed segments and snapshots; a change that several of them have comes once. In the shape cdf, which is of
    one snapshot and what follows, what a new stream would read."""

    def partitions(self) -> Sequence[InputPartition]:
        selection, listed = self.selection, self.selection.listing()
        if selection.shape == CDF or selection.start:
            stream = StreamReader(Source(selection, self._table), None)
            start = stream.initialOffset()
            return stream.partitions(start, stream.latestOffset(start, ReadAllAvailable()))
        check_names(listed, self._named, selection.storage)
        surveys = partial(survey_each, storage=selection.storage)
        ends = {one: _name(two).position for one, two in pairwise(listed.segments) if folder_of(one) == folder_of(two)}
        parts = [(path, some, ends.get(path, BEYOND)) for path, some in plan(surveys, listed.segments).items()]
        limits = selection.limits
        if limits.want_op(SNAPSHOT) and limits.xid == Bounds():  # rows of snapshots have no xid
            for one in self._snapshots(listed):
                position = one.snapshot.table.lsn - 1
                if not limits.position.excludes(position, position):
                    parts.append((one.path, EVERYWHERE, BEYOND))
        return [InputPartition(part) for part in parts]


class FilteringReader(BatchReader):
    """As BatchReader; skips segments and rows that Spark's filters would remove."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 -- Spark's name
        """Use the filters, and return all of them: Spark applies them to the rows that are left."""
        self.selection = self.selection.narrowed(filters)
        return filters


class _Step(NamedTuple):
    """A segment for a stream, and the offset after it."""

    path: str
    parts: Parts
    offset: Offset


class StreamReader(SegmentReader, datasource.DataSourceStreamReader):
    """A snapshot of tables, then the segments of one capture in the order of their names, as they are closed."""

    def __init__(self, source: Source, limit: str | None) -> None:
        """Raises OptionError."""
        if limit is not None and (not limit.isdecimal() or not int(limit)):
            raise OptionError(f"option maxSegmentsPerTrigger: expected a number of segments, not {limit}")
        super().__init__(source)
        self._limit = limit

    def initialOffset(self) -> Offset:  # noqa: N802 -- Spark's name
        text, listed = self.selection.start, self._listed()
        check_names(listed, self._named, self.selection.storage)
        names = [*map(name_of, listed.segments)]
        if text == "latest":
            return {_SEGMENT: names[-1] if names else ""}
        copied = [one.snapshot.table.lsn for one in self._snapshots(listed)]
        if text == "snapshot" and not copied:
            raise OptionError(
                "option startingPosition: the capture has no snapshot of these tables: pgtail record --snapshot-table"
                " takes one; earliest begins with the first change"
            )
        if text == "earliest" or not (text or copied):
            return {_SEGMENT: ""}
        point = Point(lsn=min(copied)) if text in ("", "snapshot") else _point(text)
        start = self._begin(listed, point)
        if point.lsn not in copied:
            return start
        self._check_prepared(listed, point.lsn)
        return {**start, _SNAPSHOT: ""}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 -- Spark's name
        return ReadAllAvailable() if self._limit is None else ReadMaxFiles(int(self._limit))

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 -- Spark's name
        steps = self._steps(self._listed(), start)
        if isinstance(limit, ReadMaxFiles):
            steps = steps[: limit.max_files]
        return steps[-1].offset if steps else start

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        listed = self._listed()
        steps = [step for step in self._steps(listed, start) if _order(step.offset) <= _order(end)]
        self._check_gaps(listed, start, steps)
        return [InputPartition((step.path, step.parts, BEYOND)) for step in steps]

    def _listed(self) -> Listing:
        """The capture. Raises InputError if there are several."""
        listed = self.selection.listing()
        if len(directories(listed.segments)) > 1:
            raise InputError("a stream reads one capture: several may have the same changes")
        return listed

    def _begin(self, listed: Listing, point: Point) -> Offset:
        """The offset at which a stream starts. Raises OptionError if the capture has nothing since then."""
        storage = self.selection.storage
        files = [SegmentFile(locate(path, storage), _name(path), False, 0) for path in listed.segments]
        index = first_segment(files, point) if files else 0
        lsn = point.lsn
        if lsn is None:
            lsn = next(filter(None, (self._first_since(one, point.time or 0) for one in files[index:])), None)
        if lsn is None:
            raise OptionError("option startingPosition: the capture has no commit since then: write latest")
        return {_SEGMENT: str(files[index - 1].name) if index else "", _START: lsn_text(lsn)}

    def _check_prepared(self, listed: Listing, lsn: int) -> None:
        """Raise OptionError if a transaction was prepared before a snapshot, and has no outcome before it: neither the
        snapshot nor what follows it has its changes."""
        places = [locate(path, self.selection.storage) for path in listed.segments if _name(path).position < lsn]
        waiting: dict[PreparedTransaction, None] = {}
        for place in places if places and read_head(places[-1]).parameters.get(TWO_PHASE) != "off" else ():
            contents = read_contents(place) or count_contents(place)
            for outcome in contents.outcomes:
                waiting.pop(outcome, None)
            waiting |= dict.fromkeys(contents.prepared)
        if waiting:
            xid, gid = next(iter(waiting))
            raise OptionError(
                f"option startingPosition: transaction {xid} ({escape(gid)}) was prepared before the snapshot at"
                f" {lsn_text(lsn)}, and has no outcome before it: its changes would be missing. Start at another"
                " snapshot, by its LSN, or with earliest"
            )

    def _first_since(self, segment: SegmentFile, time: int) -> int | None:
        """The position of the first commit since a time in a segment; None if there is none."""
        with segment.location.open() as file:
            for batch in SegmentChanges(file, str(segment.location)):
                times = batch["commit_ts"].cast(pa.int64())
                place = pc.index(pc.greater_equal(times, time + UNIX_EPOCH_OFFSET), True).as_py()
                if place >= 0:
                    position: int = batch["position"][place].as_py()
                    return position
        return None

    def _steps(self, listed: Listing, start: Offset) -> list[_Step]:
        """What follows an offset. Raises InputError if segments were pruned unread."""
        lsn = parse_lsn(start.get(_START, "0/0"))
        for pruned in listed.pruned.values():
            if "" < start[_SEGMENT] < pruned.segment or 0 < lsn < pruned.position:
                after = start[_SEGMENT] or start[_START]
                raise InputError(f"segments after {after} were pruned before the stream read them")
        steps = [
            _Step(one.path, EVERYWHERE, {**start, _SNAPSHOT: one.name})
            for one in self._snapshots(listed)
            if _SNAPSHOT in start and one.snapshot.table.lsn == lsn and one.name > start[_SNAPSHOT]
        ]
        for path in listed.segments:
            name, begin, parts = name_of(path), _name(path).position, EVERYWHERE
            offset = {_SEGMENT: name}
            if begin < lsn:
                # A transaction that was prepared before the segment begins is sent in it when it is committed.
                late = Range(Place(0, 0), Place(begin, 0))
                parts, offset = (late, Range(Place(lsn, 0), _END)), {**offset, _START: start[_START]}
            if name > start[_SEGMENT]:
                steps.append(_Step(path, parts, offset))
        return steps

    def _check_gaps(self, listed: Listing, start: Offset, steps: Sequence[_Step]) -> None:
        """Raise InputError if there is a gap before one of these segments, and a snapshot after it."""
        last = max((one.snapshot.table.lsn for one in self._snapshots(listed)), default=0)
        for step in steps if last > parse_lsn(start.get(_START, "0/0")) else ():
            gap = read_head(locate(step.path, self.selection.storage)).parameters.get(GAP, "").partition(" ")[2]
            if gap and parse_lsn(start.get(_START, "0/0")) < parse_lsn(gap) <= last:
                raise InputError(
                    f"there is a gap before it, up to {gap}, and a snapshot after that: begin anew, with another"
                    f" checkpoint and startingPosition {lsn_text(last)}",
                    source=step.path,
                )


def _order(offset: Offset) -> tuple[bool, str]:
    return _SNAPSHOT not in offset, offset.get(_SNAPSHOT, offset[_SEGMENT])


def _name(path: str) -> SegmentName:
    """The name of a segment of the stream."""
    name = SegmentName.parse(name_of(path))
    assert name is not None  # listings have no others
    return name


def _point(text: str) -> Point:
    """The option startingPosition as an LSN or a time. Raises OptionError."""
    try:
        return point_of(text)
    except ValueError as error:
        raise OptionError(
            f"option startingPosition: snapshot, earliest, latest, or an LSN or a time: {error}"
        ) from None
