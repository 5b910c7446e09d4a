"""Decodes segments, or files of `changes`, to files of `changes`, `transactions` and `tables/*`, in a task.

A task that Spark has given up may still be running. Files therefore have unique names, and only those reported by the
successful attempt are committed.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from pgtail.arrow.decoding.contexts import contexts_of
from pgtail.arrow.decoding.decode import SegmentChanges
from pgtail.arrow.schemas import CHANGES, SNAPSHOT
from pgtail.arrow.segments.ranges import Parts
from pgtail.arrow.segments.survey import Survey
from pgtail.arrow.typed.columns import META, columns_of, own_columns, schema_of
from pgtail.arrow.typed.rows import typed_rows
from pgtail.arrow.typed.versions import Version
from pgtail.spark.decoding.transactions import counted
from pgtail.spark.lake.parquet import DataFile, FileWriter, TableFolder, row_groups
from pgtail.spark.lake.sorting import Pieces, sorted_changes
from pgtail.storage import NO_OPTIONS, Location, StorageOptions, locate

Names = tuple[str, str]
"""A table's schema and name."""
Versions = Mapping[Names, Sequence[Version]]
"""The versions of each table, in the order of their appearance."""
_MOST_OPEN: Final = 64
"""Files that are open at a time: a capture may have thousands of tables."""

_LONGEST_NAME: Final = 200
"""Characters of a folder's name; file systems end at 255 bytes."""
_ESCAPED: Final = re.compile(rb"[^a-z0-9_-]|\A_")


class TableFile(NamedTuple):
    """A file of the typed rows of one version of a table, and the table's OID."""

    version: Version
    relid: int
    file: DataFile


class Decoded(Struct):
    """The files that a task wrote, and its other results."""

    surveys: list[Survey] = field(default_factory=list)
    changes: list[DataFile] = field(default_factory=list)
    transactions: list[DataFile] = field(default_factory=list)
    shared: list[pa.Table] = field(default_factory=list)
    """Rows of `transactions` of which other tasks may have a part."""
    tables: list[TableFile] = field(default_factory=list)
    undescribed: list[int] = field(default_factory=list)
    """The OIDs of tables without a description."""


def joined(parts: Iterable[Decoded]) -> Decoded:
    """The results of several tasks as one."""
    whole = Decoded()
    for part in parts:
        for name in Decoded.__struct_fields__:
            getattr(whole, name).extend(getattr(part, name))
    return whole


class Decoding(Struct, frozen=True):
    """How to decode: `tables` are globs, `known` are the known versions; `storage` has options for reading segments."""

    out: Location
    codec: str
    tables: tuple[str, ...] = ()
    known: Versions | None = None
    """None if no typed rows are wanted."""
    storage: StorageOptions = NO_OPTIONS
    snapshot_changes: bool = True
    context: str | None = None
    """These two are as in BatchPlan."""

    def decode(self, items: Sequence[tuple[str, Parts]]) -> Decoded:
        """Write the rows in these parts of these segments."""
        with _Files(self) as files:
            return files.write_segments(items)

    def write_typed(self, places: Sequence[Location]) -> Decoded:
        """Write the typed rows of files of `changes`."""
        assert self.known is not None
        described = {version.relation: version for versions in self.known.values() for version in versions}
        with _Files(self) as files:
            for place in places:
                for group in row_groups(place):
                    files.write_typed(group.select(CHANGES.names).cast(CHANGES), described)
            return files.close()


class _Key(NamedTuple):
    """The table of OUT that a file belongs to; for `tables/*` also version, OID, and whether its rows are of snapshots:
    no file has these and changes.
    """

    table: str
    version: Version | None = None
    relid: int = 0
    snapshot: bool = False


class _Files:
    """The files that one task writes; they are removed if it fails."""

    def __init__(self, how: Decoding) -> None:
        self._how = how
        self._open: dict[_Key, FileWriter] = {}
        self._done = Decoded()

    def __enter__(self) -> _Files:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            for file in self._open.values():
                file.abandon()

    def write_segments(self, items: Sequence[tuple[str, Parts]]) -> Decoded:
        how, described = self._how, dict[str, Version]()
        rows, transactions = Pieces(sorted_changes), Pieces()
        for path, parts in items:
            contexts = contexts_of(how.context, path, how.storage)
            with locate(path, how.storage).open() as file:
                changes = SegmentChanges(file, path, parts=parts, tables=how.tables, contexts=contexts)
                for piece in changes:
                    new = [row for row in changes.survey.relations if row["relation"] not in described]
                    described |= {row["relation"]: Version.of(row) for row in new}
                    complete, shared = _split(counted(piece), parts)
                    self._done.shared.append(shared)
                    for batch in complete.to_batches():
                        self._write("transactions", transactions.add_batch(batch))
                    self._write_changes(rows.add_batch(piece), described)
            self._done.surveys.append(changes.survey)
        self._write_changes(rows.rest(), described)
        self._write("transactions", transactions.rest())
        return self.close()

    def _write_changes(self, pieces: Iterator[pa.Table], described: Mapping[str, Version]) -> None:
        for piece in pieces:
            kept = piece if self._how.snapshot_changes else piece.filter(pc.invert(of_snapshots(piece["op"])))
            if kept.num_rows:
                self._write("changes", iter([kept]))
            if self._how.known is not None:
                self.write_typed(piece, described)

    def _write(self, table: str, pieces: Iterator[pa.Table]) -> None:
        for piece in pieces:
            self._file(_Key(table), piece.schema).write(piece)

    def write_typed(self, rows: pa.Table, described: Mapping[str, Version]) -> None:
        """Write the typed rows of a piece of `changes`, in which the rows of a table are neighbours."""
        for start, stop in _runs(rows):
            relation, relid = (rows[name][start].as_py() for name in ("relation", "relid"))
            version = described.get(relation)
            if version is not None:
                some = rows.slice(start, stop - start)
                copied = of_snapshots(some["op"])
                for snapshot, mask in ((True, copied), (False, pc.invert(copied))):
                    if pc.any(mask).as_py():
                        own = some if pc.all(mask).as_py() else some.filter(mask)
                        self._write_version(own, version, relid, snapshot=snapshot)
            elif relid is not None:
                self._done.undescribed.append(relid)

    def _write_version(self, rows: pa.Table, version: Version, relid: int, *, snapshot: bool) -> None:
        assert self._how.known is not None
        names = (version.schema, version.table)
        columns = own_columns(version, columns_of([*self._how.known.get(names, ()), version]))
        key = _Key(f"tables/{folder_name(*names)}", version, relid, snapshot)
        self._file(key, schema_of(columns, META, old=True)).write(typed_rows(rows, columns))

    def _file(self, key: _Key, schema: pa.Schema) -> FileWriter:
        if key not in self._open:
            if len(self._open) >= _MOST_OPEN:
                self._close_file(next(key for key in self._open if key.version is not None))
            self._open[key] = FileWriter(TableFolder(self._how.out / key.table, self._how.codec), schema)
        self._open[key] = self._open.pop(key)
        return self._open[key]

    def _close_file(self, key: _Key) -> None:
        file = self._open[key].close()
        del self._open[key]
        if key.version is not None:
            self._done.tables.append(TableFile(key.version, key.relid, file))
        else:
            getattr(self._done, key.table).append(file)

    def close(self) -> Decoded:
        for key in list(self._open):
            self._close_file(key)
        return self._done


def of_snapshots(op: pa.ChunkedArray) -> pa.ChunkedArray:
    """Which rows are of snapshots, by their operations."""
    return pc.equal(op, SNAPSHOT)


def _split(counts: tuple[pa.Table, list[int]], parts: Parts) -> tuple[pa.Table, pa.Table]:
    """Complete transactions, and those of which other tasks may have a part."""
    transactions, ends = counts
    shared = {place.position for part in parts or () for place in part}
    open_ = pc.is_in(transactions["position"], pa.array([*shared, *ends], pa.int64()))
    return transactions.filter(pc.invert(open_)), transactions.filter(open_)


def _runs(rows: pa.Table) -> Iterator[tuple[int, int]]:
    """Where runs of rows of one version of one table start and stop."""
    changed = np.zeros(max(len(rows) - 1, 0), bool)
    for name in ("relation", "relid"):
        codes = rows[name].combine_chunks().dictionary_encode().indices.fill_null(-1).to_numpy()
        changed |= codes[1:] != codes[:-1]
    starts = [0, *(np.flatnonzero(changed) + 1).tolist(), len(rows)]
    yield from itertools.pairwise(starts)


def folder_name(schema: str, table: str) -> str:
    """schema.table, with ~xx for all bytes but a-z, 0-9, _ and -, and for a first underscore.

    Capitals are escaped, too: a file system may not distinguish them from small letters, but PostgreSQL does. Spark
    ignores names that begin with an underscore. A name that is too long is cut off, and ends with ~~ and a part of
    its SHA-256.
    """
    full = f"{_encoded(schema)}.{_encoded(table)}"
    if len(full) <= _LONGEST_NAME:
        return full
    return f"{full[: _LONGEST_NAME - 22]}~~{hashlib.sha256(full.encode()).hexdigest()[:20]}"


def _encoded(name: str) -> str:
    return _ESCAPED.sub(lambda byte: b"~%02x" % byte[0][0], name.encode()).decode()
