"""A temporary lake that begins with a version of a state of OUT, so that the state can be updated outside of OUT.

Nothing is written into the tables of OUT. The files of the version are linked (or copied, where there are no links), so
that no process removes them meanwhile: the state's, and files of changes that may not be applied to it yet.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from pgtail.errors import InputError
from pgtail.spark.lake.batches import Batches, BatchPlan, Notes, snapshots_in
from pgtail.spark.lake.catalog import CATALOG
from pgtail.spark.lake.delta import Commit, LakeFile, LakeTable
from pgtail.spark.lake.parquet import DataFile
from pgtail.spark.state.increment import by_table
from pgtail.storage import Location

_PATIENCE: Final = 10.0
"""Seconds to wait for another process to finish a batch."""
_PAUSE: Final = 0.2
_ATTEMPTS: Final = 5
"""How often a newer version is tried if files of one are gone."""
_PIECE: Final = 8 << 20
_POSITIONS: Final = {"changes": "position", "transactions": "position", "tables": "_position"}
"""The tables (or their folders) of which older files are left out, and the column with the positions of their rows."""


class Base(Struct, frozen=True):
    """A version of a state: the content of OUT after some batch, and its tables then, by their folders."""

    plan: BatchPlan
    tables: Mapping[str, LakeTable]

    @property
    def notes(self) -> Notes:
        return self.plan.notes["state"]

    def names(self, which: Callable[[int], bool]) -> list[tuple[str, str]]:
        """The schemas and names of the state's tables for whose OIDs `which` returns True."""
        rows = [row for row in self.tables[CATALOG].rows() if row["kind"] == "state" and which(row["relid"])]
        return sorted((row["schema"], row["table"]) for row in rows)


@contextlib.contextmanager
def scratch_folder(out: Location) -> Iterator[Location]:
    """A new folder in OUT, where every task can read and write; it is removed at the end."""
    place = out / f"_verify-{secrets.token_hex(8)}"
    try:
        yield place
    finally:
        place.delete_all()


def begin(out: Location, scratch: Location) -> Base:
    """Begin a lake in `scratch` with the state of OUT as it is now. Raises InputError if OUT has none, OutputError."""
    for _ in range(_ATTEMPTS):
        base = _opened(out)
        try:
            commits = [commit for name, table in base.tables.items() for commit in _linked(name, table, base, scratch)]
        except FileNotFoundError:
            scratch.delete_all()
            continue
        plan = copy.deepcopy(base.plan)
        plan.notes = {"state": plan.notes["state"]}
        Batches(scratch).commit(plan, commits)
        return base
    raise InputError(
        "its files are removed as soon as they are replaced; run pgtail spark state with a longer --retain",
        source=str(out),
    )


def _opened(out: Location) -> Base:
    """The content of OUT after its last batch. Raises InputError if there is no state, or a batch is not finished."""
    end = time.monotonic() + _PATIENCE
    while True:
        batches = Batches(out)
        if "state" not in batches.plan.notes:
            raise InputError("has no state: make it with pgtail spark state CAPTURE... OUT", source=str(out))
        catalog = batches.table(CATALOG)
        folders = [row["folder"] for row in catalog.rows() if row["kind"] in ("tables", "state")]
        names = ("changes", "transactions", "relations", "snapshots", "ddl", *folders)
        tables = {CATALOG: catalog, **{name: batches.table(name) for name in names}}
        if batches.settled(tables):
            return Base(batches.plan, tables)
        if time.monotonic() > end:
            raise InputError("its last batch is not finished: run pgtail spark state CAPTURE... OUT", source=str(out))
        time.sleep(_PAUSE)


def _linked(name: str, table: LakeTable, base: Base, scratch: Location) -> Iterator[Commit]:
    """Link the files of a table that are needed, and yield their commit."""
    column = _POSITIONS.get(name.partition("/")[0])
    since = _since(base)
    files = [one for one in table.files() if column is None or one.bounds(column).most >= since]
    if files:
        for one in files:
            _link(table.place / one.path, scratch / name / one.path)
        yield Commit(name, table.schema, [_data_file(one) for one in files])


def _since(base: Base) -> int:
    """The position from which on changes are not, or not all, in the state."""
    notes = base.notes
    taken = {relid: one.snapshot for relid, one in notes.tables.items()}
    snapshots = by_table(snapshots_in(base.tables["snapshots"]))
    new = [one.position for relid, some in snapshots.items() for one in some if one.position > taken.get(relid, -1)]
    if min(new, default=notes.end.position) < notes.end.position:
        return -1  # a transaction prepared at any time may have been committed since
    return min([notes.end.position, *(position for _, _, position in notes.pending)])


def _data_file(file: LakeFile) -> DataFile:
    """The same file for another table, without bounds: the file itself has them."""
    return DataFile(file.path, file.size, json.dumps({"numRecords": file.rows}))


def _link(source: Location, target: Location) -> None:
    """Give a file a second name, or copy it. Raises FileNotFoundError if it is gone, OutputError."""
    if source.path is not None and target.path is not None:
        with contextlib.suppress(OSError):  # a file system without links
            target.path.parent.mkdir(parents=True, exist_ok=True)
            os.link(source.path, target.path)
            return
    if source.head() is None:
        raise FileNotFoundError(str(source))
    with source.open() as reader:
        writer = target.writer()
        try:
            while data := reader.read(_PIECE):
                writer.write(data)
            writer.finish()
        except BaseException:
            writer.abandon()
            raise
