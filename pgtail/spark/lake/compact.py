"""Merges small files of OUT into large ones, and removes files that no version needs."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from msgspec import Struct

from pgtail.arrow.fold import FROM_SNAPSHOT
from pgtail.errors import InputError
from pgtail.humanize import counted
from pgtail.spark.jobs import collected, in_groups
from pgtail.spark.lake.batches import Batches
from pgtail.spark.lake.catalog import entries
from pgtail.spark.lake.delta import Commit, LakeFile
from pgtail.spark.lake.parquet import DataFile, TableFolder, row_groups, write_groups
from pgtail.spark.lake.sorting import Pieces, sorted_changes
from pgtail.spark.lake.update import Lake
from pgtail.spark.state.tasks import CLOSED
from pgtail.storage import Location

_TARGET: Final = 128 << 20
"""Bytes that a file should have."""
_SMALL: Final = _TARGET // 2


class _Merging(Struct, frozen=True):
    """Files of a table whose rows have the same columns, to become one."""

    name: str
    folder: TableFolder
    files: Sequence[tuple[str, int]]
    """Paths and bytes."""

    def merge(self) -> DataFile:
        return write_groups(self.folder.named_like(self.files[0][0]), self._rows())

    def _rows(self) -> Iterator[pa.Table]:
        rows = Pieces(sorted_changes) if self.name == "changes" else Pieces()
        for path, _ in self.files:
            for group in row_groups(self.folder.place / path):
                for batch in group.combine_chunks().to_batches():
                    yield from rows.add_batch(batch)
        yield from rows.rest()


def compact(lake: Lake) -> int:
    """Merge small files of all append-only tables; returns how many. Raises OutputError."""
    names = ["changes", "transactions", *(entry.folder for entry in entries(lake.out) if entry.kind != "state")]
    plans = [merging for name in names for merging in _mergings(lake, name)]
    count = sum(len(merging.files) for merging in plans)
    if not plans:
        return 0
    lake.show_task(f"merging {counted(count, 'file')}")
    size = sum(size for merging in plans for _, size in merging.files)
    done = collected(lake.spark, _Merging.merge, plans, size)
    commits = []
    for name in dict.fromkeys(merging.name for merging in plans):
        table = lake.batches.table(name)
        assert table.schema is not None
        own = [(merging, file) for merging, file in zip(plans, done, strict=True) if merging.name == name]
        removes = [file for merging, _ in own for file in merging.files]
        adds = [file for _, file in own]
        commits.append(Commit(name, table.schema, adds, removes, data_change=False, retain=table.retain))
    lake.commit(copy.deepcopy(lake.plan), commits)
    return count


def _mergings(lake: Lake, name: str) -> list[_Merging]:
    """The files of a table to merge: neighbours in the stream, of the same version."""
    table = lake.batches.table(name)
    assert table.schema is not None
    keys = [column for column in ("_relation", "_relid") if column in table.schema.names]
    order = next(column for column in ("position", "_position", "_valid_from_position") if column in table.schema.names)
    alike: dict[object, list[LakeFile]] = {}
    for file in table.files():
        if file.size < _SMALL and (not name.startswith("history/") or file.path.startswith(CLOSED)):
            kind = file.of_snapshots if name.startswith("tables/") else file.has(FROM_SNAPSHOT.name)
            alike.setdefault((kind, *(file.bounds(key).least for key in keys)), []).append(file)
    mergings = []
    for files in alike.values():
        neighbours = sorted(files, key=lambda file: file.bounds(order).least)
        some = in_groups((((file.path, file.size), file.size) for file in neighbours), _TARGET)
        mergings += [_Merging(name, TableFolder(table.place, lake.codec), own) for own in some if len(own) > 1]
    return mergings


def vacuum(out: Location, *, delete: bool) -> list[str]:
    """The files below OUT that no version needs: replaced long ago, or left behind by killed runs.

    With `delete` they are removed. Raises InputError if there is nothing.

    A file must be as old as its table keeps replaced ones: a batch may be running.
    """
    batches = Batches(out)
    if not batches.plan.batch:
        raise InputError("has nothing that pgtail spark wrote", source=str(out))
    batches.finish()
    own = ["changes", "transactions", "relations", "snapshots", "ddl", "catalog", "_batches"]
    vacated = [folder for notes in batches.plan.notes.values() for folder in notes.vacated]
    names = [*own, *vacated, *(entry.folder for entry in entries(out))]
    expired = []
    for name in dict.fromkeys(names):
        table = batches.table(name)
        if table.schema is not None:
            expired += [f"{name}/{path}" for path in table.expired(orphans=True, remove=delete)]
    return expired
