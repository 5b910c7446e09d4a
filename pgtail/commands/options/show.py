"""The options of `pgtail show`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from pgtail.commands.options.common import (
    UNCONFIGURED,
    FilterOptions,
    Verbosity,
    pager_option,
    point_option,
    range_option,
    storage_option,
)
from pgtail.options import family
from pgtail.outputs import OutputOptions

if TYPE_CHECKING:
    from pgtail.pgoutput.scalars import Point
    from pgtail.storage.options import StorageOptions

_OF_CHANGES = (
    *("format_string", "changed", "wal2json", "source_name", "kafka_schema", "keys", "undo", "old_values"),
    *("old_values_limit", "fill_unchanged", "transactions", "schema_changes", "show_aborted", "show_uncommitted"),
    *("all_columns", "max_rows"),
)
"""The options of outputs that are about changes, not about rows."""


class ShowOptions(Struct, frozen=True):
    """Options of `pgtail show`."""

    at: Point | None = point_option(
        "--at",
        help="After the last commit up to this time, or up to the commit at this log position: 10m (ago), yesterday,"
        " 10:30, 2026-11-22T10:00 (local time without a zone), 0/1949A30. Default: at the end of the capture.",
    )
    before: Point | None = point_option(
        "--before",
        help="Before the first commit at this time or later, or before the commit at this log position.",
    )
    history: bool = range_option(
        "--history",
        default=False,
        help="Every version of the rows up to then: from when to when, and the transactions that began and ended it.",
    )
    ddl: bool = range_option(
        "--ddl",
        default=False,
        help="The messages of pgtail ddl say what ALTER TABLE did with the rows. Every role may forge one.",
    )
    filter: FilterOptions = family(
        FilterOptions,
        **dict.fromkeys(("tables", "exclude", "ops", "xids", "since", "context")),
        where=UNCONFIGURED
        | {
            "help": 'Only rows for which it is true: "total > 100"; see pgtail-filter(7). Repeatable: all must be true.'
        },
    )
    format: OutputOptions = family(
        OutputOptions,
        **dict.fromkeys(_OF_CHANGES),
        output={"kind": ("table", "line", "json", "csv", "sql")},
        file={"help": "Write to FILE (*.gz: compressed) instead of standard output."},
        columns={"help": "Only the key and [[SCHEMA.]TABLE.]COLUMN, also globs. Not with -o sql."},
    )
    pager: bool = pager_option()
    storage: StorageOptions = storage_option()
    verbosity: Verbosity = family(Verbosity)
