"""pgtail.read_arrow() and pgtail.table_at(): changes, and the rows of a table as they were, for Arrow's users."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pgtail.arrow import check_installed
from pgtail.changes.commit_range import ANYWHERE, CommitRange, point_of
from pgtail.changes.filters import Filter
from pgtail.errors import OptionError
from pgtail.outputs import OutputOptions
from pgtail.pgoutput.scalars import UNIX_EPOCH_OFFSET, Point
from pgtail.storage.options import StorageOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from pgtail.inputs.source.opened import BinaryFile


def read_arrow(
    source: str | os.PathLike[str] | bytes | BinaryFile,
    *,
    table: str | None = None,
    since: str | datetime | None = None,
    until: str | datetime | None = None,
    where: str | Iterable[str] = (),
    old: bool = False,
    limit: int | None = None,
    input_format: str | None = None,
    encoding: str = "utf-8",
    resync: bool = False,
    storage: Mapping[str, str] | None = None,
) -> pa.RecordBatchReader:
    """The changes of a file, capture, object, bytes or binary file, as a stream of Arrow record batches.

    With `table` (SCHEMA.TABLE, or TABLE) the columns are the table's own, typed, and `_op`, `_xid`, `_commit_lsn`,
    `_commit_ts`, `_seq`, `_position`, `_unchanged`, `_undecoded`, `_rescued`; with `old` also `_old`, `_old_rescued`.
    Without it they are those of `changes`, with maps of texts. Other arguments are as the options of pgtail decode.

    Raises OptionError, also if there is no change of the table; reading raises InputError after all that was whole.
    """
    check_installed("read_arrow()")
    from pgtail.arrow.output import ArrowOutput
    from pgtail.arrow.read_arrow import changes_reader, filter_of, table_reader, versions_in
    from pgtail.reading.reader import Reader
    from pgtail.storage import locate

    options = StorageOptions.of(storage)
    commits = CommitRange(_point(since, "since"), _point(until, "until"))
    output = ArrowOutput(utf8=encoding == "utf-8", committed=table is not None)
    reader = Reader(
        output,
        filter_of(table, where=_texts(where), commits=commits),
        format=OutputOptions(),
        encoding=encoding,
        input_format=input_format,
        storage=options,
        resync=resync,
        limit=limit,
    )
    name: Any = os.fspath(source) if isinstance(source, str | os.PathLike) else source
    if table is None:
        return changes_reader(reader, output, [name])
    place = locate(name, options) if isinstance(name, str) else None
    versions = versions_in(place, table) if place is not None and place.is_folder() else []
    return table_reader(reader, output, [name], table, versions, old=old)


def table_at(
    capture: str | os.PathLike[str],
    table: str,
    *,
    at: str | datetime | None = None,
    before: str | datetime | None = None,
    where: str | Iterable[str] = (),
    history: bool = False,
    storage: Mapping[str, str] | None = None,
) -> pa.Table:
    """The rows of SCHEMA.TABLE, or TABLE, as they were: after the last commit up to `at`, or before the first one from
    `before` on; each is a time or an LSN, the end of the capture without both. With `history` every version of the rows
    up to then.

    The columns are those of the table and of a state (pgtail-spark-state(1)) or a history: `_unknown` names the columns
    of a row that are not known, and are NULL. A warning is logged if rows may be missing. Raises InputError and
    OptionError.
    """
    check_installed("table_at()")
    from pgtail.arrow.row_events import matching
    from pgtail.arrow.table_at import moment, read_table
    from pgtail.storage import locate

    points = [None if one is None else _point(one, name) for one, name in ((at, "at"), (before, "before"))]
    place = locate(os.fspath(capture), StorageOptions.of(storage))
    filter_ = Filter(where=_texts(where))
    found = read_table(place, table, moment(*points), history=history)
    return matching(found, filter_) if filter_.active else found.rows


def _texts(some: str | Iterable[str]) -> list[str]:
    return [some] if isinstance(some, str) else list(some)


def _point(value: str | datetime | None, name: str) -> Point:
    """Raises OptionError."""
    if value is None:
        return ANYWHERE
    if isinstance(value, datetime):
        return Point(time=round(value.timestamp() * 1_000_000) - UNIX_EPOCH_OFFSET, local=value.tzinfo is None)
    try:
        return point_of(value)
    except ValueError as error:
        raise OptionError(f"{name}: {error}") from None
