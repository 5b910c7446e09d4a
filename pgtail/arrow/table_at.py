"""The rows of a table as they were at a moment: of its last snapshot before it, and the changes of a capture since."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from glob import escape as literally
from itertools import groupby
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pgtail.arrow.decoding.batches import described
from pgtail.arrow.decoding.decode import SegmentChanges, has_none, survey
from pgtail.arrow.segments.survey import TWO_PHASE
from pgtail.arrow.table_fold import Prepared, TableFold
from pgtail.arrow.typed.alterations import Alterations, alterations_of, note_of
from pgtail.arrow.typed.casts import TableColumn
from pgtail.arrow.typed.versions import Version
from pgtail.capture.contents import read_contents
from pgtail.capture.format import PREDECESSOR, SegmentName, gap_in
from pgtail.capture.reader import SegmentFile, first_segment, first_time, listed, missing_at_end
from pgtail.capture.segment import read_head
from pgtail.capture.state import NO_STATE, CaptureState, TableSnapshot, read_state
from pgtail.changes.commit_range import ANYWHERE, MARGIN
from pgtail.changes.filters import any_matches
from pgtail.changes.relations import Relation
from pgtail.errors import InputError, OptionError
from pgtail.humanize import counted, did_you_mean
from pgtail.log import logger
from pgtail.pgoutput.scalars import UNIX_EPOCH_OFFSET, Point, lsn_text, parse_lsn
from pgtail.storage import Location
from pgtail.terminal.escape import escape

_OPS: Final = pa.array(["insert", "update", "delete", "truncate"])


class TableAt(NamedTuple):
    """A table as it was, with pgtail's own columns of a state or a history.

    `versions` and `relations` are how it was described, the last one last; a history has the `columns` of all. The
    codecs of the relations read text in this `encoding`.
    """

    rows: pa.Table
    columns: Sequence[TableColumn]
    versions: Sequence[Version]
    relations: Sequence[Relation]
    encoding: str
    lsn: int
    time: int
    """These two are of the last commit, or snapshot, that it has; in microseconds since 2000-01-01 UTC."""
    complete: bool
    """Whether its rows begin with a snapshot, and none was lost since: else rows may be missing."""


def read_table(
    capture: Location, table: str, at: Point = ANYWHERE, *, history: bool = False, ddl: bool = False
) -> TableAt:
    """The rows of SCHEMA.TABLE, or of the only TABLE, after the last commit up to `at`; with `history` all it had then.

    With `ddl` the messages of `pgtail ddl` say what ALTER TABLE did. Logs what may be missing. Raises OptionError if
    the capture has no such table, and InputError, also if changes between the snapshot and `at` are missing.
    """
    if not capture.is_folder():
        raise InputError("is not a directory, as a capture is", source=str(capture))
    known = read_state(capture)  # before listing the segments: a recorder may be writing
    files = listed(capture, known)
    if known is not NO_STATE and at.lsn is not None and at.lsn > known.position:
        raise InputError(f"ends at {lsn_text(known.position)}, before {lsn_text(at.lsn)}", source=str(capture))
    relid, names = None, {table}
    described = _ddl_in(files) if ddl else ()
    while True:
        reading = _Reading(capture, known, files, table, relid, names, at, history=history)
        reading.ddl = described
        reading.read()
        if reading.relid == reading.owner and reading.names <= names:
            return reading.result()
        relid, names = reading.owner, names | reading.names


def _ddl_in(files: Sequence[SegmentFile]) -> list[dict[str, Any]]:
    """The rows of `ddl` of closed segments. Raises InputError."""
    rows: list[dict[str, Any]] = []
    for file in files:
        if file.snapshot is not None or file.open:
            continue
        contents = read_contents(file.location)
        if contents is None or contents.ddl:
            with file.location.open() as opened:
                rows += survey(opened, str(file.location)).ddl
    return rows


def moment(at: Point | None, before: Point | None) -> Point:
    """The moment of `at`, or the last one before `before`; the end of the capture if both are None.

    Raises OptionError if both are given.
    """
    if at is not None and before is not None:
        raise OptionError("give one of them: --at (after a commit), or --before (before it)")
    if before is None:
        return at or ANYWHERE
    return Point(
        None if before.lsn is None else max(before.lsn - 1, 0), None if before.time is None else before.time - 1
    )


class _Reading:
    """One pass over a capture for the table with the OID `relid`, or for the first one with the name of `table`."""

    def __init__(
        self,
        capture: Location,
        known: CaptureState,
        files: Sequence[SegmentFile],
        table: str,
        relid: int | None,
        names: Collection[str],
        at: Point,
        *,
        history: bool,
    ) -> None:
        self._capture, self._known, self._files, self._table, self._at = capture, known, files, table, at
        self._patterns = [literally(name) for name in names]
        self._prepared = Prepared()
        self._fold = TableFold(self._prepared, history=history)
        self._versions: dict[str, Version] = {}
        self._relations: dict[tuple[int, str], Relation] = {}
        """These two have all tables that were described, by their fingerprints, and by OIDs and fingerprints."""
        self._named: list[str] = []
        """The fingerprints of those with the name."""
        self.ddl: Sequence[dict[str, Any]] = ()
        """The rows of `ddl` that are to count."""
        self._last = 0, 0
        self._ended = False
        """Whether a later commit than `at` was reached."""
        snapshots = [one for one in known.counting if self._is_before(one)]
        named = [one for one in snapshots if any_matches(one.schema, one.table, self._patterns)]
        self.relid = named[-1].relid if relid is None and named else relid
        self.owner = self.relid
        """The OID of the table that had the name last."""
        own = [one for one in snapshots if one.relid == self.relid]
        self._snapshots = own if history else own[-1:]
        """Those that are not folded yet, in order."""
        self._begins = own[0] if own else None
        self._since = own[-1].lsn if own and not history else 0
        """Commits before this LSN do not count: a snapshot has them."""

    def _is_before(self, snapshot: TableSnapshot) -> bool:
        if self._at.lsn is not None:
            return snapshot.lsn - 1 <= self._at.lsn
        time = None if self._at.time is None else first_time(self._parts(snapshot)[0].location)
        return self._at.time is None or (time is not None and time <= self._at.time)

    def _parts(self, snapshot: TableSnapshot) -> list[SegmentFile]:
        return [file for file in self._files if file.snapshot == snapshot]

    @property
    def names(self) -> set[str]:
        """The names that the table had, apart from those that are read."""
        own = {(one.schema, one.name) for one in self._relations.values() if one.oid == self.relid}
        return {f"{schema}.{name}" for schema, name in own if not any_matches(schema, name, self._patterns)}

    # -- the segments to read --------------------------------------------------------------------------------------

    def read(self) -> None:
        """Fold everything up to the moment. Raises InputError and OptionError."""
        unfinished = None
        for file in self._segments():
            with file.location.open() as opened:
                changes = SegmentChanges(opened, str(file.location), tables=self._patterns)
                for batch in changes:
                    self._note_tables(changes)
                    for rows in self._prepared.committed(pa.Table.from_batches([batch])):
                        self._take(rows)
                self._note_tables(changes)
            unfinished = changes.unfinished
        if unfinished is not None and not self._ended:
            self._fold.drop_from(unfinished)
        while self._snapshots:
            self._copy(self._snapshots.pop(0))

    def _segments(self) -> Iterator[SegmentFile]:
        """The closed segments of the stream to read, in order. Raises InputError if one is missing."""
        stream = [file for file in self._files if file.snapshot is None and not file.open]
        start = first_segment(stream, Point(lsn=self._since)) if self._since else 0
        earlier = 0 if start and read_head(stream[0].location).parameters.get(TWO_PHASE) != "off" else start
        before = ""
        for index, file in enumerate(stream[earlier:], earlier):
            self._ended |= self._at.lsn is not None and file.name.position > self._at.lsn
            if self._ended:
                return
            contents = read_contents(file.location)
            if index < start:  # what was prepared before the snapshot may be committed after it
                if contents is None or contents.prepared:
                    yield file
                continue
            times = None if contents is None else contents.times
            if self._at.time is not None and times is not None and times[0] > self._at.time + MARGIN:
                self._ended = True
                return
            self._check_follows(
                file, read_head(file.location).parameters if contents is None else contents.parameters, before
            )
            before = str(file.name)
            # One without changes of the table may say that it had another name, and the last one ends a transaction.
            describes = contents is None or any(one.descriptions for one in contents.tables or ())
            if describes or index == len(stream) - 1 or not has_none(file.location, contents, self._patterns):
                yield file
        missing = missing_at_end(self._files, self._known)
        if missing and not self._ended and not any(file.open for file in self._files):
            raise InputError(f"segment {missing} is missing at the end", source=str(self._capture))

    def _check_follows(self, file: SegmentFile, parameters: Mapping[str, str], before: str) -> None:
        """Raise InputError if changes are missing between this segment and the one `before`, or the snapshot."""
        gap, predecessor = gap_in(parameters), parameters.get(PREDECESSOR, "")
        if gap and parse_lsn(gap.rpartition(" ")[2]) > self._since and (before or self._since):
            start = lsn_text(parse_lsn(gap.split()[1]))
            raise InputError(
                f"there is a gap before it: what was committed {gap} is not in the capture, so that later rows are not"
                f" known; --before {start} shows those before the gap, and a new snapshot of the table makes later ones"
                " known (pgtail record --snapshot-table)",
                source=str(file.location),
            )
        name = SegmentName.parse(predecessor)
        if predecessor != before if before else (self._since and name is not None and name.position >= self._since):
            raise InputError(f"segment {predecessor} is missing before this one", source=str(file.location))

    def _note_tables(self, changes: SegmentChanges) -> None:
        """Note the tables that were described so far. Raises OptionError if several have the name."""
        if len(changes.described) == len(self._relations.keys() & changes.described.keys()):
            return
        self._relations |= changes.described
        self._encoding = changes.encoding
        self._versions |= {key: Version.of(described(one)) for (_, key), one in changes.described.items()}
        pattern = [literally(self._table)]
        named = {key: one for key, one in self._relations.items() if any_matches(one.schema, one.name, pattern)}
        self._named, schemas = [print_ for _, print_ in named], {one.schema for one in named.values()}
        if len(schemas) > 1:
            names = " and ".join(f"{schema}.{self._table}" for schema in sorted(schemas))
            raise OptionError(f"which table {escape(self._table)}? There are {escape(names)}")

    # -- rows ------------------------------------------------------------------------------------------------------

    def _take(self, rows: pa.Table) -> None:
        """Fold what these committed rows have of the table, in order, up to the moment."""
        rows = rows.filter(pc.and_(pc.is_in(rows["op"], _OPS), pc.greater_equal(rows["position"], self._since)))
        if self._at.lsn is not None:
            late = pc.greater(rows["position"], self._at.lsn)
        elif self._at.time is not None:
            late = pc.greater(rows["commit_ts"].cast(pa.int64()), self._at.time + UNIX_EPOCH_OFFSET)
        else:
            late = pa.array([], pa.bool_())
        first = 0 if self._ended else pc.index(late, True).as_py()
        self._ended = first >= 0
        rows = rows if first < 0 else rows.slice(0, first)
        if not len(rows):
            return
        named = rows.filter(pc.is_in(rows["relation"], pa.array(self._named, pa.string())))
        if len(named):
            self.relid = named["relid"][0].as_py() if self.relid is None else self.relid
            self.owner = named["relid"][-1].as_py()
        rows = rows.filter(pc.equal(rows["relid"], pa.scalar(self.relid, pa.int64())))
        if len(rows):
            last = rows["commit_ts"].cast(pa.int64())[-1].as_py()
            self._last = rows["position"][-1].as_py(), last - UNIX_EPOCH_OFFSET
        start = 0
        for relation, some in groupby(rows["relation"].to_pylist()):
            count = len(list(some))
            self._apply(rows.slice(start, count), self._versions[relation])
            start += count

    def _apply(self, rows: pa.Table, version: Version) -> None:
        """Fold rows of one version, and the snapshots that come before some of them."""
        self._begin_table()
        while self._snapshots and rows["position"][-1].as_py() >= self._snapshots[0].lsn:
            snapshot = self._snapshots.pop(0)
            before = pc.sum(pc.less(rows["position"], snapshot.lsn)).as_py()
            if before:
                self._fold.add(rows.slice(0, before), version)
            self._copy(snapshot)
            rows = rows.slice(before)
        self._fold.add(rows, version)

    def _copy(self, snapshot: TableSnapshot) -> None:
        """Fold a snapshot: the table has its rows, and no others. Raises InputError if it is not whole."""
        count, version = 0, None
        for file in self._parts(snapshot):
            with file.location.open() as opened:
                changes = SegmentChanges(opened, str(file.location))
                for batch in changes:
                    version = version or self._begin(changes, snapshot)
                    self._fold.add(pa.Table.from_batches([batch]), version, snapshot=True)
                    count += batch.num_rows
                version = version or self._begin(changes, snapshot)
        if count != snapshot.rows:
            raise InputError(f"{snapshot} has {count} rows, not {snapshot.rows}", source=str(self._capture))

    def _begin_table(self) -> None:
        """Before the first row of the table: know its alterations."""
        if not self._fold.versions:
            self._fold.alterations = Alterations(alterations_of(self.ddl, self.relid or 0))

    def _begin(self, changes: SegmentChanges, snapshot: TableSnapshot) -> Version:
        self._note_tables(changes)
        self._begin_table()
        [(_, relation)] = changes.described
        time = changes.survey.commit_ts
        self._last = max(self._last, (snapshot.lsn - 1, time - UNIX_EPOCH_OFFSET))
        self._fold.start(self._versions[relation], snapshot.lsn - 1, time)
        return self._versions[relation]

    def result(self) -> TableAt:
        """The rows; logs what may be missing. Raises OptionError if there was no row of the table, and InputError."""
        place, table = escape(str(self._capture)), escape(self._table)
        if not self._fold.versions or self.relid is None:
            known = sorted({(one.schema, one.name) for one in self._relations.values()})
            meant = did_you_mean(self._table, [".".join(one) if "." in self._table else one[1] for one in known])
            raise OptionError(f"{place} has no row of a table {table} up to then{escape(meant)}")
        rows, lost = self._fold.rows(), self._fold.lost
        relations = [self._relations[self.relid, version.relation] for version in self._fold.versions]
        if self._begins is None:
            logger.warning(
                f"{place} has no snapshot of {table} up to then: only rows that were written since the capture began"
                " are known, not those that were there before and stayed as they were"
            )
        if self._fold.alterations.dropped:
            logger.info(note_of(self._fold.alterations.dropped, table))
        if lost:
            logger.warning(
                f"{counted(lost, 'row')} of {table} left out: what became of the key was not sent when its columns"
                " changed"
            )
        if retyped := self._fold.retyped:
            logger.warning(
                f"{counted(retyped, 'row')} of {table} not written since ALTER TABLE changed the type of a column:"
                " what its USING, if any, made of their values was not sent (ALTERED TABLES in pgtail-spark(1))"
            )
        if relations[-1].name != self._table.rpartition(".")[2]:
            logger.info(f"{table} is {escape(relations[-1].qualified)} by then")
        unread = [file for file in self._files if file.open]
        if unread and not self._ended:
            logger.info(f"{escape(str(unread[0].location))} is not closed yet: what it has is left out")
        elif self._at.time is not None and not self._ended:
            logger.info(f"{place} has no later commit: what it lacks may have changed the table by then")
        return TableAt(
            rows,
            self._fold.columns,
            self._fold.versions,
            relations,
            self._encoding,
            *self._last,
            complete=self._begins is not None and not lost,
        )
