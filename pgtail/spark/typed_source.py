"""The typed rows of one table for the data source: their schema, of all versions in the captures, and the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from pgtail.arrow.decoding.batches import described
from pgtail.arrow.read_arrow import versions_in
from pgtail.arrow.schemas import WITH_CONTEXT
from pgtail.arrow.typed.casts import TableColumn
from pgtail.arrow.typed.change_feed import FEED, feed_rows
from pgtail.arrow.typed.columns import META, columns_of, schema_of
from pgtail.arrow.typed.rows import typed_rows
from pgtail.arrow.typed.versions import Version
from pgtail.changes.relations import Relation
from pgtail.errors import InputError, OptionError
from pgtail.spark.segments.listing import check_names, places_of
from pgtail.spark.selection import CDF, Selection
from pgtail.terminal.escape import escape

_CONTEXT: Final = WITH_CONTEXT.field("context").with_name("_context")

Relations: TypeAlias = Mapping[tuple[int, str], Relation]
"""Versions of tables by their OIDs and fingerprints."""


class TypedTable(Struct, frozen=True):
    """A table: its versions when the schema was made, by their fingerprints, and the columns that hold all of them."""

    versions: dict[str, Version]
    columns: list[TableColumn]
    schema: pa.Schema
    shape: str

    @classmethod
    def of(cls, selection: Selection) -> TypedTable:
        """The table that a selection names. Raises OptionError and InputError."""
        places = [place for capture in selection.captures for place in places_of(capture, selection.storage)]
        check_names(selection.listing(), [selection.table], selection.storage)
        found = [version for place in places for version in versions_in(place, selection.table)]
        versions = {one.relation: one for one in found if f"{one.schema}.{one.table}" == selection.table}
        if not versions:
            raise OptionError(f"option table: no table {selection.table}: write SCHEMA.TABLE")
        columns = columns_of(versions.values(), ())
        feed = selection.shape == CDF
        whole = schema_of(columns, FEED if feed else META, old=not feed)
        if selection.context is not None:
            whole = whole.append(_CONTEXT)
        own = {name: f"{selection.prefix}{name}" for name in whole.names[len(columns) :]}
        taken = {column.stored.lower() for column in columns}
        for name in own.values():
            if name.lower() in taken:
                raise OptionError(
                    f"{selection.table} has a column {name}, as pgtail's own is named: option prefix, such as pgtail,"
                    f" names those pgtail{name} and so on"
                )
        names = [*whole.names[: len(columns)], *own.values()]
        return cls(
            versions, columns, pa.schema([f.with_name(n) for f, n in zip(whole, names, strict=True)]), selection.shape
        )

    def rows(self, batch: pa.RecordBatch, relations: Relations) -> Iterator[pa.RecordBatch]:
        """The rows of a batch of `changes` of this table; `relations` are described by now. Raises InputError."""
        rows = pa.Table.from_batches([batch]).filter(pc.is_valid(batch["relation"]))
        start = 0
        for count in pc.run_end_encode(rows["relation"].combine_chunks()).run_ends.to_pylist() if len(rows) else ():
            some, start = rows.slice(start, count - start), count
            version = self._version(some["relation"][0].as_py(), relations)
            made = feed_rows(some, version, self.columns) if self.shape == CDF else typed_rows(some, self.columns)
            if "context" in some.column_names:
                made = made.append_column(_CONTEXT, some["context"])
            yield from pa.Table.from_arrays(made.columns, schema=self.schema).to_batches()

    def _version(self, relation: str, relations: Relations) -> Version:
        """A version that is known, or of which the columns have place. Raises InputError."""
        if relation not in self.versions:
            later = Version.of(described(next(one for (_, key), one in relations.items() if key == relation)))
            for column in columns_of([*self.versions.values(), later], ()):
                if column not in self.columns:
                    name = escape(f"{column.name} of {later.schema}.{later.table}")
                    raise InputError(
                        f"column {name} is new, or has another type than when the stream began: start the query again,"
                        " whose schema then has it"
                    )
            self.versions[relation] = later
        return self.versions[relation]
