"""The options of each command as objects: `pgtail.cli` makes them, `pgtail.commands` reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal, TypeVar, get_type_hints

from pgtail.pgoutput.decoder import Assume
from pgtail.pgoutput.scalars import Point
from pgtail.storage.options import NO_OPTIONS, StorageOptions

T = TypeVar("T")

Position = int | Literal["now"] | None
"""A log position, or the server's current one; None where the option was not given."""
End = Point | Literal["now"] | None
"""A log position or a time of commit, or the server's current position; None where the option was not given."""


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """Where to connect, as in psql; None leaves it to libpq.

    `password`: ask for it before connecting; `no_password`: never.
    """

    dsn: str | None = None
    host: str | None = None
    port: str | None = None
    username: str | None = None
    dbname: str | None = None
    password: bool = False
    no_password: bool = False


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """A report for people, or JSON for programs. `output` None: a table on a terminal, JSON elsewhere."""

    output: str | None = None
    file: str | None = None
    color: str = "auto"
    colors: str | None = None


@dataclass(frozen=True, slots=True)
class FormatOptions(ReportOptions):
    """The output of changes, where it goes, and what belongs to a single format.

    `client`: what a client sent is shown; None: in tables. `max_width` (cells of a value) and `max_rows` (changes of a
    transaction) are None for no limit.
    """

    format_string: str | None = None
    columns: tuple[str, ...] = ()
    changed: bool = False
    numbers: Literal["exact", "string"] = "exact"
    fill_unchanged: bool = False
    transactions: bool = False
    schema_changes: bool = False
    client: bool | None = None
    show_aborted: bool = False
    show_uncommitted: bool = False
    max_width: int | None = 60
    max_rows: int | None = 20
    highlight: tuple[str, ...] = ()
    undo: bool = False
    wal2json: tuple[str, ...] = ()
    source_name: str | None = None
    kafka_schema: bool = False
    keys: bool = False


@dataclass(frozen=True, slots=True)
class FilterOptions:
    """Which changes are shown, and which columns are masked.

    `always_redacted` is the part of `redact` that a configuration adds to every command.
    """

    tables: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    xids: tuple[int, ...] = ()
    where: tuple[str, ...] = ()
    since: Point | None = None
    redact: tuple[str, ...] = ()
    redact_hash: bool = False
    redact_key_file: str | None = None
    always_redacted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """How dumps are read, and where from. `types` declares enums, as NAME=enum."""

    input_format: str | None = None
    encoding: str = "utf-8"
    assume: Assume = None
    types: tuple[str, ...] = ()
    storage: StorageOptions = NO_OPTIONS


@dataclass(frozen=True, slots=True)
class EndOptions:
    """When a stream ends, and what may happen before. Times are in seconds, sizes in bytes."""

    until_lsn: int | None = None
    until: End = None
    seconds: float | None = None
    idle: float | None = None
    reconnect: bool | None = None
    spill_limit: int = 1 << 30


@dataclass(frozen=True, slots=True)
class PublicationOptions:
    """What is published."""

    publications: tuple[str, ...] = ()
    allow_missing_publication: bool = False


@dataclass(frozen=True, slots=True)
class ContentOptions:
    """Options of pgoutput that stream and record share; None leaves the choice to the server's version."""

    binary: bool = False
    messages: bool | None = None
    origin: Literal["any", "none"] = "any"
    two_phase: bool = False


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """Options of `pgtail decode`. `settings` names the configuration in force, for -v."""

    format: FormatOptions = FormatOptions()
    filter: FilterOptions = FilterOptions()
    dump: DumpOptions = DumpOptions()
    until: Point | None = None
    limit: int | None = None
    strict: bool = False
    pager: bool = False
    resync: bool = False
    verify: bool = False
    verbose: int = 0
    settings: str | None = None


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Options of `pgtail stream`. `encoding` None: the server converts text to UTF-8."""

    connection: ConnectionOptions = ConnectionOptions()
    publication: PublicationOptions = PublicationOptions()
    content: ContentOptions = ContentOptions()
    end: EndOptions = EndOptions()
    format: FormatOptions = FormatOptions()
    filter: FilterOptions = FilterOptions()
    slot: str | None = None
    fork: str | None = None
    create_slot: bool = False
    ack: Literal["none", "commit", "exit"] | None = None
    yes: bool = False
    start: Position = None
    limit: int | None = None
    proto_version: int | None = None
    streaming: Literal["off", "on", "parallel"] | None = None
    encoding: str | None = None
    verbose: int = 0
    settings: str | None = None


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """Options of `pgtail record`. `segment_size` is in bytes, `segment_age` and `sync_interval` in seconds.

    `directory` may be a URI: then segments are written to `spool`, and uploaded.
    `server_encoding` is what text is read in as the server stores it; None: the server converts to UTF-8.
    """

    directory: str
    spool: str | None = None
    connection: ConnectionOptions = ConnectionOptions()
    publication: PublicationOptions = PublicationOptions()
    content: ContentOptions = ContentOptions()
    end: EndOptions = EndOptions()
    dump: DumpOptions = DumpOptions()
    slot: str | None = None
    segment_size: int = 64 << 20
    segment_age: float = 60.0
    sync_interval: float = 1.0
    compress: bool = True
    allow_gap: bool = False
    verify: bool = False
    server_encoding: str | None = None
    verbose: int = 0


@dataclass(frozen=True, slots=True)
class StatsOptions:
    """Options of `pgtail stats`; `interval` is in seconds."""

    report: ReportOptions = ReportOptions()
    connection: ConnectionOptions = ConnectionOptions()
    publication: PublicationOptions = PublicationOptions()
    filter: FilterOptions = FilterOptions()
    dump: DumpOptions = DumpOptions()
    slot: str | None = None
    fork: str | None = None
    reconnect: bool | None = None
    watch: bool = False
    interval: float = 2.0
    until: End = None
    seconds: float | None = None
    limit: int | None = None
    pager: bool = False
    resync: bool = False
    verify: bool = False
    verbose: int = 0
    settings: str | None = None


@dataclass(frozen=True, slots=True)
class InspectOptions:
    """Options of `pgtail inspect`. `max_bytes` of a field, None for no limit."""

    report: ReportOptions = ReportOptions()
    filter: FilterOptions = FilterOptions()
    dump: DumpOptions = DumpOptions()
    numbers: tuple[str, ...] = ()
    offsets: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    lsns: tuple[str, ...] = ()
    limit: int | None = None
    max_bytes: int | None = 48
    pager: bool = False
    resync: bool = False
    verify: bool = False


@dataclass(frozen=True, slots=True)
class ExpectOptions:
    """Options of `pgtail expect`: `count` changes, in `within` seconds."""

    connection: ConnectionOptions = ConnectionOptions()
    publication: PublicationOptions = PublicationOptions()
    format: FormatOptions = FormatOptions()
    filter: FilterOptions = FilterOptions()
    slot: str | None = None
    reconnect: bool | None = None
    within: float = 30.0
    count: int = 1
    verbose: int = 0
    settings: str | None = None


def from_parameters(cls: type[T], parameters: Mapping[str, Any]) -> T:
    """An object of one of these classes: each field, also of objects inside it, has the parameter of its name.

    A field without a parameter keeps its default.
    """
    assert is_dataclass(cls)
    kinds = get_type_hints(cls)
    values = {}
    for field in fields(cls):
        kind = kinds[field.name]
        if is_dataclass(kind) and isinstance(kind, type):
            values[field.name] = from_parameters(kind, parameters)
        elif field.name in parameters:
            values[field.name] = parameters[field.name]
    return cls(**values)
