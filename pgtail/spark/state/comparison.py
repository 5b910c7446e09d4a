"""Compares the rows of a state with the server's at the same position, bucket by bucket; uses no Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from pgtail.arrow.decoding.decode import SegmentChanges
from pgtail.arrow.fold import Cells, identities, numbered
from pgtail.arrow.typed.arrays import Flags, flags, one_chunk
from pgtail.arrow.typed.casts import texts_of
from pgtail.arrow.typed.columns import columns_of
from pgtail.arrow.typed.rows import as_version, described, typed_rows
from pgtail.arrow.typed.versions import Version
from pgtail.capture.segment import ByteFile

MOST_EXAMPLES: Final = 10

Numbers: TypeAlias = npt.NDArray[np.int64]
Texts: TypeAlias = tuple[tuple[str, str | None], ...]
"""Columns and PostgreSQL's texts of their values."""


class Example(Struct, frozen=True, order=True):
    """One row: the columns that identify it (the key, or all), and the names of the columns in question."""

    row: Texts
    columns: tuple[str, ...] = ()


class Comparison(Struct):
    """How the rows of a table compare. `rows` are the server's; each of them is equal, unknown, different or missing.

    A row is unknown if its known values are equal, and the state names others in `_unknown`. It is different if a known
    value of the row with its key is. `extra` are rows of the state that the server does not have. A table without a key
    is a bag of rows, in which none is different. `examples` has up to MOST_EXAMPLES of each kind but equal rows, the
    first in the order of their texts.
    """

    rows: int = 0
    equal: int = 0
    unknown: int = 0
    missing: int = 0
    extra: int = 0
    different: int = 0
    examples: dict[str, list[Example]] = field(default_factory=dict)

    @property
    def same(self) -> bool:
        """Whether no row is missing, extra or different."""
        return not (self.missing or self.extra or self.different)


def total(parts: Iterable[Comparison]) -> Comparison:
    """Add up the buckets of a table."""
    sums = Comparison()
    for part in parts:
        for name in ("rows", "equal", "unknown", "missing", "extra", "different"):
            setattr(sums, name, getattr(sums, name) + getattr(part, name))
        for kind, some in part.examples.items():
            sums.examples[kind] = _first([*sums.examples.get(kind, ()), *some])
    return sums


def server_rows(file: ByteFile, name: str) -> Iterator[tuple[Version, pa.Table]]:
    """The rows of a segment of a snapshot, in pieces, as those of the table's version; `name` is for errors.

    Raises InputError if the segment is damaged.
    """
    segment = SegmentChanges(file, name)
    for batch in segment:
        version = Version.of(segment.survey.relations[0])
        yield version, typed_rows(pa.Table.from_batches([batch]), columns_of([version]))


def state_rows(rows: pa.Table, before: Version, now: Version) -> pa.Table:
    """Convert the rows of a state from the version in which they are stored to the version that the server has."""
    rows = as_version(rows, before, columns_of([before]))
    return rows if before == now else described(rows, before, now)


def compare(state: pa.Table, server: pa.Table, version: Version) -> Comparison:
    """Compare the rows of a bucket. Both have the columns of columns_of([version]) and `_rescued`, those of the state
    also `_unknown`.
    """
    return _Comparing(state, server, version).compare()


class _Comparing:
    """Compares one bucket: each row of the state has a place, and each of the server."""

    def __init__(self, state: pa.Table, server: pa.Table, version: Version) -> None:
        self._version = version
        self._sizes = len(state), len(server)
        self._sides = tuple(Cells.of(rows.combine_chunks(), version) for rows in (state, server))
        unknown = one_chunk(state.combine_chunks()["_unknown"])
        self._unknown = {column.name: flags(unknown, column.name) for column in version.columns}
        self._partly = np.logical_or.reduce([np.zeros(len(state), bool), *self._unknown.values()])
        self._comparison = Comparison(rows=len(server))

    def compare(self) -> Comparison:
        mine, others = self._pairs_by_key() if self._version.key else self._pairs_by_value()
        differing = self._differing(mine, others)
        different = np.logical_or.reduce([np.zeros(len(mine), bool), *differing.values()])
        unknown = self._partly[mine] & ~different
        self._comparison.equal = int((~different & ~unknown).sum())
        columns = [self._named(differing, at) for at in np.flatnonzero(different).tolist()]
        self._count_rows("different", 1, others[different], columns)
        columns = [self._named(self._unknown, at) for at in mine[unknown].tolist()]
        self._count_rows("unknown", 1, others[unknown], columns)
        for kind, side, paired in (("extra", 0, mine), ("missing", 1, others)):
            left = np.ones(self._sizes[side], bool)
            left[paired] = False
            self._count_rows(kind, side, np.flatnonzero(left))
        return self._comparison

    # -- which rows belong together --------------------------------------------------------------------------------

    def _pairs_by_key(self) -> tuple[Numbers, Numbers]:
        """Places in the state and on the server of the rows that have the same key."""
        mine, others = numbered(identities(self._sides, self._version), self._sizes)
        place_of = dict(zip(others.tolist(), range(self._sizes[1]), strict=True))
        pairs = [(place, place_of.pop(key)) for place, key in enumerate(mine.tolist()) if key in place_of]
        return _columns(pairs)

    def _pairs_by_value(self) -> tuple[Numbers, Numbers]:
        """The places of equal rows, each once, then those of rows whose known values are equal, first those with most
        known values.
        """
        names = [column.name for column in self._version.columns]
        lists = list(zip(*[self._unknown[name].tolist() for name in names], strict=True)) or [()] * self._sizes[0]
        pairs: list[tuple[int, int]] = []
        left = np.arange(self._sizes[1])
        for unknown in sorted(set(lists), key=lambda some: (sum(some), some)):
            known = [name for name, missing in zip(names, unknown, strict=True) if not missing]
            mine, others = numbered(identities(self._sides, self._version, known), self._sizes)
            places: dict[int, list[int]] = {}
            for place in left[::-1].tolist():
                places.setdefault(int(others[place]), []).append(place)
            for place, some in enumerate(lists):
                if some == unknown and (equal := places.get(int(mine[place]))):
                    pairs.append((place, equal.pop()))
            left = np.setdiff1d(left, [other for _, other in pairs])
        return _columns(pairs)

    def _differing(self, mine: Numbers, others: Numbers) -> dict[str, Flags]:
        """For each column the pairs whose known values differ."""
        names = [column.name for column in self._version.columns]
        differing = {}
        for name, (own, other) in zip(names, identities(self._sides, self._version, names), strict=True):
            left, right = own.take(pa.array(mine)), other.take(pa.array(others))
            equal = pc.fill_null(pc.equal(left, right), False)
            both_null = pc.and_(left.is_null(), right.is_null())
            differing[name] = ~pc.or_(equal, both_null).to_numpy(zero_copy_only=False) & ~self._unknown[name][mine]
        return differing

    # -- examples --------------------------------------------------------------------------------------------------

    def _count_rows(self, kind: str, side: int, places: Numbers, columns: Sequence[tuple[str, ...]] = ()) -> None:
        """Count rows of a side, and keep the first of them as examples."""
        setattr(self._comparison, kind, len(places))
        if len(places):
            rows = self._texts(side, places)
            named = columns or [()] * len(places)
            self._comparison.examples[kind] = _first(Example(row, some) for row, some in zip(rows, named, strict=True))

    @staticmethod
    def _named(flagged: dict[str, Flags], place: int) -> tuple[str, ...]:
        return tuple(name for name, those in flagged.items() if those[place])

    def _texts(self, side: int, places: Numbers) -> Iterator[Texts]:
        """The values that identify rows of a side."""
        cells, key = self._sides[side], self._version.key
        index = pa.array(places)
        columns = {}
        for column in columns_of([self._version]):
            if not key or column.name in key:
                own = texts_of(cells.values[column.name].take(index), column.delimiter)
                columns[column.name] = pc.coalesce(cells.rescued[column.name].take(index), own).to_pylist()
        for values in zip(*columns.values(), strict=True):
            yield tuple(zip(columns, values, strict=True))


def _columns(pairs: Sequence[tuple[int, int]]) -> tuple[Numbers, Numbers]:
    found = np.array(pairs, np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def _first(examples: Iterable[Example]) -> list[Example]:
    """The first ones in the order of their texts, NULL first."""
    return sorted(examples, key=lambda one: [(text is not None, text or "") for _, text in one.row])[:MOST_EXAMPLES]
