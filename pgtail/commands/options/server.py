"""The options of the commands that connect to a server."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from msgspec import Struct

from pgtail.commands.options.common import (
    UNCONFIGURED,
    DumpOptions,
    FilterOptions,
    ReportOptions,
    Verbosity,
    dry_run_option,
    input_option,
    limit_option,
    output_option,
    pager_option,
    point,
    range_option,
    resync_option,
    utc_option,
)
from pgtail.humanize import parse_seconds, size_text
from pgtail.options import family, option, positive_duration, size
from pgtail.outputs import OutputOptions
from pgtail.pgoutput.scalars import parse_lsn
from pgtail.replication.request import Request

if TYPE_CHECKING:
    from pgtail.pgoutput.scalars import Point

_connection = partial(option, group="connection")
_slot = partial(option, group="slot")
_capture = partial(option, group="capture")
_snapshot = partial(option, group="snapshot")
_service = partial(option, group="service")


def end(text: str) -> Point | Literal["now"]:
    """A log position or a time of commit, or the word now for the server's current position. Raises ValueError."""
    return "now" if text == "now" else point(text)


_end_option = partial(range_option, convert=end, metavar="TIME|LSN|now", completion="points")


class Address(NamedTuple):
    """Where to listen."""

    host: str
    port: int


def address(text: str) -> Address:
    """A port, or a host and a port; an IPv6 address in brackets. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not (port.isascii() and port.isdecimal() and len(port) <= 5 and int(port) <= 65_535):
        raise ValueError(f"{text!r} is not a port, or HOST:PORT")
    return Address(host or "127.0.0.1", int(port))


class MaxLag(NamedTuple):
    """How much may be missing: bytes, or seconds."""

    bytes: int | None = None
    seconds: float | None = None

    def __str__(self) -> str:
        return f"{self.seconds:g} s" if self.bytes is None else size_text(self.bytes)


def max_lag(text: str) -> MaxLag:
    """A size or a time; 5m is a time, as in other options. Raises ValueError."""
    if text.strip().isdecimal():
        raise ValueError(f"{text} needs a unit: 500MB, or 5m")
    try:
        return MaxLag(seconds=parse_seconds(text))
    except ValueError:
        pass
    try:
        return MaxLag(bytes=size(text))
    except ValueError:
        raise ValueError(f"{text!r} is neither a size such as 500MB nor a time such as 5m") from None


def _reconnect_option() -> Any:
    return _connection(
        "--reconnect/--no-reconnect",
        help="Connect again when the connection is lost. The default, except for a temporary slot, which would miss the"
        " changes in between.",
    )


class ConnectionOptions(Struct, frozen=True):
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


class EndOptions(Struct, frozen=True):
    """The end of a stream, and the limits before it. Times are in seconds, sizes in bytes."""

    until_lsn: int | None = range_option(
        "-E", "--until-lsn", "--endpos", convert=parse_lsn, metavar="LSN", help="Stop at this log position."
    )
    until: Point | Literal["now"] | None = _end_option(
        "--until",
        help="Stop after this commit time (10:30, 2026-11-22T10:00; local time without a zone) or log position; now: at"
        " the server's.",
    )
    seconds: float | None = range_option(
        "--for", convert=parse_seconds, metavar="TIME", help="Stop after this time: 30, 30s, 500ms, 2m, 1h."
    )
    idle: float | None = range_option(
        "--idle-exit", convert=parse_seconds, metavar="TIME", help="Stop when nothing was received for this time."
    )
    reconnect: bool | None = _reconnect_option()
    spill_limit: int = option(
        "--spill-limit",
        default="4GB",
        convert=size,
        metavar="SIZE",
        help="How much to buffer on disk: of transactions that are not complete, and as much for a slow output.",
    )


class SnapshotOptions(Struct, frozen=True):
    """The tables to copy before the stream, and the number of sessions."""

    snapshot: bool = _snapshot(
        "--snapshot",
        default=False,
        help="First copy the published tables that the capture has no copy of, as they are where the stream begins.",
    )
    snapshot_tables: tuple[str, ...] = _snapshot(
        "--snapshot-table",
        default=(),
        metavar="GLOB",
        completion="tables",
        help="Copy the published tables of this name or pattern, also if they were copied before. Repeatable.",
    )
    jobs: int = _snapshot(
        "--snapshot-jobs", default=2, kind="positive number", metavar="N", help="How many sessions copy side by side."
    )

    @property
    def wanted(self) -> bool:
        """Whether tables are to be copied."""
        return self.snapshot or bool(self.snapshot_tables)


class ServiceOptions(Struct, frozen=True):
    """Monitoring of a command that runs for long. Times in seconds; `max_lag` in bytes or seconds."""

    metrics: Address | None = _service(
        "--metrics",
        convert=address,
        metavar="[HOST:]PORT",
        help="Serve metrics for Prometheus at /metrics, and health at /healthz; HOST is 127.0.0.1 by default. See"
        " pgtail-metrics(7).",
    )
    max_lag: MaxLag | None = _service(
        "--max-lag",
        convert=max_lag,
        metavar="SIZE|TIME",
        help="Say so in the log, the metrics and /healthz when more than this is not written yet: 500MB, 5m.",
    )
    log_format: str = _service(
        "--log-format",
        default="text",
        kind=("text", "json"),
        help="Messages on standard error as text, or as a JSON object a line.",
    )


class StreamOptions(Struct, frozen=True):
    """Options of `pgtail stream`."""

    connection: ConnectionOptions = family(ConnectionOptions)
    filter: FilterOptions = family(FilterOptions)
    request: Request = family(Request)
    end: EndOptions = family(EndOptions)
    snapshot: SnapshotOptions = family(
        SnapshotOptions, snapshot={"help": "First show the rows that are there."}, snapshot_tables=None, jobs=None
    )
    limit: int | None = limit_option()
    format: OutputOptions = family(OutputOptions)
    pager: bool = pager_option()
    service: ServiceOptions = family(ServiceOptions)
    verbosity: Verbosity = family(Verbosity)


class RecordOptions(Struct, frozen=True):
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
    dumps: tuple[str, ...] = input_option(
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
    wait: bool = _slot(
        "--wait",
        default=False,
        help="While another client reads the slot, wait; then continue the capture from where it is complete.",
    )
    snapshot: SnapshotOptions = family(SnapshotOptions)
    dry_run: bool = dry_run_option()
    end: EndOptions = family(EndOptions)
    dump: DumpOptions = family(DumpOptions)
    utc: bool = utc_option()
    service: ServiceOptions = family(ServiceOptions)
    verbosity: Verbosity = family(Verbosity)


class StatsOptions(Struct, frozen=True):
    """Options of `pgtail stats`."""

    request: Request = family(
        Request, slot=UNCONFIGURED, **dict.fromkeys(("create_slot", "ack", "yes", "start", "wanted", "encoding"))
    )
    connection: ConnectionOptions = family(ConnectionOptions)
    reconnect: bool | None = _reconnect_option()
    filter: FilterOptions = family(FilterOptions, context=None)
    watch: bool = range_option(
        "--watch", default=False, help="Show what is written now, in a slot or a temporary one, until q or Ctrl-C."
    )
    until: Point | Literal["now"] | None = _end_option(
        "--until",
        help="Only what was committed up to this time (10:30, 2026-11-22T10:00; local time without a zone) or log"
        " position; a slot is read up to now by default.",
    )
    seconds: float | None = range_option(
        "--for", convert=parse_seconds, metavar="TIME", help="Read a slot for this time: 30, 30s, 2m, 1h."
    )
    limit: int | None = limit_option()
    dump: DumpOptions = family(DumpOptions)
    resync: bool = resync_option()
    report: ReportOptions = family(
        ReportOptions,
        output={
            "kind": ("table", "json", "html"),
            "help": "A table for people, JSON for programs, or a page for a browser: one file, to be mailed.",
        },
        file={"help": "Write to FILE (*.gz: compressed) instead of standard output; --watch appends, uncompressed."},
    )
    hot_keys: bool = output_option(
        "--hot-keys", default=False, help="html: show the keys of the rows that were changed most often, too."
    )
    pager: bool = pager_option()
    verbosity: Verbosity = family(Verbosity)


class ExpectOptions(Struct, frozen=True):
    """Options of `pgtail expect`: `count` changes, in `timeout` seconds."""

    connection: ConnectionOptions = family(ConnectionOptions)
    request: Request = family(
        Request,
        slot=UNCONFIGURED,
        **dict.fromkeys(("fork", "create_slot", "ack", "yes", "start", "wanted", "encoding")),
    )
    reconnect: bool | None = _reconnect_option()
    filter: FilterOptions = family(FilterOptions, since=None)
    timeout: float = range_option(
        "--timeout", default="30s", convert=parse_seconds, metavar="TIME", help="How long to wait once ready."
    )
    count: int = range_option(
        "--count", default=1, kind="positive number", metavar="N", help="Wait for at least N changes."
    )
    format: OutputOptions = family(OutputOptions)
    verbosity: Verbosity = family(Verbosity)


class DoctorOptions(Struct, frozen=True):
    """Options of `pgtail doctor`."""

    connection: ConnectionOptions = family(ConnectionOptions)
    report: ReportOptions = family(
        ReportOptions, output={"help": "A table for people, or JSON for programs: a line per finding."}, file=None
    )
    verbosity: Verbosity = family(
        Verbosity, verbose=None, quiet={"help": "Show only problems, and the line that counts all findings."}
    )


class ListOptions(Struct, frozen=True):
    """Options of `pgtail slot list`."""

    connection: ConnectionOptions = family(ConnectionOptions)
    report: ReportOptions = family(
        ReportOptions, output={"help": "A table for people, or JSON for programs: a line per slot."}, file=None
    )
    watch: bool = output_option(
        "--watch", default=False, help="Repeat until q or Ctrl-C, with how fast the WAL that a slot retains grows."
    )
    verbosity: Verbosity = family(
        Verbosity, verbose={"help": "Show all that the server reports of each slot."}, quiet=None
    )


class CreateOptions(Struct, frozen=True):
    """Options of `pgtail slot create`."""

    connection: ConnectionOptions = family(ConnectionOptions)
    temporary: bool = _slot("--temporary", default=False, help="The slot exists until this command ends with Ctrl-C.")
    two_phase: bool = _slot("--two-phase", default=False, help="Decode PREPARE TRANSACTION (PostgreSQL 15 and later).")
    failover: bool = _slot(
        "--failover", default=False, help="Let standbys synchronize the slot (PostgreSQL 17 and later)."
    )


class ChangeOptions(Struct, frozen=True):
    """Options of the commands that ask before they change something."""

    connection: ConnectionOptions = family(ConnectionOptions)
    yes: bool = option("-y", "--yes", default=False, help="Do not ask.")
    dry_run: bool = dry_run_option()


def _with_statement_option() -> Any:
    return option(
        "--with-statement", default=False, help="Messages contain the text of the statement, which may have secrets."
    )


class InstallOptions(Struct, frozen=True):
    """Options of `pgtail ddl install`."""

    with_statement: bool = _with_statement_option()
    change: ChangeOptions = family(ChangeOptions)


class PrintOptions(Struct, frozen=True):
    """Options of `pgtail ddl print`."""

    with_statement: bool = _with_statement_option()
