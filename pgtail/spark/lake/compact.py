"""Small files merged into large ones; their rows stay the same."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from pgtail.humanize import counted
from pgtail.spark.errors import translate_spark_errors
from pgtail.spark.jobs import Result, collected
from pgtail.spark.lake.catalog import entries
from pgtail.spark.lake.delta import Commit, File
from pgtail.spark.lake.parquet import FileWriter, prefix_of, row_groups
from pgtail.spark.lake.sorting import CHANGES_LAYOUT, PIECE, Sorting
from pgtail.spark.lake.update import Lake
from pgtail.spark.schemas import CHANGES
from pgtail.spark.state.tasks import CLOSED
from pgtail.storage import Location

_TARGET: Final = 128 << 20
"""Bytes that a file should have."""
_SMALL: Final = _TARGET // 2


@dataclass(frozen=True, slots=True)
class _Merging:
    """Files of a table whose rows have the same columns, to become one."""

    name: str
    place: Location
    paths: Sequence[str]
    codec: str

    def done(self) -> Iterator[Result]:
        """Write it: the table's `name`, and a DataFile."""
        writer: FileWriter | None = None
        for rows in self._sorted() if self.name == "changes" else self._pieces():
            writer = writer or FileWriter(self.place, rows.schema, self.codec, prefix_of(self.paths[0]))
            writer.write(rows)
        if writer is not None:
            yield self.name, pickle.dumps(writer.close())

    def _groups(self) -> Iterator[pa.Table]:
        for path in self.paths:
            yield from row_groups(self.place / path)

    def _sorted(self) -> Iterator[pa.Table]:
        rows = Sorting(CHANGES_LAYOUT)
        for group in self._groups():
            for batch in group.cast(CHANGES).combine_chunks().to_batches():
                yield from rows.add(batch)
        yield from rows.rest()

    def _pieces(self) -> Iterator[pa.Table]:
        held: list[pa.Table] = []
        for group in self._groups():
            held.append(group)
            if sum(one.nbytes for one in held) >= PIECE:
                yield pa.concat_tables(held)
                held = []
        if held:
            yield pa.concat_tables(held)


def compact(lake: Lake) -> int:
    """Merge small files of all append-only tables; returns how many. Raises OutputError."""
    names = ["changes", "transactions", *(entry.folder for entry in entries(lake.out) if entry.kind != "state")]
    plans = [merging for name in names for merging in _mergings(lake, name)]
    count = sum(len(merging.paths) for merging in plans)
    if not plans:
        return 0
    lake.tell(f"merging {counted(count, 'file')}")
    with translate_spark_errors():
        done = [(name, pickle.loads(data)) for name, data in collected(lake.spark, _Merging.done, plans)]
    commits = []
    for name in dict.fromkeys(merging.name for merging in plans):
        table = lake.batches.table(name)
        assert table.schema is not None
        merged = {path for merging in plans if merging.name == name for path in merging.paths}
        removes = [(file.path, file.size) for file in table.files() if file.path in merged]
        adds = [file for own, file in done if own == name]
        commits.append(Commit(name, table.schema, adds, removes, data_change=False, retain=table.retain))
    lake.commit(copy.deepcopy(lake.plan), commits)
    return count


def _mergings(lake: Lake, name: str) -> list[_Merging]:
    """The files of a table to merge: neighbours in the stream, of the same version."""
    table = lake.batches.table(name)
    assert table.schema is not None
    keys = [one for one in ("_relation", "_relid") if one in table.schema.names]
    order = next(one for one in ("position", "_position", "_valid_from_position") if one in table.schema.names)
    alike: dict[object, list[File]] = {}
    for file in table.files():
        if file.size < _SMALL and (not name.startswith("history/") or file.path.startswith(CLOSED)):
            alike.setdefault(tuple(file.bounds(one).least for one in keys), []).append(file)
    found = []
    for files in alike.values():
        room = 0
        some: list[list[str]] = []
        for file in sorted(files, key=lambda one: one.bounds(order).least):
            if file.size > room:
                some.append([])
                room = _TARGET
            some[-1].append(file.path)
            room -= file.size
        found += [_Merging(name, table.place, tuple(paths), lake.codec) for paths in some if len(paths) > 1]
    return found
