"""The options of each command: `pgtail.cli` makes the command line from these classes, `pgtail.commands` reads them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from pgtail.humanize import parse_seconds
from pgtail.options import family, items, option, positive_duration, size_or_no_limit
from pgtail.outputs import OutputOptions, color_option, colors_option
from pgtail.pgoutput.scalars import parse_lsn
from pgtail.replication.request import Request, encoding_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgtail.pgoutput.decoder import Assume
    from pgtail.pgoutput.scalars import Point
    from pgtail.storage.options import StorageOptions

_connection = partial(option, group="connection")
_slot = partial(option, group="slot")
_range = partial(option, group="range")
_filter = partial(option, group="filter")
_masking = partial(option, group="masking")
_output = partial(option, group="output")
_capture = partial(option, group="capture")
_input = partial(option, group="input")
_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_UNCONFIGURED: Final = {"setting": None}


def point(text: str) -> Point:
    """A log position or a time of commit. Raises ValueError."""
    from pgtail.changes.commit_range import point_of  # imports orjson

    return point_of(text)


def end(text: str) -> Point | Literal["now"]:
    """The same, or the word now for the server's current position. Raises ValueError."""
    return "now" if text == "now" else point(text)


def size(text: str) -> int:
    """A number of bytes, with or without a unit: 500MB, 1GB. Raises ValueError."""
    match = re.fullmatch(r"(\d+)\s*([kmgt]?)i?b?", text, re.IGNORECASE)
    if match is None:
        raise ValueError(f"{text!r} is not a size such as 500MB or 1GB")
    return int(match[1]) * _UNITS[match[2].lower()]


def interval(text: str) -> float:
    """Seconds between two reports. Raises ValueError."""
    seconds = parse_seconds(text)
    if not 0.1 <= seconds <= 86_400:
        raise ValueError(f"{text} is not from 100ms to 24h")
    return seconds


def storage_options(texts: tuple[str, ...]) -> StorageOptions:
    """Options given as KEY=VALUE. Raises OptionError, which does not repeat a value: it may be a secret."""
    from pgtail.storage.options import parse_options

    return parse_options(texts)


def _storage_option(group: str = "other") -> Any:
    return option(
        "--storage",
        default=(),
        convert=storage_options,
        group=group,
        metavar="KEY=VALUE",
        help="An option of the storage of s3://, gs://, az:// and abfs:// URIs, such as aws_region; by default the"
        " environment's. Repeatable.",
    )


def _limit_option(what: str = "transactions") -> Any:
    return _range("-n", "--limit", kind="positive number", metavar="N", help=f"Stop after N {what} were shown.")


def _resync_option() -> Any:
    return _input(
        "--resync", default=False, help="Skip damage, up to the next message that decodes; the exit status is still 1."
    )


def _pager_option() -> Any:
    return _output(
        "--pager/--no-pager", default=True, help="On a terminal, show long output with $PAGER, or less; the default."
    )


def _reconnect_option() -> Any:
    return _connection(
        "--reconnect/--no-reconnect",
        help="Connect again when the connection is lost. The default, except for a temporary slot, which would miss the"
        " changes in between.",
    )


def _interval_option(group: str) -> Any:
    return option(
        "--interval",
        default="2s",
        convert=interval,
        group=group,
        metavar="TIME",
        help="Time between two reports of --watch.",
    )


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """Where to connect, as in psql; None leaves it to libpq. `dsn` is an argument."""

    dsn: str | None = None
    host: str | None = _connection(
        "-h", "--host", metavar="HOST", help="The server's host, or the directory of its socket."
    )
    port: str | None = _connection("-p", "--port", metavar="PORT", help="The server's port.")
    username: str | None = _connection("-U", "--username", metavar="NAME", help="The user to connect as.")
    dbname: str | None = _connection(
        "-d", "--dbname", metavar="DBNAME", completion="dsn", help="The database, or a connection string."
    )
    password: bool = _connection("-W", "--password", default=False, help="Ask for the password before connecting.")
    no_password: bool = _connection("-w", "--no-password", default=False, help="Never ask for a password.")


@dataclass(frozen=True, slots=True)
class Verbosity:
    """What is said on standard error. `settings` names the configuration in force, for -v."""

    verbose: int = option("-v", "--verbose", counted=True, help="Print details on standard error; -vv: a trace.")
    quiet: bool = option(
        "-q",
        "--quiet",
        default=False,
        help="Print no notes and no progress on standard error, only errors and warnings.",
    )
    settings: str | None = None


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """A report for people, or JSON for programs. `output` None: a table on a terminal, JSON elsewhere."""

    output: str | None = _output(
        "-o", "--output", kind=("table", "json"), help="Format; the default is table on a terminal, and json elsewhere."
    )
    file: str | None = _output(
        "-f", "--file", kind="file", metavar="FILE", help="Write to FILE (*.gz: compressed) instead of standard output."
    )
    color: str = color_option()
    colors: str | None = colors_option()


@dataclass(frozen=True, slots=True)
class FilterOptions:
    """Which changes are shown, and which columns are masked.

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
        help="Only these tables: a glob on schema.table, or, without a dot, on the table name. Repeatable.",
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
        help="Only these operations: insert, update, delete, truncate, message, commit_prepared, rollback_prepared."
        " Repeatable.",
    )
    xids: tuple[int, ...] = _filter("--xid", default=(), kind="number", help="Only this transaction. Repeatable.")
    where: tuple[str, ...] = _filter(
        "--where",
        default=(),
        metavar="CONDITION",
        setting="one by one",
        help="Only changes for which it is true: \"total > 100 and (status in ('new', 'paid') or not note like 'a%')\","
        " \"changed(status) and old.status = 'new'\"; see pgtail-filter(7). Repeatable: all must be true.",
    )
    since: Point | None = _range(
        "--since",
        convert=point,
        metavar="TIME|LSN",
        completion="points",
        help="Only what was committed at this time or later: 10m (ago), yesterday, 10:30, 2026-11-22T10:00 (UTC without"
        " a zone); or at this log position or later.",
    )
    redact: tuple[str, ...] = _masking(
        "--redact",
        default=(),
        metavar="COLUMN,...",
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


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """How dumps are read, and where from. `types` declares enums, as NAME=enum."""

    input_format: str | None = _input(
        "--input-format",
        kind=(
            *("recvlogical", "raw", "copydata", "lengths", "pgcap"),
            *("psql", "csv", "hex", "hexdump", "copytext", "pgcopy", "pcap"),
        ),
        help="The form of the files, if pgtail does not detect it.",
    )
    encoding: str = _input(
        "--encoding", default="utf-8", convert=encoding_name, help="The encoding of names and text in the dump."
    )
    assume: Assume = _input(
        "--assume",
        kind=("streaming=on", "streaming=parallel"),
        convert=lambda text: text.partition("=")[2],
        help="The streaming option of the dump: with parallel, a Stream Abort has an LSN and a time.",
    )
    types: tuple[str, ...] = _input(
        "--type",
        default=(),
        metavar="NAME=enum",
        help="Declare an enum type, which a binary dump does not reveal. Repeatable.",
    )
    storage: StorageOptions = _storage_option("input")
    verify: bool = _input(
        "--verify",
        default=False,
        help="Compare the checksums of gzipped files and captures before anything is shown; takes a second pass.",
    )


@dataclass(frozen=True, slots=True)
class EndOptions:
    """When a stream ends, and what may happen before. Times are in seconds, sizes in bytes."""

    until_lsn: int | None = _range(
        "-E", "--until-lsn", "--endpos", convert=parse_lsn, metavar="LSN", help="Stop at this log position."
    )
    until: Point | Literal["now"] | None = _range(
        "--until",
        convert=end,
        metavar="TIME|LSN|now",
        completion="points",
        help="Stop after what was committed up to this time (10:30, 2026-11-22T10:00; UTC without a zone) or log"
        " position; now is the server's position when pgtail starts.",
    )
    seconds: float | None = _range(
        "--for", convert=parse_seconds, metavar="TIME", help="Stop after this time: 30, 30s, 500ms, 2m, 1h."
    )
    idle: float | None = _range(
        "--idle-exit", convert=parse_seconds, metavar="TIME", help="Stop when nothing was received for this time."
    )
    reconnect: bool | None = _reconnect_option()
    spill_limit: int = option(
        "--spill-limit",
        default="1GB",
        convert=size,
        metavar="SIZE",
        help="How much to buffer on disk if the output is slower than the server.",
    )


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """Options of `pgtail decode`."""

    format: OutputOptions = family(OutputOptions)
    filter: FilterOptions = family(FilterOptions)
    until: Point | None = _range(
        "--until",
        convert=point,
        metavar="TIME|LSN",
        completion="points",
        help="Only what was committed up to this time or log position, written as for --since.",
    )
    limit: int | None = _limit_option()
    dump: DumpOptions = family(DumpOptions)
    strict: bool = _input(
        "--strict", default=False, help="Stop, with exit status 1, if the input starts or ends inside a transaction."
    )
    resync: bool = _resync_option()
    client: bool | None = _input(
        "--client/--no-client",
        help="Show what the client of a packet capture sent: START_REPLICATION and status updates. Default: in tables"
        " and lines without a filter.",
    )
    pager: bool = _pager_option()
    verbosity: Verbosity = family(Verbosity)


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Options of `pgtail stream`."""

    connection: ConnectionOptions = family(ConnectionOptions)
    filter: FilterOptions = family(FilterOptions)
    request: Request = family(Request)
    end: EndOptions = family(EndOptions)
    limit: int | None = _limit_option()
    format: OutputOptions = family(OutputOptions)
    verbosity: Verbosity = family(Verbosity)


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """Options of `pgtail record`. `segment_size` is in bytes, `segment_age` and `sync_interval` in seconds.

    `directory` may be a URI: then segments are written to `spool`, and uploaded.
    """

    connection: ConnectionOptions = family(ConnectionOptions)
    directory: str = _capture(
        "-D",
        "--directory",
        kind="folder",
        metavar="DIR",
        required=True,
        help="The capture's directory, or a URI such as s3://bucket/path.",
    )
    spool: str | None = _capture(
        "--spool",
        kind="folder",
        metavar="DIR",
        help="With a URI: the local directory for segments that are not uploaded yet.",
    )
    request: Request = family(
        Request,
        slot={"help": "The slot to record; created if it does not exist.", "setting": None},
        **dict.fromkeys(("fork", "create_slot", "ack", "yes", "start", "encoding")),
        wanted={
            "proto_version": None,
            "streaming": None,
            "two_phase": {"help": "If the slot is created: decode PREPARE TRANSACTION."},
        },
    )
    dumps: tuple[str, ...] = _input(
        "--from",
        default=(),
        kind="file",
        metavar="FILE...",
        help="Make a capture of dumps, in any form that decode reads, instead of a slot.",
    )
    segment_size: int = _capture(
        "--segment-size",
        default="64MB",
        convert=size,
        metavar="SIZE",
        help="Start another segment after this size, before compression.",
    )
    segment_age: float = _capture(
        "--segment-age",
        default="60s",
        convert=positive_duration,
        metavar="TIME",
        help="Close a segment after this time, so that readers see it: 60, 60s, 5m, 1h.",
    )
    sync_interval: float = _capture(
        "--sync-interval",
        default="1s",
        convert=parse_seconds,
        metavar="TIME",
        help="Sync to disk, and acknowledge, at this interval.",
    )
    compress: bool = _capture("--compress/--no-compress", default=True, help="Compress with gzip; the default.")
    allow_gap: bool = _capture(
        "--allow-gap", default=False, help="Continue a capture even if the slot has skipped changes."
    )
    end: EndOptions = family(EndOptions)
    dump: DumpOptions = family(DumpOptions)
    verbosity: Verbosity = family(Verbosity)


@dataclass(frozen=True, slots=True)
class StatsOptions:
    """Options of `pgtail stats`; `interval` is in seconds."""

    request: Request = family(
        Request,
        slot=_UNCONFIGURED,
        **dict.fromkeys(("create_slot", "ack", "yes", "start", "wanted", "encoding")),
    )
    connection: ConnectionOptions = family(ConnectionOptions)
    reconnect: bool | None = _reconnect_option()
    filter: FilterOptions = family(FilterOptions)
    watch: bool = _range(
        "--watch", default=False, help="Show what is written now, in a slot or a temporary one, until Ctrl-C."
    )
    interval: float = _interval_option("range")
    until: Point | Literal["now"] | None = _range(
        "--until",
        convert=end,
        metavar="TIME|LSN|now",
        completion="points",
        help="Only what was committed up to this time (10:30, 2026-11-22T10:00; UTC without a zone) or log position; a"
        " slot is read up to now by default.",
    )
    seconds: float | None = _range(
        "--for", convert=parse_seconds, metavar="TIME", help="Read a slot for this time: 30, 30s, 2m, 1h."
    )
    limit: int | None = _limit_option()
    dump: DumpOptions = family(DumpOptions)
    resync: bool = _resync_option()
    report: ReportOptions = family(
        ReportOptions,
        file={"help": "Write to FILE (*.gz: compressed) instead of standard output; --watch appends to it."},
    )
    pager: bool = _pager_option()
    verbosity: Verbosity = family(Verbosity)


@dataclass(frozen=True, slots=True)
class InspectOptions:
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
        FilterOptions, **dict.fromkeys(("tables", "exclude", "ops", "where"), _UNCONFIGURED), since=None
    )
    limit: int | None = _limit_option("messages")
    report: ReportOptions = family(
        ReportOptions, output={"default": "table", "help": "Lines for people, or a JSON object per message."}
    )
    max_bytes: int | None = _output(
        "--max-bytes",
        default="48",
        convert=size_or_no_limit,
        metavar="N",
        help="table: bytes of a field to show, the rest is counted; 0 for no limit.",
    )
    pager: bool = _pager_option()
    dump: DumpOptions = family(DumpOptions)
    resync: bool = _resync_option()


@dataclass(frozen=True, slots=True)
class ExpectOptions:
    """Options of `pgtail expect`: `count` changes, in `within` seconds."""

    connection: ConnectionOptions = family(ConnectionOptions)
    request: Request = family(
        Request,
        slot=_UNCONFIGURED,
        **dict.fromkeys(("fork", "create_slot", "ack", "yes", "start", "wanted", "encoding")),
    )
    reconnect: bool | None = _reconnect_option()
    filter: FilterOptions = family(FilterOptions, since=None)
    within: float = _range(
        "--within", default="30s", convert=parse_seconds, metavar="TIME", help="How long to wait once ready."
    )
    count: int = _range("--count", default=1, kind="positive number", metavar="N", help="Wait for at least N changes.")
    format: OutputOptions = family(OutputOptions)
    verbosity: Verbosity = family(Verbosity)


@dataclass(frozen=True, slots=True)
class DoctorOptions:
    """Options of `pgtail doctor`."""

    connection: ConnectionOptions = family(ConnectionOptions)
    report: ReportOptions = family(
        ReportOptions, output={"help": "Format; json in a pipe: a line per finding."}, file=None
    )


@dataclass(frozen=True, slots=True)
class ListOptions:
    """Options of `pgtail slot list`; `interval` is in seconds."""

    connection: ConnectionOptions = family(ConnectionOptions)
    report: ReportOptions = family(
        ReportOptions, output={"help": "Format; json in a pipe: a line per slot."}, file=None
    )
    watch: bool = _output("--watch", default=False, help="Repeat until Ctrl-C.")
    interval: float = _interval_option("output")


@dataclass(frozen=True, slots=True)
class CreateOptions:
    """Options of `pgtail slot create`."""

    connection: ConnectionOptions = family(ConnectionOptions)
    temporary: bool = _slot("--temporary", default=False, help="The slot exists until this command ends with Ctrl-C.")
    two_phase: bool = _slot("--two-phase", default=False, help="Decode PREPARE TRANSACTION (PostgreSQL 15 and later).")
    failover: bool = _slot(
        "--failover", default=False, help="Let standbys synchronize the slot (PostgreSQL 17 and later)."
    )


@dataclass(frozen=True, slots=True)
class ChangeOptions:
    """Options of the commands that ask before they change a slot."""

    connection: ConnectionOptions = family(ConnectionOptions)
    yes: bool = option("--yes", default=False, help="Do not ask.")


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """Options of the `pgtail spark` commands that write; each has those that it needs. Times are in seconds.

    `captures` and `out` are arguments.
    """

    captures: Sequence[str] = ()
    out: str = ""
    tables: tuple[str, ...] = option(
        "-t",
        "--table",
        default=(),
        convert=items,
        metavar="GLOB,...",
        help="Only these tables: a glob on schema.table, or without a dot on the name alone. Repeatable.",
    )
    until: str | None = option(
        "--until",
        metavar="LSN|TIME",
        help="Leave out what was committed later. A time is ISO 8601, in UTC unless it names a zone.",
    )
    allow_gap: bool = option(
        "--allow-gap",
        default=False,
        help="Continue where a segment is missing, and record the gap: its changes are then wrong or absent.",
    )
    retain: float = option(
        "--retain",
        default="1h",
        convert=positive_duration,
        metavar="TIME",
        help="Keep replaced files of state and history for this long: for readers, and for time travel.",
    )
    compact: bool = option("--compact", default=False, help="Afterwards merge small files into large ones.")
    watch: bool = option("--watch", default=False, help="Follow what is recorded, until Ctrl-C.")
    every: float = option(
        "--every",
        default="1m",
        convert=positive_duration,
        metavar="TIME",
        help="With --watch: how often to check for closed segments (30s, 1m, 2h).",
    )
    storage: StorageOptions = _storage_option()
    master: str | None = option(
        "--master",
        shown_default="local[*]; under spark-submit its master",
        metavar="URL",
        help="Where Spark runs: this machine's cores, or a cluster (yarn, spark://host:7077, k8s://...).",
    )
    conf: tuple[str, ...] = option(
        "--conf", default=(), metavar="NAME=VALUE", help="A Spark setting, such as spark.driver.memory=8g. Repeatable."
    )
    verbosity: Verbosity = family(Verbosity)


@dataclass(frozen=True, slots=True)
class VacuumOptions:
    """Options of `pgtail spark vacuum`."""

    delete: bool = option("--delete", default=False, help="Remove the files; without this they are only listed.")
    storage: StorageOptions = _storage_option()
    verbosity: Verbosity = family(Verbosity)
