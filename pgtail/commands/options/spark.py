"""The options of `pgtail spark`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from pgtail.commands.options.common import ReportOptions, Verbosity, dry_run_option, point, storage_option, utc_option
from pgtail.commands.options.server import ConnectionOptions, ServiceOptions
from pgtail.options import family, items, option, positive_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgtail.pgoutput.scalars import Point
    from pgtail.storage.options import StorageOptions


_PERCENT: Final = re.compile(r"\d+(?:\.\d+)?%?", re.ASCII)


def _master_option() -> Any:
    return option(
        "--master",
        shown_default="local[*]; under spark-submit its master",
        metavar="URL",
        help="Where Spark runs: this machine's cores, or a cluster (yarn, spark://host:7077, k8s://...).",
    )


def _conf_option() -> Any:
    return option(
        "--conf", default=(), metavar="NAME=VALUE", help="A Spark setting, such as spark.driver.memory=8g. Repeatable."
    )


def percent(text: str) -> float:
    """A part of a whole, with or without the sign. Raises ValueError."""
    number = float(text.removesuffix("%") if _PERCENT.fullmatch(text) else 0)
    if not 0 < number <= 100:
        raise ValueError(f"{text} is not a percentage above 0 and up to 100")
    return number


class SparkOptions(Struct, frozen=True):
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
    no_snapshot_changes: bool = option(
        "--no-snapshot-changes",
        default=False,
        help="Leave the rows of snapshots out of OUT/changes. The choice holds for the life of OUT.",
    )
    context: str | None = option(
        "--context",
        metavar="PREFIX",
        help="Who did it: OUT/changes has a column context with the logical message of this prefix that the transaction"
        " of a change sent before. The choice holds for the life of OUT.",
    )
    until: Point | None = option(
        "--until",
        convert=point,
        metavar="TIME|LSN",
        completion="points",
        help="Leave out what was committed later than this time (10:30, 2026-11-22T10:00; local time without a zone) or"
        " log position.",
    )
    utc: bool = utc_option()
    allow_gap: bool = option(
        "--allow-gap",
        default=False,
        help="Continue where a segment is missing, and record the gap: its changes are then wrong or absent.",
    )
    ddl: bool = option(
        "--ddl",
        default=False,
        help="The messages of pgtail ddl say what ALTER TABLE did with the rows. Every role may forge one. The choice"
        " holds for the life of the tables.",
    )
    retain: float = option(
        "--retain",
        default="1h",
        convert=positive_duration,
        metavar="TIME",
        help="Keep replaced files of state and history for this long: for readers, and for time travel.",
    )
    compact: bool = option("--compact", default=False, help="Afterwards merge small files into large ones.")
    watch: bool = option("--watch", default=False, help="Follow what is recorded, until q or Ctrl-C.")
    every: float = option(
        "--every",
        default="1m",
        convert=positive_duration,
        metavar="TIME",
        help="With --watch: how often to check for closed segments (30s, 1m, 2h).",
    )
    storage: StorageOptions = storage_option()
    master: str | None = _master_option()
    conf: tuple[str, ...] = _conf_option()
    service: ServiceOptions = family(
        ServiceOptions,
        max_lag={
            "metavar": "TIME",
            "help": "Say so in the log, the metrics and /healthz when everything in the captures was applied longer ago"
            " than this: 5m.",
        },
    )
    verbosity: Verbosity = family(Verbosity)


class VerifyOptions(Struct, frozen=True):
    """Options of `pgtail spark verify`. `sample` is a percentage; `timeout` is in seconds."""

    connection: ConnectionOptions = family(ConnectionOptions)
    publications: tuple[str, ...] = option(
        "-P",
        "--publication",
        default=(),
        metavar="NAME",
        completion="publications",
        help="The publication whose tables are compared; the default is what the captures name. Repeatable.",
    )
    tables: tuple[str, ...] = option(
        "-t",
        "--table",
        default=(),
        convert=items,
        metavar="GLOB,...",
        help="Compare only these tables: a glob on schema.table, or without a dot on the name alone. Repeatable.",
    )
    sample: float = option(
        "--sample",
        default="100",
        convert=percent,
        metavar="PERCENT",
        help="Compare only so many of the rows, chosen by the MD5 of their keys; tables without a key are compared"
        " whole.",
    )
    timeout: float = option(
        "--timeout",
        default="5m",
        convert=positive_duration,
        metavar="TIME",
        help="Give up if the captures are not complete up to the server's position after this time.",
    )
    report: ReportOptions = family(
        ReportOptions, output={"help": "A table for people, or JSON for programs: a line per table."}, file=None
    )
    storage: StorageOptions = storage_option()
    master: str | None = _master_option()
    conf: tuple[str, ...] = _conf_option()
    verbosity: Verbosity = family(Verbosity)


class VacuumOptions(Struct, frozen=True):
    """Options of `pgtail spark vacuum`."""

    delete: bool = option("--delete", default=False, help="Remove the files; without this they are only listed.")
    dry_run: bool = dry_run_option()
    storage: StorageOptions = storage_option()
    verbosity: Verbosity = family(Verbosity)


class CatalogOptions(Struct, frozen=True):
    """Options of `pgtail spark catalog`."""

    engine: str = option(
        "--for",
        default="spark",
        kind=("spark", "duckdb", "unity", "trino"),
        help="The program whose statements are printed.",
    )
    storage: StorageOptions = storage_option()
    verbosity: Verbosity = family(Verbosity)
