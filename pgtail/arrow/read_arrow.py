"""Changes of files, captures and objects as a stream of Arrow record batches."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from glob import escape as literally
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from pgtail.arrow.decoding.batches import described
from pgtail.arrow.decoding.decode import SegmentChanges
from pgtail.arrow.output import ArrowOutput
from pgtail.arrow.schemas import CHANGES
from pgtail.arrow.typed.arrow_types import arrow_type, widest
from pgtail.arrow.typed.casts import TableColumn
from pgtail.arrow.typed.columns import META, columns_of, schema_of
from pgtail.arrow.typed.rows import typed_rows
from pgtail.arrow.typed.versions import Version
from pgtail.capture.contents import read_contents
from pgtail.capture.reader import segments
from pgtail.changes.filters import Filter, any_matches
from pgtail.changes.relations import Relation
from pgtail.errors import InputError, OptionError, PgtailError
from pgtail.humanize import did_you_mean
from pgtail.inputs.source.opened import Content, Opened
from pgtail.reading.reader import Reader
from pgtail.storage import Location
from pgtail.terminal.escape import escape

Source: TypeAlias = str | Content | Opened
_OWN: Final = ("_op", "_xid", "_commit_lsn", "_commit_ts", "_seq", "_position", "_unchanged", "_undecoded", "_rescued")
"""pgtail's own columns of a table's changes, as in tables/*."""


def changes_reader(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatchReader:
    """All changes, with maps of texts."""
    return pa.RecordBatchReader.from_batches(CHANGES, batches)


def table_reader(
    batches: Iterator[pa.RecordBatch],
    output: ArrowOutput,
    filter_: Filter,
    table: str,
    versions: Sequence[Version] = (),
    *,
    old: bool,
) -> pa.RecordBatchReader:
    """The changes of one table, typed, as `filter_` lets no other of the output pass; with `old` also old rows.

    The columns are those of `versions`; without any, those of the first version that comes, or is described if no row
    passes the filters. Raises OptionError if none is; the errors of the batches, and InputError for a version that does
    not fit, come from reading.
    """
    first = next(batches, None)
    relation = output.first if first is None else output.relations[first["relation"][0].as_py()]
    if relation is None and not versions:
        known = [name if "." in table else name.partition(".")[2] for name in filter_.left_out]
        meant = did_you_mean(table, known)
        raise OptionError(escape(f"no change of a table {table}{meant}"))
    if relation is not None and not versions:
        versions = [_version(relation)]
    columns = columns_of(versions)
    own = [field for field in META if field.name in _OWN]
    schema = schema_of(columns, own, old=old)

    def typed() -> Iterator[pa.RecordBatch]:
        fitting = {version.relation for version in versions}
        for batch in itertools.chain([] if first is None else [first], batches):
            for print_ in set(pc.unique(batch["relation"]).to_pylist()) - fitting:
                _check_fits(_version(output.relations[print_]), versions[0], columns)
                fitting.add(print_)
            rows = typed_rows(pa.Table.from_batches([batch]), columns, old=old)
            yield from rows.select(schema.names).cast(schema).to_batches()

    return pa.RecordBatchReader.from_batches(schema, typed())


def batches_of(reader: Reader, output: ArrowOutput, names: Iterable[Source]) -> Iterator[pa.RecordBatch]:
    """The output's batches; an error of reading comes after all of them."""

    raised = None
    try:
        for _ in reader.complete(reader.read(names)):
            yield from output.take_batches()
    except PgtailError as error:
        raised = error
    finally:
        reader.close()
    yield from output.take_batches()
    if raised is not None:
        raise raised


def _version(relation: Relation) -> Version:
    if not relation.seen:
        name = escape(relation.qualified)
        raise InputError(f"a change of {name}, which was not described before: its columns are unknown")
    return Version.of(described(relation))


def _check_fits(version: Version, first: Version, columns: Sequence[TableColumn]) -> None:
    """Raise OptionError for another table, and InputError for a column that a reader with these columns cannot have."""
    name = f"{version.schema}.{version.table}"
    if (version.schema, version.table) != (first.schema, first.table):
        raise OptionError(escape(f"which table? There are {first.schema}.{first.table} and {name}"))
    kinds = {column.name: column.kind for column in columns}
    for column in version.columns:
        kind = kinds.get(column.name)
        if kind is None or widest((kind, arrow_type(column.declared))) != kind:
            shown = escape(f"{column.name} of {name} is {column.declared.name}")
            raise InputError(
                f"column {shown} from here on, which the reader's columns cannot have: read what comes before it, and"
                " what comes from it on, with one reader each"
            )


def versions_in(capture: Location, table: str) -> list[Version]:
    """All versions of a table in a capture: reads the segments that describe it. Raises InputError."""
    pattern, versions = [literally(table)], dict[str, Version]()
    for number, file in enumerate(segments(capture)):
        if file.open or (file.snapshot is not None and not file.begins_snapshot):
            continue
        contents = None if file.snapshot is not None else read_contents(file.location)
        if number and contents is not None and contents.tables is not None:
            own = [one for one in contents.tables if any_matches(one.schema, one.table, pattern)]
            if not any(one.descriptions for one in own):
                continue
        with file.location.open() as opened:
            changes = SegmentChanges(opened, str(file.location), tables=pattern)
            for _ in changes:
                pass
        versions |= {
            key: Version.of(described(one))
            for (_, key), one in changes.described.items()
            if any_matches(one.schema, one.name, pattern)
        }
    return list(versions.values())
