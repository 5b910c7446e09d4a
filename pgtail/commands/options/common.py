"""The options that commands share, and those of decode and inspect. `pgtail.cli` makes the command line from them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from pgtail.inputs import INPUTS
from pgtail.options import family, items, option, size_or_no_limit
from pgtail.outputs import OutputOptions, color_option, colors_option
from pgtail.replication.request import encoding_name
from pgtail.storage.options import StorageOptions, parse_options

if TYPE_CHECKING:
    from pgtail.pgoutput.scalars import Point

range_option = partial(option, group="range")
_filter = partial(option, group="filter")
_masking = partial(option, group="masking")
output_option = partial(option, group="output")
input_option = partial(option, group="input")
UNCONFIGURED: Final = {"setting": None}
"""For family(): an option that no configuration sets."""


def point(text: str) -> Point:
    """A log position or a time of commit. Raises ValueError."""
    from pgtail.changes.commit_range import point_of  # imports orjson

    return point_of(text)


point_option = partial(range_option, convert=point, metavar="TIME|LSN", completion="points")


def storage_options(texts: tuple[str, ...]) -> StorageOptions:
    """Options given as KEY=VALUE. Raises OptionError, which does not repeat a value: it may be a secret."""
    return parse_options(texts)


def storage_option() -> Any:
    """A field `storage`."""
    return option(
        "--storage",
        default=(),
        convert=storage_options,
        metavar="KEY=VALUE",
        help="An option of the storage of s3://, gs://, az:// and abfs:// URIs, such as aws_region; by default the"
        " environment's. Repeatable.",
    )


def utc_option() -> Any:
    """A field `utc`, which pgtail.cli also acts on: it selects the zone before times are read."""
    return option(
        "--utc",
        default=False,
        help="Show and read times in UTC, not in local time (TZ, or timezone in the config file).",
    )


def limit_option(what: str = "transactions") -> Any:
    """A field `limit`."""
    return range_option("-n", "--limit", kind="positive number", metavar="N", help=f"Show at most N {what}.")


def resync_option() -> Any:
    """A field `resync`."""
    return input_option(
        "--resync", default=False, help="Skip damage, up to the next message that decodes; the exit status is still 1."
    )


def dry_run_option() -> Any:
    """A field `dry_run`."""
    return option("--dry-run", default=False, help="Check everything, and say what would be done; change nothing.")


NOT_DONE: Final = "nothing was done (--dry-run)"
"""The last message of a dry run."""


def pager_option() -> Any:
    """A field `pager`."""
    return output_option(
        "--pager/--no-pager", default=True, help="On a terminal, show long output with $PAGER, or less; the default."
    )


class Verbosity(Struct, frozen=True):
    """The messages on standard error. `settings` names the configuration in force, for -v."""

    verbose: int = option("-v", "--verbose", counted=True, help="Print details on standard error; -vv: a trace.")
    quiet: bool = option(
        "-q",
        "--quiet",
        default=False,
        help="Print no notes and no progress on standard error, only errors and warnings.",
    )
    settings: str | None = None


class ReportOptions(Struct, frozen=True):
    """A report for people, or JSON for programs."""

    output: str = output_option(
        "-o", "--output", default="table", kind=("table", "json"), help="A table for people, or JSON for programs."
    )
    file: str | None = output_option(
        "-f", "--file", kind="file", metavar="FILE", help="Write to FILE (*.gz: compressed) instead of standard output."
    )
    color: str = color_option()
    colors: str | None = colors_option()


class FilterOptions(Struct, frozen=True):
    """Selects the changes to show and the columns to mask.

    `always_redacted` is the part of `redact` that a configuration adds to every command.
    """

    tables: tuple[str, ...] = _filter(
        "-t",
        "--table",
        default=(),
        convert=items,
        metavar="GLOB,...",
        completion="tables",
        setting="list",
        help="Only tables that match: schema.table, or, without a dot, the name. Repeatable.",
    )
    exclude: tuple[str, ...] = _filter(
        "--exclude",
        default=(),
        convert=items,
        metavar="GLOB,...",
        completion="tables",
        setting="list",
        help="Not these tables, even if --table matches. Repeatable.",
    )
    ops: tuple[str, ...] = _filter(
        "--op",
        default=(),
        convert=items,
        metavar="OP,...",
        completion="ops",
        setting="list",
        help="Only insert, update, delete, truncate, snapshot, message, ddl, commit_prepared,"
        " rollback_prepared. Repeatable.",
    )
    xids: tuple[int, ...] = _filter("--xid", default=(), kind="number", help="Only this transaction. Repeatable.")
    where: tuple[str, ...] = _filter(
        "--where",
        default=(),
        metavar="CONDITION",
        completion="condition",
        setting="one by one",
        help='Only changes for which it is true: "total > 100", "changed(status)"; see pgtail-filter(7). Repeatable:'
        " all must be true.",
    )
    since: Point | None = point_option(
        "--since",
        help="Only what was committed at this time or later: 10m (ago), yesterday, 10:30, 2026-11-22T10:00 (local time"
        " without a zone); or at this log position or later.",
    )
    utc: bool = utc_option()
    context: str | None = output_option(
        "--context",
        metavar="PREFIX",
        help="Who did it: show with each change the logical message of this prefix that its transaction sent before;"
        " see WHO WROTE IT in pgtail-server(7).",
    )
    redact: tuple[str, ...] = _masking(
        "--redact",
        default=(),
        metavar="COLUMN,...",
        completion="columns",
        setting="list",
        help="Mask the values of these columns: COLUMN, TABLE.COLUMN or SCHEMA.TABLE.COLUMN, also globs. Repeatable;"
        " adds to the columns in the config file.",
    )
    redact_hash: bool = _masking(
        "--redact-hash",
        default=False,
        setting="flag",
        help="Mask with a keyed hash: equal values stay equal. Needs --redact-key-file.",
    )
    redact_key_file: str | None = _masking(
        "--redact-key-file",
        kind="file",
        metavar="FILE",
        setting="text",
        help="The key of --redact-hash: at least 16 bytes, for example from `head -c 32 /dev/urandom`.",
    )
    always_redacted: tuple[str, ...] = ()


class DumpOptions(Struct, frozen=True):
    """How dumps are read, and where from. `types` declares enums, as NAME=enum."""

    input_format: str | None = input_option(
        "--input-format", kind=tuple(INPUTS), help="The form of the files, if pgtail does not detect it."
    )
    encoding: str = input_option(
        "--encoding", default="utf-8", convert=encoding_name, help="The encoding of names and text in the dump."
    )
    types: tuple[str, ...] = input_option(
        "--type",
        default=(),
        metavar="NAME=enum",
        help="Declare an enum type, which a binary dump does not reveal. Repeatable.",
    )
    storage: StorageOptions = storage_option()
    verify: bool = input_option(
        "--verify",
        default=False,
        help="Compare the checksums of gzipped files and captures before anything is shown; takes a second pass.",
    )


class DecodeOptions(Struct, frozen=True):
    """Options of `pgtail decode`."""

    format: OutputOptions = family(OutputOptions)
    filter: FilterOptions = family(FilterOptions)
    until: Point | None = point_option(
        "--until",
        help="Only what was committed up to this time or log position, written as for --since.",
    )
    limit: int | None = limit_option()
    last: int | None = range_option(
        "--last", kind="positive number", metavar="N", help="Show only the last N transactions that the filters select."
    )
    follow: bool = range_option(
        "--follow",
        default=False,
        help="Read on as the capture grows, until Ctrl-C; FILE is the directory that record writes.",
    )
    dump: DumpOptions = family(DumpOptions)
    strict: bool = input_option(
        "--strict", default=False, help="Fail if the input starts or ends inside a transaction."
    )
    resync: bool = resync_option()
    client: bool | None = input_option(
        "--client/--no-client",
        help="Show what the client of a packet capture sent: START_REPLICATION and status updates. Default: in tables"
        " and lines without a filter.",
    )
    pager: bool = pager_option()
    jobs: int | None = option(
        "--jobs",
        kind="positive number",
        metavar="N",
        shown_default="the number of cores for 8 MB or more",
        help="Decode a capture in N processes, with the same output. -v says why one process decodes all of it.",
    )
    verbosity: Verbosity = family(Verbosity)


class InspectOptions(Struct, frozen=True):
    """Options of `pgtail inspect`. `max_bytes` of a field, None for no limit."""

    numbers: tuple[str, ...] = _filter(
        "--message", default=(), metavar="N|N-M", help="Only message N, or N to M, from 1. Repeatable."
    )
    offsets: tuple[str, ...] = _filter(
        "--offset", default=(), metavar="BYTE", help="Only the message that contains this byte. Repeatable."
    )
    kinds: tuple[str, ...] = _filter(
        "--kind",
        default=(),
        metavar="KIND",
        completion="kinds",
        help="Only messages of this kind: insert, relation, ..., keepalive, or a first byte such as I. Repeatable.",
    )
    lsns: tuple[str, ...] = _filter(
        "--lsn",
        default=(),
        metavar="LSN|LSN-LSN",
        help="Only messages at this log position or between two, or with such a position in a field. Repeatable.",
    )
    filter: FilterOptions = family(
        FilterOptions,
        **dict.fromkeys(("tables", "exclude", "ops", "where"), UNCONFIGURED),
        **dict.fromkeys(("since", "context")),
    )
    limit: int | None = limit_option("messages")
    report: ReportOptions = family(
        ReportOptions, output={"default": "table", "help": "Lines for people, or a JSON object per message."}
    )
    max_bytes: int | None = output_option(
        "--max-bytes",
        default="48",
        convert=size_or_no_limit,
        metavar="N",
        help="table: bytes of a field to show, the rest is counted; 0 for no limit.",
    )
    pager: bool = pager_option()
    dump: DumpOptions = family(DumpOptions)
    resync: bool = resync_option()
